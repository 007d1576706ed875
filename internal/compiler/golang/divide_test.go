package golang

import (
	"fmt"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/callgraph"
	"github.com/cairnrun/cairn/internal/compiler/golang/divide"
	"github.com/cairnrun/cairn/internal/compiler/golang/load"
)

// TestDivide compares what the compiler finds about the division of work among
// devices with the comments at the loops of testdata/src/divide.
func TestDivide(t *testing.T) {
	t.Parallel()
	p := loadTest(t, "divide", load.Options{})
	g := callgraph.New(p.Source, p.Dynamic)
	main, got := g.Main, make(map[string]string)
	for _, fn := range g.All { // each function as if it were the program
		if fn == main {
			continue
		}
		g.Main = fn
		r := divide.Find(p.Source, g)
		for _, x := range r.Plans {
			var names []string
			for _, v := range x.Derived {
				names = append(names, v.Name)
			}
			got[line(p.Source.Fset.Position(x.Loop.Pos()))] = "malleable: " + strings.Join(names, " ")
		}
		for _, x := range r.Refusals {
			if x.Loop != nil {
				got[line(p.Source.Fset.Position(x.Loop.Pos()))] = x.Name + ": " + x.Text
			}
		}
	}
	cases := 0
	for _, f := range p.Source.Main.Files {
		name := p.Source.Fset.Position(f.Pos()).Filename
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, text := range strings.Split(string(text), "\n") {
			_, want, ok := strings.Cut(text, "// want ")
			if !ok {
				continue
			}
			cases++
			at := fmt.Sprintf("%s:%d", filepath.Base(name), i+1)
			if want == "none" {
				want = ""
				if got[at] != "" {
					t.Errorf("%s: %q, want nothing", at, got[at])
				}
			}
			if !strings.HasPrefix(got[at], want) {
				t.Errorf("%s: %q, want %q", at, got[at], want)
			}
		}
	}
	if cases != 63 {
		t.Errorf("%d cases", cases)
	}
}

func line(at token.Position) string { return fmt.Sprintf("%s:%d", filepath.Base(at.Filename), at.Line) }
