package closures

import (
	"fmt"
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// A literal in a generic function also captures the function's type arguments.
// So there is one constructor for every list of type arguments, in which the
// names of type parameters are aliases, and one that chooses among them.

// planParams finds the type parameters that a closure uses, and all their type
// arguments.
func (c *converter) planParams(l *closure, w *typeWriter) *rewrite.Refusal {
	if len(l.owner.tparams) == 0 {
		return nil
	}
	var err *rewrite.Refusal
	use := func(t *types.TypeParam) {
		if slices.Contains(l.owner.tparams, t) && err == nil {
			_, err = w.text(t, l.node.Pos())
		}
	}
	ast.Inspect(l.node, func(n ast.Node) bool {
		if e, ok := n.(ast.Expr); ok {
			if id, ok := e.(*ast.Ident); !ok || c.Info.Instances[id].Type == nil {
				mentions(c.Info.TypeOf(e), use)
			}
		}
		return true
	})
	if err != nil || len(w.tparams) == 0 {
		return err
	}
	var used []int
	for i, t := range l.owner.tparams {
		if slices.Contains(w.tparams, t) {
			used = append(used, i)
			l.tparams = append(l.tparams, t)
			if s := c.shadows(t, l); s != nil {
				return s
			}
		}
	}
	if c.known == nil {
		c.known = packageInstances(c.Package)
	}
	if c.known.open[l.owner.object] {
		return c.planOpen(l, used)
	}
	for _, args := range c.known.args[l.owner.object] {
		var list []types.Type
		for _, i := range used {
			list = append(list, args[i])
			if _, err := w.text(args[i], l.node.Pos()); err != nil {
				err.Reason = fmt.Sprintf("a closure that is part of the state is in %s, which is instantiated with %s: %s", l.owner.object.Name(), args[i], err.Reason)
				return err
			}
		}
		sub := map[*types.TypeParam]types.Type{}
		for i, t := range l.tparams {
			sub[t] = list[i]
		}
		if c.known.subst(l.sig, sub) == nil {
			return c.no(l.node.Pos(), "give its parameters named types", "a closure that is part of the state has a type parameter within a parameter's interface type")
		}
		if !slices.ContainsFunc(l.insts, func(o []types.Type) bool { return slices.EqualFunc(o, list, types.Identical) }) {
			l.insts = append(l.insts, list)
		}
	}
	l.unused = len(l.insts) == 0
	return nil
}

// shadows refuses a closure where the name of a type parameter means something
// else.
func (c *converter) shadows(t *types.TypeParam, l *closure) *rewrite.Refusal {
	file := c.Info.Scopes[l.file]
	if file == nil {
		return nil
	}
	in := file.Innermost(l.node.Pos())
	if in == nil {
		return nil
	}
	if _, o := in.LookupParent(t.Obj().Name(), l.node.Pos()); o != nil && o != t.Obj() {
		return c.no(l.node.Pos(), "give one of them another name", "where a closure that is part of the state is made, %s is not the type parameter of that name", t.Obj().Name())
	}
	return nil
}

// declareGeneric writes the declarations of a closure that uses type
// parameters.
func (c *converter) declareGeneric(l *closure, free bool) {
	w := &typeWriter{converter: c, file: l.file, owner: l.owner}
	b := &c.files[l.file].decls
	text := func(t types.Type) string {
		s, _ := w.text(t, l.node.Pos()) // it was checked before
		return s
	}
	var params []string
	for _, t := range l.tparams {
		s := text(t.Constraint())
		if i, ok := t.Constraint().(*types.Interface); ok && i.IsImplicit() {
			s = "interface{ " + s + " }"
		}
		params = append(params, t.Obj().Name()+" "+s)
	}
	list, args := "["+strings.Join(params, ", ")+"]", l.typeArgs()
	if l.open {
		c.declareOpen(l, list, args)
		return
	}
	mk, e, rec := rewrite.Prefix+"make_"+l.ident, rewrite.Prefix+"env_"+l.ident, rewrite.EnvName
	if free {
		mk, rec = rewrite.Prefix+"func_"+l.ident, rewrite.Prefix+"t"
		names := strings.Trim(args, "[]")
		fmt.Fprintf(b, "\n// %s\nfunc %s%s() %s {\nvar %s *func(%s)\nswitch interface{}(%[5]s).(type) {\n", l.name, mk, list, l.sigText, rec, names)
	} else {
		c.declareEnv(l, list, args)
		fmt.Fprintf(b, "\nfunc %s%s(%s *%s%s) %s {\nswitch %[3]s := interface{}(%[3]s).(type) {\n", mk, list, rewrite.EnvName, e, args, l.sigText)
	}
	var each strings.Builder
	for i, inst := range l.insts {
		var names, full, alias []string
		sub := map[*types.TypeParam]types.Type{}
		for j, t := range inst {
			sub[l.tparams[j]] = t
			names = append(names, text(t))
			full = append(full, types.TypeString(t, nil))
			alias = append(alias, "type "+l.tparams[j].Obj().Name()+" = "+text(t)+"\n")
		}
		of := "[" + strings.Join(names, ", ") + "]"
		one := fmt.Sprint(mk, "_of_", i+1)
		for c.taken[one] {
			one += "_"
		}
		c.taken[one] = true
		c.declared[one] = l
		sig := text(c.known.subst(l.sig, sub))
		name := c.Types.Path() + "." + strings.Replace(l.name, "[...]", "["+strings.Join(full, ",")+"]", 1)
		if free {
			fmt.Fprintf(b, "case *func%s:\nreturn interface{}(%s()).(%s)\n", "("+strings.Join(names, ", ")+")", one, l.sigText)
			fmt.Fprintf(&each, "\n//go:noinline\nfunc %s() %s {\n%sreturn %s\n}\n", one, sig, strings.Join(alias, ""), c.literal(l))
			c.made.Funcs = append(c.made.Funcs, Entry{name, one + "()"})
			continue
		}
		fmt.Fprintf(b, "case *%s%s:\nreturn interface{}(%s(%s)).(%s)\n", e, of, one, rewrite.EnvName, l.sigText)
		fmt.Fprintf(&each, "\n//go:noinline\nfunc %s(%s *%s%s) %s {\n%sreturn %s\n}\n", one, rewrite.EnvName, e, of, sig, strings.Join(alias, ""), c.literal(l))
		c.made.Closures = append(c.made.Closures, Entry{name, one})
	}
	fmt.Fprintf(b, "}\nreturn interface{}(%s).(%s) // panics: there are no others\n}\n%s", rec, l.sigText, each.String())
}

// mentions calls f for each type parameter in a type.
func mentions(t types.Type, f func(*types.TypeParam)) {
	switch t := t.(type) {
	case *types.TypeParam:
		f(t)
	case *types.Alias:
		if t.TypeArgs().Len() == 0 && t.Obj().Parent() != nil && t.Obj().Pkg() != nil && t.Obj().Parent() != t.Obj().Pkg().Scope() {
			mentions(types.Unalias(t), f)
		}
	}
	for part := range rewrite.TypeParts(t) {
		mentions(part, f)
	}
}

// subst returns a type with type parameters replaced, or nil if that is not
// possible.
func (k *instances) subst(t types.Type, sub map[*types.TypeParam]types.Type) types.Type {
	some := false
	mentions(t, func(t *types.TypeParam) { some = some || sub[t] != nil })
	if !some {
		return t
	}
	elem := func(t types.Type, f func(types.Type) types.Type) types.Type {
		if e := k.subst(t, sub); e != nil {
			return f(e)
		}
		return nil
	}
	tuple := func(t *types.Tuple) (*types.Tuple, bool) {
		var vars []*types.Var
		for v := range t.Variables() {
			n := k.subst(v.Type(), sub)
			if n == nil {
				return nil, false
			}
			vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), v.Name(), n))
		}
		return types.NewTuple(vars...), true
	}
	switch t := t.(type) {
	case *types.TypeParam:
		return sub[t]
	case *types.Alias:
		return k.subst(types.Unalias(t), sub)
	case *types.Named:
		var args []types.Type
		for a := range t.TypeArgs().Types() {
			n := k.subst(a, sub)
			if n == nil {
				return nil
			}
			args = append(args, n)
		}
		n, err := types.Instantiate(k.ctx, t.Origin(), args, false)
		if err != nil {
			return nil
		}
		return n
	case *types.Pointer:
		return elem(t.Elem(), func(e types.Type) types.Type { return types.NewPointer(e) })
	case *types.Slice:
		return elem(t.Elem(), func(e types.Type) types.Type { return types.NewSlice(e) })
	case *types.Array:
		return elem(t.Elem(), func(e types.Type) types.Type { return types.NewArray(e, t.Len()) })
	case *types.Chan:
		return elem(t.Elem(), func(e types.Type) types.Type { return types.NewChan(t.Dir(), e) })
	case *types.Map:
		return elem(t.Key(), func(key types.Type) types.Type {
			return elem(t.Elem(), func(e types.Type) types.Type { return types.NewMap(key, e) })
		})
	case *types.Signature:
		params, ok := tuple(t.Params())
		results, ok2 := tuple(t.Results())
		if !ok || !ok2 {
			return nil
		}
		return types.NewSignatureType(nil, nil, nil, params, results, t.Variadic())
	case *types.Struct:
		var fields []*types.Var
		var tags []string
		for i := range t.NumFields() {
			v := t.Field(i)
			n := k.subst(v.Type(), sub)
			if n == nil {
				return nil
			}
			fields = append(fields, types.NewField(v.Pos(), v.Pkg(), v.Name(), n, v.Embedded()))
			tags = append(tags, t.Tag(i))
		}
		return types.NewStruct(fields, tags)
	}
	return nil // an interface: too rare to be supported
}
