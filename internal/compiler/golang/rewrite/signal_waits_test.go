package rewrite

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"testing"
)

// TestWaits_Signals reads go statements whose comments say whether the
// goroutine only waits for signals.
func TestWaits_Signals(t *testing.T) {
	const src = `package p

import (
	"fmt"
	"os"
	"time"
)

type holder struct{ c chan os.Signal }

func f(c chan os.Signal, r <-chan os.Signal, d chan struct{}, h *holder) {
	go func() { <-c; os.Exit(1) }() //yes
	go func() { s := <-r; fmt.Println(s) }() //yes
	go func() { s, ok := <-(c); fmt.Println(s, ok) }() //yes
	go func() { for range c { fmt.Println() } }() //yes
	go func() { for s := range c { fmt.Println(s) } }() //yes
	go func() { for { <-c; fmt.Println() } }() //yes
	go func() { select { case <-c: case s := <-r: fmt.Println(s) } }() //yes
	go func() { for { select { case <-c: fmt.Println() } } }() //yes

	go func() { <-c; <-d }() // where is it?
	go func() { for range c { d <- struct{}{} } }()
	go func() { select { case <-c: <-d } }()
	go func() { n := 0; for range c { n++ } }() // it has counted
	go func() { for n := 0; ; n++ { <-c } }()
	go func() { fmt.Println(<-c) }()
	go func() { <-d }() // anybody may close it
	go func() { <-time.After(1) }()
	go func() { select { case <-c: case <-d: } }()
	go func() { select { case <-c: default: } }()
	go func() { select {} }()
	go func() { <-h.c }() // it may be another by then
	go func() { var s os.Signal; s = <-c; fmt.Println(s) }()
	go func(c chan os.Signal) { <-c }(c)
	go func() {}()
	go h.wait()
}

func (h *holder) wait() { <-h.c }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", src, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}
	if _, err := (&types.Config{Importer: importer.ForCompiler(fset, "source", nil)}).Check("p", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	want := map[int]bool{}
	for _, g := range f.Comments {
		if g.List[0].Text == "//yes" {
			want[fset.Position(g.Pos()).Line] = true
		}
	}
	found := 0
	ast.Inspect(f, func(n ast.Node) bool {
		if g, ok := n.(*ast.GoStmt); ok {
			line := fset.Position(g.Pos()).Line
			if at := Waits(fset, info, g); (at != nil) != want[line] {
				t.Errorf("line %d: %v", line, at)
			}
			found++
		}
		return true
	})
	if found != 24 || len(want) != 8 {
		t.Errorf("%d go statements, %d of them wait", found, len(want))
	}
}
