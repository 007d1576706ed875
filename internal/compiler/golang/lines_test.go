package golang

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/instrument"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/programtest"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// TestInstrument_CallLines shows that a call which leads to a point keeps its
// line, however many statements replace its statement. A loop over a function
// has the line of its head, for the call and for the point.
func TestInstrument_CallLines(t *testing.T) {
	text := `package main

var sum int

func work(n int) int {
	for i := range n { //cairn:point
		sum += i
	}
	return sum
}

func count(n int) func(func(int) bool) {
	return func(yield func(int) bool) {
		for i := range n {
			if !yield(work(i)) {
				return
			}
		}
	}
}

func main() {
	x := []int{1, 2}
	x[work(1)%2] = len(x) + work(2)*
		work(3)
	for i := 0; work(i) < 9 && i < work(4); i += work(5) { //cairn:skip
		x[0]++
	}
	switch sum {
	case work(6),
		work(7):
		x[1]--
	}
	for v := range count(3) { //cairn:point
		sum -= v
	}
}
`
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, f := range instrument.Save(in.Explanation, in, nil).Frames {
		what := "point"
		if f.Call {
			what = "call"
		}
		got[f.Func] = append(got[f.Func], fmt.Sprint(what, " ", f.Line))
	}
	for _, w := range []struct {
		name string
		want []string
	}{
		{"work", []string{"point 6"}},
		{"main", []string{"call 24", "call 24", "call 25", "call 26", "call 26", "call 26", "call 30", "call 31", "call 34"}},
		{"a function literal in count", []string{"call 15", "call 15"}},
		{"the body of a loop over a function in main", []string{"point 34"}},
	} {
		slices.Sort(got[w.name])
		if !slices.Equal(got[w.name], w.want) {
			t.Errorf("%s: %v, want %v", w.name, got[w.name], w.want)
		}
	}
	if len(got) != 4 {
		t.Errorf("functions: %v", got)
	}
}

// TestInstrument_GoroutineLines shows that what starts goroutines keeps its
// line, and that no name of the compiler is in the report.
func TestInstrument_GoroutineLines(t *testing.T) {
	text := `package main

import "sync"

type job struct{ sum int }

func (j *job) run(n int) {
	for i := range n { //cairn:point
		j.sum += i
	}
}

func (j *job) twice() {
	j.run(20)
	j.run(30)
}

func main() {
	var wg sync.WaitGroup
	var a, b job
	c := make(chan int)
	wg.Go(a.twice)
	go b.run(9)
	go func() {
		b.twice()
		c <- 1
	}()
	wg.Wait()
	defer a.run(<-c)
	for a.more() { //cairn:point
	}
}

func (j *job) more() bool {
	j.run(3)
	return j.sum < 500
}
`
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := instrument.Save(in.Explanation, in, nil)
	var got []int
	for _, f := range s.Frames {
		switch {
		case f.Func == "a function literal in main":
			got = append(got, f.Line)
		case f.Func == "main" && !f.Call && f.Line != 30:
			t.Errorf("the point of main is at line %d, want 30", f.Line)
		}
	}
	slices.Sort(got)
	if want := []int{22, 23, 25, 26}; !slices.Equal(slices.Compact(got), want) {
		t.Errorf("lines of function literals in main: %v, want %v", got, want)
	}
	var b strings.Builder
	if err := s.Text(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), rewrite.Prefix) {
		t.Errorf("the report has names of the compiler:\n%s", b.String())
	}
}

// TestInstrument_PartLines shows that, in a trace, continuations have lines of
// their function, and so have statements of which a part was computed before.
func TestInstrument_PartLines(t *testing.T) {
	text := `package main

import "fmt"

func fib(n int) int {
	defer fmt.Println(n)
	s := 0
	for i := range min(n, 2) { //cairn:point
		s += fib(n-1-i) + fib(n-2-i)
	}
	return s + rec(n)
}

func rec(n int) (s int) {
	for i := range n { //cairn:point
		s += rec(i) + rec(i-1)
	}
	return
}

func main() {
	for i := range 3 { //cairn:point
		fmt.Println(fib(i))
	}
}
`
	p, err := Load(context.Background(), programtest.Tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := instrument.Instrument(p, instrument.Options{})
	if err != nil {
		t.Fatal(err)
	}
	of := map[string][2]int{"fib": {5, 12}, "rec": {14, 19}, "main": {21, 25}}
	calls := 0
	for name, src := range in.Files {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			d, ok := d.(*ast.FuncDecl)
			if !ok {
				continue
			}
			_, own, _ := cutLast(d.Name.Name, "_")
			if strings.HasPrefix(d.Name.Name, "cairn_point_") || strings.HasPrefix(d.Name.Name, "cairn_unwind_") || strings.HasPrefix(d.Name.Name, "cairn_store_") {
				continue
			}
			ast.Inspect(d.Body, func(n ast.Node) bool {
				c, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				id, ok := c.Fun.(*ast.Ident)
				if !ok || !strings.HasPrefix(id.Name, "cairn_") && of[id.Name] == [2]int{} || strings.HasPrefix(id.Name, "cairn_store_") {
					return true
				}
				calls++
				if at := fset.Position(c.Pos()); at.Line < of[own][0] || at.Line > of[own][1] {
					t.Errorf("%s calls %s at line %d, and is at %v", d.Name.Name, id.Name, at.Line, of[own])
				}
				return true
			})
		}
	}
	if calls < 20 {
		t.Errorf("%d calls", calls)
	}
	for _, f := range instrument.Save(in.Explanation, in, nil).Frames {
		for _, a := range f.Again {
			if a.Line != 6 {
				t.Errorf("%s: %s at line %d, want 6", f.Func, a.What, a.Line)
			}
		}
	}
}

// cutLast cuts at the last sep.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}
