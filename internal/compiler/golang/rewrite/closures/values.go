package closures

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// methodValue is a method value x.M, or a method expression T.M, that is not
// called in place.
type methodValue struct {
	op   string // & or *: converts the operand to the method's receiver
	path string // embedded fields between the operand and the method: .Inner.Base
	bind bool   // the operand is an interface: a nil one must panic now, not when the value is called
	expr bool   // it is a method expression T.M
}

// planValue plans a method value or method expression.
func (c *converter) planValue(l *closure, sel *ast.SelectorExpr, w *typeWriter) *rewrite.Refusal {
	s := c.Info.Selections[sel]
	m := s.Obj().(*types.Func)
	l.value = &methodValue{expr: s.Kind() == types.MethodExpr}
	l.sig, _ = types.Unalias(s.Type()).(*types.Signature)
	if l.sig == nil {
		return c.no(sel.Pos(), "", "a method value without a type")
	}
	if c.recovers(m) {
		return c.no(sel.Pos(), "use a func literal that calls recover", "the value of method %s is part of the state and calls recover, which would find nothing", m.Name())
	}
	var err *rewrite.Refusal
	if l.sigText, err = w.text(l.sig, sel.Pos()); err != nil {
		return err
	}
	if l.value.expr {
		return nil
	}
	t := s.Recv()
	index := s.Index()
	for _, i := range index[:len(index)-1] {
		if p, ok := t.Underlying().(*types.Pointer); ok {
			t = p.Elem()
		}
		st, ok := t.Underlying().(*types.Struct)
		if !ok || !st.Field(i).Exported() && st.Field(i).Pkg() != c.Types {
			return c.no(sel.Pos(), "call the method in a func literal", "the value of method %s, which %s has from an embedded field that cannot be named here, is part of the state", m.Name(), types.TypeString(s.Recv(), c.files[l.file].qualify))
		}
		l.value.path += "." + st.Field(i).Name()
		t = st.Field(i).Type()
	}
	if _, ok := types.Unalias(t).(*types.TypeParam); ok {
		return c.no(sel.Pos(), "call the method in a func literal", "the value of method %s of a type parameter is part of the state", m.Name())
	}
	_, ptr := t.Underlying().(*types.Pointer)
	if types.IsInterface(t) {
		l.value.bind = true
	} else if _, want := types.Unalias(m.Signature().Recv().Type()).(*types.Pointer); want && !ptr {
		l.value.op = "&"
		t = types.NewPointer(t)
	} else if !want && ptr {
		l.value.op = "*"
		t = t.Underlying().(*types.Pointer).Elem()
	}
	text, err := w.text(t, sel.Pos())
	if err != nil {
		err.Reason = fmt.Sprintf("the value of method %s is part of the state: %s", m.Name(), err.Reason)
		return err
	}
	l.fields = []string{text}
	return nil
}

// params returns the parameters and results of a func that calls another one,
// and the arguments that it calls it with.
func (c *converter) params(l *closure) (head string, args []string) {
	w := &typeWriter{converter: c, file: l.file, owner: l.owner}
	text := func(t types.Type) string {
		s, _ := w.text(t, l.node.Pos()) // it was written before, as part of the signature
		return s
	}
	var params []string
	n := l.sig.Params().Len()
	for i := range n {
		t, name := l.sig.Params().At(i).Type(), fmt.Sprint(rewrite.Prefix, i+1)
		arg := name
		if l.sig.Variadic() && i == n-1 {
			arg += "..."
			params = append(params, name+" ..."+text(t.Underlying().(*types.Slice).Elem()))
		} else {
			params = append(params, name+" "+text(t))
		}
		args = append(args, arg)
	}
	var results []string
	for v := range l.sig.Results().Variables() {
		results = append(results, text(v.Type()))
	}
	return fmt.Sprintf("(%s) (%s)", strings.Join(params, ", "), strings.Join(results, ", ")), args
}

// forward returns the parameters, results and body of a func that calls a
// method.
func (c *converter) forward(l *closure) string {
	head, args := c.params(l)
	x, ret, mark := rewrite.EnvName+".x", "", ""
	if l.value.expr { // the receiver is an argument, which a resumed program has only in a frame
		x, args, mark = strings.TrimSuffix(args[0], "..."), args[1:], rewrite.CallMark
	}
	if l.sig.Results().Len() > 0 {
		ret = "return "
	}
	begin := "{\n"
	if l.open {
		begin += guard + "\n"
	}
	return fmt.Sprintf("%s %s%s%s%s.%s(%s%s)\n}", head, begin, c.LineComment(l.node.Pos()), ret, x, l.node.(*ast.SelectorExpr).Sel.Name, mark, strings.Join(args, ", "))
}

// recovers reports whether a method calls recover itself. For an interface's
// method, any method of that name counts. If a func called such a method, it
// would recover nothing.
func (c *converter) recovers(m *types.Func) bool {
	if c.recover == nil {
		c.recover = map[string]bool{}
		for _, f := range c.Files {
			for _, d := range f.Decls {
				d, ok := d.(*ast.FuncDecl)
				if !ok || d.Recv == nil || d.Body == nil {
					continue
				}
				ast.Inspect(d.Body, func(n ast.Node) bool {
					if id, ok := n.(*ast.Ident); ok {
						if b, ok := c.Info.Uses[id].(*types.Builtin); ok && b.Name() == "recover" {
							c.recover[d.Name.Name] = true
							if fn, ok := c.Info.Defs[d.Name].(*types.Func); ok {
								c.recover[fn.FullName()] = true
							}
						}
					}
					_, lit := n.(*ast.FuncLit)
					return !lit
				})
			}
		}
	}
	if types.IsInterface(m.Signature().Recv().Type()) {
		return c.recover[m.Name()]
	}
	return c.recover[m.Origin().FullName()]
}
