package commcheck

import (
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// level is a list that is being interpreted in a frame, and the current
// position in it.
type level struct {
	list []ir.Stmt
	i    int
}

// out is a jump out of a list: its kind and its label.
type out struct {
	kind  ir.JumpKind
	label string
}

// outs collects the jumps out of list, except those that end the program.
func outs(list []ir.Stmt, main bool, to map[out]bool) { collectOuts(list, main, nil, 0, 0, to) }

func collectOuts(list []ir.Stmt, main bool, labels []string, loops, breaks int, to map[out]bool) {
	for _, s := range list {
		switch s := s.(type) {
		case *ir.If:
			collectOuts(s.Then, main, labels, loops, breaks, to)
			collectOuts(s.Else, main, labels, loops, breaks, to)
		case *ir.Switch:
			for _, c := range s.Cases {
				collectOuts(c.Body, main, labels, loops, breaks+1, to)
			}
		case *ir.Loop:
			in := append(labels[:len(labels):len(labels)], s.Label)
			collectOuts(s.Init, main, labels, loops, breaks, to)
			collectOuts(s.Body, main, in, loops+1, breaks+1, to)
			collectOuts(s.Post, main, in, loops+1, breaks+1, to)
		case *ir.Jump:
			inside := false
			for _, l := range labels {
				inside = inside || l == s.Label && l != ""
			}
			switch {
			case s.Kind == ir.Exit, s.Kind == ir.Return && main, inside:
			case s.Kind == ir.Break && s.Label == "" && breaks > 0:
			case s.Kind == ir.Continue && s.Label == "" && loops > 0:
			case s.Kind == ir.Return:
				to[out{kind: ir.Return}] = true
			default:
				to[out{s.Kind, s.Label}] = true
			}
		}
	}
}

// only reports whether all jumps in m have this kind, and no label or this one.
func only(m map[out]bool, kind ir.JumpKind, label string) bool {
	for o := range m {
		if o.kind != kind || o.label != "" && o.label != label {
			return false
		}
	}
	return true
}

// diverge handles a condition at st that may differ between ranks and may
// decide about a jump. The condition chooses one of lists. All paths meet
// again: at the end of an iteration, of a loop or switch, or of the procedure.
// If nothing on these paths communicates, diverge moves the ranks to that place
// and makes everything that the paths may write unknown. It reports whether
// there is such a place.
func (a *analyzer) diverge(st ir.Stmt, s *state, why Reason, lists ...[]ir.Stmt) bool {
	region := slices.Concat(lists...)
	f := a.frames[len(a.frames)-1]
	ways := map[out]bool{}
	outs(region, a.inMain(), ways)
	to := jump{depth: len(a.frames)}
	if sw, ok := st.(*ir.Switch); ok {
		delete(ways, out{kind: ir.Break})
		if len(ways) == 0 {
			to.kind, to.to = ir.Break, sw
		}
	}
	for k := len(f.levels) - 1; to.kind == 0; k-- {
		rest := f.levels[k].list[f.levels[k].i+1:]
		region = append(region, rest...)
		outs(rest, a.inMain(), ways)
		if k == 0 {
			if !only(ways, ir.Return, "") {
				return false
			}
			to.kind = ir.Return
			break
		}
		switch c := f.levels[k-1].list[f.levels[k-1].i].(type) {
		case *ir.Switch:
			delete(ways, out{kind: ir.Break})
			if len(ways) == 0 {
				to.kind, to.to = ir.Break, c
			}
		case *ir.Loop:
			if only(ways, ir.Continue, c.Label) && within(f.levels[k].list, c.Body) {
				to.kind, to.to = ir.Continue, c
				break
			}
			for o := range ways {
				if (o.kind == ir.Break || o.kind == ir.Continue) && (o.label == "" || o.label == c.Label) {
					delete(ways, o)
				}
			}
			region = append(region, c)
			outs([]ir.Stmt{c}, a.inMain(), ways)
			if len(ways) == 0 {
				to.kind, to.to = ir.Break, c
			}
		}
		if a.info.acts(region) {
			return false
		}
	}
	if a.info.acts(region) {
		return false
	}
	a.walk(region, Unknown, why)
	a.forget(region, s)
	if to.kind == ir.Return {
		for _, v := range f.proc.Results {
			a.store(v, a.all(anything), s)
		}
	}
	for _, r := range s.live.list() {
		s.jumps[r] = to
	}
	s.live = newSet(a.n)
	return true
}

// within reports whether list is body, and body is not empty.
func within(list, body []ir.Stmt) bool {
	return len(list) > 0 && len(body) > 0 && &list[0] == &body[0]
}
