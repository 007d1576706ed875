package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/types"
	"strconv"
	"strings"
)

// kind describes a type of numbers in OpenCL C.
type kind struct {
	name   string
	bits   int
	signed bool
	class  byte // 'i', 'f', 'b', 'c': integer, float, bool, complex
}

var kinds = map[types.BasicKind]kind{
	types.Bool:  {"uchar", 8, false, 'b'},
	types.Int8:  {"char", 8, true, 'i'},
	types.Int16: {"short", 16, true, 'i'},
	types.Int32: {"int", 32, true, 'i'},
	types.Int64: {"long", 64, true, 'i'},
	types.Int:   {"long", 64, true, 'i'},

	types.Uint8:  {"uchar", 8, false, 'i'},
	types.Uint16: {"ushort", 16, false, 'i'},
	types.Uint32: {"uint", 32, false, 'i'},
	types.Uint64: {"ulong", 64, false, 'i'},
	types.Uint:   {"ulong", 64, false, 'i'},

	types.Float32:    {"float", 32, true, 'f'},
	types.Float64:    {"double", 64, true, 'f'},
	types.Complex64:  {"float2", 64, true, 'c'},
	types.Complex128: {"double2", 128, true, 'c'},
}

// number returns the kind of a type, and false if it is not a number or bool.
func number(t types.Type) (kind, bool) {
	b, ok := t.Underlying().(*types.Basic)
	if !ok {
		return kind{}, false
	}
	switch b.Kind() {
	case types.UntypedBool:
		return kinds[types.Bool], true
	case types.UntypedInt, types.UntypedRune:
		return kinds[types.Int], true
	case types.UntypedFloat:
		return kinds[types.Float64], true
	}
	k, ok := kinds[b.Kind()]
	return k, ok
}

// wide is the unsigned type in which integers are computed.
func (k kind) wide() string {
	if k.bits == 64 {
		return "ulong"
	}
	return "uint"
}

// typ returns the name of a type in OpenCL C. Arrays have none.
func (p *program) typ(n ast.Node, t types.Type) string {
	if k, ok := number(t); ok {
		return k.name
	}
	switch t.Underlying().(type) {
	case *types.Struct:
		named, ok := types.Unalias(t).(*types.Named)
		if !ok {
			p.refuse(n, "a kernel cannot use a struct without a name: declare a type for it")
		}
		return p.structure(n, named)
	case *types.Array:
		p.refuse(n, "a kernel cannot copy an array as a whole: copy its elements in a loop")
	}
	p.refuse(n, "a kernel cannot use values of type %s: use numbers, bools, structs and arrays of them, and slices that are arguments of the kernel", t)
	return ""
}

// declaration returns the declaration of a variable or field of a type.
func (p *program) declaration(n ast.Node, t types.Type, name string) string {
	var dims string
	for {
		a, ok := t.Underlying().(*types.Array)
		if !ok {
			return p.typ(n, t) + " " + name + dims
		}
		if a.Len() == 0 {
			p.refuse(n, "a kernel cannot use an array without elements")
		}
		dims += fmt.Sprintf("[%d]", a.Len())
		t = a.Elem()
	}
}

// structure returns the name of a struct, and defines it at its first use.
func (p *program) structure(n ast.Node, named *types.Named) string {
	if name, ok := p.structs[named]; ok {
		return name
	}
	if named.TypeArgs().Len() > 0 {
		p.refuse(n, "a kernel cannot use the generic type %s: declare a type without type parameters", named)
	}
	if named.Obj().Pkg() != p.Types {
		p.refuse(n, "a kernel cannot use the struct %s of another package: declare a type in this one", named)
	}
	p.declareObject(named.Obj())
	s := named.Underlying().(*types.Struct)
	if s.NumFields() == 0 {
		p.refuse(n, "a kernel cannot use %s, a struct without fields", named.Obj().Name())
	}
	var body, args, sets, zero strings.Builder
	arrays := false
	for i := range s.NumFields() {
		f := s.Field(i)
		if f.Embedded() {
			p.refuse(n, "a kernel cannot use %s, which embeds %s: give the field a name", named.Obj().Name(), f.Name())
		}
		if k, ok := number(f.Type()); ok && k.class == 'c' {
			p.refuse(n, "a kernel cannot use %s, a struct with a complex number: use two floats", named.Obj().Name())
		}
		name := fieldName(s, i)
		fmt.Fprintf(&body, "\t%s;\n", p.declaration(n, f.Type(), name))
		if _, ok := f.Type().Underlying().(*types.Array); ok {
			arrays = true
			fmt.Fprint(&zero, p.zeroArray("\t", "r."+name, f.Type(), 0, n))
			continue
		}
		if i > 0 {
			args.WriteString(", ")
		}
		fmt.Fprintf(&args, "%s a%d", p.typ(n, f.Type()), i)
		fmt.Fprintf(&sets, "\tr.%s = a%d;\n", name, i)
		fmt.Fprintf(&zero, "\tr.%s = %s;\n", name, p.zero(n, f.Type()))
	}
	name := cName(named.Obj().Name())
	p.structs[named] = name
	fmt.Fprintf(&p.typeText, "typedef struct {\n%s} %s;\n\n", body.String(), name)
	fmt.Fprintf(&p.typeText, "%s cairn_zero_%s(void)\n{\n\t%s r;\n%s\treturn r;\n}\n\n", name, name, name, zero.String())
	if !arrays {
		fmt.Fprintf(&p.typeText, "%s cairn_make_%s(%s)\n{\n\t%s r;\n%s\treturn r;\n}\n\n", name, name, args.String(), name, sets.String())
	}
	return name
}

func fieldName(s *types.Struct, i int) string {
	if s.Field(i).Name() == "_" {
		return fmt.Sprintf("pad%d_", i)
	}
	return cName(s.Field(i).Name())
}

// zero returns the zero value of a type other than an array.
func (p *program) zero(n ast.Node, t types.Type) string {
	k, ok := number(t)
	switch {
	case !ok:
		return "cairn_zero_" + p.typ(n, t) + "()"
	case k.class == 'c':
		return p.complexValue(k, "0", "0")
	}
	return p.literal(n, t, constant.MakeInt64(0))
}

// zeroArray returns loops that set all elements of an array to zero.
func (p *program) zeroArray(indent, name string, t types.Type, depth int, n ast.Node) string {
	a, ok := t.Underlying().(*types.Array)
	if !ok {
		return fmt.Sprintf("%s%s = %s;\n", indent, name, p.zero(n, t))
	}
	i := fmt.Sprintf("z%d", depth)
	return fmt.Sprintf("%sfor (int %s = 0; %s < %d; %s++)\n%s", indent, i, i, a.Len(), i,
		p.zeroArray(indent+"\t", name+"["+i+"]", a.Elem(), depth+1, n))
}

// cName returns a name that is no word of OpenCL C or CUDA C++: it ends in an
// underscore.
func cName(name string) string {
	var b strings.Builder
	for _, r := range name {
		if r < 0x80 {
			b.WriteRune(r)
		} else {
			fmt.Fprintf(&b, "u%x", r)
		}
	}
	return b.String() + "_"
}

// literal returns a constant as a literal of its type.
func (p *program) literal(n ast.Node, t types.Type, v constant.Value) string {
	k, ok := number(t)
	if !ok {
		p.refuse(n, "a kernel cannot use constants of type %s", t)
	}
	switch k.class {
	case 'b':
		if v.Kind() == constant.Bool && constant.BoolVal(v) {
			return "1"
		}
		return "0"
	case 'c':
		f := kinds[types.Float64]
		if k.bits == 64 {
			f = kinds[types.Float32]
		}
		return p.complexValue(k, floatLiteral(f, constant.Real(v)), floatLiteral(f, constant.Imag(v)))
	case 'f':
		return floatLiteral(k, v)
	}
	v = constant.ToInt(v)
	if k.signed {
		i, _ := constant.Int64Val(v)
		switch {
		case k.bits == 64 && i == -1<<63:
			return "(-9223372036854775807L - 1L)"
		case k.bits == 32 && i == -1<<31:
			return "(-2147483647 - 1)"
		}
		text := strconv.FormatInt(i, 10)
		switch {
		case k.bits == 64:
			text += "L"
		case k.bits < 32:
			return fmt.Sprintf("((%s)%s)", k.name, text)
		}
		if i < 0 {
			text = "(" + text + ")"
		}
		return text
	}
	u, _ := constant.Uint64Val(v)
	text := strconv.FormatUint(u, 10)
	switch {
	case k.bits == 64:
		return text + "UL"
	case k.bits == 32:
		return text + "u"
	}
	return fmt.Sprintf("((%s)%s)", k.name, text)
}

func floatLiteral(k kind, v constant.Value) string {
	v = constant.ToFloat(v)
	var text string
	if k.bits == 32 {
		f, _ := constant.Float32Val(v)
		text = strconv.FormatFloat(float64(f), 'g', -1, 32)
	} else {
		f, _ := constant.Float64Val(v)
		text = strconv.FormatFloat(f, 'g', -1, 64)
	}
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	if k.bits == 32 {
		text += "f"
	}
	if text[0] == '-' {
		text = "(" + text + ")"
	}
	return text
}

// complexValue returns a complex number.
func (p *program) complexValue(k kind, re, im string) string {
	of := strings.TrimSuffix(k.name, "2")
	name := "cairn_complex_" + of
	if !p.helpers[name] {
		p.helpers[name] = true
		fmt.Fprintf(&p.helpText, "%s %s(%s re, %s im)\n{\n\t%s r;\n\tr.x = re;\n\tr.y = im;\n\treturn r;\n}\n\n", k.name, name, of, of, k.name)
	}
	return fmt.Sprintf("%s(%s, %s)", name, re, im)
}
