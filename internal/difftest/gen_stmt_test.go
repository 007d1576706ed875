package difftest

import (
	"fmt"
	"slices"
	"strings"
)

// stmt makes a statement.
func (g *gen) stmt() string {
	type maker struct {
		weight int
		make   func() string
	}
	makers := []maker{
		{16, g.decl}, {14, g.assign}, {9, g.store}, {9, g.show}, {8, g.ifStmt}, {12, g.forStmt},
		{5, g.switchStmt}, {2, g.typeSwitch}, {3, g.deferStmt}, {7, g.callStmt}, {4, g.tuple},
		{2, g.nested}, {4, g.jump}, {2, g.returnStmt}, {2, g.recoverStmt}, {1, g.goStmt},
		{1, g.selectStmt}, {3, g.gotoStmt}, {3, g.keepFunc}, {2, g.mapRange}, {9, g.whileStmt}, {2, g.machineStmt}, {3, g.receive},
	}
	for {
		total := 0
		for _, m := range makers {
			total += m.weight
		}
		at := g.r.IntN(total)
		for _, m := range makers {
			if at -= m.weight; at < 0 {
				if s := m.make(); s != "" {
					return s
				}
				break
			}
		}
	}
}

func (g *gen) decl() string {
	typ := localTypes[g.r.IntN(len(localTypes))]
	e := g.expr(typ, g.chance(0.5))
	v := g.declare(typ, g.chance(0.55))
	switch {
	case typ == tAct || g.chance(0.2):
		return fmt.Sprintf("var %s %s = %s\n_ = %s", v.name, typ, e, v.name)
	default:
		return fmt.Sprintf("%s := %s\n_ = %s", v.name, e, v.name)
	}
}

func (g *gen) assign() string {
	v := g.pick(func(v *variable) bool { return !v.fixed })
	if v == nil {
		return ""
	}
	if o := g.pick(func(o *variable) bool { return o.typ == v.typ && o != v && !o.fixed }); o != nil && g.chance(0.15) {
		return fmt.Sprintf("%s, %s = %s, %s", v.name, o.name, o.name, v.name)
	}
	switch {
	case v.typ == tInt && g.chance(0.2):
		return v.name + g.one("++", "--")
	case v.typ == tInt && g.chance(0.5):
		return fmt.Sprintf("%s %s %s", v.name, g.one("+=", "-=", "^="), g.integer(2, v.pure && g.chance(0.6)))
	case v.typ == tStr && g.chance(0.5):
		return fmt.Sprintf("if len(%s) < 20 { %s += %q }", v.name, v.name, g.one("k", "é", "zz"))
	}
	return fmt.Sprintf("%s = %s", v.name, g.expr(v.typ, g.chance(0.5)))
}

// store makes an assignment to a part of a composite variable.
func (g *gen) store() string {
	v := g.pick(func(v *variable) bool {
		switch v.typ {
		case tInts, tArr, tMap, tRec, tPtr, tIPtr, tFuncs:
			return !v.fixed
		}
		return false
	})
	if v == nil {
		return ""
	}
	num := func() string { return g.integer(1, false) }
	switch v.typ {
	case tInts:
		if g.chance(0.5) {
			return fmt.Sprintf("if len(%s) < 9 { %s = append(%s, %s) }", v.name, v.name, v.name, num())
		}
		return fmt.Sprintf("if len(%s) > 0 { %s[mod(%s, len(%s))] = %s }", v.name, v.name, num(), v.name, num())
	case tArr:
		return fmt.Sprintf("%s[%d] = %s", v.name, g.r.IntN(3), num())
	case tMap:
		if g.chance(0.2) {
			return fmt.Sprintf("delete(%s, %s)", v.name, num())
		}
		return fmt.Sprintf("%s[mod(%s, 7)] %s %s", v.name, num(), g.one("=", "+="), num())
	case tRec:
		return fmt.Sprintf("%s.%s", v.name, g.one("n = "+num(), "arr[1]++", "n -= "+num(), "s = append([]int{}, "+num()+")"))
	case tPtr:
		set := g.one("n += "+num(), "arr[2] = "+num(), "next = "+g.expr(tPtr, false), "f = "+g.expr(tFunc, false), "act = "+g.expr(tAct, false))
		return fmt.Sprintf("if %s != nil { %s.%s }", v.name, v.name, set)
	case tIPtr:
		return fmt.Sprintf("*%s %s %s", v.name, g.one("=", "+="), num())
	default:
		return fmt.Sprintf("if len(%s) < 5 { %s = append(%s, %s) }", v.name, v.name, v.name, g.expr(tFunc, false))
	}
}

func (g *gen) ifStmt() string {
	return g.within(func() string {
		var b strings.Builder
		b.WriteString("if ")
		if g.chance(0.3) {
			e := g.integer(2, g.chance(0.5))
			v := g.declare(tInt, g.chance(0.6))
			fmt.Fprintf(&b, "%s := %s; %s > %d {\n", v.name, e, v.name, g.r.IntN(10))
		} else {
			fmt.Fprintf(&b, "%s {\n", g.condition(2, g.chance(0.5)))
		}
		b.WriteString(g.block(1 + g.r.IntN(4)))
		for g.chance(0.25) {
			fmt.Fprintf(&b, "} else if %s {\n%s", g.condition(1, g.chance(0.5)), g.block(1+g.r.IntN(2)))
		}
		if g.chance(0.4) {
			fmt.Fprintf(&b, "} else {\n%s", g.block(1+g.r.IntN(3)))
		}
		b.WriteString("}")
		return b.String()
	})
}

// enter makes a statement that break and perhaps continue can name.
func (g *gen) enter(loop bool, f func() string) string {
	t := &target{label: g.fresh("L"), loop: loop}
	last := len(g.targets) - 1
	g.targets[last] = append(g.targets[last], t)
	s := f()
	g.targets[last] = g.targets[last][:len(g.targets[last])-1]
	if t.used {
		return t.label + ":\n" + s
	}
	return s
}

// forStmt makes a loop of any kind.
func (g *gen) forStmt() string {
	return g.enter(true, func() string { return g.within(g.loop) })
}

func (g *gen) loop() string {
	n := 1 + g.r.IntN(5)
	pure := g.chance(0.6)
	body := func() string {
		return g.within(func() string {
			first := ""
			if g.chance(0.3) {
				first = g.overwrite()
			}
			return first + "if step() { break }\n" + g.list(n)
		})
	}
	ranged := func(key, value, over string) string {
		head := ""
		k, v := "_", "_"
		if key != "" && g.chance(0.8) {
			k = g.declare(key, pure).name
			head = k
		}
		if value != "" && g.chance(0.8) {
			v = g.declare(value, g.chance(0.6)).name
			head = k + ", " + v
		}
		if head != "" {
			head += " := "
		}
		use := ""
		if k != "_" {
			use += "_ = " + k + "\n"
		}
		if v != "_" && v != k {
			use += "_ = " + v + "\n"
		}
		return fmt.Sprintf("for %srange %s {%s\n%s%s}", head, over, g.loopMark(), use, body())
	}
	switch g.r.IntN(11) {
	case 0, 1:
		v := g.declare(tInt, pure)
		bound := g.integer(1, g.chance(0.3))
		step := g.one("++", " += 2", "++")
		if g.chance(0.2) {
			step = fmt.Sprintf(" += 1 + mod(%s, 2)", g.integer(1, true))
		}
		return fmt.Sprintf("for %s := %d; %s < mod(%s, 6); %s%s {%s\n%s}", v.name, g.r.IntN(2), v.name, bound, v.name, step, g.loopMark(), body())
	case 2:
		cond := g.condition(1, g.chance(0.4))
		return fmt.Sprintf("for %s {%s\n%s}", cond, g.loopMark(), body())
	case 3:
		mark := g.loopMark()
		return g.within(func() string {
			inner := g.list(n)
			return fmt.Sprintf("for {%s\nif step() { break }\n%sif %s { break }\n}", mark, inner, g.condition(1, false))
		})
	case 4:
		return ranged(tInt, "", fmt.Sprintf("mod(%s, 5)", g.integer(1, g.chance(0.3))))
	case 5, 6:
		return ranged(tInt, tInt, g.expr(tInts, g.chance(0.3)))
	case 7:
		if v := g.pick(func(v *variable) bool { return v.typ == tArr && !v.pure }); v != nil {
			return ranged(tInt, tInt, g.one("&", "")+v.name)
		}
		return ranged(tInt, tInt, "[...]int{3, 1, 2}")
	case 8:
		return ranged(tInt, "", g.expr(tStr, false)) // the value is a rune, which has no type here
	case 9:
		return ranged(tInt, "", fmt.Sprintf("filled(%s)", g.integer(1, false)))
	default:
		over := fmt.Sprintf("count(mod(%s, 4))", g.integer(1, g.chance(0.3)))
		switch g.r.IntN(3) {
		case 0:
			return ranged(tInt, tInt, "odd("+over+")")
		case 1:
			return ranged(tInt, "", fmt.Sprintf("down(mod(%s, 4)).walk", g.integer(1, false)))
		}
		return ranged(tInt, "", over)
	}
}

func (g *gen) switchStmt() string {
	return g.enter(false, func() string {
		return g.within(func() string {
			var b strings.Builder
			b.WriteString("switch ")
			tagged := g.chance(0.6)
			calls := g.chance(0.4)
			switch {
			case tagged && g.chance(0.4):
				e := g.integer(2, g.chance(0.5))
				v := g.declare(tInt, true)
				fmt.Fprintf(&b, "%s := %s; mod(%s, 4)", v.name, e, v.name)
			case tagged:
				fmt.Fprintf(&b, "mod(%s, 4)", g.integer(2, calls))
			}
			b.WriteString(" {\n")
			cases := 2 + g.r.IntN(3)
			deflt := g.r.IntN(cases * 2)
			for i := range cases {
				switch {
				case i == deflt:
					b.WriteString("default:\n")
				case tagged && i == 0:
					b.WriteString("case 0, 3:\n")
				case tagged:
					fmt.Fprintf(&b, "case %d:\n", []int{0, 1, 2, 7, 8}[i])
				default:
					fmt.Fprintf(&b, "case %s:\n", g.condition(1, calls))
				}
				b.WriteString(g.block(1 + g.r.IntN(3)))
				if i+1 < cases && g.chance(0.15) {
					b.WriteString("fallthrough\n")
				}
			}
			b.WriteString("}")
			return b.String()
		})
	})
}

func (g *gen) typeSwitch() string {
	v := g.variable(tAny, false)
	if v == "" {
		return ""
	}
	return g.enter(false, func() string {
		var b strings.Builder
		t := g.fresh("t")
		fmt.Fprintf(&b, "switch %s := %s.(type) {\n", t, v)
		for _, typ := range []string{tInt, tStr, tInts, tPtr, "nil"} {
			if g.chance(0.3) {
				continue
			}
			fmt.Fprintf(&b, "case %s:\n_ = %s\n", typ, t)
			b.WriteString(g.within(func() string {
				if typ != "nil" {
					in := g.scopes[len(g.scopes)-1]
					in.vars = append(in.vars, &variable{name: t, typ: typ, pure: true, level: g.level})
				}
				return g.list(1 + g.r.IntN(2))
			}))
		}
		fmt.Fprintf(&b, "default:\n_ = %s\n%s}", t, g.block(1))
		return b.String()
	})
}

func (g *gen) deferStmt() string {
	inLoop := slices.ContainsFunc(g.targets[len(g.targets)-1], func(t *target) bool { return t.loop })
	if g.quiet || g.plain || inLoop && !g.rare.deferLoops {
		return ""
	}
	switch g.r.IntN(4) {
	case 0:
		return "defer " + g.show()
	case 1:
		if v := g.variable(tPtr, false); v != "" {
			return fmt.Sprintf("defer %s.%s(%s)", v, g.one("grow", "each"), g.integer(1, false))
		}
		return ""
	case 2:
		if v := g.variable(tFunc, false); v != "" {
			return fmt.Sprintf("defer %s(%s)", v, g.integer(1, false))
		}
		return ""
	}
	held := g.points
	g.points = 1 << 30
	defer func() { g.points = held }()
	return "defer " + g.funcLit("func()", nil, nil, 1+g.r.IntN(3)) + "()"
}

// callStmt makes a call for its effects, with arguments of any kind.
func (g *gen) callStmt() string {
	if g.quiet {
		return ""
	}
	switch g.r.IntN(5) {
	case 0, 1:
		return g.callOf(g.fns[g.r.IntN(len(g.fns))], false)
	case 2:
		if v := g.pick(func(v *variable) bool { return v.typ == tInt && !v.fixed }); v != nil {
			return fmt.Sprintf("%s = %s", v.name, g.call(2))
		}
	case 3:
		if v := g.variable(tAct, false); v != "" {
			return fmt.Sprintf("%s.do(%s, %s)", v, g.depth(), g.integer(1, false))
		}
	case 4:
		if v := g.variable(tRec, false); v != "" {
			return fmt.Sprintf("%s.shift(%s)", v, g.integer(1, false))
		}
	}
	return ""
}

// tuple makes an assignment of several results of a call.
func (g *gen) tuple() string {
	var list []*function
	for _, f := range g.fns {
		if len(f.results) == 2 {
			list = append(list, f)
		}
	}
	if len(list) == 0 || g.quiet {
		return ""
	}
	f := list[g.r.IntN(len(list))]
	call := g.callOf(f, false)
	if g.chance(0.3) {
		if v := g.pick(func(v *variable) bool { return v.typ == f.results[0] && !v.fixed }); v != nil {
			return fmt.Sprintf("%s, _ = %s", v.name, call)
		}
	}
	a := g.declare(f.results[0], g.chance(0.5))
	b := g.declare(f.results[1], g.chance(0.5))
	if a.name == b.name {
		b.name = g.fresh("v")
	}
	return fmt.Sprintf("%s, %s := %s\n_, _ = %s, %s", a.name, b.name, call, a.name, b.name)
}

func (g *gen) nested() string { return "{\n" + g.block(1+g.r.IntN(4)) + "}" }

// jump makes a conditional jump out of a loop or to its next iteration.
func (g *gen) jump() string {
	list := g.targets[len(g.targets)-1]
	if len(list) == 0 {
		return ""
	}
	t := list[g.r.IntN(len(list))]
	how := "break"
	if t.loop && g.chance(0.5) {
		how = "continue"
	}
	t.used = true
	return fmt.Sprintf("if %s { %s %s }", g.condition(1, g.chance(0.3)), how, t.label)
}

func (g *gen) returnStmt() string {
	f := g.fn[len(g.fn)-1]
	if f.main {
		return ""
	}
	what := ""
	if len(f.results) > 0 {
		what = g.values(f.results, false)
		naked := len(f.named) > 0
		for _, r := range f.named {
			naked = naked && g.pick(func(v *variable) bool { return v == r }) != nil
		}
		if naked && g.chance(0.5) {
			what = ""
		}
	}
	return fmt.Sprintf("if %s { return %s }", g.condition(1, g.chance(0.3)), what)
}

func (g *gen) recoverStmt() string {
	if g.quiet || g.plain || g.level > 2 {
		return ""
	}
	f := g.fn[len(g.fn)-1]
	n := min(f.stmts, 5)
	f.stmts -= n
	catch := fmt.Sprintf("defer func() { if r := recover(); r != nil { tr(%d, fmt.Sprint(r)) } }()\n", g.r.IntN(1000))
	return g.literal("func()", nil, nil, n, catch, func() string {
		return g.one(fmt.Sprintf("if %s { panic(errOdd) }", g.condition(1, false)), fmt.Sprintf("boom(%s)", g.integer(1, false)), "_ = []int{}[mod(fuel, 3)]") + "\n"
	}) + "()"
}

func (g *gen) goStmt() string {
	if g.quiet || g.plain {
		return ""
	}
	res, wg := g.fresh("res_"), g.fresh("wg")
	k := g.integer(1, false)
	c := g.fresh("c")
	return fmt.Sprintf(`%[1]s, %[4]s := make([]int, 3), %[3]s
	var %[2]s sync.WaitGroup
	for i := range %[1]s { %[2]s.Add(1); go func() { defer %[2]s.Done(); for k := range 20 { %[1]s[i] += k*i ^ %[4]s } }() }
	%[2]s.Wait()
	tr(%[5]d, %[1]s)`, res, wg, k, c, g.r.IntN(1000))
}

func (g *gen) selectStmt() string {
	ch := g.fresh("ch")
	return g.enter(false, func() string {
		return fmt.Sprintf("select {\ncase x := <-offer(%s):\n_ = x\n%sdefault:\n%s}", g.integer(1, false), g.block(2), g.block(1))
	}) + "\n" + fmt.Sprintf("%s := make(chan int, 1)\nselect { case %s <- %s: default: }\ntr(%d, len(%s))", ch, ch, g.integer(1, false), g.r.IntN(1000), ch)
}

func (g *gen) gotoStmt() string {
	if g.quiet || !g.rare.jumps {
		return ""
	}
	label, n := g.fresh("again"), g.fresh("n")
	return fmt.Sprintf("%s := 0\n%s:\n%s++\n%sif %s < 3 && !step() { goto %s }", n, label, n, "{\n"+g.block(2)+"}\n", n, label)
}

// keepFunc stores a function in a variable that outlives the statement.
func (g *gen) keepFunc() string {
	e := g.expr(tFunc, false)
	switch g.r.IntN(4) {
	case 0:
		return "gFunc = " + e
	case 1:
		return fmt.Sprintf("gFuncs[%d] = %s", g.r.IntN(2), e)
	case 2:
		return fmt.Sprintf("gTable[%q] = %s", g.one("a", "b"), e)
	}
	return "gRec.f = " + e
}

// mapRange makes a loop over a map. Its order must not be visible.
func (g *gen) mapRange() string {
	m := g.variable(tMap, false)
	if m == "" {
		return ""
	}
	k, v, acc := g.fresh("k"), g.fresh("w"), g.fresh("acc")
	extra := g.one("", fmt.Sprintf("if %s %% 3 == 1 { delete(%s, %s) }\n", k, m, k), fmt.Sprintf("if %s > 3 { continue }\n", k))
	return fmt.Sprintf("%s := 0\nfor %s, %s := range %s {%s\n%s += %s*31 + quiet(%s)\n%s}\ntr(%d, %s)", acc, k, v, m, g.loopMark(), acc, k, v, extra, g.r.IntN(1000), acc)
}
