package rewrite

import (
	"go/ast"
	"go/types"
)

// Rename returns the package with new names for some local objects.
func (p *Package) Rename(objects map[types.Object]string) (*Package, error) {
	idents := map[*ast.Ident]string{} // of type switches, which declare no object
	text := map[string][]byte{}
	for _, f := range p.Files {
		ast.Inspect(f, func(n ast.Node) bool {
			// A type switch has one name, and a variable for each clause.
			s, ok := n.(*ast.TypeSwitchStmt)
			if !ok {
				return true
			}
			name := ""
			for _, c := range s.Body.List {
				if to := objects[p.Info.Implicits[c]]; to != "" && p.Info.Implicits[c] != nil {
					name = to
				}
			}
			if name == "" {
				return true
			}
			for _, c := range s.Body.List {
				if o := p.Info.Implicits[c]; o != nil {
					objects[o] = name
				}
			}
			idents[s.Assign.(*ast.AssignStmt).Lhs[0].(*ast.Ident)] = name
			return true
		})
		changed := false
		t := p.Span(f.FileStart, f.FileEnd, f, func(n ast.Node) (string, bool) {
			id, ok := n.(*ast.Ident)
			if !ok {
				return "", false
			}
			to := idents[id]
			if o := p.Info.ObjectOf(id); to == "" && o != nil {
				to = objects[o]
			}
			changed = changed || to != ""
			return to, to != ""
		})
		if changed {
			text[p.FileName(f)] = []byte(t)
		}
	}
	return p.With(text)
}
