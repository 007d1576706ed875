package difftest

import (
	"fmt"
	"go/format"
	"math/rand/v2"
	"slices"
	"strings"
)

// Generate returns the source of a package with an exported function Main: a
// random program that always ends, prints a trace and its final state, and is
// deterministic. The same seed gives the same program.
//
// Go leaves open when a variable is read in relation to calls in the same
// expression. Programs must not depend on that, so there are two kinds of
// variables: pure ones, which are never captured and have no pointers to them,
// and shared ones. Operands beside calls are pure.
func Generate(seed uint64, pkg string) (string, error) {
	g := &gen{r: rand.New(rand.NewPCG(seed, 0x6361697266)), pkg: pkg}
	text := g.program(seed)
	out, err := format.Source([]byte(text))
	if err != nil {
		return text, fmt.Errorf("seed %d: %w", seed, err)
	}
	return string(out), nil
}

// Types of variables.
const (
	tInt   = "int"
	tBool  = "bool"
	tFloat = "float64"
	tStr   = "string"
	tInts  = "[]int"
	tArr   = "[3]int"
	tMap   = "map[int]int"
	tRec   = "rec"
	tPtr   = "*rec"
	tFunc  = "func(int) int"
	tAct   = "act"
	tIPtr  = "*int"
	tFuncs = "[]func(int) int"
	tAny   = "any"
	tErr   = "error"
)

var localTypes = []string{tInt, tInt, tInt, tStr, tBool, tFloat, tInts, tInts, tArr, tMap, tRec, tPtr, tPtr, tFunc, tFunc, tAct, tIPtr, tFuncs, tAny}

// variable is a variable that the program has declared.
type variable struct {
	name, typ string
	pure      bool
	level     int // number of function literals around it
	fixed     bool
}

// scope is a block. Its variables hide outer ones of the same name.
type scope struct{ vars []*variable }

// target is a statement that break or continue can name.
type target struct {
	label      string
	loop, used bool
}

// function is a top-level function that can be called.
type function struct {
	name    string
	params  []string // types of the parameters after d
	results []string
	named   bool
}

// gen is the state of the generator.
type gen struct {
	r       *rand.Rand
	pkg     string
	n       int // number of names so far
	points  int // loops marked so far
	scopes  []*scope
	level   int
	targets [][]*target // one list per function literal
	fn      []*frame
	fns     []*function
	nest    int // depth of calls inside calls
	rare    rare
	quiet   bool // no calls: in code that runs concurrently or in any order
	plain   bool // no func literals and deferred calls: the function can be unwound at a point
}

// rare are constructs that Cairn refuses on the path to a point. If all
// programs had them, most would have no points.
type rare struct{ jumps, deferLoops bool }

// frame is a function or function literal that is being generated.
type frame struct {
	results []string
	named   []*variable // the results, if they have names
	d       bool        // it has the parameter d
	main    bool        // it always runs to its end
	stmts   int         // statements left
}

func (g *gen) one(of ...string) string { return of[g.r.IntN(len(of))] }
func (g *gen) chance(p float64) bool   { return g.r.Float64() < p }

func (g *gen) fresh(prefix string) string {
	g.n++
	return fmt.Sprint(prefix, g.n)
}

// declare adds a variable to the innermost block. Sometimes it reuses the name
// of an outer one.
func (g *gen) declare(typ string, pure bool) *variable {
	v := &variable{typ: typ, pure: pure, level: g.level}
	in := g.scopes[len(g.scopes)-1]
	if g.chance(0.2) {
		if old := g.pick(func(o *variable) bool { return o.name != "d" && (!slices.Contains(globals, o) || o.typ == tInt) }); old != nil && !slices.ContainsFunc(in.vars, func(o *variable) bool { return o.name == old.name }) {
			v.name = old.name
		}
	}
	if v.name == "" {
		v.name = g.fresh("v")
	}
	in.vars = append(in.vars, v)
	return v
}

// visible calls f for all visible variables.
func (g *gen) visible(f func(*variable)) {
	seen := make(map[string]bool)
	for _, s := range slices.Backward(g.scopes) {
		for _, v := range slices.Backward(s.vars) {
			if !seen[v.name] && (!v.pure || v.level == g.level) {
				f(v)
			}
			seen[v.name] = true
		}
	}
}

// pick returns a visible variable for which fits reports true, or nil.
func (g *gen) pick(fits func(*variable) bool) *variable {
	var list []*variable
	g.visible(func(v *variable) {
		if fits(v) {
			list = append(list, v)
		}
	})
	if len(list) == 0 {
		return nil
	}
	// Variables of inner blocks are more likely.
	return list[min(g.r.IntN(len(list)), g.r.IntN(len(list)))]
}

// variable returns the name of a variable of a type, or "".
func (g *gen) variable(typ string, onlyPure bool) string {
	v := g.pick(func(v *variable) bool { return v.typ == typ && (v.pure || !onlyPure) })
	if v == nil {
		return ""
	}
	return v.name
}

// block makes statements in a block of their own.
func (g *gen) block(n int) string {
	g.scopes = append(g.scopes, &scope{})
	defer func() { g.scopes = g.scopes[:len(g.scopes)-1] }()
	return g.list(n)
}

// within calls f in a new block.
func (g *gen) within(f func() string) string {
	g.scopes = append(g.scopes, &scope{})
	defer func() { g.scopes = g.scopes[:len(g.scopes)-1] }()
	return f()
}

// list makes up to n statements in the current block.
func (g *gen) list(n int) string {
	var b strings.Builder
	f := g.fn[len(g.fn)-1]
	for range n {
		if f.stmts <= 0 {
			break
		}
		f.stmts--
		b.WriteString(g.stmt())
		b.WriteString("\n")
	}
	return b.String()
}

// show returns a statement that prints some variables.
func (g *gen) show() string {
	var names []string
	g.visible(func(v *variable) {
		switch v.typ {
		case tInt, tStr, tBool, tFloat, tInts, tArr, tMap:
			if g.chance(0.4) && len(names) < 4 {
				names = append(names, v.name)
			}
		case tRec:
			if g.chance(0.4) && len(names) < 4 {
				names = append(names, v.name+".n")
			}
		}
	})
	return fmt.Sprintf("tr(%s)", strings.Join(append([]string{fmt.Sprint(g.r.IntN(1000))}, names...), ", "))
}

// loopMark marks a loop for a point, or not.
func (g *gen) loopMark() string {
	if g.points < 3 || g.chance(0.35) {
		g.points++
		return " //cairn:point"
	}
	return ""
}

// funcLit makes a function literal.
func (g *gen) funcLit(sig string, params, results []string, stmts int) string {
	return g.literal(sig, params, results, stmts, "", nil)
}

// literal makes a function literal with code before and after its statements.
func (g *gen) literal(sig string, params, results []string, stmts int, before string, after func() string) string {
	g.level++
	g.targets = append(g.targets, nil)
	g.fn = append(g.fn, &frame{results: results, stmts: stmts})
	in := &scope{}
	g.scopes = append(g.scopes, in)
	defer func() {
		g.level--
		g.targets = g.targets[:len(g.targets)-1]
		g.fn = g.fn[:len(g.fn)-1]
		g.scopes = g.scopes[:len(g.scopes)-1]
	}()
	for _, p := range params {
		in.vars = append(in.vars, &variable{name: p, typ: tInt, pure: true, level: g.level})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s {\n", sig)
	if len(results) > 0 {
		fmt.Fprintf(&b, "if step() { return %s }\n", g.zeros(results))
	} else {
		b.WriteString("if step() { return }\n")
	}
	b.WriteString(before)
	b.WriteString(g.list(stmts))
	if after != nil {
		b.WriteString(after())
	}
	if len(results) > 0 {
		fmt.Fprintf(&b, "return %s\n", g.values(results, false))
	}
	b.WriteString("}")
	return b.String()
}

// zeros returns values to return when there is no fuel.
func (g *gen) zeros(types []string) string {
	var list []string
	for _, t := range types {
		switch t {
		case tInt:
			list = append(list, "-1")
		case tStr:
			list = append(list, `"-"`)
		case tBool:
			list = append(list, "false")
		default:
			list = append(list, "nil")
		}
	}
	return strings.Join(list, ", ")
}

// values returns expressions of the given types.
func (g *gen) values(types []string, calls bool) string {
	var list []string
	for _, t := range types {
		list = append(list, g.expr(t, calls))
	}
	return strings.Join(list, ", ")
}
