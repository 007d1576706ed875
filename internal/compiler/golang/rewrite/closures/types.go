package closures

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// newFile returns an empty closureFile.
func (c *converter) newFile(f *ast.File) *closureFile {
	s := new(closureFile)
	s.qualify = c.memo(c.Qualifier(f, func(q *types.Package) string {
		name := rewrite.Prefix + q.Name()
		for i := 2; c.taken[name]; i++ {
			name = fmt.Sprint(rewrite.Prefix, q.Name(), "_", i)
		}
		c.taken[name] = true
		s.imports = append(s.imports, [2]string{name, q.Path()})
		return name
	}))
	return s
}

// memo returns a qualifier that caches the results of q.
func (c *converter) memo(q types.Qualifier) types.Qualifier {
	names := map[*types.Package]string{}
	return func(p *types.Package) string {
		n, ok := names[p]
		if !ok {
			n = q(p)
			names[p] = n
		}
		return n
	}
}

// typeWriter writes types for the package level of a file.
type typeWriter struct {
	*converter
	file    *ast.File
	owner   *closureOwner
	tparams []*types.TypeParam // type parameters used so far
}

// text returns a type's text, or a refusal if it cannot be written.
func (w *typeWriter) text(t types.Type, at token.Pos) (string, *rewrite.Refusal) {
	t = w.Spelled(t)
	if why, remedy := w.check(t); why != "" {
		return "", w.no(at, remedy, "%s", why)
	}
	return types.TypeString(t, w.files[w.file].qualify), nil
}

// shadowed reports whether a predeclared name means something else at package
// level.
func (w *typeWriter) shadowed(name string) bool {
	if w.Types.Scope().Lookup(name) != nil {
		return true
	}
	s := w.Info.Scopes[w.file]
	return s != nil && s.Lookup(name) != nil
}

// check returns why a type cannot be written at package level, and the remedy.
// why is "" if it can be written.
func (w *typeWriter) check(t types.Type) (why, remedy string) {
	name := func(o *types.TypeName) (string, string) {
		switch {
		case o.Pkg() == nil:
			if w.shadowed(o.Name()) {
				return fmt.Sprintf("the predeclared type %s has another meaning in this package", o.Name()), "give what is declared under that name another one"
			}
		case o.Pkg().Scope().Lookup(o.Name()) != o:
			return fmt.Sprintf("the type %s is declared in a function", o.Name()), remedyLocal
		case o.Pkg() != w.Types && !o.Exported():
			return fmt.Sprintf("the type %s.%s cannot be named outside of its package", o.Pkg().Path(), o.Name()), "keep the value in a variable of an interface type"
		case o.Pkg() != w.Types && !w.importable(o.Pkg().Path()):
			return fmt.Sprintf("the package of the type %s.%s is internal", o.Pkg().Path(), o.Name()), "keep the value in a variable of an interface type"
		}
		return "", ""
	}
	unexported := func(o types.Object) bool { return !o.Exported() && o.Pkg() != nil && o.Pkg() != w.Types }
	switch t := t.(type) {
	case *types.Basic:
		if t.Kind() == types.Invalid {
			return "a type is not known", ""
		}
		if t.Kind() != types.UnsafePointer && w.shadowed(t.Name()) {
			return fmt.Sprintf("the predeclared type %s has another meaning in this package", t.Name()), "give what is declared under that name another one"
		}
		return "", ""
	case *types.Named:
		if why, remedy := name(t.Obj()); why != "" {
			return why, remedy
		}
	case *types.Alias:
		if why, remedy := name(t.Obj()); why != "" {
			return why, remedy
		}
	case *types.TypeParam:
		if !slices.Contains(w.owner.tparams, t) {
			return fmt.Sprintf("the type parameter %s is of no function here", t.Obj().Name()), ""
		}
		if n := t.Obj().Name(); types.Universe.Lookup(n) != nil || w.shadowed(n) {
			return fmt.Sprintf("the type parameter %s has the name of something else", n), "give it another name"
		}
		if !slices.Contains(w.tparams, t) {
			w.tparams = append(w.tparams, t)
			return w.check(t.Constraint())
		}
		return "", ""
	case *types.Struct:
		for f := range t.Fields() {
			if unexported(f) {
				return fmt.Sprintf("a struct type has the field %s of package %s", f.Name(), f.Pkg().Path()), "give it a named type"
			}
		}
	case *types.Interface:
		if t == types.Universe.Lookup("any").Type().Underlying() && w.shadowed("any") {
			return name(types.Universe.Lookup("any").(*types.TypeName))
		}
		for m := range t.ExplicitMethods() {
			if unexported(m) {
				return fmt.Sprintf("an interface type has the method %s of package %s", m.Name(), m.Pkg().Path()), "give it a named type"
			}
		}
	case *types.Pointer, *types.Slice, *types.Array, *types.Chan, *types.Map, *types.Tuple, *types.Signature, *types.Union:
	default:
		return fmt.Sprintf("the type %s cannot be written", t), ""
	}
	for part := range rewrite.TypeParts(t) {
		if why, remedy := w.check(part); why != "" {
			return why, remedy
		}
	}
	return "", ""
}

// importable reports whether the package may import another, by its path.
func (c *converter) importable(path string) bool {
	for _, q := range c.Types.Imports() {
		if q.Path() == path {
			return true
		}
	}
	parts := strings.Split(path, "/")
	for i := len(parts) - 1; i >= 0; i-- {
		if parts[i] == "internal" {
			root := strings.Join(parts[:i], "/")
			return root != "" && (c.Types.Path() == root || strings.HasPrefix(c.Types.Path(), root+"/"))
		}
	}
	return parts[0] != "vendor"
}

// constant moves a local constant to package level.
func (c *converter) constant(l *closure, w *typeWriter, o *types.Const, at token.Pos) *rewrite.Refusal {
	if c.consts[o] != "" {
		return nil
	}
	typ := ""
	if b, ok := o.Type().(*types.Basic); !ok || b.Info()&types.IsUntyped == 0 {
		var err *rewrite.Refusal
		if typ, err = w.text(o.Type(), at); err != nil {
			err.Reason = "a closure that is part of the state uses a constant: " + err.Reason
			return err
		}
	}
	name := rewrite.Prefix + "const_" + c.fresh(l.owner.ident+"_"+o.Name())
	c.taken[name] = true
	c.consts[o] = name
	fmt.Fprintf(&c.files[l.file].decls, "\nconst %s %s = %s\n", name, typ, constantText(o))
	return nil
}

// constantText returns a constant expression without names, of the value's
// kind.
func constantText(o *types.Const) string {
	x := o.Val()
	kind := types.Invalid
	if b, ok := o.Type().Underlying().(*types.Basic); ok {
		kind = b.Kind()
		switch {
		case b.Info()&types.IsFloat != 0:
			x = constant.ToFloat(x)
		case b.Info()&types.IsComplex != 0:
			x = constant.ToComplex(x)
		}
	}
	switch x.Kind() {
	case constant.Bool:
		if constant.BoolVal(x) {
			return "0 == 0"
		}
		return "0 != 0"
	case constant.String:
		return strconv.Quote(constant.StringVal(x))
	case constant.Complex:
		return floatText(constant.Real(x)) + " + " + floatText(constant.Imag(x)) + " * 1i"
	}
	switch kind {
	case types.UntypedRune:
		return `'\x00' + ` + x.ExactString()
	case types.UntypedFloat, types.Float32, types.Float64:
		return floatText(x)
	}
	return x.ExactString()
}

// floatText returns an exact untyped float.
func floatText(x constant.Value) string {
	x = constant.ToFloat(x)
	num, den, ok := strings.Cut(x.ExactString(), "/")
	if strings.ContainsAny(num, ".pP") {
		return "(" + num + ")"
	}
	if !ok {
		return "(" + num + ".0)"
	}
	return "(" + num + ".0 / " + den + ".0)"
}
