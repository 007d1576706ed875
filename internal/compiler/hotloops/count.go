package hotloops

import (
	"math"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// limit bounds all numbers: nested calls make them grow exponentially, and no
// result may become infinite.
const limit = 1e250

// defaultTrips is the assumed number of iterations if it is unknown.
const defaultTrips = 10

// count is the result of counting a piece of a program.
type count struct {
	s, a          float64
	comm, kernels float64
	recursive     bool // it has a call within the group that is being counted
}

func (c *count) add(d count) {
	c.s = min(c.s+d.s, limit)
	c.a = min(c.a+d.a, limit)
	c.comm = min(c.comm+d.comm, limit)
	c.kernels = min(c.kernels+d.kernels, limit)
	c.recursive = c.recursive || d.recursive
}

// larger returns the count with the larger s·a.
func larger(c, d count) count {
	x, y := math.Log(c.s)+math.Log(c.a), math.Log(d.s)+math.Log(d.a)
	if y > x || y == x && (d.s > c.s || d.s == c.s && d.a > c.a) {
		c.s, c.a = d.s, d.a
	}
	c.comm, c.kernels = max(c.comm, d.comm), max(c.kernels, d.kernels)
	c.recursive = c.recursive || d.recursive
	return c
}

// counter counts procedures, callees first.
type counter struct {
	loops map[*ir.Loop]*Loop
	nodes map[*ir.Proc]*node
	pick  pick

	visits int // number of visits of statements
}

// group counts the procedures of a recursive group, which mostly is one
// procedure that does not recurse. All its callees must have been counted.
func (c *counter) group(group []*node) {
	var total count
	for _, n := range group {
		total.add(c.body(n, n.proc.Body))
	}
	total.recursive = false
	for _, n := range group {
		n.total = total
		for _, l := range n.loops {
			if l.recursive {
				l.S, l.A = max(l.S, total.s), max(l.A, total.a)
				l.Comm, l.Kernels = max(l.Comm, total.comm), max(l.Kernels, total.kernels)
			}
		}
	}
}

func (c *counter) body(n *node, body []ir.Stmt) (total count) {
	c.visits += len(body)
	for _, s := range body {
		total.add(c.stmt(n, s))
	}
	return total
}

func plain(reads []*ir.Var) count { return count{s: 1, a: float64(len(reads))} }

func (c *counter) stmt(n *node, s ir.Stmt) count {
	switch s := s.(type) {
	case *ir.Assign:
		return plain(s.Reads)
	case *ir.Call:
		return c.call(n, c.pick.procs(s), s.Reads)
	case *ir.Launch:
		return c.call(n, []*ir.Proc{s.Proc}, s.Reads)
	case *ir.Join:
		return plain(s.Reads)
	case *ir.Comm:
		k := plain(s.Reads)
		k.comm = 1
		return k
	case *ir.Kernel:
		k := c.call(n, s.Procs, s.Reads)
		k.kernels = 1
		return k
	case *ir.Jump:
		if s.Kind == ir.Break {
			return count{}
		}
		return plain(s.Reads)
	case *ir.If:
		both := c.body(n, s.Then)
		both.add(c.body(n, s.Else))
		both.s, both.a = math.Floor(both.s/2), math.Floor(both.a/2)
		return both
	case *ir.Switch:
		cases := c.pick.cases(s)
		total := count{s: float64(len(cases))}
		for _, k := range cases {
			total.add(c.body(n, k.Body))
		}
		return total
	case *ir.Loop:
		return c.loop(n, s)
	}
	return count{} // Decl, Label
}

func (c *counter) call(n *node, procs []*ir.Proc, reads []*ir.Var) count {
	if len(procs) == 0 {
		return plain(reads)
	}
	var most count
	for i, p := range procs {
		k := plain(reads)
		if p != nil && p.Known {
			if m := c.nodes[p]; m.group == n.group {
				k.recursive = true
			} else {
				k = m.total
			}
		}
		if i == 0 {
			most = k
		} else {
			most = larger(most, k)
		}
	}
	return most
}

func (c *counter) loop(n *node, s *ir.Loop) count {
	l := c.loops[s]
	if never(s) {
		l.S = 1
		return count{s: 1}
	}
	total := count{s: 1}
	total.add(c.body(n, s.Body))
	total.add(c.called(n, s.Post))
	if s.AtEnd {
		total.a += float64(len(s.Reads))
	}
	l.S, l.A, l.Comm, l.Kernels = total.s, total.a, total.comm, total.kernels
	l.recursive = total.recursive
	f := factor(s)
	total.comm, total.kernels = min(total.comm*f, limit), min(total.kernels*f, limit)
	return total
}

// called counts only the procedures that a list calls, its kernels and its
// communications.
func (c *counter) called(n *node, list []ir.Stmt) (total count) {
	ir.Each(list, func(s ir.Stmt) {
		c.visits++
		switch s := s.(type) {
		case *ir.Call:
			if slices.ContainsFunc(s.Procs, func(p *ir.Proc) bool { return p != nil && p.Known }) {
				total.add(c.stmt(n, s))
			}
		case *ir.Comm, *ir.Kernel:
			total.add(c.stmt(n, s))
		}
	})
	return total
}

// factor returns by how much a loop multiplies the communications in it.
func factor(s *ir.Loop) float64 {
	switch {
	case never(s):
		return 0
	case once(s):
		return 1
	case s.Trip > 0:
		return float64(min(s.Trip, defaultTrips))
	}
	return defaultTrips
}
