package normalize

import (
	"fmt"
	"math/rand"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/golang/rewrite"
)

// orderHead is the beginning of all generated programs: a state, calls that
// reach points and change all of it, and functions that print values. hook
// changes local variables.
const orderHead = `package main

import (
	"bufio"
	"fmt"
	"os"
)

type P struct{ x, y int }
type P2 P
type Q struct{ a, b int16 }
type R struct{ s string }
type O struct{ p *P }
type T struct {
	a int
	b string
	c any
	d P
	e []int
}
type Big [20]int

func (p P) get() int       { return p.x }
func (p P) add(n int) int  { return p.x*1000 + n }
func (p *P) ptr(n int) int { return p.y*1000 + n }
func (i Int) get() int      { return int(i) }
func (i Int) add(n int) int { return int(i)*1000 + n }

type Int int
type I interface {
	get() int
	add(int) int
}

type world struct {
	x, y, i, j int
	h       int16
	f       float64
	s, t    string
	b       []byte
	p       P
	p2      P2
	q       Q
	r       R
	o       O
	pp      *P
	ip      *int
	sl      []int
	ps      []P
	ar      [3]int
	par     *[3]int
	e, es, ep any
	it      I
	fn      func() int
	fn2     func(int, int) int
	m       map[string]int
	mi      map[int]string
	mp      map[P]int
	mq      map[Q]int
	mr      map[R]int
	mh      map[int16]int
	ma      map[any]int
	mf      map[float64]int
	mar     map[[3]int]int
	mo      map[*P]int
	mit     map[I]int
	mbig    map[string]Big
	msl     map[string][]int
	mpsl    map[P][]int
	mvp     map[string]P
	ch      chan int
	n       int
}

var g world
var gp *world
var gx, gi int
var gs string
var gq Q
var hook, body func()
var pps [4]*P

func (w *world) reset(k int) {
	*w = world{x: k, y: k + 1, h: int16(k), f: float64(k) / 2, s: fmt.Sprint("s", k, "abc"), t: fmt.Sprint("t", k, "abc"), b: []byte("bytes"), p: P{k, k + 2}, p2: P2{k + 1, k + 2},
		q: Q{int16(k), 1}, r: R{fmt.Sprint("r", k)}, o: O{pps[0]}, pp: &P{k + 5, k + 6}, ip: new(int), sl: []int{k, k + 1, k + 2}, ps: []P{{k, 1}, {k, 2}, {k, 3}}, ar: [3]int{k, k + 1, k + 2},
		par: &[3]int{k, 1, 2}, e: k, es: "es", ep: P{k, k}, it: P{k, k}, m: map[string]int{}, mi: map[int]string{}, mp: map[P]int{}, mq: map[Q]int{}, mr: map[R]int{}, mh: map[int16]int{},
		ma: map[any]int{}, mf: map[float64]int{}, mar: map[[3]int]int{}, mo: map[*P]int{}, mit: map[I]int{}, mbig: map[string]Big{}, msl: map[string][]int{}, mpsl: map[P][]int{}, mvp: map[string]P{}, ch: make(chan int, 1000)}
	w.fn = func() int { return k }
	w.fn2 = func(a, b int) int { return a*10 + b + k }
	for i := range 500 {
		w.ch <- i
	}
}

// change changes everything.
func (w *world) change() {
	w.n++
	k := w.n * 10
	w.x += k
	w.y += k
	w.i = (w.i + 1) % 3
	w.j = (w.j + 2) % 3
	w.h += 3
	w.f += 1.5
	w.s = fmt.Sprint("s", w.x, "xyz")
	w.t += "!"
	w.b = []byte(fmt.Sprint("b", w.x, "xyz"))
	w.p.x += k
	w.p.y++
	w.p2.x += k
	w.q.a += 7
	w.r.s += "+"
	w.o.p = pps[w.n%4]
	if w.n%2 == 0 {
		w.pp = &P{k, -k}
	} else {
		w.pp.x += 3
		w.pp.y += 4
	}
	*w.ip += 5
	if w.n%3 == 0 {
		w.ip = new(int)
	}
	if w.n%2 == 1 || len(w.sl) < 3 {
		w.sl = []int{k, k + 1, k + 2, k + 3}
	} else {
		w.sl[0], w.sl[1], w.sl[2] = -k, -k-1, -k-2
	}
	w.ps[w.i].x += 100
	for i := range w.ar {
		w.ar[i] += k
		w.par[i] -= k
	}
	w.e = w.x
	w.es = w.s
	w.ep = P{k, k}
	if w.n%2 == 0 {
		w.it = P{k, k + 1}
	} else {
		w.it = Int(k)
	}
	w.fn = func() int { return k }
	w.fn2 = func(a, b int) int { return a*10 + b + k }
	w.m[w.s] = k
	w.m["k"] += k
	w.mi[w.x] = w.s
	w.mp[w.p] += k
	w.mq[w.q] += k
	w.mr[w.r] += k
	w.mh[w.h] += k
	w.ma[w.x] += k
	w.mf[w.f] += k
	w.mvp["k"] = P{k, k}
	if w.n%3 == 2 {
		w.m = map[string]int{w.s: 1}
		w.mp = map[P]int{}
		w.msl = map[string][]int{}
	}
}

func change() {
	g.change()
	gp.change()
	gx += 3
	gi = (gi + 1) % 3
	gs += "$"
	gq.b += 2
	hook()
}

func reach(a ...any) int      { change(); return g.n }
func reachI() int             { change(); return g.n % 3 }
func reachS(a ...any) string  { change(); return fmt.Sprint("S", g.n) }
func reachP() P               { change(); return P{g.n, 1} }
func reachQ() Q               { change(); return Q{int16(g.n), 1} }
func reachA() any             { change(); return g.n }
func reachB() bool            { change(); return g.n%2 == 0 }
func reachSL() []int          { change(); return []int{g.n, 2, 3} }
func reach2() (int, string)   { change(); return g.n, "two" }
func reachF() float64         { change(); return float64(g.n) }
func reachH() int16           { change(); return int16(g.n) }

func plain(n int) int       { return n + 1 }
func plainP(n int) P        { return P{n, n} }
func poke(n int) int        { change(); return n } // changes all, and is no call that reaches a point
func str(n int) string      { return fmt.Sprint("abc", n) }
func two(a int, b string)   { show(a, b) }
func call(f func() int, a ...any) int { show(a...); return f() }
func cond(b bool) int {
	if b {
		return 1
	}
	return 0
}

var out = bufio.NewWriter(os.Stdout)

func show(list ...any) {
	for _, v := range list {
		switch v := v.(type) {
		case *P:
			fmt.Fprint(out, " &", *v)
		case *int:
			fmt.Fprint(out, " &", *v)
		case *[3]int:
			fmt.Fprint(out, " &", *v)
		case func() int:
			fmt.Fprint(out, " f", v())
		case O:
			fmt.Fprint(out, " o", *v.p)
		case *T:
			fmt.Fprint(out, " t", *v)
		default:
			fmt.Fprint(out, " ", v)
		}
	}
	fmt.Fprintln(out)
}

func begin(n int) {
	fmt.Fprintln(out, "case", n)
	for i := range pps {
		pps[i] = &P{i, i}
	}
	gp = new(world)
	g.reset(n%7 + 1)
	gp.reset(n%5 + 2)
	gx, gi, gs, gq = 1, 0, "gsabc", Q{1, 1}
}

func end() {
	show(g.x, g.s, g.p, g.q, g.sl, g.ps, g.ar, g.m, g.mi, g.mp, g.mq, g.mr, g.mh, g.mf, g.mar, g.mbig, g.msl, g.mpsl, len(g.ma), len(g.mo), len(g.mit), gp.m, gp.sl, gp.x, gp.msl, gx, gs, len(g.ch))
	for _, k := range []any{1, 2, 3, "S1", "S2", P{1, 1}, P{1, 3}, g.x, g.p} {
		fmt.Fprint(out, g.ma[k], " ")
	}
	for i := range pps {
		fmt.Fprint(out, g.mo[pps[i]], " ")
	}
	fmt.Fprintln(out)
}
`

// orderLocals begins a case: it declares variables that hook changes.
const orderLocals = `	var lx, ly, li, ln int
	var ls string
	var lb []byte
	var lh int16
	var lf float64
	var lp P
	var lq Q
	var lr R
	var lsl []int
	var lar [3]int
	var lpp *P
	var lm map[string]int
	var lmp map[P]int
	var lmsl map[string][]int
	var le any
	var lit I
	var ld I
	var lfn func() int
	start := func(n int) {
		begin(n)
		lx, ly, li, ls, lb, lh, lf = 1, 2, 0, "lsabc", []byte("lbytes"), int16(1), 0.5
		lp, lq, lr, lsl, lar, lpp = P{1, 2}, Q{1, 2}, R{"lr"}, []int{7, 8, 9}, [3]int{1, 2, 3}, &P{3, 4}
		lm, lmp, lmsl = map[string]int{"k": 1}, map[P]int{}, map[string][]int{}
		le, lit, ld = 1, P{5, 6}, P{7, 8}
		lfn = func() int { return -1 }
		ln = 0
	}
	stop := func() {
		show(lx, ly, li, ls, lb, lh, lf, lp, lq, lr, lsl, lar, lpp, lm, lmp, lmsl, le, lit, ld, lfn)
		end()
	}
	hook = func() {
		ln++
		lx, ly, li = lx+ln, ly*2, (li+1)%3
		ls, lb, lh, lf = ls+"?", []byte(fmt.Sprint("lb", ln, "xyz")), lh+2, lf+1
		lp.x += 5
		lp.y++
		lq.a++
		lr.s += "."
		if ln%2 == 0 || len(lsl) < 3 {
			lsl = []int{ln, ln, ln, ln}
			lpp = &P{ln, ln}
		} else {
			lsl[0], lsl[1], lsl[2] = ln, ln+1, ln+2
			lpp.x++
		}
		lar[0] += ln
		lar[1] += ln
		lar[2] += ln
		lm["k"] += ln
		lm[ls] = ln
		lmp[lp] += ln
		if ln%3 == 2 {
			lm = map[string]int{}
			lmsl = map[string][]int{}
		}
		le = lx
		ld = P{lx, lx}
		if ln%2 == 0 {
			lit = P{lx, lx}
		} else {
			lit = Int(lx)
		}
		k := ln
		lfn = func() int { return -k }
	}
`

// orderGen generates statements that read the state around calls that reach
// points.
type orderGen struct {
	*rand.Rand
	reachs int // calls that the current statement still must have; see reach
	calls  int // calls that it has
}

// orderExprs lists, for each type, patterns of expressions. Types in capital
// letters stand for expressions of these types. Those after | are leaves.
var orderExprs = map[string][]string{
	"INT": {"g.m[STR]", "lm[STR]", "g.mp[PT]", "lmp[PT]", "g.mq[QT]", "g.mr[RT]", "g.mh[I16]", "g.ma[ANY]", "g.ma[INT]", "g.ma[PT]", "g.mf[FLT]", "g.mar[ARR]", "g.mo[PP]", "g.mit[PT]", "len(SL)", "len(STR)", "len(BYTES)",
		"int(FLT)", "int(I16)", "min(INT, INT)", "max(INT, INT)", "(INT + INT)", "(INT * 2)", "-(INT)", "(INT ^ INT)", "plain(INT)", "poke(INT)", "(PT).get()", "(PT).add(INT)", "(IT).add(INT)", "ld.add(INT)", "FN()", "(IT).get()",
		"P{INT, INT}.x", "[3]int{INT, INT, INT}[IDX]", "[]int{INT, INT, INT}[IDX]", "map[string]int{STR: INT}[STR]", "map[P]int{PT: INT, PT: INT}[PT]", "cond(BOOL)", "int(real(complex(FLT, FLT)))", "int((STR + `abc`)[IDX])", "(SL)[IDX]", "(ARR)[IDX]",
		"g.m[string(BYTES)]", "g.mr[R{string(BYTES)}]", "g.fn2(INT, INT)", "copy(g.sl, SL)", "len([]rune(STR))", "g.mbig[STR][IDX]", "(*PP).x", "(PP).ptr(INT)", "any(INT).(int)", "int(g.mvp[STR].x)", "*new(INT)",
		"func() int { return INT }()",
		"|", "g.x", "gp.y", "g.p.x", "g.pp.x", "gp.pp.y", "lx", "ly", "lp.x", "lpp.y", "gx", "g.sl[g.i]", "lsl[li]", "g.ar[gi]", "lar[li]", "g.ps[g.j].x", "g.e.(int)", "le.(int)", "*g.ip", "<-g.ch", "g.par[g.i]", "3", "g.ep.(P).x"},
	"IDX": {"g.i", "g.j", "gi", "li", "gp.i", "plain(0)", "INT & 1", "min(g.i, li)", "len(g.sl[:g.i])", "|", "g.i", "li", "gi"},
	"STR": {"(STR + STR)", "(STR + STR + STR)", "string(BYTES)", "str(INT)", "g.s[g.i:]", "ls[li:3]", "gs[gi:INT&1+2]", "g.mi[INT]", "(RT).s", "fmt.Sprint(ANY, STR)", "T{a: INT, b: STR}.b", "string([]rune(STR))", "string(append(BYTES, 'a'))",
		"|", "g.s", "gp.t", "ls", "gs", `"k"`, "g.es.(string)", "lr.s", "g.r.s"},
	"BYTES": {"[]byte(STR)", "g.b[g.i:]", "lb[li:3]", "append(BYTES, 'x')", "append([]byte(nil), STR...)", "|", "g.b", "lb"},
	"SL":    {"append(SL, INT)", "append(SL, SL...)", "[]int{INT, INT, INT}", "append([]int{INT, 1, 2}, INT)", "T{e: SL}.e", "|", "g.sl", "lsl", "g.sl", "gp.sl", "lsl"},
	"ARR":   {"[3]int{INT, INT, INT}", "*g.par", "[3]int(lsl[:3])", "|", "g.ar", "lar"},
	"PT":    {"P{INT, INT}", "P{x: INT}", "plainP(INT)", "P(g.p2)", "T{d: PT}.d", "g.mvp[STR]", "*(PP)", "any(PT).(P)", "[]P{PT, PT}[gi&1]", "|", "g.p", "*g.pp", "lp", "*lpp", "g.ps[g.i]", "g.ep.(P)", "gp.p"},
	"QT":    {"Q{I16, I16}", "Q{a: I16}", "|", "g.q", "lq", "gq"},
	"RT":    {"R{STR}", "|", "g.r", "lr"},
	"OT":    {"O{PP}", "|", "g.o"},
	"I16":   {"int16(INT)", "(I16 + I16)", "|", "g.h", "lh"},
	"FLT":   {"float64(INT)", "(FLT * 2)", "|", "g.f", "lf"},
	"PP":    {"&P{INT, INT}", "&g.p", "&lp", "&g.ps[IDX]", "O{PP}.p", "new(PT)", "|", "g.pp", "lpp", "g.o.p"},
	"ANY":   {"any(INT)", "any(STR)", "any(PT)", "any(QT)", "any(I16)", "any(FLT)", "any(ARR)", "any(RT)", "any(IT)", "any(BOOL)", "any(LI)", "|", "g.e", "le", "g.ep"},
	"LI":    {"Int(INT)", "|", "Int(g.x)"},
	"IT":    {"I(PT)", "I(Int(INT))", "any(PT).(I)", "|", "g.it", "lit", "ld"},
	"FN":    {"g.p.get", "lp.get", "g.pp.get", "lpp.get", "(PT).get", "(IT).get", "func() int { return lx }", "|", "g.fn", "lfn", "g.p.get", "lp.get", "g.it.get", "lit.get", "ld.get"},
	"BOOL": {"INT < INT", "PT == PT", "QT == QT", "ARR == ARR", "STR == STR", "STR < STR", "ANY == ANY", "g.e == INT", "IT == PT", "(BOOL && BOOL)", "(BOOL || BOOL)", "!(BOOL)", "ANY != any(PT)", "T{a: INT}.a > 3",
		"|", "g.x > lx", "g.i == li"},
}

// orderReach lists calls that reach points, by the type that they return.
var orderReach = map[string][]string{
	"INT": {"reach()", "reach(INT)", "reach(ANY, STR)"}, "IDX": {"reachI()"}, "STR": {"reachS()", "reachS(PT)"}, "PT": {"reachP()"}, "QT": {"reachQ()"}, "ANY": {"reachA()"}, "BOOL": {"reachB()"},
	"SL": {"reachSL()"}, "FLT": {"reachF()"}, "I16": {"reachH()"},
}

// orderStmts lists patterns of statements. ~ before a type stands for an
// expression with a call that reaches a point.
var orderStmts = []string{
	"show(INT, STR, ~INT)", "show(PT, ~INT, ANY)", "show(ANY, ~STR)", "show(ANY, ANY, ~INT, ANY)", "show(QT, RT, OT, ~INT)", "show(SL, ARR, ~INT)", "show(FN, ~INT, FN)", "show(IT, PP, ~PT)", "show(BOOL, ~BOOL)", "show(I16, FLT, BYTES, ~INT)",
	"show(map[string]int{STR: INT}, ~INT)", "show(map[string]int{STR: INT, STR: ~INT, STR: INT})", "show(map[any]int{ANY: INT, ~ANY: INT})", `show(map[string]int{STR: 1, "k": 2, ~STR: 3})`, "show(map[P]string{PT: STR}, ~INT)", "show(len(map[Q]I{QT: PT, ~QT: IT}))",
	"show([]any{INT, PT, ~STR, ANY})", "show([]P{PT, ~PT})", "show(T{INT, STR, ANY, PT, SL}, ~INT)", "show(T{~INT, STR, ANY, PT, SL})", "show(&T{INT, ~STR, PT, PT, SL})", "show([3]int{INT, ~INT, INT})", "show(struct{ a any; b int }{PT, ~INT})",
	"show(call(FN, ~INT))", "show(call(FN, PT, ~STR, poke(INT)))", "show(call(FN, ~INT, FN()))", "show(FN, poke(INT), ~INT)", "show(call(g.p.get, poke(INT)), ~INT)",
	"g.m[STR] = ~INT", "g.m[STR] += ~INT", "g.mp[PT] = ~INT", "g.mp[PT] += ~INT", "g.mq[QT] = ~INT", "g.mq[QT] -= ~INT", "g.mr[RT] = ~INT", "g.mh[I16] = ~INT", "g.mh[I16] += ~INT", "g.ma[ANY] = ~INT", "g.ma[PT] = ~INT", "g.ma[INT] += ~INT",
	"g.mf[FLT] = ~INT", "g.mar[ARR] = ~INT", "g.mo[g.o.p] = ~INT", "g.mit[PT] = ~INT", "g.mit[IT] = ~INT", "g.mbig[STR] = Big{INT, ~INT}", "g.mi[INT] = ~STR", "g.mi[INT] += ~STR", "lm[STR] = ~INT", "lmp[PT] = ~INT", "lm[ls] += ~INT", "g.m[STR] /= ~INT | 1", "g.mp[PT] %= ~INT | 1",
	"g.msl[STR] = append(g.msl[STR], ~INT)", "g.msl[g.s] = append(g.msl[g.s], ~INT)", "gp.msl[ls] = append(gp.msl[ls], INT, ~INT)", "lmsl[g.s] = append(lmsl[g.s], ~INT)", "lmsl[gs] = append(lmsl[gs], SL...); show(~INT)", "g.mpsl[g.p] = append(g.mpsl[g.p], ~INT)", "g.mpsl[PT] = append(SL, ~INT)",
	"g.msl[g.s+ls] = append(g.msl[g.s+ls], ~INT)", "lmsl[ls] = append(lmsl[ls], ~INT, INT)", "gp.mpsl[P{g.x, 1}] = append(gp.mpsl[P{g.x, 1}], ~INT)", "g.sl = append(g.sl, ~INT)", "lsl = append(lsl, INT, ~INT, INT)", "gp.sl = append(g.sl[:2], ~INT)", "lsl = append(append(SL, INT), ~INT)", "g.sl = append(g.sl, ~SL...)",
	"a, b := INT, ~INT; show(a, b)", "a, b, c := PT, ~STR, ANY; show(a, b, c)", "g.x, g.m[STR] = INT, ~INT", "g.sl[IDX], g.mp[PT] = ~INT, INT", "lx, g.p = INT, ~PT", "g.p, lp = lp, ~PT", "g.ar[IDX], lar[IDX] = INT, ~INT", "g.sl[IDX], g.s = reach2()", "g.mp[PT], g.mi[INT] = reach2()", "g.e, le = reach2()", "*g.ip, g.m[STR] = ~INT, INT",
	"g.x = INT + ~INT", "g.p.x = ~INT", "g.pp.y = ~INT", "lpp.x = ~INT", "*g.pp = P{INT, ~INT}", "g.p = P{INT, ~INT}", "lp = P{~INT, INT}", "g.sl[IDX] = ~INT", "lsl[IDX] = ~INT", "g.ar[IDX] = ~INT", "lar[IDX] += ~INT", "g.ps[IDX].x = ~INT", "g.ps[IDX] = P{INT, ~INT}", "*(PP) = ~PT", "SL[IDX] = ~INT",
	"g.x += ~INT", "lx -= ~INT", "g.s += ~STR", "ls += ~STR", "g.sl[IDX] += ~INT", "lsl[IDX] *= ~INT", "g.pp.x += ~INT", "g.ps[IDX].y -= ~INT", "g.f *= ~FLT", "lx <<= uint(~INT) & 3", "*g.ip += ~INT",
	"g.e = ANY; le = ~ANY", "g.e = P{INT, ~INT}", "le = INT + ~INT", "var z any = P{INT, ~INT}; show(z)", "var z, y any = PT, ~INT; show(z, y)", "var z I = P{INT, ~INT}; show(z)",
	"show(SL[IDX:][:0:0], ~INT)", "show(g.sl[g.i&1:2+reachI()&1])", "show(lsl[li&1:2+reachI()&1:3])", "show(g.s[gi&1:2+reachI()&1])", "show(ls[li&1:][reachI()&1:])", "show(g.ar[gi&1:2+reachI()&1])", "gp.sl = g.sl[gp.i&1:2+reachI()&1]", "lsl = lsl[li&1:2+reachI()&1]; lsl = append(lsl, 1, 2, 3)",
	"show(g.b[g.i&1:2+reachI()&1], BYTES)", "show(lsl[INT&1:2+reachI()&1])",
	"g.ch <- INT + ~INT", "switch (INT) { case ~INT: show(1); case INT: show(2); default: show(3) }", "switch (ANY) { case ~ANY, ANY: show(1); default: show(2) }", "switch (PT) { case ~PT: show(1); case PT: show(2) }", "switch { case BOOL: show(1); case ~BOOL: show(2); case BOOL: show(3) }", "switch (STR) { case STR, ~STR: show(1) }", "switch (~INT + INT) { case INT: show(1); case 2: show(2) }",
	"if (BOOL && ~BOOL) { show(1) } else { show(2) }", "if (~BOOL || BOOL) { show(1) }", "if (INT < ~INT) { show(1) } else { show(0) }", "if (PT == ~PT) { show(1) }", "if v := (INT + ~INT); (v > INT) { show(v) }", "for i := (INT); (i < ~INT && i < 3); i++ { show(i) }", "for i, v := range ([]int{INT, ~INT, INT}) { show(i, v) }", "for i, v := range ([3]int{INT, ~INT}) { show(i, v, g.i) }", "for k := range (map[string]int{STR: ~INT}) { show(k) }",
	"defer show(INT, ANY, ~INT)", "defer show(PT, FN, ~STR)", "defer call(FN, ~INT)", "defer g.fn2(INT, ~INT)", "defer g.it.add(~INT)", "defer lp.add(~INT)", "defer g.pp.ptr(~INT)", "func() { defer show([]any{PT, ANY}, P{INT, INT}, ~INT); change() }()", "func() { defer delete(g.mp, P{INT, ~INT}) }()",
	"g.fn2(INT, ~INT)", "show(g.fn2(INT, ~INT))", "show(lit.add(~INT), g.it.add(~INT))", "show(ld.add(~INT))", "show(ld.add(INT) + ~INT)", "show((PT).add(~INT))", "show(lp.add(~INT))", "show((PP).ptr(~INT))", "show((IT).add(~INT))", "show(lfn() + ~INT, lfn())", "delete(g.m, ~STR)", "delete(g.mp, P{INT, ~INT})", "show(copy(g.sl, ~SL))", "two(reach2())",
	"show(INT + ~INT, INT - ~INT)", "show(STR + ~STR + STR)", "show(STR + ~STR, string(BYTES) + ~STR)", "show(PT == ~PT, QT == ~QT, ARR == ARR, ~INT)", "show(ANY == ~ANY, IT == PT, ~INT)", "show(min(INT, ~INT), max(INT, INT, ~INT))", "show(complex(FLT, ~FLT))", "show(-(INT), !(BOOL), ~INT)", "show(INT << (uint(~INT) & 7))", "show(*(PP), PP, ~INT)", "show(int8(INT), uint(INT), ~INT)",
	"println(); show(any(PT).(P).x + ~INT)", "show(g.ep.(P), g.e.(int), ~INT)", "if v, ok := (g.m[STR]); (ok || ~BOOL) { show(v) }", "v, ok := g.mp[P{INT, ~INT}]; show(v, ok)", "v, ok := g.ma[any(PT)]; show(v, ok, ~INT)",
	"show(func() int { return reach() + g.x }(), lx, ~INT)", "show(func(a, b int) int { return a + b }(INT, ~INT))", "x := ~INT + INT; defer func() { show(x) }(); x += INT",
	"show(INT, poke(INT), ~INT, poke(INT), INT)", "show(PT, poke(INT), ~STR, ANY, plain(INT), PT)", "g.mp[PT], lx = ~INT, poke(INT)", "g.ma[ANY], g.mq[QT] = poke(INT), ~INT", "show(g.m[STR], g.mp[PT], ~INT, poke(INT))", "show(g.m[string(BYTES)], g.mr[R{string(g.b)}], ~INT)",
	"show(len(SL), len(STR), ~INT)", "show([]byte(STR), []rune(STR), string(BYTES), ~INT)", "show(append(SL, INT), SL[IDX:], ~INT)", "show(func() (r int) { defer func() { r += INT }(); return INT + ~INT }())",
	"show(lsl[li:poke(3)], ~INT)", "show(lsl[li:poke(3)], ls[li:poke(3)])", "lmsl[ls] = append(lmsl[ls], poke(1))", "show(call(lp.get, poke(1)))", "show(ld.add(poke(1)), lit.add(poke(1)))", "lm[ls], lx = poke(1), lx", "show(lar[li:poke(2):3])",
	"select { case g.ch <- ~INT: show(1) }", "select { case v := <-g.ch: show(v, ~INT) }",
}

// expr writes an expression of a type.
func (o *orderGen) expr(typ string, depth int) string {
	if o.reachs > 0 && orderReach[typ] != nil && (depth <= 0 || o.Intn(2) == 0) {
		o.reachs--
		o.calls++
		return o.fill(orderReach[typ][o.Intn(len(orderReach[typ]))], depth-1)
	}
	list := orderExprs[typ]
	bar := 0
	for i, s := range list {
		if s == "|" {
			bar = i
		}
	}
	if depth <= 0 || o.Intn(3) == 0 {
		return list[bar+1+o.Intn(len(list)-bar-1)]
	}
	return o.fill(list[o.Intn(bar)], depth-1)
}

// fill replaces the types in a pattern.
func (o *orderGen) fill(pattern string, depth int) string {
	var b strings.Builder
	for i := 0; i < len(pattern); {
		j := i
		for j < len(pattern) && (pattern[j] >= 'A' && pattern[j] <= 'Z' || j > i && pattern[j] >= '0' && pattern[j] <= '9') {
			j++
		}
		word := pattern[i:j]
		switch {
		case orderExprs[word] != nil && (i == 0 || !isLetter(pattern[i-1])):
			forced := i > 0 && pattern[i-1] == '~'
			if forced {
				was := o.calls
				for {
					o.reachs = 1
					e := o.expr(word, depth)
					if o.calls > was {
						b.WriteString(e)
						break
					}
				}
				o.reachs = 0
			} else {
				b.WriteString(o.expr(word, depth))
			}
			i = j
		case pattern[i] == '~':
			i++
		default:
			b.WriteByte(pattern[i])
			i++
		}
	}
	return b.String()
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '.' }

// cases returns n cases.
func (o *orderGen) cases(n int) []string {
	var list []string
	for i := range n {
		s := orderStmts[i%len(orderStmts)]
		text := ""
		for text == "" || strings.Count(text, `"k":`) > 1 { // keys of a literal must differ
			o.reachs, o.calls = 0, 0
			text = o.fill(s, o.Intn(4))
		}
		list = append(list, strings.ReplaceAll(text, "; ", "\n\t"))
	}
	return list
}

// orderGroup is the number of cases that share a function and its variables.
const orderGroup = 8

// orderProgram returns a program of cases. They are in functions, in literals
// that are kept, and in literals that are only called.
func orderProgram(cases []string) string {
	var b strings.Builder
	b.WriteString(orderHead)
	groups := 0
	for i := 0; i < len(cases); i += orderGroup {
		fmt.Fprintf(&b, "\nfunc group%d() {\n%s", groups, orderLocals)
		switch groups % 3 {
		case 1:
			b.WriteString("\tbody = func() {\n")
		case 2:
			fmt.Fprintf(&b, "\tf := func() {"+rewrite.LitMark+"\n", groups)
		}
		for k, c := range cases[i:min(i+orderGroup, len(cases))] {
			fmt.Fprintf(&b, "\tstart(%d)\n\t{\n\t%s\n\t}\n\tstop()\n", i+k, c)
		}
		switch groups % 3 {
		case 1:
			b.WriteString("\t}\n\tbody()\n")
		case 2:
			b.WriteString("\t}\n\tf()\n")
		}
		b.WriteString("}\n")
		groups++
	}
	b.WriteString("\nfunc main() {\n\tdefer out.Flush()\n")
	for i := range groups {
		fmt.Fprintf(&b, "\tgroup%d()\n", i)
	}
	b.WriteString("}\n")
	return b.String()
}
