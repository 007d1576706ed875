//go:build linux

package devices

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// randomProgram writes functions with random launches over arrays, views and
// lists of them. Kernels overwrite all that they are given as Out.
type randomProgram struct {
	*rand.Rand
	b     strings.Builder
	depth int
	only  bool // launches only, so that a dry run is possible
}

const randomHead = `package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/cairnrun/cairn/device"
)

type array = *device.Array[uint32]

type part struct{ x, y array }

// work is arrays of 24 elements; some are views of others.
type work struct {
	dev        []*device.Device
	a, b, c, d array
	view, none array
	parts      []part
	own        []*part
}

var put = device.NewKernel("", "put", func(w *device.Work) {
	x, c := device.Slice[uint32](w, 0), device.Value[uint32](w, 1)
	for i := range x {
		x[i] = c + uint32(i)*7
	}
})

var move = device.NewKernel("", "move", func(w *device.Work) {
	x, y, c := device.Slice[uint32](w, 0), device.Slice[uint32](w, 1), device.Value[uint32](w, 2)
	for i := range y {
		y[i] = x[i%len(x)]*3 + c
	}
})

var add = device.NewKernel("", "add", func(w *device.Work) {
	x, y, c := device.Slice[uint32](w, 0), device.Slice[uint32](w, 1), device.Value[uint32](w, 2)
	for i := range y {
		y[i] += x[i%len(x)]*5 + c
	}
})

func (w *work) put(x array, c int) error {
	return w.dev[c%len(w.dev)].Launch(put, device.Size{1}, device.Out(x), uint32(c))
}

func (w *work) move(x, y array, c int) error {
	return w.dev[c%len(w.dev)].Launch(move, device.Size{1}, device.In(x), device.Out(y), uint32(c))
}

func (w *work) add(x, y array, c int) error {
	return w.dev[c%len(w.dev)].Launch(add, device.Size{1}, device.In(x), device.InOut(y), uint32(c))
}

// either overwrites y, or adds to it.
func (w *work) either(first bool, x, y array, c int) error {
	to, k := device.InOut(y), add
	if first {
		to, k = device.Out(y), move
	}
	return w.dev[c%len(w.dev)].Launch(k, device.Size{1}, device.In(x), to, uint32(c))
}

func sum(v []uint32) uint32 {
	n := uint32(0)
	for i, e := range v {
		n = n*31 + e + uint32(i)
	}
	return n
}

func newWork(devs []*device.Device) *work {
	w := &work{dev: devs, a: device.New[uint32](24), b: device.New[uint32](24), c: device.New[uint32](24), d: device.New[uint32](24)}
	w.view = w.d.Rows(4, 12)
	one, two := device.New[uint32](24), device.New[uint32](24)
	for i := range 3 {
		w.parts = append(w.parts, part{one.Rows(8*i, 8*i+8), two.Rows(8*i, 8*i+8)})
		w.own = append(w.own, &part{device.New[uint32](8), device.New[uint32](8)})
	}
	return w
}

func main() {
	n, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	devs, err := device.Devices()
	if err != nil {
		panic(err)
	}
	fmt.Fprintln(os.Stderr, "on", devs)
	if err := runs[n](newWork(devs)); err != nil {
		panic(err)
	}
}
`

func (p *randomProgram) printf(format string, args ...any) { fmt.Fprintf(&p.b, format, args...) }

func (p *randomProgram) pick(list ...string) string { return list[p.IntN(len(list))] }

// array returns an array; in are those of the loops around it.
func (p *randomProgram) array(in []string) string {
	list := append([]string{"w.a", "w.b", "w.c", "w.d", "w.view", "w.a.Rows(8, 16)", "w.parts[i%3].x", "w.own[i%3].y"}, in...)
	return p.pick(append(list, in...)...)
}

// stmt writes a statement; in are the arrays of the loops around it.
func (p *randomProgram) stmt(in []string) {
	p.depth++
	defer func() { p.depth-- }()
	c := p.IntN(100)
	check := func(call string) {
		if !p.only && p.IntN(20) == 0 {
			p.printf("_ = %s\n", call)
		} else {
			p.printf("if err := %s; err != nil { return err }\n", call)
		}
	}
	switch n := p.IntN(16); {
	case n < 4:
		check(fmt.Sprintf("w.put(%s, i+%d)", p.array(in), c))
	case n < 7:
		x, y := p.array(in), p.array(in)
		if overlap(x, y) {
			y = "w.c"
			if x == y {
				x = "w.b"
			}
		}
		check(fmt.Sprintf("w.%s(%s, %s, i+%d)", p.pick("move", "move", "add"), x, y, c))
	case n == 7:
		check(fmt.Sprintf("w.either(i%%%d == 0, w.b, w.c, i+%d)", 1+p.IntN(3), c))
	case n == 8 && !p.only:
		p.printf("if v, err := %s.Read(); err != nil { return err } else { total = total*17 + sum(v) }\n", p.array(in))
	case n < 11 && p.depth < 4:
		p.printf("if i%%%d == %d {\n", 2+p.IntN(2), p.IntN(2))
		p.stmts(in)
		if p.IntN(2) == 0 {
			p.printf("} else {\n")
			p.stmts(in)
		}
		p.printf("}\n")
	case n < 15 && p.depth < 4:
		v := fmt.Sprintf("q%d", p.depth)
		p.printf("for k%d, %s := range %s {\n_, _ = k%[1]d, %[2]s\n", p.depth, v, p.pick("w.parts", "w.own"))
		switch p.IntN(5) {
		case 0:
			p.printf("if k%d == i%%4 { %s }\n", p.depth, p.pick("break", "continue"))
		case 1:
			check(fmt.Sprintf("w.either(k%d == 0, w.a, %s.x, i+%d)", p.depth, v, c))
		}
		p.stmts(append(in, v+".x", v+".y"))
		p.printf("}\n")
	case p.depth >= 4:
		check(fmt.Sprintf("w.move(w.a, w.b, i+%d)", c))
	default:
		p.printf("if w.none == nil {\n")
		p.stmts(in)
		p.printf("}\n")
	}
}

// overlap reports whether two arrays may share memory.
func overlap(x, y string) bool {
	of := func(s string) string {
		switch {
		case strings.HasPrefix(s, "w.a"):
			return "a"
		case s == "w.d" || s == "w.view":
			return "d"
		case strings.HasSuffix(s, ".x"):
			return "x"
		case strings.HasSuffix(s, ".y"):
			return "y"
		}
		return s
	}
	return of(x) == of(y)
}

func (p *randomProgram) stmts(in []string) {
	for range 1 + p.IntN(4) {
		p.stmt(in)
	}
}

// function writes function n: a loop, and what it computed.
func (p *randomProgram) function(n int) {
	dry := p.IntN(2) == 0
	if dry {
		p.only = true
		p.printf("\nfunc (w *work) step%d(i int) error {\n", n)
		p.stmts(nil)
		p.stmts(nil)
		p.printf("return nil\n}\n")
		p.only = false
	}
	p.printf("\nfunc run%d(w *work) error {\ntotal := uint32(0)\n", n)
	p.printf("//cairn:point\nfor i := range 6 {\n")
	if dry {
		p.printf("if err := w.step%d(i); err != nil { return err }\n", n)
	}
	for _, x := range []string{"w.a", "w.b", "w.c", "w.d"} { // so that not all arrays are needed
		if p.IntN(2) == 0 {
			p.printf("if err := w.put(%s, i); err != nil { return err }\n", x)
		}
	}
	if p.IntN(2) == 0 {
		p.printf("for _, q := range %s { if err := w.put(q.%s, i); err != nil { return err } }\n", p.pick("w.parts", "w.own"), p.pick("x", "y"))
	}
	p.stmts(nil)
	p.stmts(nil)
	p.printf("fmt.Println(i, total)\n}\n")
	for _, x := range []string{"w.a", "w.b", "w.c", "w.d", "w.parts[0].x", "w.own[2].y"} {
		if p.IntN(5) == 0 {
			p.printf("if v, err := %s.Read(); err != nil { return err } else { fmt.Println(sum(v)) }\n", x)
		}
	}
	p.printf("return nil\n}\n")
}

// TestRandom_ArraysLeftOut kills random programs at their points. The arrays
// that their checkpoints leave out must not matter.
func TestRandom_ArraysLeftOut(t *testing.T) {
	t.Parallel()
	functions, programs := 6, 1
	if stress {
		functions, programs = 40, 8
	}
	for n := range programs {
		seed := uint64(n + 1)
		if stress {
			seed = rand.Uint64()
		}
		p := &randomProgram{Rand: rand.New(rand.NewPCG(seed, 0))}
		p.b.WriteString(randomHead)
		p.printf("\nvar runs = []func(*work) error{")
		for i := range functions {
			p.printf("run%d, ", i)
		}
		p.printf("}\n")
		for i := range functions {
			p.function(i)
		}
		name := fmt.Sprintf("random%d", n)
		dir := filepath.Join(source(t), name)
		if err := os.MkdirAll(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(p.b.String()), 0o666); err != nil {
			t.Fatal(err)
		}
		plain, made := build(t, name)
		text, err := command(t, source(t), cairn(t), "explain", "--json", "./"+name).Output()
		if err != nil {
			t.Fatalf("cairn explain: %v", err)
		}
		var told struct {
			Devices struct {
				LeftOut []struct {
					Line  int
					Array string
				}
			}
		}
		if err := json.Unmarshal(text, &told); err != nil {
			t.Fatal(err)
		}
		left := map[int]bool{}
		for _, x := range told.Devices.LeftOut {
			if x.Array != "" {
				left[x.Line] = true
			}
		}
		if len(left) < functions/4 {
			t.Errorf("seed %d: only %d of %d functions leave something out", seed, len(left), functions)
		}
		for i := range functions {
			for k, devices := range [][]string{{"host,discrete"}, {"discrete,discrete", "host,host"}} {
				if k > 0 && !stress {
					break
				}
				arg := fmt.Sprint(i)
				want := plainly(t, plain, devices[0], arg)
				j := restarts{devices, "each"}
				got, kills, _ := j.run(t, made, arg)
				if got != want || kills < 5 {
					t.Errorf("seed %d, function %d on %v, killed %d times: it prints\n%swant\n%s", seed, i, devices, kills, got, want)
				}
			}
		}
	}
}
