package place

import (
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/explain"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/lower"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// TestRetreat_OtherPaths shows that a function which cannot be rewritten does
// not remove the point for other functions that lead there.
func TestRetreat_OtherPaths(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module x\n\ngo 1.26\n", "main.go": `package main

import "os"

var sum float64

func work(n int) {
	for i := 0; i < n; i++ {
		for j := 0; j < n; j++ {
			sum += float64(i * j)
		}
	}
}

func direct(n int) { work(n) }

func odd(n int) { work(n + 1) }

func main() {
	if len(os.Args) > 1 {
		odd(1000)
	} else {
		direct(1000)
	}
}
`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	ld, err := load.Load(t.Context(), dir, []string{"."}, load.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := lower.Lower(ld, callgraph.Resolve(ld))
	if err != nil {
		t.Fatal(err)
	}
	pl := New(p, true)
	pl.Choose(explain.Explain(p, explain.Options{}), nil, false)
	if len(pl.Points) == 0 {
		t.Fatal("no points")
	}
	was := len(pl.Points)
	if !pl.Retreat(&rewrite.Refusal{Package: "x", Func: "odd", Reason: "it is odd"}) {
		t.Fatal("it gave up")
	}
	if len(pl.Points) != was {
		t.Errorf("%d points of %d are left", len(pl.Points), was)
	}
	names := map[string]bool{}
	for f := range pl.ResumablePath() {
		names[f.Name()] = true
	}
	if names["odd"] || !names["direct"] || !names["work"] || !names["main"] {
		t.Errorf("the resumable path is %v", names)
	}
	if len(pl.Refused) != 1 {
		t.Errorf("refused %v", pl.Refused)
	}
	if !pl.Retreat(&rewrite.Refusal{Package: "x", Func: "direct", Reason: "it is too"}) && len(pl.Points) > 0 {
		t.Errorf("points are left that nothing leads to: %v", pl.Points)
	}
	if slices.ContainsFunc(pl.Points, func(n ast.Stmt) bool { return pl.Loops[n].Name() == "work" }) {
		t.Error("the point is left though nothing leads there")
	}
}
