package hotloops

import (
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
	"github.com/cairnrun/cairn/internal/compiler/scc"
)

// node is a procedure in the call graph.
type node struct {
	proc   *ir.Proc
	loops  []*Loop // in source order
	sites  []site
	group  int // number of its recursive group
	total  count
	kernel bool // it runs on a device, or is called there
}

// site is a call in a procedure.
type site struct {
	to     *node
	loop   *Loop // the innermost real loop around it, or nil
	kernel bool  // it runs on a device
}

// graph is the part of a program that main reaches.
type graph struct {
	nodes  map[*ir.Proc]*node
	index  map[*ir.Loop]*Loop
	groups [][]*node // callees before callers
	order  []*node   // all nodes, callees before callers
	pick   pick
	visits int // number of visits of statements
}

// visit adds a procedure and all that it reaches, and finds the recursive
// groups.
func (g *graph) visit(p *ir.Proc) *node {
	main := &node{proc: p}
	g.nodes[p] = main
	g.groups = scc.Components([]*node{main}, func(n *node) (callees []*node) {
		g.collect(n, n.proc.Body, nil, nil)
		for _, s := range n.sites {
			callees = append(callees, s.to)
		}
		return callees
	})
	for i, group := range g.groups {
		for _, n := range group {
			n.group = i
		}
		g.order = append(g.order, group...)
	}
	return main
}

// collect finds loops and calls in a body. outer is the innermost loop around
// it, real the innermost with more than one iteration.
func (g *graph) collect(n *node, body []ir.Stmt, outer, real *Loop) {
	g.visits += len(body)
	for _, s := range body {
		switch s := s.(type) {
		case *ir.If:
			g.collect(n, s.Then, outer, real)
			g.collect(n, s.Else, outer, real)
		case *ir.Switch:
			for _, c := range g.pick.cases(s) {
				g.collect(n, c.Body, outer, real)
			}
		case *ir.Call:
			for _, p := range g.pick.procs(s) {
				g.call(n, p, real)
			}
		case *ir.Launch:
			g.call(n, s.Proc, real)
		case *ir.Kernel:
			for _, p := range s.Procs {
				before := len(n.sites)
				g.call(n, p, real)
				for i := range n.sites[before:] {
					n.sites[before+i].kernel = true
				}
			}
		case *ir.Loop:
			g.collect(n, s.Init, outer, real)
			l := &Loop{Pos: s.Pos, Proc: n.proc, Stmt: s, Outer: outer, node: n, inLoop: real != nil}
			l.real = !never(s) && !once(s)
			g.index[s] = l
			n.loops = append(n.loops, l)
			if never(s) {
				continue
			}
			inside := real
			if l.real {
				inside = l
			}
			g.collect(n, s.Body, l, inside)
			g.collect(n, s.Post, l, inside)
		}
	}
}

func (g *graph) call(n *node, p *ir.Proc, loop *Loop) {
	if p == nil || !p.Known {
		return
	}
	m := g.nodes[p]
	if m == nil {
		m = &node{proc: p}
		g.nodes[p] = m
	}
	n.sites = append(n.sites, site{to: m, loop: loop})
}

// kernels marks what runs on devices.
func (g *graph) kernels() {
	var visit func(n *node)
	visit = func(n *node) {
		if n.kernel {
			return
		}
		n.kernel = true
		for _, s := range n.sites {
			visit(s.to)
		}
	}
	for _, n := range g.order {
		for _, s := range n.sites {
			if s.kernel {
				visit(s.to)
			}
		}
	}
}

// reach returns the procedures that main reaches without passing through a
// loop. called maps the procedures that a loop of another group calls, directly
// or not, to that loop (the first by position).
func (g *graph) reach(main *node) (free map[*node]bool, called map[*node]*Loop) {
	free = map[*node]bool{main: true}
	todo := []*node{main}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, s := range n.sites {
			if s.loop == nil && !s.kernel && !free[s.to] {
				free[s.to] = true
				todo = append(todo, s.to)
			}
		}
	}

	// If a loop calls its own recursive group, all that the group calls is
	// inside it.
	holder := make([]*Loop, len(g.groups))
	for _, n := range g.order {
		for _, s := range n.sites {
			if s.loop != nil && s.to.group == n.group && (holder[n.group] == nil || comparePos(s.loop.Pos, holder[n.group].Pos) < 0) {
				holder[n.group] = s.loop
			}
		}
	}
	var seeds []site
	for _, n := range g.order {
		for _, s := range n.sites {
			if s.to.group == n.group {
				continue
			}
			if s.loop != nil {
				seeds = append(seeds, s)
			} else if holder[n.group] != nil {
				seeds = append(seeds, site{to: s.to, loop: holder[n.group]})
			}
		}
	}
	slices.SortStableFunc(seeds, func(a, b site) int { return comparePos(a.loop.Pos, b.loop.Pos) })
	called = make(map[*node]*Loop)
	for _, s := range seeds {
		todo = append(todo[:0], s.to)
		for len(todo) > 0 {
			n := todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			if called[n] != nil {
				continue
			}
			called[n] = s.loop
			for _, t := range n.sites {
				todo = append(todo, t.to)
			}
		}
	}
	return free, called
}
