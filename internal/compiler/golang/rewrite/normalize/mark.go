package normalize

import (
	"fmt"
	"go/ast"
	"go/token"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// Mark returns the package with marks at positions of its files. It also puts a
// line comment before every statement, so that messages of the program and of
// the compiler show the lines of the source.
func Mark(p *rewrite.Package, marks map[token.Pos]string) (*rewrite.Package, error) {
	text := map[string][]byte{}
	early, err := devirtualize(p, func(lo, hi token.Pos) bool {
		for pos := range marks {
			if lo <= pos && pos <= hi {
				return true
			}
		}
		return false
	})
	if err != nil {
		return nil, err
	}
	marks = maps.Clone(marks)
	if marks == nil {
		marks = map[token.Pos]string{}
	}
	for _, c := range early {
		marks[c.Rparen] += rewrite.ReceiverMark
	}
	for _, f := range p.Files {
		here := map[token.Pos]string{}
		for pos, m := range marks {
			if f.FileStart <= pos && pos <= f.FileEnd {
				here[pos] = m
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if n == nil || rewrite.StmtList(n) == nil {
				return true
			}
			for _, s := range *rewrite.StmtList(n) {
				switch s.(type) {
				case *ast.CaseClause, *ast.CommClause, *ast.EmptyStmt:
					continue
				}
				at := p.Fset.Position(s.Pos())
				if at.Column > 0 {
					here[s.Pos()] += fmt.Sprintf("/*line %s:%d:%d*/", at.Filename, at.Line, at.Column)
				} else { // the source's own directive has none
					here[s.Pos()] += fmt.Sprintf("/*line %s:%d*/", at.Filename, at.Line)
				}
			}
			return true
		})
		if len(here) == 0 {
			continue
		}
		var b strings.Builder
		last := f.FileStart
		for _, pos := range slices.Sorted(maps.Keys(here)) {
			b.WriteString(p.Text(last, pos) + here[pos])
			last = pos
		}
		b.WriteString(p.Text(last, f.FileEnd))
		text[p.FileName(f)] = []byte(b.String())
	}
	return p.With(text)
}
