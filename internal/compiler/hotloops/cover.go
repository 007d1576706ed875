package hotloops

import "github.com/cairnrun/cairn/internal/compiler/ir"

// check adds warnings about choices that look wrong.
func (c *Choice) check() {
	r := c.Report
	if len(c.Chosen()) == 0 {
		if len(c.Ranked) == 0 {
			c.warn("no loop that main reaches counts, so there is no place for a point; ask for one with a comment")
		}
		return
	}
	v := cover{c, make(map[*ir.Proc]weight)}
	for i := 0; i < len(r.nodes); {
		// The nodes of a group are adjacent.
		var sum weight
		j := i
		for ; j < len(r.nodes) && r.nodes[j].group == r.nodes[i].group; j++ {
			sum = sum.plus(v.body(r.nodes[j].proc.Body))
		}
		for ; i < j; i++ {
			t := r.nodes[i].total
			v.done[r.nodes[i].proc] = weight{min(sum.comm, t.comm), min(sum.kernels, t.kernels)}
		}
	}
	covered := v.done[r.main.proc]
	c.compare("communication", covered.comm, r.Comm, func(l *Loop) float64 { return l.Comm })
	c.compare("kernel launches", covered.kernels, r.Kernels, func(l *Loop) float64 { return l.Kernels })
}

// compare adds a warning if the chosen loops have less than half of something,
// and another loop has more of it.
func (c *Choice) compare(what string, covered, all float64, of func(*Loop) float64) {
	if covered >= all/2 {
		return
	}
	var best *Loop
	for _, l := range c.Report.Loops { // the population is listed first
		if c.byLoop[l].Chosen || !l.real || of(l) == 0 || best != nil && best.Out == "" && l.Out != "" {
			continue
		}
		if best == nil || of(l)*factor(l.Stmt) > of(best)*factor(best.Stmt) {
			best = l
		}
	}
	if best == nil {
		return // most of it is in no loop
	}
	c.warn("%s: this loop has most of the program's %s, weighted by loops, but is not chosen (the chosen ones have %.0f%%); ask for a point here with a comment, or give a profile",
		best.Pos, what, 100*covered/all)
}

// weight is communications and kernel launches, as in Report.
type weight struct{ comm, kernels float64 }

func (w weight) plus(x weight) weight {
	return weight{min(w.comm+x.comm, limit), min(w.kernels+x.kernels, limit)}
}

// cover finds how much of the weight is in chosen loops.
type cover struct {
	c    *Choice
	done map[*ir.Proc]weight
}

func (v *cover) body(body []ir.Stmt) (sum weight) {
	for _, s := range body {
		switch s := s.(type) {
		case *ir.If:
			sum = sum.plus(v.body(s.Then)).plus(v.body(s.Else))
		case *ir.Switch:
			for _, k := range v.c.Report.pick.cases(s) {
				sum = sum.plus(v.body(k.Body))
			}
		case *ir.Call:
			var most weight
			for _, p := range v.c.Report.pick.procs(s) {
				w := v.done[p] // 0 so far for procedures of this group
				most = weight{max(most.comm, w.comm), max(most.kernels, w.kernels)}
			}
			sum = sum.plus(most)
		case *ir.Launch:
			sum = sum.plus(v.done[s.Proc])
		case *ir.Loop:
			f := factor(s)
			if f == 0 {
				continue
			}
			l := v.c.Report.index[s]
			w := weight{l.Comm, l.Kernels}
			if !v.c.byLoop[l].Chosen {
				w = v.body(s.Body)
			}
			sum = sum.plus(weight{min(w.comm*f, limit), min(w.kernels*f, limit)})
		}
	}
	return sum
}
