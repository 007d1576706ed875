package golang

import (
	"fmt"
	"go/ast"
	"strings"

	"github.com/cairnrun/cairn/compiler/ir"
)

// comments finds what comments ask for.
func (p *Program) comments(l *lowerer) {
	for _, s := range l.ld.sources {
		for _, f := range s.files {
			var labels map[int]int // lines of labels before loops
			for _, g := range f.Comments {
				for _, c := range g.List {
					name, ok := strings.CutPrefix(c.Text, "//cairn:")
					if !ok {
						continue
					}
					name, _, _ = strings.Cut(name, " ")
					at := ir.Pos{File: l.pos(c.Pos()).File, Line: l.pos(g.End() - 1).Line}
					if labels == nil {
						labels = labelled(l, f)
					}
					if to := labels[at.Line+1]; to != 0 {
						at.Line = to - 1
					}
					switch name {
					case "point":
						p.Points = append(p.Points, at)
					case "skip":
						p.Skip = append(p.Skip, at)
					default:
						p.Warnings = append(p.Warnings, fmt.Sprintf("%s: the comment //cairn:%s is not known; there are //cairn:point and //cairn:skip", l.pos(c.Pos()), name))
					}
				}
			}
		}
	}
}

// labelled returns the lines of labels and those of their loops.
func labelled(l *lowerer, f *ast.File) map[int]int {
	lines := make(map[int]int)
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.LabeledStmt); ok {
			lines[l.pos(s.Pos()).Line] = l.pos(s.Stmt.Pos()).Line
		}
		return true
	})
	return lines
}
