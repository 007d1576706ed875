package normalize

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// MoveResults returns the package with named results moved to variables, in
// functions on the resumable path: results that are captured by a literal which
// may be saved, and results whose address is taken. A result cannot be boxed.
// The variable can, and the function returns its final value.
func MoveResults(p *rewrite.Package, in func(*rewrite.Package) rewrite.ResumablePath) (out *rewrite.Package, err error) {
	defer catch(&out, &err)
	resumable := in(p)
	text := map[string][]byte{}
	number := 0
	for _, f := range p.Files {
		n := &normalizer{p: p, file: f, imports: map[string]string{}, names: map[string]bool{}, count: map[string]int{}}
		var edits []rewrite.Edit
		for _, fn := range resumable.Functions() {
			if f.FileStart <= fn.Pos() && fn.Pos() < f.FileEnd {
				r := &results{normalizer: n, resumable: resumable, fn: fn, number: &number}
				r.find()
				edits = append(edits, r.edits()...)
			}
		}
		if len(edits) == 0 {
			continue
		}
		for _, path := range slices.Sorted(maps.Keys(n.imports)) {
			edits = append(edits, rewrite.Edit{Lo: f.Name.End(), Hi: f.Name.End(), Text: fmt.Sprintf("\n\nimport %s %q\n", n.imports[path], path)})
		}
		b, err := rewrite.Format(p.FileName(f), []byte(p.Apply(f.FileStart, f.FileEnd, edits)))
		if err != nil {
			return nil, err
		}
		text[p.FileName(f)] = b
	}
	if len(text) == 0 {
		return p, nil
	}
	return p.With(text)
}

// results moves a function's results.
type results struct {
	*normalizer
	resumable rewrite.ResumablePath
	fn        ast.Node
	number    *int

	sig  *types.Signature
	typ  *ast.FuncType
	body *ast.BlockStmt
	kept map[*types.Var]string // new names of results that move
	outs []string              // names of the results
	vars []string              // names of the variables
}

// find decides whether the results must move.
func (r *results) find() {
	switch n := r.fn.(type) {
	case *ast.FuncDecl:
		r.typ, r.body = n.Type, n.Body
		r.sig = r.p.Info.Defs[n.Name].(*types.Func).Signature()
	case *ast.FuncLit:
		r.typ, r.body = n.Type, n.Body
		r.sig = r.p.Info.TypeOf(n).(*types.Signature)
	}
	if r.body == nil || r.sig.Results().Len() == 0 || r.sig.Results().At(0).Name() == "" {
		return
	}
	named := map[*types.Var]bool{}
	for v := range r.sig.Results().Variables() {
		named[v] = true
	}
	moves := false
	captured, rewritten := false, false
	ast.Inspect(r.body, func(m ast.Node) bool {
		if m == nil || moves {
			return false
		}
		if v := r.p.Addressed(m); v != nil && named[v] {
			moves = true
		}
		if lit, ok := m.(*ast.FuncLit); ok {
			uses := false
			ast.Inspect(lit.Body, func(k ast.Node) bool {
				if id, ok := k.(*ast.Ident); ok {
					if v, ok := r.p.Info.Uses[id].(*types.Var); ok && named[v] {
						uses = true
					}
				}
				return !uses
			})
			captured = captured || uses
			rewritten = rewritten || r.resumable.Funcs[lit]
			moves = moves || uses && (r.resumable.Funcs[lit] || r.p.MustConvert(lit))
		}
		return true
	})
	if !moves && !(captured && rewritten) {
		return
	}
	r.kept = map[*types.Var]string{}
	for v := range r.sig.Results().Variables() {
		*r.number++
		name := v.Name()
		if name == "_" {
			name = "blank"
		}
		r.kept[v] = fmt.Sprintf("%sg%d_%s", rewrite.Prefix, *r.number, name)
		r.vars = append(r.vars, r.kept[v])
		r.outs = append(r.outs, fmt.Sprintf("%so%d_%s", rewrite.Prefix, *r.number, name))
	}
}

// edits returns the changes.
func (r *results) edits() []rewrite.Edit {
	if r.kept == nil {
		return nil
	}
	var out []rewrite.Edit
	i := 0
	top := []string{""}
	for _, f := range r.typ.Results.List {
		for _, id := range f.Names {
			out = append(out, rewrite.Edit{Lo: id.Pos(), Hi: id.End(), Text: r.outs[i]})
			t := r.normalizer.typ(r.sig.Results().At(i).Type(), r.body.Lbrace+1, r.fn.Pos())
			top = append(top, "var "+r.vars[i]+" "+t+"\n_ = "+r.vars[i])
			i++
		}
	}
	all, outs := strings.Join(r.vars, ", "), strings.Join(r.outs, ", ")
	defers := false
	rewrite.InspectOwn(r.body, func(m ast.Node) bool {
		_, ok := m.(*ast.DeferStmt)
		defers = defers || ok
		return true
	})
	if defers { // they may change what is returned
		top = append(top, "defer func() { "+outs+" = "+all+" }()")
	}
	out = append(out, rewrite.Edit{Lo: r.body.Lbrace + 1, Hi: r.body.Lbrace + 1, Text: strings.Join(top, "\n") + "\n"})
	rewrite.InspectOwn(r.body, func(m ast.Node) bool {
		s, ok := m.(*ast.ReturnStmt)
		if !ok {
			return true
		}
		if len(s.Results) == 0 {
			out = append(out, rewrite.Edit{Lo: s.Pos(), Hi: s.End(), Text: "return " + all})
			return true
		}
		out = append(out, rewrite.Edit{Lo: s.Pos(), Hi: s.Results[0].Pos(), Text: "{\n" + all + " = "}, rewrite.Edit{Lo: s.End(), Hi: s.End(), Text: "\nreturn " + all + "\n}"})
		return true
	})
	ast.Inspect(r.body, func(m ast.Node) bool {
		if id, ok := m.(*ast.Ident); ok {
			if v, ok := r.p.Info.Uses[id].(*types.Var); ok && r.kept[v] != "" {
				out = append(out, rewrite.Edit{Lo: id.Pos(), Hi: id.End(), Text: r.kept[v]})
			}
		}
		return true
	})
	return out
}
