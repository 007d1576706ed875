package kernel

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
)

// binary returns an operation on two values of type t, as Go defines it: sums
// and products of integers wrap, division by −1 does too.
func (p *program) binary(n ast.Node, op token.Token, t types.Type, a, b string, bValue constant.Value) string {
	k, ok := number(t)
	if !ok {
		p.refuse(n, "a kernel cannot apply %s to values of type %s: use their fields", op, t)
	}
	switch op {
	case token.LAND, token.LOR:
		return fmt.Sprintf("(%s %s %s)", a, op, b)
	}
	switch k.class {
	case 'c':
		if op != token.ADD && op != token.SUB {
			p.refuse(n, "a kernel cannot apply %s to complex numbers: use real, imag and complex", op)
		}
		return fmt.Sprintf("(%s %s %s)", a, op, b)
	case 'f':
		return fmt.Sprintf("(%s %s %s)", a, op, b)
	case 'b':
		p.refuse(n, "a kernel cannot apply %s to bools", op)
	}
	switch op {
	case token.ADD, token.SUB, token.MUL:
		if k.name == k.wide() {
			return fmt.Sprintf("(%s %s %s)", a, op, b)
		}
		w := k.wide()
		return fmt.Sprintf("(%s)((%s)%s %s (%s)%s)", k.name, w, a, op, w, b)
	case token.AND, token.OR, token.XOR:
		if k.bits >= 32 {
			return fmt.Sprintf("(%s %s %s)", a, op, b)
		}
		return fmt.Sprintf("(%s)(%s %s %s)", k.name, a, op, b)
	case token.AND_NOT:
		return fmt.Sprintf("(%s)(%s & ~%s)", k.name, a, b)
	case token.QUO, token.REM:
		return p.divide(op, k, a, b, bValue)
	}
	p.refuse(n, "a kernel cannot use the operator %s", op)
	return ""
}

func (p *program) divide(op token.Token, k kind, a, b string, by constant.Value) string {
	word, sign := "div", "/"
	if op == token.REM {
		word, sign = "rem", "%"
	}
	if by != nil {
		if k.signed && constant.Compare(by, token.EQL, constant.MakeInt64(-1)) {
			if op == token.REM {
				return fmt.Sprintf("(%s)(%s & 0)", k.name, a)
			}
			return negate(k, a)
		}
		return fmt.Sprintf("(%s)(%s %s %s)", k.name, a, sign, b)
	}
	name := fmt.Sprintf("cairn_%s_%s", word, k.name)
	if !p.helpers[name] {
		p.helpers[name] = true
		minus := ""
		if k.signed {
			value := "0"
			if op == token.QUO {
				value = negate(k, "a")
			}
			minus = fmt.Sprintf("b == -1 ? (%s)%s : ", k.name, value)
		}
		fmt.Fprintf(&p.helpText, "%s %s(%s a, %s b)\n{\n\treturn b == 0 ? (%s)0 : %s(%s)(a %s b);\n}\n\n", k.name, name, k.name, k.name, k.name, minus, k.name, sign)
	}
	return fmt.Sprintf("%s(%s, %s)", name, a, b)
}

func negate(k kind, a string) string {
	if k.class == 'f' {
		return "(-" + a + ")"
	}
	return fmt.Sprintf("(%s)(0 - (%s)%s)", k.name, k.wide(), a)
}

// shift returns a << b or a >> b. Go shifts by any amount that is not negative.
func (p *program) shift(n ast.Node, op token.Token, t types.Type, a, b string, by constant.Value) string {
	k, ok := number(t)
	if !ok || k.class != 'i' {
		p.refuse(n, "a kernel cannot shift a %s", t)
	}
	if by != nil {
		s, exact := constant.Uint64Val(constant.ToInt(by))
		if !exact || s >= uint64(k.bits) {
			if op == token.SHL || !k.signed {
				return fmt.Sprintf("(%s)(%s & 0)", k.name, a)
			}
			s = uint64(k.bits - 1)
		}
		if op == token.SHL {
			return fmt.Sprintf("(%s)((%s)%s << %d)", k.name, k.wide(), a, s)
		}
		return fmt.Sprintf("(%s)(%s >> %d)", k.name, a, s)
	}
	name := "cairn_shl_" + k.name
	body := fmt.Sprintf("s < %d ? (%s)((%s)a << s) : (%s)0", k.bits, k.name, k.wide(), k.name)
	if op == token.SHR {
		name = "cairn_shr_" + k.name
		body = fmt.Sprintf("s < %d ? (%s)(a >> s) : (%s)0", k.bits, k.name, k.name)
		if k.signed {
			body = fmt.Sprintf("(%s)(a >> (s < %d ? s : %dUL))", k.name, k.bits, k.bits-1)
		}
	}
	if !p.helpers[name] {
		p.helpers[name] = true
		fmt.Fprintf(&p.helpText, "%s %s(%s a, ulong s)\n{\n\treturn %s;\n}\n\n", k.name, name, k.name, body)
	}
	return fmt.Sprintf("%s(%s, (ulong)%s)", name, a, b)
}

// least returns min(a, b) or max(a, b) of Go: a NaN is the result if there is
// one, and −0 is less than 0.
func (p *program) least(word string, k kind, a, b string) string {
	name := fmt.Sprintf("cairn_%s_%s", word, k.name)
	if !p.helpers[name] {
		p.helpers[name] = true
		less, zero := "<", "a"
		if word == "max" {
			less, zero = ">", "b"
		}
		body := fmt.Sprintf("a %s b ? a : b", less)
		if k.class == 'f' {
			body = fmt.Sprintf("a != a ? a : b != b ? b : a == b ? (signbit(a) ? %s : %s) : a %s b ? a : b", zero, other(zero), less)
		}
		fmt.Fprintf(&p.helpText, "%s %s(%s a, %s b)\n{\n\treturn %s;\n}\n\n", k.name, name, k.name, k.name, body)
	}
	return fmt.Sprintf("%s(%s, %s)", name, a, b)
}

func other(s string) string {
	if s == "a" {
		return "b"
	}
	return "a"
}

// convert returns a conversion between numbers.
func (p *program) convert(n ast.Node, to, from types.Type, x string) string {
	a, ok := number(from)
	b, ok2 := number(to)
	if !ok || !ok2 || (a.class == 'c') != (b.class == 'c') || (a.class == 'b') != (b.class == 'b') {
		if types.Identical(from.Underlying(), to.Underlying()) && !ok {
			p.refuse(n, "a kernel cannot convert between structs: set the fields")
		}
		p.refuse(n, "a kernel cannot convert a %s to a %s", from, to)
	}
	if a.name == b.name {
		return x
	}
	if a.class == 'c' {
		return p.complexValue(b, x+".x", x+".y")
	}
	return fmt.Sprintf("(%s)%s", b.name, x)
}
