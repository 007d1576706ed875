package golang

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
)

// overFunction is a program with its work in the body of a loop over a
// function. WORKER stands for a second loop of the same kind as the chosen one.
const overFunction = `package main

import "fmt"

type lattice struct {
	cells []float64
}

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(i) {
				return
			}
		}
	}
}

func relax(g *lattice, x float64) float64 {
	for k := range g.cells {
		for j := range 30 {
			for m := range 5 {
				g.cells[k] = g.cells[k]*0.5 + x*float64(j) + float64(m)
			}
		}
	}
	return g.cells[0]
}

func main() {
	g := &lattice{make([]float64, 2000)}
	sum := 0.0
	for i := range count(150) {
		for r := range 100 {
			for q := range 5 {
				sum += relax(g, float64(i+r+q))
			}
		}
	}
	WORKER
	for i := range 150 {
		for r := range 100 {
			for q := range 5 {
				sum += relax(g, float64(i+r+q))
			}
		}
	}
	fmt.Println(sum)
}
`

// explainText returns what explain prints of a program, its JSON form, and what
// build makes.
func explainText(t *testing.T, text string) (string, *explain.Saving, *instrument.Result) {
	t.Helper()
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	e := explain.Explain(p, explain.Options{})
	s := instrument.Save(e, in, err)
	var b strings.Builder
	if err := e.Text(&b, true, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	return b.String(), s, in
}

// section returns the text below a heading, up to an empty line.
func section(page, heading string) string {
	_, rest, _ := strings.Cut(page, heading+"\n")
	rest, _, _ = strings.Cut(rest, "\n\n")
	return rest
}

// TestExplain_Points shows that explain names all points that build makes, and
// no others, in the same order.
func TestExplain_Points(t *testing.T) {
	for _, worker := range []string{"", "go println(sum)"} {
		page, s, in := explainText(t, strings.Replace(overFunction, "WORKER", worker, 1))
		if in == nil || len(in.Points) < 2 {
			t.Fatalf("%q: too few points to be of use\n%s", worker, page)
		}
		list := section(page, "Points are at the beginning of each iteration of")
		var want, got []string
		for _, q := range in.Points {
			want = append(want, fmt.Sprintf("  %s:%d in", q.File, q.Line))
		}
		for line := range strings.Lines(list) {
			if at, _, ok := strings.Cut(line, " in "); ok && strings.HasPrefix(at, "  main.go:") {
				got = append(got, at+" in")
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: explain has %q, build %q\n%s", worker, got, want, page)
		}
		if !strings.Contains(page, fmt.Sprintf(" chosen; %d points\n", len(want))) {
			t.Errorf("%q: the number of points is missing\n%s", worker, page)
		}
		for _, l := range s.Loops {
			made := slices.ContainsFunc(in.Points, func(q explain.PointInfo) bool { return q.File == l.File && q.Line == l.Line })
			if l.Point != made || (l.NoPoint != "") != (l.Chosen && !made) {
				t.Errorf("%q: %+v, and build makes a point there: %v", worker, l, made)
			}
			if too := fmt.Sprintf("main.go:%d: %s; it gets a point too\n", l.Line, l.Why); strings.Contains(page, too) != (made && !l.Chosen) {
				t.Errorf("%q: the remark on line %d is wrong\n%s", worker, l.Line, page)
			}
		}
		refused := section(page, "These are chosen, but get NO point")
		if worker != "" && (!strings.Contains(refused, "main.go:41 in main") || strings.Count(refused, "goroutines may be alive") != 1) {
			t.Errorf("the refusal of a chosen loop is missing, or is there twice\n%s", page)
		}
		if worker != "" && len(in.Notes()) > 0 && len(in.Uncovered) > 0 && slices.ContainsFunc(in.Notes(), func(n string) bool { return strings.HasPrefix(n, "no point: main.go:41:") }) {
			t.Errorf("one loop is told of twice: %q and %q", in.Uncovered, in.Notes())
		}
	}
}

// TestExplain_CapturedVariables shows that explain lists what the body of a
// loop over a function captures under its own name, and shows no name that
// Cairn made.
func TestExplain_CapturedVariables(t *testing.T) {
	page, s, _ := explainText(t, strings.Replace(overFunction, "WORKER", "", 1))
	bodies := 0
	for _, f := range s.Frames {
		if strings.Contains(f.Func, "cairn") {
			t.Errorf("a function is called %s", f.Func)
		}
		if f.Func != "the body of a loop over a function in main" {
			continue
		}
		bodies++
		names := map[string]bool{}
		for _, v := range f.Saved {
			names[v.Name] = v.Captured
		}
		if !names["g"] || !names["sum"] || names["i"] {
			t.Errorf("at line %d are saved %+v", f.Line, f.Saved)
		}
	}
	if bodies == 0 {
		t.Error("no body is on the way to a point")
	}
	for _, bad := range []string{"cairn.make", "cairn_", "how the loop over a function stands", "a value of the statement that calls"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %q\n%s", bad, page)
		}
	}
	if !strings.Contains(page, "captured, read at line 36\n") {
		t.Errorf("the page does not say that g is captured\n%s", page)
	}
}

// ways is a program that does one of three things. Two have much work, and one
// has little, with a comment that asks for a point.
const ways = `package main

import "os"

func heavy(n int) (sum int) {
	for i := range n { //cairn:point
		for j := range 30 {
			sum += i*j + i/3 + j*n
			sum ^= i + j + n*sum
		}
	}
	return sum
}

func other(n int) (sum int) {
	for i := range n {
		for j := range 30 {
			sum += i*j + i/5 + j*n
			sum ^= i - j + n*sum
		}
	}
	return sum
}

func light(more bool) {
	for more { //cairn:point
		more = false
	}
}

func main() {
	switch os.Args[1] {
	case "heavy":
		println(heavy(len(os.Args)))
	case "other":
		println(other(len(os.Args)))
	case "light":
		light(len(os.Args) > 2)
	}
}
`

// TestExplain_CommentsInModes shows that a comment gets its point in each of
// the things that a program does, and that none is said to concern no loop.
func TestExplain_CommentsInModes(t *testing.T) {
	page, _, in := explainText(t, ways)
	if !strings.Contains(page, "several modes") {
		t.Fatalf("the program has no modes\n%s", page)
	}
	for _, line := range []int{6, 26} {
		if !slices.ContainsFunc(in.Points, func(q explain.PointInfo) bool { return q.Line == line }) {
			t.Errorf("the comment in line %d gets no point\n%s", line, page)
		}
	}
	if strings.Contains(page, "this comment") {
		t.Errorf("a comment is said to have no loop\n%s", page)
	}
}
