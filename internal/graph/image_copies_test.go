package graph

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"
)

// copier makes an image by Copies.
type copier struct {
	Copies
	t *testing.T
	c Collector
}

func beginCopies(t *testing.T, roots ...Root) *copier {
	t.Helper()
	k := &copier{t: t, c: Collector{Remember: true}}
	t.Cleanup(k.c.Close)
	if err := k.Begin(roots); err != nil {
		t.Fatal(err)
	}
	return k
}

func (k *copier) add(names ...string) {
	k.t.Helper()
	if err := k.Add(names, nil); err != nil {
		k.t.Fatal(err)
	}
}

// load restores the image into variables.
func (k *copier) load(into ...Root) {
	k.t.Helper()
	img, err := k.Image(&k.c, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	if err := store(k.t, img).load(into, nil); err != nil {
		k.t.Fatal(err)
	}
}

// refused returns the error for variables that share memory.
func refused(t *testing.T, err error, name, earlier, path string) {
	t.Helper()
	var s *SharedError
	if !errors.As(err, &s) {
		t.Fatalf("no SharedError: %v", err)
	}
	if s.Name != name || s.Earlier != earlier || s.Path != path {
		t.Errorf("%q shares memory with %q through %s; want %q, %q, %s", s.Name, s.Earlier, s.Path, name, earlier, path)
	}
}

// TestCopies_ValuesAtAdd restores each variable as it was when it was added,
// and the others as they were in the end.
func TestCopies_ValuesAtAdd(t *testing.T) {
	type node struct {
		v    int
		next *node
	}
	a, b, c := []float64{1, 2, 3}, map[string][]int{"x": {1}}, &node{1, nil}
	c.next = c
	d, e := any("d"), []any{1, "e", 2.5, &node{9, nil}}
	k := beginCopies(t, Root{"a", &a}, Root{"b", &b}, Root{"c", &c}, Root{"d", &d}, Root{"e", &e})
	k.add("c")
	c.v, c.next = -1, nil
	k.add("a")
	a[0] = -1
	a = append(a, -1)
	k.add("e")
	e[0], e[3].(*node).v = "-", -1
	b["y"], d = []int{2}, 4
	var a2 []float64
	var b2 map[string][]int
	var c2 *node
	var d2 any
	var e2 []any
	k.load(Root{"a", &a2}, Root{"b", &b2}, Root{"c", &c2}, Root{"d", &d2}, Root{"e", &e2})
	if !slices.Equal(a2, []float64{1, 2, 3}) || len(b2) != 2 || c2.v != 1 || c2.next != c2 || d2 != 4 {
		t.Error(a2, b2, c2, d2)
	}
	if len(e2) != 4 || e2[0] != 1 || e2[1] != "e" || e2[2] != 2.5 || e2[3].(*node).v != 9 {
		t.Error(e2)
	}
}

// TestCopies_SamePoolsInAnyOrder makes the same pools in whatever order
// variables are added.
func TestCopies_SamePoolsInAnyOrder(t *testing.T) {
	a, b, c := []float64{1, 2}, map[string]*int{"b": new(int)}, [3]int32{1, 2, 3}
	roots := []Root{{"a", &a}, {"b", &b}, {"c", &c}}
	pools := func(img *Image) (out []string) {
		f := store(t, img)
		for i, p := range img.Pools {
			text := fmt.Sprint(p.Var, p.Owner, p.Nth, p.Elem, p.Count, p.Shape, p.Text)
			if !p.Pointers {
				text += fmt.Sprint(f.data[i])
			}
			out = append(out, text)
		}
		slices.Sort(out)
		return out
	}
	whole, err := Collect(roots, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := pools(whole)
	for _, order := range [][]string{{}, {"c"}, {"c", "a"}, {"b", "a", "c"}, {"a", "b", "c"}} {
		k := beginCopies(t, roots...)
		for _, name := range order {
			k.add(name)
		}
		img, err := k.Image(&Collector{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := pools(img); !slices.Equal(got, want) {
			t.Errorf("%v: the pools are\n%q, want\n%q", order, got, want)
		}
	}
}

// TestCopies_Aliases keeps what the variables of one Add share, and refuses
// what variables of several share.
func TestCopies_Aliases(t *testing.T) {
	buf := []float64{0, 1, 2, 3, 4, 5}
	type sim struct {
		name string
		row  []float64
	}
	a, b, s := buf[:3], buf[2:5], &sim{"s", buf[4:]}
	n, p := 7, new(*int)
	*p = &n
	roots := []Root{{"a", &a}, {"b", &b}, {"s", &s}, {"n", &n}, {"p", &p}}

	k := beginCopies(t, roots...)
	k.add("s", "a", "b")
	a[0] = -1
	k.add("p", "n")
	n = -1
	var a2, b2 []float64
	var s2 *sim
	n2, p2 := 0, new(*int)
	k.load(Root{"a", &a2}, Root{"b", &b2}, Root{"s", &s2}, Root{"n", &n2}, Root{"p", &p2})
	b2[0], n2 = 20, 8
	if a2[0] != 0 || a2[2] != 20 || s2.row[0] != 4 || **p2 != 8 {
		t.Errorf("aliasing lost: %v %v %v %d", a2, b2, s2.row, **p2)
	}
	if a2[:6][4] = 40; s2.row[0] != 40 {
		t.Error("aliasing lost")
	}

	k = beginCopies(t, roots...)
	k.add("a")
	refused(t, k.Add([]string{"b"}, nil), "b", "a", "b")
	refused(t, k.Add([]string{"s", "n"}, nil), "s", "a", "s.row")
	k.add("n") // what was refused has not been added
	_, err := k.Image(&k.c, nil)
	refused(t, err, "b", "a", "b")

	k = beginCopies(t, roots...)
	k.add("a", "b", "s", "p")
	_, err = k.Image(&k.c, nil)
	refused(t, err, "n", "p", "n")
	k = beginCopies(t, roots...)
	k.add("a", "b", "s", "n")
	_, err = k.Image(&k.c, nil)
	refused(t, err, "p", "n", "*p")
}

// TestCopies_SharedMapRefused refuses a map and a small object of many that two
// variables have.
func TestCopies_SharedMapRefused(t *testing.T) {
	m := map[int]int{1: 2}
	a, b := m, []map[int]int{m}
	k := beginCopies(t, Root{"a", &a}, Root{"b", &b})
	k.add("a")
	refused(t, k.Add([]string{"b"}, nil), "b", "a", "b[0]")

	type cell struct{ v int }
	cells := make([]*cell, 5000)
	for i := range cells {
		cells[i] = new(cell)
	}
	one := cells[4321]
	k = beginCopies(t, Root{"one", &one}, Root{"cells", &cells})
	k.add("one")
	_, err := k.Image(&k.c, nil) // most of these are cells: see collect_cells.go
	refused(t, err, "cells", "one", "cells[4321]")
	k = beginCopies(t, Root{"one", &one}, Root{"cells", &cells})
	k.add("cells")
	_, err = k.Image(&k.c, nil)
	refused(t, err, "one", "cells", "one")
}

// TestCopies_Immutable accepts that variables share what never changes.
func TestCopies_Immutable(t *testing.T) {
	text := fmt.Sprint("a text of ", os.Getpid())
	type record struct {
		text string
		box  any
		at   time.Time
		err  error
		none *struct{}
	}
	box := any([3]int{1, 2, os.Getpid()})
	zone := time.FixedZone("Z", 3600)
	one := record{text, box, time.Unix(1, 0).In(zone), io.EOF, &struct{}{}}
	a, b, c, d := one, one, one, []error{io.EOF, io.ErrUnexpectedEOF}
	k := beginCopies(t, Root{"a", &a}, Root{"b", &b}, Root{"c", &c}, Root{"d", &d})
	k.add("b")
	k.add("d")
	k.add("a")
	var a2, b2, c2 record
	var d2 []error
	k.load(Root{"a", &a2}, Root{"b", &b2}, Root{"c", &c2}, Root{"d", &d2})
	for _, r := range []record{a2, b2, c2} {
		if r.text != text || r.box != box || !r.at.Equal(one.at) || r.err != io.EOF || r.none == nil {
			t.Errorf("%+v", r)
		}
	}
	if d2[0] != io.EOF || d2[1] != io.ErrUnexpectedEOF {
		t.Error(d2)
	}
}

// TestCopies_FreedMemory adds a variable whose memory the program gives up.
// What gets that memory then shares nothing.
func TestCopies_FreedMemory(t *testing.T) {
	type object struct{ v [5]int }
	make100 := func() []*object {
		all := make([]*object, 100)
		for i := range all {
			all[i] = new(object)
		}
		return all
	}
	a, b := make100(), []*object(nil)
	k := beginCopies(t, Root{"a", &a}, Root{"b", &b})
	k.add("a")
	a = nil
	for range 10 {
		runtime.GC()
		b = append(b, make100()...)
	}
	var a2, b2 []*object
	k.load(Root{"a", &a2}, Root{"b", &b2})
	if len(a2) != 100 || len(b2) != 1000 {
		t.Error(len(a2), len(b2))
	}
}

type handle struct{ n int }

func (h *handle) CairnState(c *Coder) error {
	c.Run()
	Field(c, "n", &h.n)
	return c.Err()
}

// TestCopies_Refused names variables that Add cannot copy, and why.
func TestCopies_Refused(t *testing.T) {
	env := &Env{FileID: func(*os.File) (int, bool) { return 3, true }}
	f, a, h := []*os.File{os.Stdout}, 1, handle{1}
	log := os.Stderr
	k := beginCopies(t, Root{"f", &f}, Root{"a", &a}, Root{"h", &h}, Root{"log", &log})
	want(t, k.Add([]string{"f"}, env), "f[0] (*os.File) cannot be saved: Commit saves the position of the file, which may not fit what is buffered for it now: do not add the variable, Commit copies it")
	want(t, k.Add([]string{"h"}, env), "h: CairnState of github.com/cairnrun/cairn/internal/graph.handle: it belongs to the communication of the ranks, which Commit saves: do not add the variable, Commit copies it")
	want(t, k.Add([]string{"x"}, env), `no variable "x" is protected`)
	want(t, k.Add([]string{"a", "a"}, env), `variable "a" was added already`)
	k.add("a")
	want(t, k.Add([]string{"a"}, env), `variable "a" was added already`)
	if err := k.Add([]string{"log"}, env); err != nil {
		t.Error(err)
	}
	if _, err := k.Image(&k.c, env); err != nil {
		t.Error(err)
	}
}

// TestCopies_RandomGraphs adds random variables in random groups. If they share
// memory, that is refused; otherwise the image is that of the whole, and what
// the program does after an Add does not change it.
func TestCopies_RandomGraphs(t *testing.T) {
	shared, alone := 0, 0
	for seed := range stressed(400, 10_000) {
		r := rand.New(rand.NewPCG(seed, 3))
		together := newRandomGraph(r, 2000)
		var roots, into, clone []Root
		for i := range 2 + r.IntN(4) {
			g := together
			if seed%2 == 0 {
				g = newRandomGraph(r, 500) // they share nothing
			}
			v := reflect.New(g.typ(4))
			g.note(v.Elem())
			g.fill(v.Elem(), 6)
			name := fmt.Sprint("r", i)
			roots = append(roots, Root{name, v.Interface()})
			into = append(into, Root{name, reflect.New(v.Type().Elem()).Interface()})
			clone = append(clone, Root{name, reflect.New(v.Type().Elem()).Interface()})
		}
		whole, err := Collect(roots, nil)
		if err != nil {
			continue
		}
		if err := store(t, whole).load(clone, nil); err != nil {
			t.Fatal(err)
		}
		var k Copies
		if err := k.Begin(roots); err != nil {
			t.Fatal(err)
		}
		names := make([]string, len(roots))
		for i, r := range roots {
			names[i] = r.Name
		}
		r.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		for rest := names[:r.IntN(len(names)+1)]; len(rest) > 0 && err == nil; {
			n := 1 + r.IntN(len(rest))
			err = k.Add(rest[:n], nil)
			for _, name := range rest[:n] {
				if seed%2 == 0 {
					spoil(roots[k.index[name]])
				}
			}
			rest = rest[n:]
		}
		c := Collector{Remember: seed%4 < 2}
		var img *Image
		if err == nil {
			img, err = k.Image(&c, nil)
		}
		var f *file
		if err == nil {
			f = store(t, img)
		}
		c.Close()
		k.c.Close()
		if s := new(SharedError); errors.As(err, &s) && seed%2 == 1 {
			shared++
			continue
		}
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		alone++
		if err := f.load(into, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := isomorphicRoots(clone, into); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	if shared < 20 || alone < 20 {
		t.Errorf("%d states shared memory, %d did not", shared, alone)
	}
	t.Log(shared, alone)
}

// spoil changes all numbers that a variable leads to directly, and the
// variable.
func spoil(r Root) {
	v := reflect.ValueOf(r.Ptr).Elem()
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			v.Index(i).SetZero()
		}
	}
	if v.Kind() == reflect.Map {
		v.Clear()
	}
	v.SetZero()
}
