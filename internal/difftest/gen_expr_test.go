package difftest

import (
	"fmt"
	"strings"
)

// depth returns the argument for the parameter d of a call.
func (g *gen) depth() string {
	if g.fn[len(g.fn)-1].d {
		return "d-1"
	}
	return fmt.Sprint(1 + g.r.IntN(2))
}

// integer makes an expression of type int. With calls, operands are pure.
func (g *gen) integer(size int, calls bool) string {
	if size <= 0 || g.chance(0.3) {
		if v := g.variable(tInt, calls); v != "" && g.chance(0.8) {
			return v
		}
		return fmt.Sprint(g.r.IntN(20) - 3)
	}
	if calls && g.nest < 2 && g.chance(0.5) {
		g.nest++
		defer func() { g.nest-- }()
		return g.call(size - 1)
	}
	if !calls && g.chance(0.45) {
		if e := g.element(size); e != "" {
			return e
		}
	}
	a, b := g.integer(size-1, calls), g.integer(size-1, calls)
	switch op := g.one("+", "+", "-", "*", "^", "&", "|", "%", "<<"); op {
	case "*":
		return fmt.Sprintf("wrap(%s * %s)", a, b)
	case "%":
		return fmt.Sprintf("(%s %% %d)", a, 2+g.r.IntN(9))
	case "<<":
		return fmt.Sprintf("wrap(%s << %d)", a, g.r.IntN(4))
	default:
		return fmt.Sprintf("(%s %s %s)", a, op, b)
	}
}

// element reads a part of a composite variable. It returns "" if there is none.
func (g *gen) element(size int) string {
	switch g.r.IntN(7) {
	case 0:
		if v := g.variable(tInts, false); v != "" {
			return fmt.Sprintf("at(%s, %s)", v, g.integer(size-1, false))
		}
	case 1:
		if v := g.variable(tArr, false); v != "" {
			return fmt.Sprintf("%s[%d]", v, g.r.IntN(3))
		}
	case 2:
		if v := g.variable(tMap, false); v != "" {
			return fmt.Sprintf("%s[%s]", v, g.integer(size-1, false))
		}
	case 3:
		if v := g.variable(tRec, false); v != "" {
			return v + g.one(".n", ".arr[1]", ".arr[2]")
		}
	case 4:
		if v := g.variable(tIPtr, false); v != "" {
			return "(*" + v + ")"
		}
	case 5:
		if v := g.variable(g.one(tStr, tInts, tMap, tFuncs), false); v != "" {
			return "len(" + v + ")"
		}
	case 6:
		if v := g.variable(tPtr, false); v != "" {
			return v + ".get()"
		}
	}
	return ""
}

// call makes a call that returns an int. Operands beside it are pure.
func (g *gen) call(size int) string {
	arg := func() string { return g.integer(size-1, true) }
	if g.quiet {
		return fmt.Sprintf("quiet(%s)", arg())
	}
	for range 6 {
		switch g.r.IntN(9) {
		case 0, 1, 2:
			var list []*function
			for _, f := range g.fns {
				if len(f.results) == 1 && f.results[0] == tInt {
					list = append(list, f)
				}
			}
			if len(list) > 0 {
				return g.callOf(list[g.r.IntN(len(list))], true)
			}
		case 3:
			if v := g.variable(tFunc, true); v != "" {
				return fmt.Sprintf("%s(%s)", v, arg())
			}
		case 4:
			if v := g.variable(tPtr, true); v != "" {
				return fmt.Sprintf("%s.%s(%s)", v, g.one("grow", "sum", "each"), arg())
			}
		case 5:
			if v := g.variable(tAct, true); v != "" {
				return fmt.Sprintf("%s.do(%s, %s)", v, g.depth(), arg())
			}
		case 6:
			return fmt.Sprintf("quiet(%s)", arg())
		case 7:
			if v := g.variable(tInts, true); v != "" {
				return fmt.Sprintf("fold(%s, %s, %s)", v, arg(), g.one("top", "quiet"))
			}
		case 8:
			if v := g.variable(tFuncs, true); v != "" {
				return fmt.Sprintf("pickFunc(%s, %s)(%s)", v, g.integer(0, true), arg())
			}
		}
	}
	return fmt.Sprintf("top(%s)", arg())
}

// callOf makes a call of a top-level function.
func (g *gen) callOf(f *function, calls bool) string {
	args := []string{g.depth()}
	for _, t := range f.params {
		args = append(args, g.expr(t, calls))
	}
	return fmt.Sprintf("%s(%s)", f.name, strings.Join(args, ", "))
}

// condition makes an expression of type bool.
func (g *gen) condition(size int, calls bool) string {
	if size > 0 && g.chance(0.35) {
		return fmt.Sprintf("(%s %s %s)", g.condition(size-1, calls), g.one("&&", "||"), g.condition(size-1, calls))
	}
	if v := g.variable(tBool, calls); v != "" && g.chance(0.25) {
		return g.one("", "!") + v
	}
	if v := g.variable(tStr, calls); v != "" && g.chance(0.15) {
		return fmt.Sprintf("%s %s %q", v, g.one("<", "==", "!="), g.one("a", "bé", "c"))
	}
	return fmt.Sprintf("%s %s %s", g.integer(1, calls), g.one("<", ">", "<=", "!=", "=="), g.integer(1, calls))
}

// expr makes an expression of a type. With calls set, it may contain calls, and
// then reads pure variables only.
func (g *gen) expr(typ string, calls bool) string {
	if typ == tInt {
		return g.integer(2, calls)
	}
	if typ == tBool {
		return g.condition(1, calls)
	}
	if v := g.variable(typ, calls); v != "" && g.chance(0.45) {
		return v
	}
	num := func() string { return g.integer(1, calls) }
	switch typ {
	case tStr:
		return g.one(`"aé語"`, `"b\xffx"`, `""`, fmt.Sprintf("str(%s)", num()))
	case tInts:
		if v := g.variable(tInts, calls); v != "" && g.chance(0.4) {
			return fmt.Sprintf("cut(%s, %s)", v, num())
		}
		return fmt.Sprintf("[]int{%s, %s, %s}", num(), num(), num())
	case tArr:
		return fmt.Sprintf("[3]int{%s, %d: %s}", num(), 1+g.r.IntN(2), num())
	case tMap:
		return fmt.Sprintf("map[int]int{%d: %s, %d: %s}", g.r.IntN(5), num(), 5+g.r.IntN(5), num())
	case tRec:
		return fmt.Sprintf("rec{n: %s, s: []int{%s}}", num(), num())
	case tPtr:
		if v := g.variable(tRec, false); v != "" && !calls && g.chance(0.3) {
			if w := g.pick(func(o *variable) bool { return o.typ == tRec && !o.pure && o.name == v }); w != nil {
				return "&" + v
			}
		}
		if v := g.variable(tPtr, calls); v != "" && g.chance(0.4) {
			return fmt.Sprintf("&rec{n: %s, next: %s}", num(), v)
		}
		return fmt.Sprintf("&rec{n: %s, f: %s}", num(), g.one("nil", "top", "quiet"))
	case tFunc:
		return g.function(calls)
	case tAct:
		switch g.r.IntN(3) {
		case 0:
			return fmt.Sprintf("valueAct{%s}", num())
		case 1:
			return fmt.Sprintf("&ptrAct{n: %s}", num())
		}
		return fmt.Sprintf("funcAct(%s)", g.one("top", "quiet"))
	case tIPtr:
		if v := g.pick(func(v *variable) bool {
			return v.typ == tInt && !v.pure && !v.fixed
		}); v != nil {
			return "&" + v.name
		}
		return "new(int)"
	case tFuncs:
		return fmt.Sprintf("[]func(int) int{%s, %s}", g.one("top", "quiet"), g.expr(tFunc, true))
	case tAny:
		switch t := g.one(tInt, tStr, tInts, tPtr, tBool, "nil"); t {
		case "nil":
			return "any(nil)"
		default:
			return fmt.Sprintf("any(%s)", g.expr(t, calls))
		}
	case tFloat:
		return fmt.Sprintf("float64(%s)", num())
	case tErr:
		return g.one("nil", "errOdd", fmt.Sprintf(`fmt.Errorf("e%%d: %%w", %s, errOdd)`, num()))
	}
	panic("no expression of type " + typ)
}

// function makes an expression of type func(int) int.
func (g *gen) function(calls bool) string {
	if v := g.variable(tPtr, calls); v != "" && g.chance(0.3) {
		return v + g.one(".grow", ".sum", ".each")
	}
	if f := g.fn[len(g.fn)-1]; g.chance(0.3) || f.stmts <= 0 || g.quiet || g.plain || g.level > 2 {
		return g.one("top", "quiet", "adder(3)", "counter()")
	}
	held := g.nest
	g.nest = 0
	defer func() { g.nest = held }()
	f := g.fn[len(g.fn)-1]
	n := min(f.stmts, 2+g.r.IntN(4))
	f.stmts -= n
	p := g.fresh("p")
	return g.funcLit(fmt.Sprintf("func(%s int) int", p), []string{p}, []string{tInt}, n)
}
