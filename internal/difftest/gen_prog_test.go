package difftest

import (
	"fmt"
	"strings"
)

// prelude is the common part of all programs.
const prelude = `
import (
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"os"
	"sync"
)

var _ sync.Mutex

var fuel = %d

// step spends fuel. It reports whether there is none left, and then everything
// returns at once.
func step() bool { fuel--; return fuel < 0 }

var lines, digest = 0, fnv.New64a()

// tr prints a line of the trace; of a long one only the digest tells.
func tr(id int, vs ...any) {
	s := fmt.Sprintln(append([]any{id}, vs...)...)
	digest.Write([]byte(s))
	if lines++; lines < 200 { fmt.Print(s) }
}

var errOdd = errors.New("odd")

func mod(n, m int) int { return ((n %% m) + m) %% m }
func wrap(n int) int { return n %% 10007 }
func str(n int) string { return fmt.Sprint("s", n%%5) }
func at(s []int, i int) int { if len(s) == 0 { return 0 }; return s[mod(i, len(s))] }
func cut(s []int, n int) []int { return s[:mod(n, len(s)+1)] }
func top(n int) int { gInt++; return wrap(n*3 + gInt) }
func adder(n int) func(int) int { return func(m int) int { return wrap(n + m) } }
func counter() func(int) int { c := 0; return func(m int) int { c += m; return wrap(c) } }
func filled(n int) <-chan int { ch := make(chan int, 4); for i := range mod(n, 4) { ch <- n + i }; close(ch); return ch }
func offer(n int) <-chan int { ch := make(chan int, 1); if n%%2 == 0 { ch <- n }; return ch }
func odd[T any](seq iter.Seq[T]) iter.Seq2[int, T] {
	return func(yield func(int, T) bool) { n := 0; for v := range seq { n++; if n&1 == 1 && !yield(n, v) { return } } }
}

// walker and state return what comes next.
type walker interface {
	next() walker
	both(n int) (walker, int)
}

type walkA struct{ n int }
type walkB struct{ n int }

func (w *walkA) next() walker {
	for i := range 2 { //cairn:point
		gInt += i
	}
	if step() || w.n <= 0 { return nil }
	return walkB{w.n - 1}
}

func (w walkB) next() walker {
	for on := true; on; { //cairn:point
		on = false
		w.n--
		on = w.n > 2
	}
	if step() || w.n < 0 { return nil }
	return &walkA{w.n}
}

func (w *walkA) both(n int) (next walker, sum int) {
	sum = n + w.n
	for range 2 { //cairn:point
		gInt++
	}
	if step() || w.n <= 0 { return }
	next = walkB{w.n - 1}
	return
}

func (w walkB) both(n int) (walker, int) { return w.next(), n + 1 }

type state func() state

func stateA() state {
	for i := range 2 { //cairn:point
		gInt += i
	}
	if step() || gInt%%4 == 0 { return nil }
	return stateB
}

func stateB() state {
	for i := 0; i < 2; i++ { //cairn:point
		gInt += 3
	}
	if step() { return nil }
	return stateA
}

type down int

func (d down) walk(yield func(int) bool) { if d > 0 && yield(int(d)) { (d - 1).walk(yield) } }

func count(n int) iter.Seq[int] { return func(yield func(int) bool) { for i := range n { if !yield(i) { return } } } }
func pickFunc(fs []func(int) int, n int) func(int) int { if len(fs) == 0 { return top }; return fs[mod(n, len(fs))] }

func boom(n int) {
	for i := range 3 { //cairn:point
		if step() { return }
		if i == mod(n, 5) { panic(fmt.Sprint("boom ", n)) }
		gInt += i
	}
}

// quiet neither prints nor changes anything.
func quiet(n int) (h int) {
	for i := 0; i < 3; i++ {
		h = wrap(h*7 + n + i)
	}
	return h
}

func fold[T any](list []T, n int, f func(int) int) int {
	for i := range list { //cairn:point
		if step() { break }
		n = f(n + i)
	}
	return n
}

type rec struct {
	n    int
	s    []int
	arr  [3]int
	next *rec
	f    func(int) int
	act  act
}

type sub struct {
	rec
	extra int
}

type act interface{ do(d, n int) int }

type valueAct struct{ n int }
type ptrAct struct {
	n    int
	seen []int
}
type funcAct func(int) int

func (f funcAct) do(d, n int) int { return f(n + d) }

func (r *rec) get() int {
	if r == nil { return -2 }
	return r.n
}

var (
	gInt   = 1
	gStr   = "g"
	gInts  = []int{1, 2, 3}
	gArr   [3]int
	gMap   = map[int]int{1: 1, 2: 4, 3: 9}
	gRec   = rec{n: 5}
	gPtr   = &rec{n: 6, next: &gRec}
	gFunc  func(int) int = top
	gFuncs = []func(int) int{top, quiet}
	gTable = map[string]func(int) int{"a": top}
	gAct   act = &ptrAct{n: 2}
	gAny   any = 3
	gCell  = &gArr[1]
	gSub   = &sub{extra: 1}
)

func dump(r *rec, depth int) string {
	if r == nil || depth == 0 { return "." }
	s := fmt.Sprint(r.n, r.s, r.arr)
	if r.f != nil { s += fmt.Sprint(" f", r.f(2)) }
	if r.act != nil { s += fmt.Sprint(" a", r.act.do(1, 2)) }
	return s + " > " + dump(r.next, depth-1)
}

func finish() {
	fuel = 60
	fmt.Println(gInt, gStr, gInts, gArr, gMap, gFunc(1), len(gFuncs), *gCell, gCell == &gArr[1])
	fmt.Println(dump(&gRec, 3), dump(gPtr, 4), dump(&gSub.rec, 2), gSub.extra)
	for i, f := range gFuncs { fmt.Println(i, f(i)) }
	for _, k := range []string{"a", "b"} { if f := gTable[k]; f != nil { fmt.Println(k, f(5)) } }
	switch x := gAny.(type) {
	case *rec:
		fmt.Println(dump(x, 2), x == gPtr, x == &gRec)
	default:
		fmt.Printf("%%T %%v\n", x, x)
	}
	fmt.Println(gAct.do(1, 1), lines, digest.Sum64())
}
`

// globals are the variables of the prelude that programs use.
var globals = []*variable{
	{name: "gInt", typ: tInt}, {name: "gStr", typ: tStr}, {name: "gInts", typ: tInts}, {name: "gArr", typ: tArr},
	{name: "gMap", typ: tMap}, {name: "gRec", typ: tRec}, {name: "gPtr", typ: tPtr}, {name: "gFunc", typ: tFunc},
	{name: "gAct", typ: tAct}, {name: "gAny", typ: tAny}, {name: "gCell", typ: tIPtr, fixed: true},
}

// program makes a whole package.
func (g *gen) program(seed uint64) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// Package %s is a random program, made from seed %d.\npackage %s\n", g.pkg, seed, g.pkg)
	fmt.Fprintf(&b, prelude, 250+g.r.IntN(300))
	g.scopes = []*scope{{vars: globals}}
	g.rare = rare{g.chance(0.2), g.chance(0.15)}
	sets := [][]string{{tInt}, {tInt}, {tInt, tStr}, {tInts, tErr}, {}}
	for i := range 3 + g.r.IntN(4) {
		f := &function{name: fmt.Sprint("f", i), named: g.chance(0.5)}
		for range g.r.IntN(3) {
			f.params = append(f.params, g.one(tInt, tInt, tInts, tPtr, tFunc, tStr, tArr, tAct, tMap))
		}
		f.results = sets[i%len(sets)]
		if i >= len(sets) {
			f.results = sets[g.r.IntN(len(sets))]
		}
		g.fns = append(g.fns, f)
	}
	for _, f := range g.fns {
		g.plain = g.chance(0.4)
		b.WriteString(g.topFunc("func "+f.name, f, 8+g.r.IntN(12)))
	}
	one := &function{results: []string{tInt}}
	for _, m := range []string{"(r *rec) grow", "(r *rec) sum", "(r *rec) each", "(r rec) shift", "(s *sub) shift"} {
		g.plain = g.chance(0.4)
		b.WriteString(g.method(m, 3+g.r.IntN(5)))
	}
	g.plain = false
	for _, m := range []string{"(v valueAct) do", "(p *ptrAct) do"} {
		one.params = []string{tInt}
		b.WriteString(g.topFunc("func "+m, one, 3+g.r.IntN(6)))
	}
	b.WriteString("// Main is the program.\nfunc Main() {\n")
	if g.chance(0.4) {
		b.WriteString("defer fmt.Println(\"Main is over\")\n")
	}
	b.WriteString(g.body(&frame{main: true, stmts: 10 + g.r.IntN(16)}, nil, nil))
	b.WriteString("tr(0, gSub.grow(2), gSub.shift(3), gSub.rec.shift(4))\nfinish()\n")
	if g.chance(0.2) {
		b.WriteString("if lines > 5 { os.Exit(7) }\n")
	} else {
		b.WriteString("if lines < 0 { os.Exit(1) }\n")
	}
	b.WriteString("}\n")
	return b.String()
}

// body makes the statements of a function.
func (g *gen) body(f *frame, vars []*variable, after func() string) string {
	g.level = 0
	g.targets = [][]*target{nil}
	g.fn = []*frame{f}
	g.scopes = append(g.scopes[:1], &scope{vars: vars})
	s := g.list(f.stmts)
	if after != nil {
		s += after()
	}
	g.scopes = g.scopes[:1]
	return s
}

// topFunc makes a function with the parameter d, which bounds recursion.
func (g *gen) topFunc(head string, f *function, stmts int) string {
	vars := []*variable{{name: "d", typ: tInt, pure: true, fixed: true}}
	params := []string{"d int"}
	for i, t := range f.params {
		v := &variable{name: fmt.Sprint("a", i), typ: t, pure: g.chance(0.5)}
		vars = append(vars, v)
		params = append(params, v.name+" "+t)
	}
	fr := &frame{results: f.results, d: true, stmts: stmts}
	results := strings.Join(f.results, ", ")
	if f.named && len(f.results) > 0 {
		var list []string
		for i, t := range f.results {
			v := &variable{name: fmt.Sprint("res", i), typ: t}
			vars = append(vars, v)
			fr.named = append(fr.named, v)
			list = append(list, v.name+" "+t)
		}
		results = strings.Join(list, ", ")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s(%s) (%s) {\n", head, strings.Join(params, ", "), results)
	fmt.Fprintf(&b, "if d <= 0 || step() { return %s }\n", g.zeros(f.results))
	b.WriteString(g.body(fr, vars, func() string {
		if len(f.results) == 0 {
			return ""
		}
		if len(fr.named) > 0 && g.chance(0.4) {
			return "return\n"
		}
		return fmt.Sprintf("return %s\n", g.values(f.results, g.chance(0.3)))
	}))
	b.WriteString("}\n")
	return b.String()
}

// method makes a method that takes and returns an int.
func (g *gen) method(head string, stmts int) string {
	vars := []*variable{{name: "n", typ: tInt, pure: true}}
	nilCheck := "r == nil || "
	switch {
	case strings.Contains(head, "(s *sub)"):
		nilCheck = ""
	case strings.Contains(head, "*rec"):
		vars = append(vars, &variable{name: "r", typ: tPtr, pure: true, fixed: true})
	default:
		nilCheck = ""
		vars = append(vars, &variable{name: "r", typ: tRec})
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nfunc %s(n int) int {\nif %sstep() { return n }\n", head, nilCheck)
	b.WriteString(g.body(&frame{results: []string{tInt}, stmts: stmts}, vars, func() string {
		return fmt.Sprintf("return %s\n", g.values([]string{tInt}, false))
	}))
	b.WriteString("}\n")
	return b.String()
}
