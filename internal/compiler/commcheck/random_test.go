package commcheck_test

import (
	"fmt"
	"math/rand"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/commcheck"
	"github.com/cairnrun/cairn/internal/compiler/ir"
	"github.com/cairnrun/cairn/internal/compiler/ir/irtext"
)

// maker generates programs that mostly communicate correctly, with some
// mistakes.
type maker struct {
	*rand.Rand
	b      strings.Builder
	depth  int
	loops  int
	reqs   int
	wilds  bool
	calm   bool // few mistakes, and few unknown values
	procs  []string
	things bool     // the program has objects
	later  []string // second halves of communications that are still to be written
	size   int
}

func (g *maker) line(f string, args ...any) {
	if strings.Contains(f, " ") && g.Intn(40) == 0 && (!g.calm || g.Intn(4) == 0) && (strings.HasPrefix(f, "send") || strings.HasPrefix(f, "recv") || strings.HasPrefix(f, "wait")) {
		return // make a mistake
	}
	g.b.WriteString(strings.Repeat("  ", g.depth))
	fmt.Fprintf(&g.b, f, args...)
	g.b.WriteByte('\n')
	g.size++
}

func (g *maker) pick(s ...string) string { return s[g.Intn(len(s))] }

func (g *maker) tag() string {
	k := g.Intn(6)
	if g.calm && k == 1 {
		k = 0
	}
	switch k {
	case 0:
		return "i"
	case 1:
		return "x"
	case 2:
		return "i+1"
	}
	return fmt.Sprint(g.Intn(2))
}

func (g *maker) cond() string {
	if g.calm && g.Intn(8) > 0 {
		return g.pick("rank == 0", "rank > 0", "rank%2 == 0", "i == 1", "i < 2", "size > 2", "i > 0", "i == 0", "y == 1", "y > 0", "rank == i")
	}
	return g.pick("rank == 0", "rank > 0", "rank < size-1", "rank%2 == 0", "x", "x > 1", "i == 1", "i < 2", "?", "?(x)", "?(i)",
		"rank == i", "rank == 0 && x", "size > 2", "g", "y == 1", "!(x > 1)", "rank == size-1 || i > 0")
}

func (g *maker) peer() string {
	if g.calm {
		return g.pick("rank", "rank", "(rank+1)%size", "(rank+size-1)%size")
	}
	return g.pick("rank", "(rank+1)%size", "(rank+i+1)%size", "0", "i", "(rank+x)%size", "size-1", "(rank^1)%size")
}

// block writes some statements. The caller writes the braces.
func (g *maker) block(n int) {
	g.depth++
	for ; n > 0 && g.size < 60; n-- {
		g.stmt()
	}
	if g.depth == 1 || g.Intn(3) > 0 {
		g.flush()
	}
	g.depth--
}

func (g *maker) flush() {
	for len(g.later) > 0 {
		l := g.later[0]
		g.later = g.later[1:]
		g.line("%s", l)
	}
}

func (g *maker) stmt() {
	if len(g.later) > 0 && g.Intn(3) == 0 {
		l := g.later[0]
		g.later = g.later[1:]
		g.line("%s", l)
		return
	}
	deep := g.depth > 4
	n := 30
	if g.things {
		n = 44
	}
	switch k := g.Intn(n); {
	case k >= 30:
		g.thing()
	case k < 3:
		t := g.tag()
		d := g.pick("1", "2", "x", "size-1")
		if g.calm {
			d = g.pick("1", "2", "i")
		}
		s := fmt.Sprintf("send to (rank+%s)%%size tag %s", d, t)
		r := fmt.Sprintf("recv from (rank-(%s)%%size+size)%%size tag %s", d, t)
		if g.Intn(3) == 0 {
			s, r = r, s
		}
		if g.Intn(6) == 0 {
			r = strings.Replace(r, "tag "+t, "tag -1", 1)
		}
		g.line("%s", s)
		g.later = append(g.later, r)
	case k < 5:
		t := g.tag()
		g.line("if rank > 0 { send to rank-1 tag %s }", t)
		g.line("if rank < size-1 { recv from rank+1 tag %s }", t)
	case k < 6:
		q := g.reqs % 3
		g.reqs++
		g.line("irecv from (rank-1+size)%%size tag %d request q%d", q, q)
		g.later = append(g.later, fmt.Sprintf("send to (rank+1)%%size tag %d", q), fmt.Sprintf("wait request q%d", q))
	case k < 7:
		g.line("isend to (rank+1)%%size tag 3")
		g.later = append(g.later, "recv from (rank-1+size)%size tag 3", "wait")
	case k < 9:
		from := "from j "
		if g.wilds {
			from = g.pick("from j ", "", "")
		}
		t := g.pick("0", "1", "7")
		if g.Intn(5) == 0 && from == "" {
			g.line("if rank == 0 { for j = 1; j < size; j = j + 1 { recv } } else { send to 0 tag %s }", t)
		} else {
			g.line("if rank == 0 { for j = 1; j < size; j = j + 1 { recv %stag %s } } else { send to 0 tag %s }", from, t, t)
		}
	case k < 10:
		g.line("for d = 1; d < size; d = d * 2 { if rank %% (2*d) == d { send to rank-d tag 9 } else if rank %% (2*d) == 0 && rank+d < size { recv from rank+d tag 9 } }")
	case k < 12:
		g.line("collective %q%s", g.pick("barrier", "barrier", "bcast", "allreduce", "reduce"), g.pick("", " root 0"))
	case k < 13:
		g.line("collective \"allreduce\" status y")
	case k < 14:
		if g.wilds && g.Intn(3) == 0 {
			g.line("recv tag %s", g.tag())
		} else if g.Intn(3) > 0 {
			g.line("%s %s tag %s", g.pick("send to", "recv from"), g.peer(), g.tag())
		} else {
			g.line("if %s { send to %s tag 5 } else { recv from %s tag 5 }", g.cond(), g.peer(), g.peer())
		}
	case k < 15:
		g.line("%s = %s", g.pick("x", "y", "g"), g.pick("1", "rank", "i", "x+1", "?", "?(x)", "size-1", "g", "rank%2"))
	case k < 16:
		g.line("call lib(%s) -> %s", g.pick("x", "i", "1"), g.pick("x", "y"))
	case k < 17:
		g.line("launch quiet group %s", g.pick("w", "v"))
		if g.Intn(4) > 0 {
			g.later = append(g.later, "join group "+g.pick("w", "w", "v"))
		}
	case k < 18 && !deep:
		g.line("collective %q root rank%%2 status c", g.pick("split", "dup"))
		g.later = append(g.later, "send to (rank(c)+1)%size(c) group c tag 2", "recv from (rank(c)-1+size(c))%size(c) group c tag 2")
	case k < 22 && !deep:
		g.line("if %s {", g.cond())
		g.block(1 + g.Intn(2))
		if g.Intn(2) == 0 {
			g.line("} else {")
			g.block(1 + g.Intn(2))
		}
		g.line("}")
	case k < 26 && !deep && g.loops < 2:
		g.loops++
		i := g.pick("i", "i", "k")
		g.line("%sfor %s = 0; %s < %s; %s = %s + 1 {", g.pick("", "L: "), i, i, g.pick("2", "3", "size", "x", "100", "rank", "y+1"), i, i)
		g.block(1 + g.Intn(3))
		if g.Intn(4) == 0 {
			g.depth++
			g.line("if %s { %s }", g.cond(), g.pick("break", "continue", "break", "return", "exit"))
			g.depth--
			g.block(1)
		}
		g.line("}")
		g.loops--
	case k < 27 && !deep && g.loops < 2:
		g.loops++
		g.line("k = 0")
		g.line("do {")
		g.block(1 + g.Intn(2))
		g.line("  k = k + 1")
		g.line("} while k < %s", g.pick("2", "x", "size", "3"))
		g.loops--
	case k < 28 && len(g.procs) > 0:
		p := g.pick(g.procs...)
		if g.Intn(4) == 0 {
			p = "\"op\" " + p + "|" + g.pick(g.procs...)
		}
		g.line("call %s(%s, %s) -> %s", p, g.pick("x", "i", "1", "0"), g.pick("1", "rank", "i"), g.pick("x", "y"))
	case k < 29 && !deep:
		g.line("switch %s {", g.pick("rank", "i", "x", "rank%2"))
		for v := 0; v < 2; v++ {
			g.line("case %d {", v)
			g.block(1)
			g.line("%s }", g.pick("", "  break;", ""))
		}
		g.line("default {")
		g.block(1)
		g.line("}")
		g.line("}")
	default:
		g.line("call place()")
	}
}

// thing writes a statement with objects, or a condition without communication.
func (g *maker) thing() {
	p := g.pick("p", "p", "q")
	low, high := "get(%s, f else ?(%[1]s, f))", "get(%s, a, 1 else ?(%[1]s, a))"
	switch g.Intn(11) {
	case 0:
		g.line("new %s T%s", p, g.pick("", " from q", " from p"))
	case 1:
		g.line("put(%s, f) = %s", p, g.pick("1", "(rank+1)%size", "i", "x", "size-1-rank", "wrap(i, 2)", "len(size)"))
	case 2:
		g.line("put(%s, a, %s) = %s", p, g.pick("1", "1", "i", "x"), g.pick("(rank-1+size)%size", "1", "size-1-rank", "y"))
	case 3:
		g.line("put(%s, f) = (rank+1)%%size", p)
		g.line("put(%s, a, 1) = (rank-1+size)%%size", p)
	case 4:
		g.line("%s = get(%s, %s)", g.pick("x", "y"), p, g.pick("f else ?("+p+", f)", "a, 1 else ?("+p+", a)", "f"))
	case 5:
		g.line("if %s { p = q }", g.pick("?", "?(i)", g.cond()))
	case 6:
		g.line("send to "+low+" tag 6", p)
		g.later = append(g.later, fmt.Sprintf("recv from "+high+" tag 6", p))
	case 7, 8:
		g.line("call swap(%s)", p)
	case 9:
		g.line("call deep(%s, %s)", g.pick("x", "i", "?", "2"), p)
	case 10:
		g.line("call silent(%s) -> %s", g.pick("x", "i", "rank", "?"), g.pick("x", "y"))
	}
}

// declare writes procedures that work on objects, and one that does not
// communicate.
func (g *maker) declare() {
	g.line("global shared f of T, shared a of T")
	g.line("proc swap(o of T) {")
	if g.Intn(3) == 0 {
		g.line("  if o == 0 { return }")
	}
	if g.Intn(4) == 0 {
		g.line("  put(o, f) = %s", g.pick("get(o, f else ?(o, f))", "1", "(rank+1)%size"))
	}
	g.line("  send to get(o, f else ?(o, f)) tag 4")
	g.line("  recv from get(o, a, 1 else ?(o, a)) tag 4")
	g.line("}")
	g.line("proc deep(n, o of T) {")
	g.line("  if %s { call deep(n-1, o) }", g.pick("?(n)", "n > 0", "?(n)", "?", "n > rank"))
	switch g.Intn(5) {
	case 0:
		g.line("  new o T from o")
	case 1:
		g.line("  put(o, f) = %s", g.pick("n", "rank", "(rank+1)%size"))
	}
	g.line("  %s", g.pick("call swap(o)", "call swap(o)", "collective \"barrier\"", "send to (rank+1)%size tag 4"))
	g.line("}")
	g.line("proc silent(n) (y) {")
	g.line("  y = 0")
	g.line("  if %s { return %s }", g.pick("?(n)", "n > 1", "?", "rank == n"), g.pick("1", "rank", "n"))
	g.line("  for k = 0; k < %s; k = k + 1 {", g.pick("3", "n", "?"))
	g.line("    if %s { %s }", g.pick("?(k)", "?", "rank == k", "n == k"), g.pick("continue", "break", "return 2"))
	g.line("    y = y + 1")
	if g.Intn(3) == 0 {
		g.line("    put(g, f) = k")
	}
	g.line("  }")
	g.line("  if assume %s %s { y = 5 }", g.pick("1", "-1"), g.pick("n > 0", "?(n)"))
	g.line("}")
}

func generate(seed int64) string {
	g := &maker{Rand: rand.New(rand.NewSource(seed))}
	g.wilds, g.calm = g.Intn(3) == 0, g.Intn(3) > 0
	g.things = seed%4 > 1
	g.line("global g")
	if g.things {
		g.declare()
	}
	g.line("proc quiet() { z = 1 }")
	for _, p := range []string{"f", "h"} {
		if g.Intn(2) == 0 {
			g.size = 40
			g.line("proc %s(x, i) (y) {", p)
			g.line("  k, c = 0, 0")
			g.block(3)
			if g.Intn(3) == 0 {
				g.line("  if %s { return %s }", g.cond(), g.pick("x", "1", "rank"))
			}
			g.block(2)
			if g.Intn(6) == 0 {
				g.line("  if x > 0 { call %s(x-1, i) -> y }", p)
			}
			g.line("}")
			g.procs = append(g.procs, p)
		}
	}
	g.size = 0
	g.line("proc main() {")
	g.line("  i, k, x, y, g, c = 0, 0, %s, 1, %s, 0", g.pick("1", "1", "rank", "?", "2"), g.pick("0", "1", "rank"))
	if g.things {
		g.line("  new p T")
		g.line("  put(p, f) = (rank+1)%%size")
		g.line("  put(p, a, 1) = (rank-1+size)%%size")
		g.line("  new q T%s", g.pick("", " from p"))
		if g.Intn(2) == 0 {
			g.line("  new g T from p")
		}
	}
	g.block(3 + g.Intn(8))
	g.line("  call place()")
	g.line("}")
	return g.b.String()
}

// tally counts the results of random programs.
type tally struct{ safe, used, harmless, other int }

// against analyzes the program of a seed and compares the verdicts with runs of
// it.
func against(t testing.TB, seed int64, runs int, sum *tally) {
	text := generate(seed)
	p, err := irtext.Parse("p", text)
	if err != nil {
		t.Fatalf("seed %d: %v\n%s", seed, err, text)
	}
	n := 2 + int(seed%3)
	uniform := seed%2 == 0
	r := commcheck.Analyze(p, commcheck.Options{Ranks: []int{n}, Uniform: uniform, Budget: 200000})
	verdicts := map[place]commcheck.Verdict{}
	var places []place
	eachStmt(p, func(s ir.Stmt) {
		places = append(places, place{s: s})
		verdicts[place{s: s}] = r.Before(s)
		if l, ok := s.(*ir.Loop); ok {
			places = append(places, place{s: s, body: true})
			verdicts[place{s: s, body: true}] = r.Body(l)
		}
	})
	used, crossed := map[place]bool{}, map[place]bool{}
	for i := 0; i < runs; i++ {
		m := run(p, n, seed*1000+int64(i), uniform)
		ended := true
		for _, k := range m.ranks {
			ended = ended && k.ended && !k.early
		}
		if m.ranks[0].void {
			continue
		}
		for _, pl := range places {
			for k := 0; ; k++ {
				what, all := m.crossed(pl, k)
				if !all {
					break
				}
				used[pl] = true
				if what == "" {
					continue
				}
				crossed[pl] = true
				if verdicts[pl].Kind == commcheck.Safe {
					t.Fatalf("seed %d, %d ranks, run %d: %v (body %v), visit %d is said to be safe, but %s crosses it\n%s",
						seed, n, i, pl.s.(ir.Stmt).At(), pl.body, k, what, numbered(text))
				}
			}
			if verdicts[pl].Kind != commcheck.Safe || !ended {
				continue
			}
			for _, x := range m.ranks {
				if len(x.visits[pl]) != len(m.ranks[0].visits[pl]) {
					t.Fatalf("seed %d, %d ranks, run %d: %v (body %v) is said to be safe, but rank 0 came by %d times and rank %d %d times\n%s",
						seed, n, i, pl.s.(ir.Stmt).At(), pl.body, len(m.ranks[0].visits[pl]), x.rank, len(x.visits[pl]), numbered(text))
				}
			}
		}
	}
	for _, pl := range places {
		switch {
		case verdicts[pl].Kind == commcheck.Safe:
			sum.safe++
			if used[pl] {
				sum.used++
			}
		case used[pl] && !crossed[pl]:
			sum.harmless++
		case used[pl]:
			sum.other++
		}
	}
}

func numbered(text string) string {
	l := strings.Split(text, "\n")
	for i := range l {
		l[i] = fmt.Sprintf("%3d %s", i+1, l[i])
	}
	return strings.Join(l, "\n")
}

// TestAnalyze_SafeHasNothingInflight shows that no place with the verdict Safe
// has anything in flight in any run.
func TestAnalyze_SafeHasNothingInflight(t *testing.T) {
	programs := 400
	if testing.Short() {
		programs = 100
	}
	var sum tally
	for seed := int64(1); seed <= int64(programs); seed++ {
		against(t, seed, 12, &sum)
	}
	t.Logf("%d places safe, %d of them come to by all ranks; %d others crossed in a run, %d not", sum.safe, sum.used, sum.other, sum.harmless)
	if sum.used < programs/2 || sum.other < programs/2 {
		t.Errorf("the programs show too little: %+v", sum)
	}
}

// FuzzAnalyze checks what TestAnalyze_SafeHasNothingInflight checks, for any
// random programs.
func FuzzAnalyze(f *testing.F) {
	f.Add(int64(1))
	f.Fuzz(func(t *testing.T, seed int64) {
		if seed < 0 {
			seed = -(seed + 1)
		}
		var sum tally
		against(t, seed%(1<<40), 20, &sum)
	})
}
