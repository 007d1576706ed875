package golang

import (
	"os"
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
	main, got := g.Main, make(map[int]string)
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
			got[p.At(x.Loop.Pos()).Line] = "malleable: " + strings.Join(names, " ")
		}
		for _, x := range r.Refusals {
			if x.Loop != nil {
				got[p.At(x.Loop.Pos()).Line] = x.Name + ": " + x.Text
			}
		}
	}
	text, err := os.ReadFile(p.Source.Fset.Position(p.Source.Main.Files[0].Pos()).Filename)
	if err != nil {
		t.Fatal(err)
	}
	cases := 0
	for i, line := range strings.Split(string(text), "\n") {
		_, want, ok := strings.Cut(line, "// want ")
		if !ok {
			continue
		}
		cases++
		if want == "none" {
			want = ""
			if got[i+1] != "" {
				t.Errorf("main.go:%d: %q, want nothing", i+1, got[i+1])
			}
		}
		if !strings.HasPrefix(got[i+1], want) {
			t.Errorf("main.go:%d: %q, want %q", i+1, got[i+1], want)
		}
	}
	if cases != 35 {
		t.Errorf("%d cases", cases)
	}
}
