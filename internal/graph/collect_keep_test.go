package graph

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"testing"
)

// mutate changes some values of a random graph.
func (g *randomGraph) mutate(roots []Root) {
	g.left = 300
	for range 1 + g.IntN(20) {
		for t, all := range g.seen {
			if len(all) > 0 && g.IntN(4) == 0 {
				v := pick(g.Rand, all...)
				if t.Kind() == reflect.Pointer && g.IntN(2) == 0 {
					v.SetZero()
				} else {
					g.fill(v, 4)
				}
			}
		}
	}
	if g.IntN(4) == 0 {
		v := reflect.ValueOf(pick(g.Rand, roots...).Ptr).Elem()
		v.SetZero()
		g.fill(v, 6)
	}
	if g.IntN(2) == 0 { // forget the values that were seen, so that they are freed
		g.seen = make(map[reflect.Type][]reflect.Value)
		for _, r := range roots {
			g.note(reflect.ValueOf(r.Ptr).Elem())
		}
		runtime.GC()
	}
}

// TestRemember_RandomGraphs changes random graphs repeatedly. Each image is
// restored and compared. Sometimes the program continues with the restored
// values.
func TestRemember_RandomGraphs(t *testing.T) {
	defer func(n int) { fewCells = n }(fewCells)
	saved, refused, restarts, same, still := 0, 0, 0, 0, 0
	for seed := range stressed(8, 5000) {
		fewCells = 1 + 15*int(seed%2)
		g := newRandomGraph(rand.New(rand.NewPCG(seed, 11)), 2000)
		var roots []Root
		var types []reflect.Type
		for i := range 1 + g.IntN(3) {
			types = append(types, g.typ(4))
			roots = append(roots, Root{fmt.Sprint("r", i), reflect.New(types[i]).Interface()})
		}
		for _, r := range roots {
			v := reflect.ValueOf(r.Ptr).Elem()
			g.note(v)
			g.fill(v, 8)
		}
		c := &Collector{Remember: true}
		for round := range 12 {
			name := fmt.Sprintf("seed %d, round %d", seed, round)
			img, err := c.Collect(roots, nil)
			if e := new(UnsupportedError); errors.As(err, &e) {
				refused++
				g.mutate(roots)
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			saved++
			f := store(t, img)
			again, err := c.Collect(roots, nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if compareText(f, store(t, again)) == "" {
				still++
			}
			c.Release()
			var into []Root
			for i, r := range roots {
				into = append(into, Root{r.Name, reflect.New(types[i]).Interface()})
			}
			loaded, err := f.image()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			b, err := Prepare(into, loaded, nil, Options{Limit: 1 << 30})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := fillTargets(b, loaded, f.data); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := isomorphicRoots(roots, into); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if g.IntN(4) == 0 { // a restart
				c.Close()
				c = &Collector{Remember: true}
				c.KeepPlaces(b, into)
				roots = into
				img, err := c.Collect(roots, nil)
				if err != nil {
					t.Fatalf("%s: restored: %v", name, err)
				}
				restarts++
				if diff := compareText(f, store(t, img)); diff == "" {
					same++
				} else if os.Getenv("SHOW") != "" {
					t.Logf("%s: after a restart: %s", name, diff)
				}
				g.seen = make(map[reflect.Type][]reflect.Value)
				for _, r := range roots {
					g.note(reflect.ValueOf(r.Ptr).Elem())
				}
			}
			g.mutate(roots)
		}
		c.Close()
	}
	if saved < 5*refused {
		t.Errorf("only %d states were saved, %d refused", saved, refused)
	}
	// Small numbers in interfaces share memory before a restart, but not after
	// it. How many are the same varies: about three of four.
	if same < restarts/4 {
		t.Errorf("after %d of %d restarts the image was another one", restarts-same, restarts)
	}
	// A value in an interface in a map may be identified by its place in a
	// copy. How many are the same varies: about four of five.
	if still < saved/2 {
		t.Errorf("%d of %d images were others when made again", saved-still, saved)
	}
	t.Log(saved, refused, restarts, same, still)
}

func fillTargets(b *Builder, img *Image, data [][]byte) error {
	for _, t := range b.Targets() {
		if err := t.Fill(0, data[t.Pool]); err != nil {
			return err
		}
	}
	return b.Finish()
}

func isomorphicRoots(a, b []Root) error {
	var want, got []any
	for i := range a {
		want, got = append(want, a[i].Ptr), append(got, b[i].Ptr)
	}
	return isomorphic(&want, &got)
}

// compareText describes how two files differ.
func compareText(a, b *file) string {
	if !bytes.Equal(a.meta, b.meta) {
		return fmt.Sprintf("other metadata\n%s\n%s\n%x\n%x", a.meta, b.meta, a.regions, b.regions)
	}
	if fmt.Sprint(a.regions) != fmt.Sprint(b.regions) {
		return fmt.Sprint("other regions", a.regions, b.regions)
	}
	for i := range a.data {
		if !bytes.Equal(a.data[i], b.data[i]) {
			return fmt.Sprintf("pool %d differs", i)
		}
	}
	return ""
}

type chained struct {
	next *chained
	v    int64
	name string
}

// bytesOf returns the bytes of the image's pools with pointers, by type.
func bytesOf(t *testing.T, img *Image) map[string][]byte {
	f := store(t, img)
	all := make(map[string][]byte)
	for i, p := range img.Pools {
		all[p.Elem] = append(all[p.Elem], f.data[i]...)
	}
	return all
}

// changed counts the bytes of b that differ from a.
func changed(a, b []byte) (n int) {
	for i := range b {
		if i >= len(a) || a[i] != b[i] {
			n++
		}
	}
	return n
}

// TestRemember_NodeInFront adds a node in front of a list: the nodes that were
// there keep their places in the image.
func TestRemember_NodeInFront(t *testing.T) {
	var list *chained
	for i := range 5000 {
		list = &chained{list, int64(i) + 1<<32, fmt.Sprint("node ", i)}
	}
	roots := []Root{{"list", &list}}
	c := &Collector{Remember: true}
	defer c.Close()
	collect := func() map[string][]byte {
		img, err := c.Collect(roots, nil)
		if err != nil {
			t.Fatal(err)
		}
		return bytesOf(t, img)
	}
	find := func(m map[string][]byte) []byte {
		for name, b := range m {
			if name == typeName(reflect.TypeFor[chained]()) {
				return b
			}
		}
		t.Fatal("no pool of nodes")
		return nil
	}
	before := find(collect())
	list = &chained{list, -1, "in front"}
	after := find(collect())
	if size := len(before) / 5000; len(after) != len(before)+size || changed(before, after) > size {
		t.Errorf("of %d bytes %d changed into %d", len(before), changed(before, after), len(after))
	}
	// New objects take the places of freed ones.
	for n := list.next; n != nil && n.next != nil; n = n.next {
		n.next = n.next.next
		for range 9 {
			if n.next != nil {
				n = n.next
			}
		}
	}
	runtime.GC()
	for i := range 300 {
		list = &chained{list, int64(i) - 1000, "again"}
	}
	last := find(collect())
	if len(last) != len(after) {
		t.Errorf("%d bytes for fewer nodes than in %d", len(last), len(after))
	}
	// When few are left, the others get new places next to each other.
	for n, i := list, 0; n != nil; n, i = n.next, i+1 {
		if i == 1000 {
			n.next = nil
		}
	}
	collect()
	if few := find(collect()); len(few) > len(after)/4 {
		t.Errorf("%d bytes for 1000 nodes", len(few))
	}
}

// TestBoxes_OneAddress saves zero values in interfaces. Go may store them at
// one address whatever their types are.
func TestBoxes_OneAddress(t *testing.T) {
	type twin struct{ a, b int64 }
	for _, remember := range []bool{false, true} {
		values := []any{[2]int64{}, [3]int64{}, twin{}, int64(0), [1][2]int64{}, "", [2]string{}, [4]string{}}
		c := &Collector{Remember: remember}
		for range 3 {
			img, err := c.Collect([]Root{{"v", &values}}, &Env{Types: []reflect.Type{reflect.TypeFor[twin]()}})
			if err != nil {
				t.Fatal(err)
			}
			f := store(t, img)
			var got []any
			if err := f.load([]Root{{"v", &got}}, &Env{Types: []reflect.Type{reflect.TypeFor[twin]()}}); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, values) {
				t.Fatalf("got %#v", got)
			}
		}
		c.Close()
	}
}

// TestNextSlots has regions with more slots than an offset can count.
func TestNextSlots(t *testing.T) {
	defer func(n uint64) { maxOffset = n }(maxOffset)
	maxOffset = 8
	type state struct {
		all   []int64
		in    []*int64
		parts [][]int64
		text  string
		cuts  []string
	}
	s := &state{all: make([]int64, 100), text: "a text that has more bytes than eight"}
	for i := range s.all {
		s.all[i] = int64(i) + 1
		s.in = append(s.in, &s.all[(i*37)%100])
		s.parts = append(s.parts, s.all[i:min(i+3, 100)])
	}
	for i := range s.text {
		s.cuts = append(s.cuts, s.text[i:])
	}
	for _, remember := range []bool{false, true} {
		c := &Collector{Remember: remember}
		for range 3 {
			img, err := c.Collect([]Root{{"s", s}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			f := store(t, img)
			got := new(state)
			if err := f.load([]Root{{"s", got}}, nil); err != nil {
				t.Fatal(err)
			}
			if err := isomorphic(s, got); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
}
