package callgraph

import (
	"go/ast"
	"go/types"
	"slices"

	"golang.org/x/tools/go/types/typeutil"

	"github.com/cairnrun/cairn/internal/compiler/golang/load"
	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// given returns the functions that a call passes to a function of a library, by
// name or as literals. If copied is set, a copy of the library's function will
// call them. Then given also returns those that other func values may be, and
// the methods of values that become interfaces. rest are other such methods:
// the library may call them.
func (c *Graph) given(fn *Function, call *ast.CallExpr, library string, copied bool) (list, rest []*Function) {
	info := fn.Pkg.Info
	add := func(to *Function) {
		if to != nil && !slices.Contains(list, to) {
			list = append(list, to)
		}
	}
	sig, _ := info.TypeOf(call.Fun).Underlying().(*types.Signature)
	for i, a := range call.Args {
		a = ast.Unparen(a)
		t := info.TypeOf(a)
		if to := c.named(info, a); to != nil {
			add(to)
			continue
		}
		if t == nil || sig == nil || i >= sig.Params().Len() {
			continue
		}
		switch u := sig.Params().At(i).Type().Underlying().(type) {
		case *types.Signature:
			if copied {
				for _, to := range c.funcValues(t) {
					add(to)
				}
			}
		case *types.Interface:
			for m := range u.Methods() {
				for _, to := range c.methods(t, m, copied) {
					if copied && rewrite.CallsMethod(library, m.Name()) {
						add(to)
					} else {
						rest = append(rest, to)
					}
				}
			}
		}
	}
	return list, rest
}

// methods returns the functions that a call of an interface's method may lead
// to, if the interface holds a value of type t. If t is an interface itself, it
// returns methods only if all is set.
func (c *Graph) methods(t types.Type, m *types.Func, all bool) []*Function {
	if types.IsInterface(t) {
		if !all {
			return nil
		}
		return c.functions(Callee{Obj: m})
	}
	o, _, _ := types.LookupFieldOrMethod(t, true, m.Pkg(), m.Name())
	if f, ok := o.(*types.Func); ok && c.byObj[f.Origin()] != nil {
		return []*Function{c.byObj[f.Origin()]}
	}
	return nil
}

// named returns the function that an expression names, or the literal that it
// is; nil for others.
func (c *Graph) named(info *types.Info, a ast.Expr) *Function {
	switch x := a.(type) {
	case *ast.IndexExpr: // an instance of a generic function
		a = ast.Unparen(x.X)
	case *ast.IndexListExpr:
		a = ast.Unparen(x.X)
	}
	if sel, ok := a.(*ast.SelectorExpr); ok {
		a = sel.Sel
	}
	if id, ok := a.(*ast.Ident); ok {
		if f, ok := info.Uses[id].(*types.Func); ok {
			return c.byObj[f.Origin()]
		}
		return nil
	}
	return c.ByNode[a] // a literal
}

// funcValues returns the functions of a type that the program uses as values.
func (c *Graph) funcValues(t types.Type) []*Function {
	if c.values == nil {
		c.values = map[string][]*Function{}
		note := func(info *types.Info, e ast.Expr) {
			if sig, ok := info.TypeOf(e).(*types.Signature); ok {
				if to := c.named(info, e); to != nil {
					key := funcType(sig)
					c.values[key] = append(c.values[key], to)
				}
			}
		}
		for _, fn := range c.All {
			called := map[ast.Expr]bool{}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					called[ast.Unparen(n.Fun)] = true
				case *ast.FuncLit:
					note(fn.Pkg.Info, n)
					return false // its body is in All, too
				case *ast.SelectorExpr:
					if !called[n] {
						note(fn.Pkg.Info, n)
					}
					called[n.Sel] = true
				case *ast.Ident:
					if !called[n] {
						note(fn.Pkg.Info, n)
					}
				}
				return true
			})
		}
	}
	sig, ok := t.Underlying().(*types.Signature)
	if !ok {
		return nil
	}
	return c.values[funcType(sig)]
}

// funcType returns a key for a func type: two types with one key are identical,
// apart from the names of parameters.
func funcType(sig *types.Signature) string {
	return types.TypeString(types.NewSignatureType(nil, nil, nil, unnamed(sig.Params()), unnamed(sig.Results()), sig.Variadic()), nil)
}

func unnamed(t *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range t.Variables() {
		vars = append(vars, types.NewParam(v.Pos(), nil, "", v.Type()))
	}
	return types.NewTuple(vars...)
}

// findOnce fills in Once.
func (c *Graph) findOnce(ld *load.Program) {
	for _, s := range ld.Sources {
		for _, f := range s.Files {
			ast.Inspect(f, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok || len(call.Args) != 1 {
					return true
				}
				lit, ok := ast.Unparen(call.Args[0]).(*ast.FuncLit)
				if !ok {
					return true
				}
				o := typeutil.StaticCallee(s.Info, call)
				if o != nil && slices.Contains([]string{"sync.OnceFunc", "sync.OnceValue", "sync.OnceValues"}, o.FullName()) {
					c.Once[c.ByNode[lit]] = call
				}
				return true
			})
		}
	}
}
