package closures

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite/rewritetest"
)

// manyLiterals returns a program with n literals in variables. Each literal
// calls the ones at the given distances before it. end uses the last one.
func manyLiterals(n int, end string, before ...int) string {
	var b strings.Builder
	b.WriteString("package main\n\nimport \"fmt\"\n\nvar kept func(int)\n\nfunc main() {\n\tt := 0\n")
	for i := range n {
		fmt.Fprintf(&b, "\tf%d := func(j int) {"+rewrite.LitMark+"\n\t\tt += j ^ %[1]d\n", i, i)
		for _, d := range before {
			if i >= d {
				fmt.Fprintf(&b, "\t\tif t%%7 == %d {\n\t\t\tf%d(j)\n\t\t}\n", d, i-d)
			}
		}
		fmt.Fprintf(&b, "\t}\n\tf%d(%[1]d)\n", i)
	}
	fmt.Fprintf(&b, "\t"+end+"\n\tfmt.Println(t)\n}\n", n-1)
	return b.String()
}

// countedChecks counts how often a package is type-checked: each time it
// imports fmt.
type countedChecks struct {
	types.Importer
	n int
}

func (c *countedChecks) Import(path string) (*types.Package, error) {
	c.n++
	return c.Importer.Import(path)
}

// TestLift_ChecksIndependentOfLiterals shows that a package with many literals
// is type-checked no more often than one with few.
func TestLift_ChecksIndependentOfLiterals(t *testing.T) {
	lift := func(n int, before ...int) int {
		p := rewritetest.Load(t, "a.go", manyLiterals(n, "f%d(1)", before...), "go1.26")
		count := &countedChecks{Importer: p.Importer}
		p.Importer = count
		_, names := Lift(p)
		if len(names) != n {
			t.Errorf("%d of %d literals became functions", len(names), n)
		}
		return count.n
	}
	if few, many := lift(10), lift(200); many > few {
		t.Errorf("a package with 200 literals is checked %d times, one with 10 %d times", many, few)
	}
	lift(20, 1, 2) // each one is lifted after the one that it calls
}

// TestEscaping_TooManyPaths has literals with too many paths from one to
// another to follow all of them.
func TestEscaping_TooManyPaths(t *testing.T) {
	for end, want := range map[string]bool{"f%d(1)": false, "kept = f%d": true} {
		p := rewritetest.Load(t, "a.go", manyLiterals(100, end, 1, 2, 3), "go1.26")
		ast.Inspect(p.Files[0], func(n ast.Node) bool {
			if lit, ok := n.(*ast.FuncLit); ok && p.Escaping(lit) != want {
				t.Errorf("%s: escaping is %v, want %v", p.Fset.Position(lit.Pos()), !want, want)
			}
			return true
		})
	}
}
