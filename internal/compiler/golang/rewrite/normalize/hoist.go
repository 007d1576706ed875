package normalize

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// HoistTypes returns the package with local types moved to package level, where
// frames and environments of closures can name them. Types of generic functions
// get all their type parameters, as in Go itself. A type stays if its name has
// another meaning there: programs may print the name, so it must not change.
func HoistTypes(p *rewrite.Package, in func(*rewrite.Package) rewrite.ResumablePath) (*rewrite.Package, error) {
	h := &hoist{p: p, types: map[*types.TypeName]*ast.TypeSpec{}, generic: map[*types.TypeName]*typeParams{}}
	resumable := in(p)
	text := map[string][]byte{}
	for _, f := range p.Files {
		for w := range typeOwners(f) {
			if wants(p, w.node, resumable) {
				h.find(f, w)
			}
		}
	}
	h.choose()
	for _, f := range p.Files {
		if edits, decls := h.file(f); len(edits) > 0 {
			b, err := rewrite.Format(p.FileName(f), []byte(p.Apply(f.FileStart, f.FileEnd, edits)+decls))
			if err != nil {
				return nil, err
			}
			text[p.FileName(f)] = b
		}
	}
	if len(text) == 0 {
		return p, nil
	}
	return p.With(text)
}

// wants reports whether a function has literals or marks.
func wants(p *rewrite.Package, d ast.Node, in rewrite.ResumablePath) bool {
	found := in.Funcs[d]
	ast.Inspect(d, func(m ast.Node) bool {
		if _, ok := m.(*ast.FuncLit); ok {
			found = true
		}
		return !found
	})
	return found
}

// typeParams are the type parameters of a function or of its receiver.
type typeParams struct {
	list  []*types.TypeParam
	names string // T, U
	text  string // T any, U comparable
}

// typeParamsOf returns a function's type parameters, nil if it has none, and
// false if they cannot be written again.
func typeParamsOf(p *rewrite.Package, file *ast.File, d *ast.FuncDecl) (*typeParams, bool) {
	f, ok := p.Info.Defs[d.Name].(*types.Func)
	if !ok {
		return nil, false
	}
	list := f.Signature().TypeParams()
	if list.Len() == 0 {
		list = f.Signature().RecvTypeParams()
	}
	if list.Len() == 0 {
		return nil, true
	}
	t := &typeParams{}
	missing := false
	qualify := p.Qualifier(file, func(q *types.Package) string {
		missing = true
		return q.Name()
	})
	var names, text []string
	for tp := range list.TypeParams() {
		name := tp.Obj().Name()
		constraint := types.TypeString(tp.Constraint(), qualify)
		if i, ok := tp.Constraint().(*types.Interface); ok && i.IsImplicit() {
			constraint = "interface{ " + constraint + " }"
		}
		missing = missing || name == "_" || rewrite.Unnameable(tp.Constraint(), p.Types, map[types.Type]bool{}) != ""
		t.list, names, text = append(t.list, tp), append(names, name), append(text, name+" "+constraint)
	}
	t.names, t.text = strings.Join(names, ", "), strings.Join(text, ", ")
	return t, !missing
}

// hoist moves types.
type hoist struct {
	p     *rewrite.Package
	order []*types.TypeName
	types map[*types.TypeName]*ast.TypeSpec // types that move

	generic map[*types.TypeName]*typeParams // type parameters of those that are declared in generic functions
}

// find finds the types that are declared in w.
func (h *hoist) find(f *ast.File, w typeOwner) {
	var params *typeParams
	if w.decl != nil {
		var ok bool
		if params, ok = typeParamsOf(h.p, f, w.decl); !ok {
			return
		}
	}
	var found []*types.TypeName
	ast.Inspect(w.node, func(m ast.Node) bool {
		if s, ok := m.(*ast.TypeSpec); ok && s.Name.Name != "_" && (params == nil || !s.Assign.IsValid()) {
			if o, ok := h.p.Info.Defs[s.Name].(*types.TypeName); ok {
				found = append(found, o)
				h.types[o] = s
				if params != nil {
					h.generic[o] = params
				}
			}
		}
		return true
	})
	if params != nil { // where the type is named, its parameters must be visible
		ast.Inspect(w.node, func(m ast.Node) bool {
			if id, ok := m.(*ast.Ident); ok {
				if o, ok := h.p.Info.Uses[id].(*types.TypeName); ok && h.generic[o] != nil && !h.visible(params, id) {
					delete(h.types, o)
				}
			}
			return true
		})
	}
	for _, o := range found {
		if h.types[o] != nil {
			h.order = append(h.order, o)
		}
	}
}

// visible reports whether the names of type parameters have their meaning at a
// place.
func (h *hoist) visible(params *typeParams, at *ast.Ident) bool {
	s := h.p.Types.Scope().Innermost(at.Pos())
	for _, t := range params.list {
		if s == nil {
			return false
		}
		if _, o := s.LookupParent(t.Obj().Name(), at.Pos()); o != types.Object(t.Obj()) {
			return false
		}
	}
	return true
}

// choose drops the types that cannot move.
func (h *hoist) choose() {
	byName := map[string]bool{}
	h.order = slices.DeleteFunc(h.order, func(o *types.TypeName) bool {
		if byName[o.Name()] || !h.free(o) {
			delete(h.types, o)
			return true
		}
		byName[o.Name()] = true
		return false
	})
	for changed := true; changed; {
		n := len(h.order)
		h.order = slices.DeleteFunc(h.order, func(o *types.TypeName) bool {
			if h.alone(h.types[o], h.generic[o]) {
				return false
			}
			delete(h.types, o)
			return true
		})
		changed = len(h.order) < n
	}
}

// free reports whether a type's name has no other meaning at package level.
func (h *hoist) free(o *types.TypeName) bool {
	name, pkg := o.Name(), h.p.Types.Scope()
	if types.Universe.Lookup(name) != nil || strings.HasPrefix(name, rewrite.Prefix) || name == "init" || name == "main" {
		return false
	}
	for _, f := range h.p.Files {
		if s := h.p.Info.Scopes[f]; s != nil && s.Lookup(name) != nil {
			return false
		}
	}
	for s := o.Parent().Parent(); s != nil; s = s.Parent() {
		if s.Lookup(name) != nil {
			return false
		}
		if s == pkg {
			break
		}
	}
	return true
}

// alone reports whether a type depends on nothing else that is declared in a
// function, except constants and types that move, too.
func (h *hoist) alone(s *ast.TypeSpec, params *typeParams) bool {
	ok := s.TypeParams == nil
	ast.Inspect(s.Type, func(m ast.Node) bool {
		id, is := m.(*ast.Ident)
		if !is {
			return ok
		}
		switch o := h.p.Info.Uses[id].(type) {
		case *types.TypeName:
			if t, ok := o.Type().(*types.TypeParam); ok && params != nil && slices.Contains(params.list, t) {
				break
			}
			if o.Pkg() == h.p.Types && o.Parent() != h.p.Types.Scope() && h.types[o] == nil {
				ok = false
			}
		case *types.Const:
			if o.Pkg() == h.p.Types && o.Parent() != h.p.Types.Scope() && o.Val().Kind() != constant.Int {
				ok = false
			}
		case *types.Var:
			if o.Parent() != nil && o.Parent() != h.p.Types.Scope() && !(s.Pos() <= o.Pos() && o.Pos() < s.End()) && !o.IsField() {
				ok = false // the length of an array
			}
		}
		return ok
	})
	return ok
}

// file returns the changes to a file, and the declarations for its end.
func (h *hoist) file(f *ast.File) ([]rewrite.Edit, string) {
	var edits []rewrite.Edit
	var b strings.Builder
	ast.Inspect(f, func(m ast.Node) bool {
		if id, ok := m.(*ast.Ident); ok {
			if text, ok := h.instance(id); ok {
				edits = append(edits, rewrite.Edit{Lo: id.Pos(), Hi: id.End(), Text: text})
			}
		}
		s, ok := m.(*ast.DeclStmt)
		if !ok {
			return true
		}
		d := s.Decl.(*ast.GenDecl)
		moved := 0
		for _, spec := range d.Specs {
			if t, ok := spec.(*ast.TypeSpec); ok && h.moves(t) {
				moved++
				if d.Lparen.IsValid() {
					edits = append(edits, rewrite.Edit{Lo: t.Pos(), Hi: t.End(), Text: ""})
				}
				fmt.Fprintf(&b, "\ntype %s\n", h.p.NodeText(t, func(n ast.Node) (string, bool) {
					id, ok := n.(*ast.Ident)
					if !ok {
						return "", false
					}
					if id == t.Name {
						if g := h.generic[h.p.Info.Defs[id].(*types.TypeName)]; g != nil {
							return id.Name + "[" + g.text + "]", true
						}
						return "", false
					}
					if o, ok := h.p.Info.Uses[id].(*types.Const); ok && o.Pkg() == h.p.Types && o.Parent() != h.p.Types.Scope() {
						return o.Val().ExactString(), true
					}
					return h.instance(id)
				}))
			}
		}
		if moved > 0 && !d.Lparen.IsValid() {
			edits = append(edits, rewrite.Edit{Lo: s.Pos(), Hi: s.End(), Text: ""})
		}
		return true
	})
	return edits, b.String()
}

// instance returns the name of a moved type of a generic function.
func (h *hoist) instance(id *ast.Ident) (string, bool) {
	o, ok := h.p.Info.Uses[id].(*types.TypeName)
	if !ok || h.types[o] == nil || h.generic[o] == nil {
		return "", false
	}
	return id.Name + "[" + h.generic[o].names + "]", true
}

func (h *hoist) moves(s *ast.TypeSpec) bool {
	o, ok := h.p.Info.Defs[s.Name].(*types.TypeName)
	return ok && h.types[o] != nil
}
