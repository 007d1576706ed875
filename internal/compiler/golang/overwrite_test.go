package golang

import (
	"go/ast"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// TestOverwritten compares the arrays that checkpoints leave out with the
// comments at the loops of testdata/src/overwrite.
func TestOverwritten(t *testing.T) {
	t.Parallel()
	compareOverwritten(t, "overwrite", "// left out:", func(w *divide.Overwritten) (got []string) {
		for _, k := range w.Cases {
			for _, a := range k.Arrays {
				if len(k.If) > 0 {
					a.Name += " if " + strings.Join(k.If, " and ")
				}
				got = append(got, a.Name)
			}
		}
		return got
	})
}

// TestDryRun compares the arrays in which a dry run may find parts that need
// not be saved with the comments at the loops of testdata/src/dryrun.
func TestDryRun(t *testing.T) {
	t.Parallel()
	compareOverwritten(t, "dryrun", "// dry run:", func(w *divide.Overwritten) (got []string) {
		for _, r := range w.DryRuns {
			for _, a := range r.Arrays {
				got = append(got, a.Name)
			}
		}
		return got
	})
}

// compareOverwritten compares what list returns for loops of a test program
// with the comments at these loops.
func compareOverwritten(t *testing.T, program, comment string, list func(*divide.Overwritten) []string) {
	p := loadTest(t, program, load.Options{})
	g := callgraph.New(p.Source, p.Dynamic)
	text, err := os.ReadFile(p.Source.Fset.Position(p.Source.Main.Files[0].Pos()).Filename)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(string(text), "\n")
	main, cases := g.Main, 0
	for _, fn := range g.All {
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			loop, ok := n.(ast.Stmt)
			if !ok {
				return true
			}
			line := p.At(n.Pos()).Line
			_, want, ok := strings.Cut(lines[line-1], comment)
			if _, block := n.(*ast.BlockStmt); !ok || block {
				return true
			}
			cases++
			g.Main = fn // as if it were the program
			for _, t := range fn.Callers {
				if t.Caller != main {
					g.Main = t.Caller
				}
			}
			w := divide.FindOverwritten(p.Source, g, fn, loop)
			if w == nil {
				t.Errorf("main.go:%d: no loop", line)
				return true
			}
			got := list(w)
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != strings.TrimSpace(want) {
				t.Errorf("main.go:%d: left out are %q, want %q (%v)", line, got, strings.TrimSpace(want), w.Why)
			}
			if (w.Code(p.Source.Fset) == "") != (len(w.Cases)+len(w.DryRuns) == 0) {
				t.Errorf("main.go:%d: the code is %q", line, w.Code(p.Source.Fset))
			}
			return true
		})
	}
	if want := strings.Count(string(text), comment); cases != want {
		t.Errorf("%d of %d cases", cases, want)
	}
}
