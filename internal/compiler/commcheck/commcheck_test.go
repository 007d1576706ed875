package commcheck_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/compiler/commcheck"
	"github.com/cairnrun/cairn/internal/compiler/ir"
	"github.com/cairnrun/cairn/internal/compiler/ir/irtext"
)

// eachStmt calls f for all statements of p.
func eachStmt(p *ir.Program, f func(ir.Stmt)) {
	var list func(l []ir.Stmt)
	list = func(l []ir.Stmt) {
		for _, s := range l {
			f(s)
			switch s := s.(type) {
			case *ir.If:
				list(s.Then)
				list(s.Else)
			case *ir.Switch:
				for _, c := range s.Cases {
					list(c.Body)
				}
			case *ir.Loop:
				list(s.Init)
				list(s.Body)
				list(s.Post)
			}
		}
	}
	for _, pr := range p.Procs {
		list(pr.Body)
	}
}

// TestAnalyze_ManyRanks analyzes programs whose cost would explode if
// iterations were interpreted one by one, or if states multiplied.
func TestAnalyze_ManyRanks(t *testing.T) {
	check(t, "transposes", `
proc main() {
    for s = 0; s < 1000000; s = s + 1 {     # body safe
        for i = 0; i < size; i = i + 1 { send to i }
        for i = 0; i < size; i = i + 1 { recv from i }
        call w()                            # safe
    }
    call w()                                # safe
}`, commcheck.Options{Ranks: []int{64}})
	var b strings.Builder
	b.WriteString("\nproc main() {\n")
	for i := 0; i < 300; i++ {
		fmt.Fprintf(&b, "call f() -> x\nif x { y = %d } else { send to rank tag %d; recv from rank tag %d }\n", i, i, i)
	}
	b.WriteString("call w() # safe\n}")
	check(t, "many conditions", b.String(), commcheck.Options{Uniform: true, Ranks: []int{16}})
	check(t, "small budget", `
proc main() {
    for s = 0; s < 1000; s = s + 1 {
        send to rank
        recv from rank
        call w()                            # unknown: larger budget
    }
    call w()                                # unknown: larger budget
}`, commcheck.Options{Budget: 30})
}

// TestAnalyze_VerdictDependsOnRanks has an exchange that is safe on 2 and 4
// ranks, and not on 3. Without numbers of ranks nothing is known.
func TestAnalyze_VerdictDependsOnRanks(t *testing.T) {
	p, err := irtext.Parse("odd", "proc main() {\n sendrecv to rank ^ 1\n recv from rank ^ 1\n call w()\n}")
	if err != nil {
		t.Fatal(err)
	}
	w := p.Main.Body[2]
	for _, c := range []struct {
		ranks []int
		want  commcheck.Kind
	}{{[]int{2}, commcheck.Safe}, {[]int{2, 4}, commcheck.Safe}, {[]int{2, 3}, commcheck.Unknown}, {nil, commcheck.Unknown}, {[]int{0}, commcheck.Unknown}} {
		if got := commcheck.Analyze(p, commcheck.Options{Ranks: c.ranks}).Before(w); got.Kind != c.want {
			t.Errorf("%v: %v, want %v", c.ranks, got, c.want)
		}
	}
	if v := commcheck.Analyze(p, commcheck.Options{}).Before(&ir.Label{}); v.Kind != commcheck.Unknown {
		t.Errorf("a statement of no program is %v", v)
	}
	if v := commcheck.Analyze(&ir.Program{}, commcheck.Options{}).Before(w); v.Kind != commcheck.Unknown {
		t.Errorf("an empty program's is %v", v)
	}
}

// TestAnalyze_ListsAssumedConditions shows that with Uniform the result lists
// the conditions that are assumed to be equal on all ranks.
func TestAnalyze_ListsAssumedConditions(t *testing.T) {
	p, err := irtext.Parse("g", "proc main() {\n call f() -> x\n if x { send to rank; recv from rank }\n if rank == 0 { y = 1 }\n}")
	if err != nil {
		t.Fatal(err)
	}
	if g := commcheck.Analyze(p, commcheck.Options{Uniform: true}).Given; len(g) != 1 || g[0].At.Line != 3 {
		t.Errorf("given %v, want the condition in line 3", g)
	}
	if g := commcheck.Analyze(p, commcheck.Options{}).Given; len(g) != 0 {
		t.Errorf("given %v, want nothing", g)
	}
}

// TestAnalyze_Patterns compares the verdicts on communication patterns with the
// expected ones.
func TestAnalyze_Patterns(t *testing.T) {
	for _, c := range append(patterns, workPatterns...) {
		t.Run(c.name, func(t *testing.T) { check(t, c.name, c.text, c.opt) })
	}
}

func check(t *testing.T, name, text string, o commcheck.Options) {
	p, err := irtext.Parse(name, text[1:])
	if err != nil {
		t.Fatal(err)
	}
	r := commcheck.Analyze(p, o)
	wants := 0
	for i, line := range strings.Split(text[1:], "\n") {
		_, want, ok := strings.Cut(line, "# ")
		if !ok {
			continue
		}
		wants++
		want, because, _ := strings.Cut(strings.TrimSpace(want), ": ")
		body := strings.HasPrefix(want, "body ")
		want = strings.TrimPrefix(want, "body ")
		var got *commcheck.Verdict
		eachStmt(p, func(s ir.Stmt) {
			if s.At().Line != i+1 {
				return
			}
			l, loop := s.(*ir.Loop)
			if body && loop {
				v := r.Body(l)
				got = &v
			} else if !body {
				v := r.Before(s)
				got = &v
			}
		})
		if got == nil {
			t.Fatalf("line %d: no such place", i+1)
		}
		if got.Kind.String() != want || !strings.Contains(fmt.Sprint(got), because) {
			t.Errorf("line %d: %s\n got %v", i+1, strings.TrimSpace(line), got)
		}
		if (got.Kind == commcheck.Safe) != (len(got.Because) == 0) {
			t.Errorf("line %d: %v with reasons %v", i+1, got.Kind, got.Because)
		}
	}
	if wants == 0 {
		t.Fatal("nothing to check")
	}
}
