// Package hotloops finds the loops in which a program does its work. Measure
// counts, Report.Choose chooses, and gives a reason with numbers for every
// loop. The method is that of Rodríguez and others (CPPC).
//
// # Counting
//
// s is the number of statements and a the number of reads of variables, of a
// loop and of the whole program (main with all its calls). Then
//
//	h(l) = -log10( s(l)/s(P) · a(l)/a(P) )
//
// and the smaller h is, the more of the program is in the loop.
//
//	statement            s                              a
//	Decl, Label, break   0                              0
//	If                   half of both branches          half of both branches
//	Switch               1 for each case, and its body  its bodies
//	Loop                 1, and its body                its body; of AtEnd the condition too
//	Call, Launch         its callee's                   its callee's
//	Kernel               its procedure's, if it is known
//	any other            1                              its Reads
//
// Halves are rounded down. Calls of libraries (and of procedures without
// source) are among the others. A loop's Init counts nothing, though the loops
// in what it calls do. Of its Post, which also holds what a condition calls,
// only called procedures, kernels and communications count. A loop that never
// runs counts 1 and nothing of its body.
//
// A dynamic call counts the callee with the largest s·a. One callee runs each
// time, so a sum would count what does not run; and a mean would hide the
// expensive one, for which a point is wanted.
//
// Procedures that call each other recursively count as a group: each of them
// once, whichever is called, with 1 and its Reads for a call within the group.
// A loop that calls its own group holds the whole group.
//
// Every procedure is counted once, so the time is linear in the size of the
// program. The numbers may grow very large, because every call counts the whole
// callee; so they are floating point.
//
// # The population
//
// The population are the loops with a > 0 that main reaches and that are in no
// other loop, neither in the source nor by calls. Loops that run on devices are
// not in it. Loops that never run are left out, and those with one iteration
// count as straight code. A call from a loop of the same recursive group does
// not exclude a loop that is reached without passing through another.
//
// # The choice
//
// The population is sorted by h. Triangle finds the knee of that curve, and
// Cluster the gap among the loops before it. The loops before the gap are
// chosen.
package hotloops

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// Report is the result of Measure. Nothing in this package changes it.
type Report struct {
	S, A float64 // of the whole program
	// Comm and Kernels are the numbers of communications and kernel
	// launches. Each counts ten times for every loop around it, or as often
	// as the loop iterates, if that is known and less.
	Comm, Kernels float64
	// Loops are all loops that main reaches: first the population, by h,
	// then the others, by position.
	Loops []*Loop
	// Population is the length of the population.
	Population int

	main    *node
	nodes   []*node // callees before callers
	index   map[*ir.Loop]*Loop
	byProc  map[*ir.Proc]*node
	free    map[*node]bool // reached from main without passing through a loop
	pick    pick           // of one mode only
	looping map[*node]bool // nodes that reach loops

	visits int // of statements
}

// Loop is a loop of a program.
type Loop struct {
	ir.Pos
	Proc          *ir.Proc
	Stmt          *ir.Loop
	Outer         *Loop   // the loop around it in the source, or nil
	S, A, H       float64 // H is infinite without accesses, negative if conditions halve what is around it
	Comm, Kernels float64 // in one iteration, as in Report
	// Out says why the loop is not in the population. It is empty if it is.
	Out string

	node      *node
	real      bool // it has more than one iteration
	inLoop    bool // a real loop is around it in the source
	recursive bool // it calls its own recursive group
}

// Measure counts a program's loops. p must stay unchanged as long as the report
// is used. A program without a main has no loops.
func Measure(p *ir.Program) *Report { return measure(p, pick{}) }

// measure counts a program as if it took the picked ways only.
func measure(p *ir.Program, k pick) *Report {
	r := &Report{index: make(map[*ir.Loop]*Loop), pick: k, looping: make(map[*node]bool)}
	if p == nil || p.Main == nil || !p.Main.Known {
		return r
	}
	g := &graph{nodes: make(map[*ir.Proc]*node), index: r.index, pick: k}
	r.main = g.visit(p.Main)
	r.nodes = g.order
	r.byProc = g.nodes
	c := &counter{loops: r.index, nodes: g.nodes, pick: k}
	for _, group := range g.groups {
		c.group(group)
	}
	r.visits = g.visits + c.visits
	r.S, r.A = r.main.total.s, r.main.total.a
	r.Comm, r.Kernels = r.main.total.comm, r.main.total.kernels
	g.kernels()
	free, called := g.reach(r.main)
	r.free = free
	for _, n := range r.nodes {
		for _, l := range n.loops {
			l.H = h(l.S, l.A, r.S, r.A)
			l.Out = l.out(free, called)
			r.Loops = append(r.Loops, l)
			if l.Out == "" {
				r.Population++
			}
		}
	}
	slices.SortFunc(r.Loops, compare)
	return r
}

func h(s, a, S, A float64) float64 {
	if s <= 0 || a <= 0 {
		return math.Inf(1)
	}
	// Halving may leave nothing of the program.
	return -(math.Log10(s/max(S, 1)) + math.Log10(a/max(A, 1))) + 0 // never -0
}

// compare sorts the population before the others.
func compare(a, b *Loop) int {
	if in := a.Out == ""; in != (b.Out == "") {
		if in {
			return -1
		}
		return 1
	} else if in {
		if c := cmp.Compare(a.H, b.H); c != 0 {
			return c
		}
	}
	return cmp.Or(comparePos(a.Pos, b.Pos), strings.Compare(a.Proc.Name, b.Proc.Name))
}

func comparePos(a, b ir.Pos) int {
	return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Col, b.Col))
}

// out says why a loop is not in the population.
func (l *Loop) out(free map[*node]bool, called map[*node]*Loop) string {
	switch by := called[l.node]; {
	case never(l.Stmt):
		return "it never runs"
	case !l.real:
		return "it has only one iteration"
	case l.inLoop:
		o := l.Outer
		for !o.real {
			o = o.Outer
		}
		return "it is inside the loop at " + o.Pos.String()
	case by != nil:
		return "its procedure " + l.Proc.Name + " is called in the loop at " + by.Pos.String()
	case !free[l.node] && l.node.kernel:
		return "its procedure " + l.Proc.Name + " is run on a device"
	case !free[l.node]:
		return "its procedure " + l.Proc.Name + " is reached only through other loops of the same recursion"
	case l.A <= 0:
		return "it reads no variables"
	}
	return ""
}

// never reports whether a loop certainly never runs.
func never(l *ir.Loop) bool {
	if l.AtEnd {
		return false
	}
	c, ok := l.Cond.(ir.Const)
	return l.Trip == 0 || ok && c.Value == 0
}

// once reports whether a loop certainly has one iteration.
func once(l *ir.Loop) bool {
	if l.Trip == 1 {
		return true
	}
	c, ok := l.Cond.(ir.Const)
	return l.AtEnd && (l.Trip == 0 || ok && c.Value == 0)
}
