package difftest

import (
	"fmt"
	"strings"
)

// This file generates loops that a compiler which saves only live variables may
// get wrong: they overwrite the variables that their head reads, so that these
// are dead at the beginning of an iteration.

// ending says how a variable of some type keeps a loop running.
type ending struct {
	typ         string
	on, off     string // values for which the loop continues, and ends
	cond        string // condition, with %s for the variable's name
	onWithCalls string // another value for which it continues
}

var endings = []ending{
	{tBool, "true", "false", "%s", "quiet(3) != 1"},
	{tBool, "false", "true", "!%s", "quiet(3) == 1"},
	{tFloat, "1.0", "0", "%s > 1e-9", "float64(1+mod(top(1), 5)) / 2"},
	{tInt, "7", "0", "%s > 0", "1 + mod(top(2), 5)"},
	{tInt, "0", "5", "mod(%s, 9) < 3", "mod(top(2), 3)"},
	{tStr, `"on"`, `""`, `%s != ""`, `str(top(3))`},
	{tInts, "[]int{1}", "nil", "len(%s) > 0", "[]int{top(1), 2}"},
	{tPtr, "(&rec{n: 1})", "nil", "%s != nil", "&rec{n: top(1)}"},
	{tAny, "any(1)", "nil", "%s != nil", "any(top(4))"},
	{tErr, "errOdd", "nil", "%s != nil", `fmt.Errorf("%%d: %%w", top(1), errOdd)`},
	{tRec, "(rec{n: 1})", "rec{}", "%s.n != 0", "rec{n: 1 + mod(top(1), 3)}"},
	{tArr, "[3]int{1}", "[3]int{}", "%s[0] != 0", "[3]int{1, top(1)}"},
	{tMap, "map[int]int{1: 1}", "nil", "len(%s) > 0", "map[int]int{top(1): 2}"},
}

// whileStmt makes a loop that decides in each iteration whether there is
// another one. Its variable is assigned before it is read, on all paths or on
// most.
func (g *gen) whileStmt() string {
	e := endings[g.r.IntN(len(endings))]
	var before strings.Builder
	loop := g.enter(true, func() string {
		return g.within(func() string {
			v := g.declare(e.typ, g.chance(0.8))
			v.fixed = true // nothing else may keep it running
			outside := g.chance(0.5)
			if outside { // outside, no other variable has its name
				v.name = g.fresh("v")
			}
			init := fmt.Sprintf("%s := %s", v.name, e.on)
			if e.typ == tErr || e.typ == tAny {
				init = fmt.Sprintf("%s := %s(%s)", v.name, e.typ, e.on)
			}
			if outside {
				fmt.Fprintf(&before, "%s\n_ = %s\n", init, v.name)
				init = ""
			}
			cond := fmt.Sprintf(e.cond, v.name)
			post := ""
			if c := g.pick(func(o *variable) bool { return o.typ == tInt && !o.fixed }); c != nil {
				post = g.one("", "", c.name+"++", c.name+" = quiet("+c.name+")", "top(1)")
				if c.pure && g.chance(0.2) {
					post = fmt.Sprintf("%s = %s", c.name, g.integer(1, true))
				}
			}
			head := fmt.Sprintf("for %s; %s; %s {%s\n", init, cond, post, g.loopMark())
			return head + g.decide(v, e) + "}"
		})
	})
	return before.String() + loop
}

// decide makes the body of a loop that decides whether there is another
// iteration.
func (g *gen) decide(v *variable, e ending) string {
	set := func(value string) string { return fmt.Sprintf("%s = %s\n", v.name, value) }
	on := func() string { return set(g.one(e.on, e.on, strings.ReplaceAll(e.onWithCalls, "%%", "%"))) }
	inner := func() string { return "{\n" + g.block(1+g.r.IntN(3)) + "}\n" }
	switch g.r.IntN(5) {
	case 0: // like a sort that records whether it has swapped
		k := g.fresh("k")
		return set(e.off) + fmt.Sprintf("for %s := 0; %s < 3; %s++ {%s\nif step() { break }\n%sif mod(fuel+%s, 3) != 0 {\n%s}\n}\n", k, k, k, g.loopMark(), inner(), k, on())
	case 1: // on all paths, at the end
		return fmt.Sprintf("if step() { break }\n%sif mod(fuel, 4) == 0 {\n%s} else {\n%s}\n", inner(), set(e.off), on())
	case 2: // in a switch
		return set(e.off) + inner() + fmt.Sprintf("switch mod(fuel, 5) {\ncase 0:\n%sfallthrough\ncase 1:\nif !step() {\n%s}\ncase 2:\ndefault:\n%sif step() {\n%s}\n}\n", inner(), on(), on(), set(e.off))
	case 3: // through another variable that is new in each iteration
		n := g.fresh("more")
		return set(e.off) + fmt.Sprintf("%s := !step() && mod(fuel, 4) != 1\n%sif %s {\n%s}\n", n, inner(), n, on())
	}
	return set(e.off) + inner() + "if !step() && mod(fuel, 4) != 0 {\n" + on() + "}\n"
}

// overwrite assigns a visible variable at the beginning of a loop's body. There
// the variable is dead; it may be read after the loop or before the next
// iteration.
func (g *gen) overwrite() string {
	v := g.pick(func(v *variable) bool { return !v.fixed && v.pure })
	if v == nil || g.quiet {
		return ""
	}
	if own := g.pick(func(o *variable) bool { return o.typ == v.typ && o != v }); own != nil && g.chance(0.3) {
		return fmt.Sprintf("%s = %s\n", v.name, own.name)
	}
	return fmt.Sprintf("%s = %s\n", v.name, g.expr(v.typ, false))
}

// machineStmt makes a loop that assigns the variable which determines its call:
// a variable with a method, or a func that returns the next one.
func (g *gen) machineStmt() string {
	if g.quiet {
		return ""
	}
	w, mark := g.fresh("w"), g.loopMark()
	k := 1 + g.r.IntN(4)
	begin := g.one(fmt.Sprintf("&walkA{%d}", k), fmt.Sprintf("walkB{%d}", k))
	first := g.one("stateA", "stateB")
	inner := "{\n" + g.block(1) + "}\n"
	switch g.r.IntN(7) {
	case 0:
		return fmt.Sprintf("var %[1]s walker = %[2]s\nfor %[1]s != nil {%[3]s\n%[1]s = %[1]s.next()\n%[4]s}", w, begin, mark, inner)
	case 1:
		return fmt.Sprintf("%[1]s := state(%[2]s)\nfor %[1]s != nil {%[3]s\n%[1]s = %[1]s()\n%[4]s}", w, first, mark, inner)
	case 2:
		return fmt.Sprintf("%[1]s := struct { w walker; n int }{w: %[2]s}\nfor %[1]s.w != nil {%[3]s\n%[1]s.w = %[1]s.w.next()\n%[4]s%[1]s.n++\n}\ntr(%[5]d, %[1]s.n)", w, begin, mark, inner, g.r.IntN(1000))
	case 3:
		return fmt.Sprintf("%[1]s := []state{%[2]s, stateA}\nfor i := 0; %[1]s[mod(i, 2)] != nil; i++ {%[3]s\n%[1]s[mod(i, 2)] = %[1]s[mod(i, 2)]()\n%[4]s}", w, first, mark, inner)
	case 4:
		return fmt.Sprintf("%[1]s := map[int]walker{1: %[2]s}\nfor %[1]s[1] != nil {%[3]s\n%[1]s[1] = %[1]s[1].next()\n%[4]s}", w, begin, mark, inner)
	case 5:
		n := g.fresh("v")
		return fmt.Sprintf("var %[1]s walker = %[2]s\n%[6]s := 0\nfor %[1]s != nil {%[3]s\n%[1]s, %[6]s = %[1]s.both(%[6]s)\n%[4]s}\ntr(%[5]d, %[6]s)", w, begin, mark, inner, g.r.IntN(1000), n)
	}
	return fmt.Sprintf("var %[1]s walker = %[2]s\nfor %[1]s != nil {%[3]s\n%[1]s = walker.next(%[1]s)\n%[4]s}", w, begin, mark, inner)
}

// receive makes a select whose clauses assign variables. One of the clauses is
// taken.
func (g *gen) receive() string {
	n := g.integer(1, false)
	if g.chance(0.6) { // in a loop; each clause reads what the other one assigns
		a, b, i := g.fresh("v"), g.fresh("v"), g.fresh("i")
		return fmt.Sprintf("%[1]s, %[2]s, ok%[1]s := 1, 2, true\nfor %[3]s := 0; %[3]s < 5; %[3]s++ {%[4]s\nif step() { break }\nselect {\ncase %[1]s, ok%[1]s = <-offer(%[3]s + %[5]s):\ntr(%[6]d, %[2]s)\ncase %[2]s = <-offer(1 + %[3]s + %[5]s):\ntr(%[7]d, %[1]s, ok%[1]s)\n}\n{\n%[8]s}\n}",
			a, b, i, g.loopMark(), n, g.r.IntN(1000), g.r.IntN(1000), g.block(1))
	}
	fits := func(v *variable) bool { return v.typ == tInt && !v.fixed }
	a, b := g.pick(fits), g.pick(fits)
	if a == nil {
		return ""
	}
	return g.enter(false, func() string {
		return fmt.Sprintf("select {\ncase %s = <-offer(%s):\n%scase %s = <-offer(1 + %s):\n%s}", a.name, n, g.block(2), b.name, n, g.block(2))
	})
}
