package lower

import (
	"fmt"
	"go/ast"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// comments collects the //cairn: comments.
func (l *lowerer) comments(p *Program) {
	for _, s := range l.ld.Sources {
		for _, f := range s.Files {
			var labels map[int]int // line of a label → line of its loop
			var heads map[int]int  // last line of a loop's head → its first line
			var loops map[int]bool // lines on which loops begin
			for _, g := range f.Comments {
				for _, c := range g.List {
					name, ok := strings.CutPrefix(c.Text, "//cairn:")
					if !ok {
						if text := strings.TrimSpace(strings.TrimPrefix(c.Text, "//")); text == "cairn:point" || text == "cairn:skip" || text == "cairn:background" || text == "cairn:rebuild" {
							p.Warnings = append(p.Warnings, fmt.Sprintf("%s: this comment has no effect; write //%s, without a space", l.pos(c.Pos()), text))
						}
						continue
					}
					name, _, _ = strings.Cut(name, " ")
					at := ir.Pos{File: l.pos(c.Pos()).File, Line: l.pos(g.End() - 1).Line}
					if labels == nil {
						labels, heads, loops = labelled(l, f)
					}
					if to := labels[at.Line+1]; to != 0 {
						at.Line = to - 1
					} else if to := heads[at.Line]; to != 0 && !loops[at.Line] {
						at.Line = to
					}
					if (name == "point" || name == "skip") && !loops[at.Line] && !loops[at.Line+1] {
						p.Strays = append(p.Strays, Stray{l.pos(c.Pos()), name, s.Module == nil || s.Module.Main})
						if name == "point" {
							continue
						}
					}
					switch name {
					case "point":
						p.Points = append(p.Points, at)
					case "skip":
						p.Skip = append(p.Skip, at)
					case "background":
						p.Background = append(p.Background, at)
					case "rebuild": // package instrument finds them
					default:
						p.Warnings = append(p.Warnings, fmt.Sprintf("%s: unknown comment //cairn:%s; there are //cairn:point, //cairn:skip, //cairn:background and //cairn:rebuild", l.pos(c.Pos()), name))
					}
				}
			}
		}
	}
}

// labelled returns the lines of labels and the last lines of loops' heads, each
// mapped to the line of its loop, and the lines on which loops begin.
func labelled(l *lowerer, f *ast.File) (labels, heads map[int]int, loops map[int]bool) {
	labels, heads, loops = make(map[int]int), make(map[int]int), make(map[int]bool)
	begins := func(loop ast.Node, body *ast.BlockStmt) {
		line := l.pos(loop.Pos()).Line
		loops[line] = true
		if brace := l.pos(body.Lbrace).Line; brace != line {
			heads[brace] = line
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.LabeledStmt:
			labels[l.pos(n.Pos()).Line] = l.pos(n.Stmt.Pos()).Line
		case *ast.ForStmt:
			begins(n, n.Body)
		case *ast.RangeStmt:
			begins(n, n.Body)
		}
		return true
	})
	return labels, heads, loops
}
