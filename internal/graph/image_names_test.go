package graph

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"slices"
	"strings"
	"testing"
)

type namedModel struct {
	grid   [][]float64
	ragged [][]float64
	fixed  *[6]int32
	up     *namedModel
	any    any
}

type frameOfRun struct {
	At      int `cairn:"main.run"`
	lattice []float64
	Own     []float64   `cairn:"x"`
	x1      []float64   `cairn:"x"`
	r1      []float64   `cairn:"-"`
	env     *namedModel `cairn:"."`
	m       *namedModel
	n       int
}

type frameOfWalk struct {
	At  int `cairn:"main.walk"`
	buf []float64
}

type namedFrames struct{ Frames []any }

func (f *namedFrames) AllFrames() iter.Seq[any] { return slices.Values(f.Frames) }

// TestNames_OfArrays checks that arrays which variables of functions lead to
// get names, and that these say where the elements are.
func TestNames_OfArrays(t *testing.T) {
	defer func(was bool) { wholeProgram = was }(wholeProgram)
	wholeProgram = true

	next := 0.0
	array := func(n int) []float64 {
		a := make([]float64, n)
		for i := range a {
			next++
			a[i] = next
		}
		return a
	}
	m := &namedModel{fixed: &[6]int32{1, 2, 3}, any: &[]float64{7, 8}}
	m.up = m // a cycle
	for range 3 {
		m.grid = append(m.grid, array(4))
	}
	m.ragged = [][]float64{array(2), array(3)}
	lattice := array(100)
	run := &frameOfRun{lattice: lattice, Own: array(5), x1: array(3), r1: array(6), m: m, env: &namedModel{grid: [][]float64{array(2)}}}
	root := &namedFrames{Frames: []any{run, &frameOfWalk{buf: lattice[10:20]}, &frameOfWalk{buf: array(3)}}}
	img, err := Collect([]Root{{"frames", root}, {"world", &namedModel{fixed: &[6]int32{4}}}}, nil)
	if err != nil {
		t.Fatal(err)
	}

	want := map[string]string{
		"main.run.lattice": fmt.Sprint(lattice), "main.run.x": fmt.Sprint(run.Own), "main.run.x#2": fmt.Sprint(run.x1),
		"main.run.grid": fmt.Sprint(run.env.grid[0]), "main.run.m.grid": fmt.Sprint(slices.Concat(m.grid...)),
		"main.run.m.fixed": "[1 2 3 0 0 0]", "main.run.m.any": "[7 8]",
		"main.walk[0].buf": fmt.Sprint(lattice[10:20]), "main.walk[1].buf": fmt.Sprint(root.Frames[2].(*frameOfWalk).buf),
		"world.fixed": "[4 0 0 0 0 0]",
	}
	shapes := map[string]string{"main.run.m.grid": "[3 4]", "main.run.grid": "[1 2]", "main.run.m.fixed": "[6]"}
	for _, n := range img.Names {
		if got := namedValues(t, img, n); got != want[n.Name] {
			t.Errorf("%s: %s, want %q", n.Name, got, want[n.Name])
		}
		if s := shapes[n.Name]; s != "" && fmt.Sprint(n.Dims) != s {
			t.Errorf("%s: shape %v, want %s", n.Name, n.Dims, s)
		}
		delete(want, n.Name)
	}
	if len(want) > 0 {
		t.Errorf("no names for %v", want)
	}
}

// namedValues returns the elements of a name.
func namedValues(t *testing.T, img *Image, n Name) string {
	t.Helper()
	p := img.Pools[n.Pool]
	bytes := slices.Concat(p.Pieces...)[n.Start*uint64(p.Form.Size):]
	var out []string
	for range product(n.Dims) {
		switch p.Form.Size {
		case 4:
			out = append(out, fmt.Sprint(binary.NativeEndian.Uint32(bytes)))
		case 8:
			out = append(out, fmt.Sprint(math.Float64frombits(binary.NativeEndian.Uint64(bytes))))
		default:
			t.Fatalf("%s is in a pool of %s", n.Name, p.Elem)
		}
		bytes = bytes[p.Form.Size:]
	}
	return "[" + strings.Join(out, " ") + "]"
}

// TestNames_DeepRecursion checks that 100,000 frames do not get 100,000 names.
func TestNames_DeepRecursion(t *testing.T) {
	defer func(was bool) { wholeProgram = was }(wholeProgram)
	wholeProgram = true
	root := &namedFrames{}
	for range 100_000 {
		root.Frames = append(root.Frames, &frameOfWalk{buf: make([]float64, 2)})
	}
	img, err := Collect([]Root{{"frames", root}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(img.Names); n == 0 || n > maxNames {
		t.Errorf("%d names", n)
	}
}
