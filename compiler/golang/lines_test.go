package golang

import (
	"context"
	"fmt"
	"slices"
	"testing"
)

// TestCallLines: a call that leads to a point has its own line, however many
// statements are made of the one that it is in; a loop over a function has that
// of its head, for the call that it is and for its point.
func TestCallLines(t *testing.T) {
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
	p, err := Load(context.Background(), tree(t, "go.mod", "module x\n\ngo 1.26\n", "main.go", text), []string{"."}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	in, err := Instrument(p, InstrumentOptions{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, f := range in.Explanation.Save(in, nil).Frames {
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
