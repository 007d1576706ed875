package hotloops

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

const (
	// fewIterations is the default of Options.Descend.
	fewIterations = 10
	// hotShare is the share of samples that is enough for a point.
	hotShare = 0.1
	// maxInnerH is how much larger an inner loop's h may be than that of the
	// loop around it: a hundredth of its work.
	maxInnerH = 2.0
)

// Options override the heuristic: first Points, then Skip, then Profile. The
// zero value leaves everything to the heuristic.
type Options struct {
	// Points are positions of comments that ask for a point. A comment
	// belongs to the loop that begins on its line, else to the one on the
	// next line. If several begin there, it belongs to the one at its Col,
	// else to the first. These loops are chosen besides the others.
	Points []ir.Pos
	// Skip are positions of comments that exclude a loop. The choice is
	// made among the others; loops inside the excluded one do not take its
	// place.
	Skip []ir.Pos
	// Profile is the share of samples, from 0 to 1, that were taken in a
	// loop or in what it calls. With it, the loops of the population with a
	// tenth or more are chosen. Without it, or if there is none with as
	// much, h decides.
	Profile map[ir.Pos]float64
	// Descend opens every chosen loop that has a constant number of
	// iterations up to this one: of the loops inside, those with most of
	// its work are chosen too. 0 stands for 10, and -1 opens none. Loops
	// with an unknown number of iterations stay closed.
	Descend int
}

// Choice is what was chosen, and why.
type Choice struct {
	Report *Report
	// Loops are those of the report, in the same order.
	Loops []Verdict
	// Ranked are the loops that were chosen among, by h: the population
	// without what was skipped. The first Candidates of them are before the
	// knee, and the first Kept before the gap, which is after Share of the
	// candidates' range.
	Ranked           []*Loop
	Candidates, Kept int
	Share            float64
	// Warnings are sentences, most of them with a position. Comments are
	// warnings about comments. Those of a mode also concern comments on loops
	// of other modes.
	Warnings, Comments []string

	byLoop map[*Loop]*Verdict
	lines  map[line][]*Loop
}

// Verdict says whether a loop is chosen, and why, in a sentence.
type Verdict struct {
	*Loop
	Chosen bool
	Why    string
	// ByComment says that a comment has decided.
	ByComment bool
}

type line struct {
	file string
	line int
}

// Choose chooses among the loops of a report.
func (r *Report) Choose(o Options) *Choice {
	c := &Choice{Report: r, Loops: make([]Verdict, len(r.Loops)),
		byLoop: make(map[*Loop]*Verdict), lines: make(map[line][]*Loop)}
	for i, l := range r.Loops {
		c.Loops[i].Loop = l
		if l.Out != "" {
			c.Loops[i].Why = "not chosen: " + l.Out
		}
		c.byLoop[l] = &c.Loops[i]
		at := line{l.File, l.Line}
		c.lines[at] = append(c.lines[at], l)
	}
	c.comments(o)
	for _, l := range r.Loops[:r.Population] {
		if v := c.byLoop[l]; !v.ByComment || v.Chosen {
			c.Ranked = append(c.Ranked, l)
		}
	}
	c.thresholds()
	if len(o.Profile) == 0 || !c.profile(o.Profile) {
		c.heuristic()
	}
	c.descend(o.Descend)
	c.check()
	return c
}

// Chosen returns the chosen loops, in the order of Loops.
func (c *Choice) Chosen() (list []*Loop) {
	for _, v := range c.Loops {
		if v.Chosen {
			list = append(list, v.Loop)
		}
	}
	return list
}

func (c *Choice) warn(format string, args ...any) {
	c.Warnings = append(c.Warnings, fmt.Sprintf(format, args...))
}

// find returns the loop that a comment or a sample belongs to.
func (c *Choice) find(p ir.Pos, above bool) *Loop {
	first := func(n int) (found *Loop) {
		for _, l := range c.lines[line{p.File, n}] {
			if p.Col != 0 && n == p.Line && l.Col == p.Col {
				return l
			}
			if found == nil || comparePos(l.Pos, found.Pos) < 0 {
				found = l
			}
		}
		return found
	}
	l := first(p.Line)
	if l == nil && above {
		l = first(p.Line + 1)
	}
	return l
}

// comments decides about loops that comments concern.
func (c *Choice) comments(o Options) {
	warn := func(format string, args ...any) { c.Comments = append(c.Comments, fmt.Sprintf(format, args...)) }
	for _, p := range o.Points {
		if l := c.find(p, true); l == nil {
			warn("%s: this comment asks for a point, but no loop that main reaches begins here; put the comment above the loop", p)
		} else {
			v := c.byLoop[l]
			v.Chosen, v.ByComment, v.Why = true, true, "chosen: a comment in the source asks for it"
		}
	}
	for _, p := range o.Skip {
		if l := c.find(p, true); l == nil {
			warn("%s: this comment skips a loop, but none that main reaches begins here; put the comment above the loop", p)
		} else if v := c.byLoop[l]; v.Chosen {
			warn("%s: one comment asks for a point and another excludes it; the point stays", l.Pos)
		} else {
			v.ByComment, v.Why = true, "not chosen: a comment in the source excludes it"
		}
	}
}

func (c *Choice) thresholds() {
	curve := make([]float64, len(c.Ranked))
	for i, l := range c.Ranked {
		curve[i] = l.H
	}
	c.Candidates = Triangle(curve) + 1
	c.Kept, c.Share = Cluster(curve[:c.Candidates])
}

// settle decides about a loop, unless a comment has decided.
func (c *Choice) settle(l *Loop, chosen bool, format string, args ...any) {
	v := c.byLoop[l]
	if v.ByComment || v.Chosen {
		return
	}
	v.Chosen, v.Why = chosen, "not chosen: "+fmt.Sprintf(format, args...)
	if chosen {
		v.Why = v.Why[len("not "):]
	}
}

// numbers returns a loop's numbers as text.
func (c *Choice) numbers(l *Loop) string {
	return fmt.Sprintf("h is %.4f, with %s of %s statements and %s of %s accesses",
		l.H, number(l.S), number(c.Report.S), number(l.A), number(c.Report.A))
}

func number(x float64) string {
	if x < 1e15 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func (c *Choice) heuristic() {
	for i, l := range c.Ranked {
		rank := fmt.Sprintf("number %d of %d loops, as its %s", i+1, len(c.Ranked), c.numbers(l))
		switch {
		case i < c.Kept && c.Kept == len(c.Ranked):
			c.settle(l, true, "%s; no loop has much less", rank)
		case i < c.Kept && c.Kept == c.Candidates:
			c.settle(l, true, "%s; all loops before the knee (number %d) are alike", rank, c.Candidates)
		case i < c.Kept:
			c.settle(l, true, "%s; the gap is after number %d, at %.0f%% of the range of the %d before the knee",
				rank, c.Kept, 100*c.Share, c.Candidates)
		case i < c.Candidates:
			c.settle(l, false, "%s; it is before the knee (number %d), but after the gap behind number %d",
				rank, c.Candidates, c.Kept)
		default:
			c.settle(l, false, "%s; the knee of the curve is at number %d, with h %.4f",
				rank, c.Candidates, c.Ranked[c.Candidates-1].H)
		}
	}
}

// profile chooses by samples. It returns false if they do not suffice.
func (c *Choice) profile(samples map[ir.Pos]float64) bool {
	shares := make(map[*Loop]float64)
	for p, share := range samples {
		// A sample in an inner loop is in the outer ones as well.
		for l := c.find(p, false); l != nil; l = l.Outer {
			shares[l] = max(shares[l], share)
		}
	}
	if !slices.ContainsFunc(c.Ranked, func(l *Loop) bool { return shares[l] >= hotShare }) {
		c.warn("the profile is not used: no ranked loop has %.0f%% of the samples; record a longer one", 100*hotShare)
		return false
	}
	for _, l := range c.Ranked {
		c.settle(l, shares[l] >= hotShare, "%.1f%% of the samples are in it, and %.0f%% are enough (%s)",
			100*shares[l], 100*hotShare, c.numbers(l))
	}
	return true
}

// descend opens chosen loops that have few iterations.
func (c *Choice) descend(few int) {
	if few < 0 {
		return
	}
	few = cmp.Or(few, fewIterations)
	todo := c.Chosen()
	for len(todo) > 0 {
		l := todo[0]
		todo = todo[1:]
		if !l.real || l.Stmt.Trip < 0 || l.Stmt.Trip > few {
			continue
		}
		var inner []*Loop
		var curve []float64
		for _, k := range l.Inner() {
			if k.A > 0 && !c.byLoop[k].ByComment {
				inner = append(inner, k)
			}
		}
		slices.SortFunc(inner, func(a, b *Loop) int { return cmp.Or(cmp.Compare(a.H, b.H), comparePos(a.Pos, b.Pos)) })
		for _, k := range inner {
			curve = append(curve, k.H)
		}
		keep, _ := Cluster(curve[:Triangle(curve)+1])
		for i, k := range inner {
			if c.byLoop[k].Chosen {
				continue
			}
			if i < keep && k.H-l.H <= maxInnerH {
				c.settle(k, true, "it is number %d of %d loops in the loop at %s, which has only %d iterations; its %s",
					i+1, len(inner), l.Pos, l.Stmt.Trip, c.numbers(k))
				todo = append(todo, k)
			} else {
				c.settle(k, false, "it has too little of the loop at %s, which has only %d iterations; its %s",
					l.Pos, l.Stmt.Trip, c.numbers(k))
			}
		}
	}
}

// Inner returns the loops directly inside a loop, in the source or by calls.
func (l *Loop) Inner() (list []*Loop) {
	for _, k := range l.node.loops {
		o := k.Outer
		for o != nil && !o.real && o != l {
			o = o.Outer
		}
		if k.real && o == l {
			list = append(list, k)
		}
	}
	seen := make(map[*node]bool)
	var visit func(n *node, around *Loop)
	visit = func(n *node, around *Loop) {
		for _, s := range n.sites {
			if s.loop != around || seen[s.to] {
				continue
			}
			seen[s.to] = true
			for _, k := range s.to.loops {
				if k.real && !k.inLoop && k != l {
					list = append(list, k)
				}
			}
			visit(s.to, nil)
		}
	}
	visit(l.node, l)
	return list
}

// Curve draws h of the ranked loops, the one with most work first, with the two
// thresholds. Chosen loops have an asterisk.
//
//	  rank        h                                           loop
//	*    1   0.7755  ######                                   bt.f:179
//	  -------------------------------------------------------- gap
//	     2   3.1149  ########################                 exact_rhs.f:24
//	     3   4.2368  ################################         initialize.f:44
//	  ======================================================== knee
//	     4   4.8837  #####################################    error.f:25
func (c *Choice) Curve() string {
	const width = 40
	var b strings.Builder
	most := 0.0
	for _, l := range c.Ranked {
		most = max(most, l.H)
	}
	rule := func(mark, name string) {
		b.WriteString("  " + strings.Repeat(mark, width+16) + " " + name + "\n")
	}
	fmt.Fprintf(&b, "  %4s %8s  %-*s %s\n", "rank", "h", width, "", "loop")
	for i, l := range c.Ranked {
		mark, bar := " ", 0
		if c.byLoop[l].Chosen {
			mark = "*"
		}
		if most > 0 {
			bar = int(max(0, l.H)/most*width + 0.5)
		}
		fmt.Fprintf(&b, "%s %4d %8.4f  %-*s %s\n", mark, i+1, l.H, width, strings.Repeat("#", bar), l.Pos)
		if i == c.Kept-1 {
			rule("-", "gap")
		}
		if i == c.Candidates-1 {
			rule("=", "knee")
		}
	}
	return b.String()
}
