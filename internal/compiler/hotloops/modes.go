package hotloops

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"sync"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

const (
	maxModes = 32 // maximum number of modes of a program
	maxSites = 16 // maximum number of places that are tried
)

// Mode is one of several things that a program does, of which a run does one.
// Modes part where a dynamic call outside all loops leads to one of several
// procedures or to the methods of one of several types, or a switch to one of
// several cases, and each has loops that the others do not reach.
type Mode struct {
	// Name is that of the procedure, or the position of the case.
	Name string
	// At is where the program decides.
	At ir.Pos
	// Choice is made as if there were no other mode.
	*Choice
}

// pick says which way the program takes where modes part: the index of a
// procedure for a Call, or of a case for a Switch. Calls of methods that may
// lead to one of the types recvs lead to that type only.
type pick struct {
	ways  map[ir.Stmt]int
	recvs []string
}

// procs returns the procedures that a call leads to.
func (k pick) procs(s *ir.Call) []*ir.Proc {
	if i, ok := k.ways[s]; ok {
		return s.Procs[i : i+1]
	}
	for _, r := range k.recvs {
		var list []*ir.Proc
		for _, p := range s.Procs {
			if p != nil && p.Recv == r {
				list = append(list, p)
			}
		}
		if len(list) > 0 && len(list) < len(s.Procs) {
			return list
		}
	}
	return s.Procs
}

// cases returns the cases of a switch.
func (k pick) cases(s *ir.Switch) []ir.Case {
	if i, ok := k.ways[s]; ok {
		return s.Cases[i : i+1]
	}
	return s.Cases
}

// with returns k with one more way.
func (k pick) with(s ir.Stmt, i int) pick {
	m := map[ir.Stmt]int{s: i}
	maps.Copy(m, k.ways)
	return pick{m, k.recvs}
}

// of returns k with the methods of one more type.
func (k pick) of(recv string) pick {
	return pick{k.ways, append(k.recvs[:len(k.recvs):len(k.recvs)], recv)}
}

// Modes finds a program's modes and chooses loops in each. It returns none if
// there is only one.
func Modes(p *ir.Program, o Options) []Mode {
	r := measure(p, pick{})
	if r.main == nil {
		return nil
	}
	var list []Mode
	var split func(r *Report, m Mode)
	split = func(r *Report, m Mode) {
		s, ways := r.splitModes(p)
		if s == nil || len(list)+len(ways) > maxModes {
			if len(r.pick.ways)+len(r.pick.recvs) > 0 {
				m.Choice = r.Choose(o)
				list = append(list, m)
			}
			return
		}
		for _, w := range ways {
			name := w.name
			if m.Name != "" {
				name = m.Name + ", " + name
			}
			split(w.r, Mode{Name: name, At: s.At()})
		}
	}
	split(r, Mode{})
	return list
}

// way is one of the ways where modes part.
type way struct {
	name string
	r    *Report
}

// Reaches reports whether main reaches a procedure of that name.
func (r *Report) Reaches(name string) bool {
	for p := range r.byProc {
		if p.Name == name {
			return true
		}
	}
	return false
}

// splitModes finds a place where modes part, and measures each of them.
func (r *Report) splitModes(p *ir.Program) (ir.Stmt, []way) {
	tried := 0
	for i := len(r.nodes) - 1; i >= 0; i-- { // callers first
		n := r.nodes[i]
		if !r.free[n] {
			continue
		}
		for _, s := range r.sites(n.proc.Body, nil) {
			if tried++; tried > maxSites {
				return nil, nil
			}
			if ways := r.ways(p, s); ways != nil {
				return s, ways
			}
		}
	}
	return nil, nil
}

// sites returns the calls and switches of a body that are in no loop and have
// several ways to loops.
func (r *Report) sites(body []ir.Stmt, list []ir.Stmt) []ir.Stmt {
	for _, s := range body {
		switch s := s.(type) {
		case *ir.If:
			list = r.sites(s.Else, r.sites(s.Then, list))
		case *ir.Loop:
			if !never(s) && !r.index[s].real {
				list = r.sites(s.Body, list)
			}
		case *ir.Switch:
			ways := 0
			for _, c := range r.pick.cases(s) {
				if r.loopsIn(c.Body) {
					ways++
				}
			}
			if ways > 1 {
				list = append(list, s)
			}
			for _, c := range r.pick.cases(s) {
				list = r.sites(c.Body, list)
			}
		case *ir.Call:
			ways := 0
			for _, q := range r.pick.procs(s) {
				if n := r.byProc[q]; n != nil && r.reaches(n) {
					ways++
				}
			}
			if ways > 1 {
				list = append(list, s)
			}
		}
	}
	return list
}

// reaches reports whether a procedure has loops, or calls one that has.
func (r *Report) reaches(n *node) bool {
	if yes, ok := r.looping[n]; ok {
		return yes
	}
	r.looping[n] = false // so that recursion ends
	yes := len(n.loops) > 0
	for _, s := range n.sites {
		yes = yes || r.reaches(s.to)
	}
	r.looping[n] = yes
	return yes
}

func (r *Report) loopsIn(body []ir.Stmt) (found bool) {
	ir.Each(body, func(s ir.Stmt) {
		switch s := s.(type) {
		case *ir.Loop:
			found = true
		case *ir.Call:
			for _, q := range s.Procs {
				n := r.byProc[q]
				found = found || n != nil && r.reaches(n)
			}
		}
	})
	return found
}

// ways measures the ways from s, and returns those that are modes: they have
// loops of their own with much of their work, and their work is not much less
// than that of others.
func (r *Report) ways(p *ir.Program, s ir.Stmt) (list []way) {
	var all []way
	var picks []pick
	add := func(name string, k pick) { all, picks = append(all, way{name: name}), append(picks, k) }
	switch s := s.(type) {
	case *ir.Call:
		seen := make(map[string]bool)
		for i, q := range s.Procs {
			switch {
			case q == nil || !q.Known:
			case q.Recv == "":
				add(q.Name, r.pick.with(s, i))
			case !seen[q.Recv]:
				seen[q.Recv] = true
				add(q.Recv, r.pick.of(q.Recv))
			}
		}
	case *ir.Switch:
		for i, c := range s.Cases {
			add(fmt.Sprintf("the case at %s", c.Pos), r.pick.with(s, i))
		}
	}
	if len(all) < 2 || len(all) > maxModes {
		return nil
	}
	var wg sync.WaitGroup
	limit := make(chan bool, runtime.GOMAXPROCS(0))
	for i := range all {
		wg.Go(func() {
			limit <- true
			all[i].r = measure(p, picks[i])
			<-limit
		})
	}
	wg.Wait()
	times := make(map[*ir.Loop]int) // number of ways that reach a loop
	for _, w := range all {
		for s := range w.r.index {
			times[s]++
		}
	}
	best := math.Inf(1)
	own := make([]*Loop, len(all)) // the loop with most of the way's work
	for i, w := range all {
		for _, l := range w.r.Loops[:w.r.Population] {
			if times[l.Stmt] == 1 && (own[i] == nil || l.H < own[i].H) {
				own[i] = l
				best = min(best, h(l.S, l.A, r.S, r.A))
			}
		}
	}
	for i, w := range all {
		if l := own[i]; l != nil && l.H <= maxInnerH && h(l.S, l.A, r.S, r.A) <= best+2*maxInnerH {
			list = append(list, w)
		}
	}
	if len(list) < 2 {
		return nil
	}
	return list
}
