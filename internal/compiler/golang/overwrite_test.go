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
	p := loadTest(t, "overwrite", load.Options{})
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
			_, want, ok := strings.Cut(lines[line-1], "// left out:")
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
			var got []string
			w := divide.FindOverwritten(p.Source, g, fn, loop)
			if w == nil {
				t.Errorf("main.go:%d: no loop", line)
				return true
			}
			for _, k := range w.Cases {
				for _, a := range k.Arrays {
					if len(k.If) > 0 {
						a.Name += " if " + strings.Join(k.If, " and ")
					}
					got = append(got, a.Name)
				}
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != strings.TrimSpace(want) {
				t.Errorf("main.go:%d: left out are %q, want %q (%v)", line, got, strings.TrimSpace(want), w.Why)
			}
			if (w.Code(p.Source.Fset) == "") != (len(got) == 0) {
				t.Errorf("main.go:%d: the code is %q", line, w.Code(p.Source.Fset))
			}
			return true
		})
	}
	if want := strings.Count(string(text), "// left out:"); cases != want {
		t.Errorf("%d of %d cases", cases, want)
	}
}
