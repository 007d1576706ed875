package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"strings"
)

// exact are functions of package math that give the same bits everywhere, with
// their names in OpenCL C. Those in single also do as float32.
var exact = map[string]string{
	"Sqrt": "sqrt", "Abs": "fabs", "Floor": "floor", "Ceil": "ceil", "Trunc": "trunc", "Copysign": "copysign",
	"FMA": "fma", "Round": "round", "RoundToEven": "rint", "Mod": "fmod",
}

var single = map[string]bool{"Sqrt": true, "Abs": true, "Floor": true, "Ceil": true, "Trunc": true}

// close are functions whose last bits differ between devices.
var closeFuncs = map[string]string{
	"Exp": "exp", "Exp2": "exp2", "Expm1": "expm1", "Log": "log", "Log2": "log2", "Log10": "log10", "Log1p": "log1p",
	"Pow": "pow", "Sin": "sin", "Cos": "cos", "Tan": "tan", "Asin": "asin", "Acos": "acos", "Atan": "atan", "Atan2": "atan2",
	"Sinh": "sinh", "Cosh": "cosh", "Tanh": "tanh", "Asinh": "asinh", "Acosh": "acosh", "Atanh": "atanh",
	"Cbrt": "cbrt", "Hypot": "hypot", "Erf": "erf", "Erfc": "erfc",
}

// call translates a call with one result.
func (f *function) call(x *ast.CallExpr) string {
	if tv := f.Info.Types[x.Fun]; tv.IsType() {
		return f.conversion(x)
	}
	if text, ok := f.valueArg(x); ok {
		return text
	}
	fun := ast.Unparen(x.Fun)
	if id, ok := fun.(*ast.Ident); ok {
		if b, ok := f.Info.Uses[id].(*types.Builtin); ok {
			return f.builtin(x, b.Name())
		}
	}
	if sel, ok := fun.(*ast.SelectorExpr); ok {
		if obj, ok := f.Info.Uses[sel.Sel].(*types.Func); ok && obj.Pkg() != nil && f.funcs[obj] == nil {
			switch obj.Pkg().Path() {
			case "math":
				return f.math(x, obj.Name())
			case "math/bits":
				return f.bits(x, obj.Name())
			case DevicePath:
				f.refuse(x, "a kernel calls device.%s in another way than expected: see docs/devices.md, Kernels", obj.Name())
			}
			f.refuse(x, "a kernel cannot call %s.%s: it can call functions of its own package, and of math and math/bits", obj.Pkg().Name(), obj.Name())
		}
	}
	text, sig, writes := f.own(x)
	if writes && !f.effects {
		f.refuse(x, "the function writes to a slice, so a kernel can call it only as a statement: assign its result to a variable first")
	}
	if sig.Results().Len() != 1 {
		f.refuse(x, "a kernel can use a call with %d results only in a statement that assigns them", sig.Results().Len())
	}
	return text
}

// own translates a call of a function of this package.
func (f *function) own(x *ast.CallExpr) (text string, sig *types.Signature, writes bool) {
	obj, args := f.called(x)
	if obj == nil {
		if sel, ok := f.Info.Selections[selectorOf(x)]; ok && sel.Kind() == types.MethodVal {
			f.refuse(x, "a kernel cannot call the method %s: it can call methods of this package with a value as receiver", sel.Obj().Name())
		}
		f.refuse(x, "a kernel cannot call func values: call a function by its name")
	}
	sum := f.summary(obj)
	params := parameters(obj)
	if x.Ellipsis.IsValid() || obj.Type().(*types.Signature).Variadic() {
		f.refuse(x, "a kernel cannot call %s, which takes any number of arguments", obj.Name())
	}
	if len(args) != len(params) {
		f.refuse(x, "a kernel cannot pass several results to %s: assign them to variables", obj.Name())
	}
	effects := f.effects
	f.effects = false
	var list []string
	spaces := ""
	for i, a := range args {
		if !isSlice(params[i].Type()) {
			list = append(list, f.expr(a))
			continue
		}
		s := f.slice(a)
		spaces += s.space[2:3] // g, l
		write := sum.writes[params[i]]
		f.access(a, s, nil, false)
		if write {
			f.access(a, s, nil, true)
			writes = true
		}
		list = append(list, s.ptr)
		if sum.lens[params[i]] {
			list = append(list, f.lenOf(a, s))
		}
	}
	f.effects = effects
	name := f.instance(x, obj, spaces)
	return fmt.Sprintf("%s(%s)", name, strings.Join(list, ", ")), obj.Type().(*types.Signature), writes
}

func selectorOf(x *ast.CallExpr) *ast.SelectorExpr {
	s, _ := ast.Unparen(x.Fun).(*ast.SelectorExpr)
	return s
}

func (f *function) lenOf(n ast.Node, s *slice) string {
	if s.len == "" {
		f.refuse(n, "the length of this slice is not known here: cut it with both indexes")
	}
	return s.len
}

func (f *function) conversion(x *ast.CallExpr) string {
	to, arg := f.Info.TypeOf(x), ast.Unparen(x.Args[0])
	// float32(math.Sqrt(float64(x))) is the root in single precision.
	if k, ok := number(to); ok && k.name == "float" {
		if call, ok := arg.(*ast.CallExpr); ok {
			if sel := selectorOf(call); sel != nil && len(call.Args) == 1 && f.isMath(sel) && single[sel.Sel.Name] {
				inner, ok := ast.Unparen(call.Args[0]).(*ast.CallExpr)
				if ok && f.Info.Types[inner.Fun].IsType() && f.Info.Types[inner].Value == nil {
					if k, ok := number(f.Info.TypeOf(inner.Args[0])); ok && k.name == "float" {
						return fmt.Sprintf("%s(%s)", exact[sel.Sel.Name], f.expr(inner.Args[0]))
					}
				}
			}
		}
	}
	return f.convert(x, to, f.Info.TypeOf(arg), f.expr(arg))
}

func (f *function) isMath(sel *ast.SelectorExpr) bool {
	fn, ok := f.Info.Uses[sel.Sel].(*types.Func)
	return ok && fn.Pkg() != nil && fn.Pkg().Path() == "math"
}

func (f *function) builtin(x *ast.CallExpr, name string) string {
	switch name {
	case "len":
		if isSlice(f.Info.TypeOf(x.Args[0])) {
			return f.lenOf(x, f.slice(x.Args[0]))
		}
	case "min", "max":
		k, ok := number(f.Info.TypeOf(x))
		if ok && k.class != 'c' {
			text := f.expr(x.Args[0])
			for _, a := range x.Args[1:] {
				text = f.least(name, k, text, f.expr(a))
			}
			return text
		}
	case "real":
		return f.expr(x.Args[0]) + ".x"
	case "imag":
		return f.expr(x.Args[0]) + ".y"
	case "complex":
		k, _ := number(f.Info.TypeOf(x))
		return f.complexValue(k, f.expr(x.Args[0]), f.expr(x.Args[1]))
	case "make", "append", "new":
		f.refuse(x, "a kernel cannot allocate memory: use an array, local memory (device.LocalSlice), or an argument")
	case "copy", "clear":
		f.refuse(x, "a kernel cannot use %s: assign the elements in a loop", name)
	case "panic", "print", "println", "recover":
		f.refuse(x, "a kernel cannot use %s: devices cannot stop or print; write a value that the program checks", name)
	}
	f.refuse(x, "a kernel cannot use %s here", name)
	return ""
}

func (f *function) args(x *ast.CallExpr) string {
	var list []string
	for _, a := range x.Args {
		list = append(list, f.expr(a))
	}
	return strings.Join(list, ", ")
}

func (f *function) math(x *ast.CallExpr, name string) string {
	if c := exact[name]; c != "" {
		return fmt.Sprintf("%s(%s)", c, f.args(x))
	}
	if c := closeFuncs[name]; c != "" {
		return fmt.Sprintf("%s(%s)", c, f.args(x))
	}
	switch name {
	case "Min", "Max":
		// Unlike min, math.Min(−Inf, NaN) is −Inf.
		f.refuse(x, "a kernel cannot use math.%s: use %s", name, strings.ToLower(name))
	case "IsNaN":
		return f.test("nan", "x != x", x.Args[0])
	case "IsInf":
		if v := f.Info.Types[x.Args[1]].Value; v != nil {
			switch constant.Sign(v) {
			case 1:
				return f.test("plus_inf", "x > 1.7976931348623157e308", x.Args[0])
			case -1:
				return f.test("minus_inf", "x < -1.7976931348623157e308", x.Args[0])
			}
			return f.test("inf", "x > 1.7976931348623157e308 || x < -1.7976931348623157e308", x.Args[0])
		}
	case "Signbit":
		return fmt.Sprintf("(signbit(%s) != 0)", f.args(x))
	case "Inf":
		if v := f.Info.Types[x.Args[0]].Value; v != nil && constant.Sign(v) < 0 {
			return "(-(double)INFINITY)"
		} else if v != nil {
			return "((double)INFINITY)"
		}
	case "NaN":
		return "((double)NAN)"
	case "Float64bits":
		return fmt.Sprintf("as_ulong(%s)", f.args(x))
	case "Float64frombits":
		return fmt.Sprintf("as_double(%s)", f.args(x))
	case "Float32bits":
		return fmt.Sprintf("as_uint(%s)", f.args(x))
	case "Float32frombits":
		return fmt.Sprintf("as_float(%s)", f.args(x))
	}
	f.refuse(x, "a kernel cannot call math.%s: docs/devices.md lists the functions that it can call", name)
	return ""
}

// test calls a function of one double that tells whether a condition holds.
func (f *function) test(name, condition string, x ast.Expr) string {
	name = "cairn_is_" + name
	if !f.helpers[name] {
		f.helpers[name] = true
		fmt.Fprintf(&f.helpText, "uchar %s(double x)\n{\n\treturn %s;\n}\n\n", name, condition)
	}
	return fmt.Sprintf("%s(%s)", name, f.expr(x))
}

func (f *function) bits(x *ast.CallExpr, name string) string {
	switch name {
	case "OnesCount64", "OnesCount32":
		return fmt.Sprintf("(long)popcount(%s)", f.args(x))
	case "LeadingZeros64", "LeadingZeros32":
		return fmt.Sprintf("(long)clz(%s)", f.args(x))
	case "RotateLeft64", "RotateLeft32":
		t := "ulong"
		if name == "RotateLeft32" {
			t = "uint"
		}
		return fmt.Sprintf("rotate(%s, (%s)%s)", f.expr(x.Args[0]), t, f.expr(x.Args[1]))
	}
	f.refuse(x, "a kernel cannot call bits.%s: docs/devices.md lists the functions that it can call", name)
	return ""
}
