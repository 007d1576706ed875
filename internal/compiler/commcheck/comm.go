package commcheck

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// comm is a communicator, or all communicators that one split made. members and
// rankOf are nil if the groups are unknown.
type comm struct {
	id      int
	members [][]int // for each rank of the world, the members of its group in order; nil: it is in none
	rankOf  []int
}

func (a *analyzer) newComm(members [][]int) *comm {
	c := &comm{id: len(a.comms), members: members}
	if members != nil {
		c.rankOf = make([]int, a.n)
		for r, g := range members {
			for i, m := range g {
				if m == r {
					c.rankOf[r] = i
				}
			}
		}
	}
	a.comms = append(a.comms, c)
	return c
}

func (a *analyzer) world() [][]int {
	all := make([]int, a.n)
	for i := range all {
		all[i] = i
	}
	m := make([][]int, a.n)
	for i := range m {
		m[i] = all
	}
	return m
}

// noComm stands for "no communicator". To use it is an error.
var noComm = &comm{id: -1}

// group returns the communicator that e evaluates to on each rank; nil where it
// is unknown.
func (a *analyzer) group(e ir.Expr, s *state) []*comm {
	out := make([]*comm, a.n)
	if e == nil {
		for r := range out {
			out[r] = a.comms[0]
		}
		return out
	}
	for r, x := range a.eval(e, s) {
		if x == num(-1) {
			out[r] = noComm
		} else if x == num(0) {
			out[r] = a.comms[0]
		} else if x.sym > 0 {
			out[r] = a.handles[x.sym]
		}
	}
	return out
}

func called(c *ir.Comm) string {
	if c.Name != "" {
		return c.Name
	}
	return [...]string{"communication", "send", "receive", "started send", "started receive",
		"wait", "sendrecv", "collective", "probe"}[min(int(c.Kind), 8)]
}

// communicate interprets c for the live ranks.
func (a *analyzer) communicate(c *ir.Comm, s *state) {
	ranks := s.live.list()
	groups := a.group(c.Group, s)
	fail := func(why string) { a.giveUp(s, Reason{c.Pos, called(c), why}) }
	if c.Kind != ir.Wait && c.Kind != ir.Probe {
		for _, r := range ranks {
			if groups[r] == noComm { // an error, which ends the run
				for r := range s.jumps {
					s.jumps[r] = jump{kind: ir.Exit}
				}
				s.live = newSet(a.n)
				return
			}
			if groups[r] == nil {
				fail("uses a communicator that cannot be evaluated")
				return
			}
		}
	}
	switch c.Kind {
	case ir.Send, ir.StartSend, ir.Sendrecv, ir.Recv, ir.StartRecv:
		if c.Kind == ir.StartSend || c.Kind == ir.StartRecv {
			for _, r := range ranks {
				a.start(c, r, groups[r].id, s)
			}
		}
		a.pointToPoint(c, ranks, groups, s)
	case ir.Wait:
		for _, r := range ranks {
			a.steps += len(s.reqs) / 4
			id := -1
			if groups[r] != nil {
				id = groups[r].id
			}
			s.reqs = without(s.reqs, func(q req) bool {
				if q.rank != r || q.lost {
					return false
				}
				if c.Request == nil {
					return q.v == nil && q.comm == id
				}
				return q.v == c.Request && !a.info.shared[q.v]
			})
		}
	case ir.Collective:
		a.collective(c, ranks, groups, s)
		return // it has written its Status itself
	case ir.Probe:
	default:
		fail("is of a kind that is not known")
		return
	}
	if s.poison == nil {
		for _, v := range c.Status {
			a.store(v, a.all(anything), s)
		}
	}
}

func without[T any](l []T, drop func(T) bool) []T {
	var out []T
	for _, x := range l {
		if !drop(x) {
			out = append(out, x)
		}
	}
	return out
}

// start records the request of a non-blocking c on rank r.
func (a *analyzer) start(c *ir.Comm, r, comm int, s *state) {
	if c.Request != nil {
		a.lose(c.Request, r, s)
	}
	a.steps += len(s.reqs) / 8
	s.reqs = append(append([]req(nil), s.reqs...),
		req{rank: r, v: c.Request, comm: comm, recv: c.Kind == ir.StartRecv, by: c})
	sort.SliceStable(s.reqs, func(i, j int) bool { return s.reqs[i].rank < s.reqs[j].rank })
}

// lose records that v on rank r no longer holds its request or group.
func (a *analyzer) lose(v *ir.Var, r int, s *state) {
	hit := false
	for _, q := range s.reqs {
		hit = hit || q.v == v && q.rank == r
	}
	if hit {
		s.reqs = append([]req(nil), s.reqs...)
		for i, q := range s.reqs {
			if q.v == v && q.rank == r {
				s.reqs[i].v, s.reqs[i].lost = nil, true
			}
		}
	}
	for i, w := range s.works {
		if w.group == v && w.ranks.has(r) {
			s.works = append([]work(nil), s.works...)
			s.works[i].group = nil
		}
	}
}

func (a *analyzer) pointToPoint(c *ir.Comm, ranks []int, groups []*comm, s *state) {
	fail := func(why string) { a.giveUp(s, Reason{c.Pos, called(c), why}) }
	recv := c.Kind == ir.Recv || c.Kind == ir.StartRecv
	peer, tag := a.all(num(-1)), a.all(num(-1))
	if c.Peer != nil {
		peer = a.eval(c.Peer, s)
	} else if !recv {
		fail("has no destination that can be evaluated")
		return
	}
	if c.Tag != nil {
		tag = a.eval(c.Tag, s)
	} else if !recv {
		tag = a.all(num(0))
	}
	for _, r := range ranks {
		if !peer[r].known() {
			if recv {
				fail("has a source that cannot be evaluated")
			} else {
				fail("has a destination that cannot be evaluated")
			}
			return
		}
		members := groups[r].members
		if members == nil {
			fail("is in a communicator whose ranks are not known")
			return
		}
		g, p := members[r], peer[r].v
		if p < 0 && recv {
			if p != -1 {
				fail(fmt.Sprintf("has source %d, which is no rank", p))
				return
			}
		} else if p < 0 || p >= int64(len(g)) {
			fail(fmt.Sprintf("on rank %d has peer %d of %d ranks", r, p, len(g)))
			return
		}
		m := msg{src: r, comm: groups[r].id, tag: tag[r], by: c}
		if recv {
			m.dst, m.src = r, -1
			if p >= 0 {
				m.src = g[p]
			}
			m.anyTag = tag[r] == num(-1)
			a.receive(m, s)
		} else {
			m.dst = g[p]
			a.send(m, s)
		}
		if s.poison != nil {
			return
		}
	}
}

// fits reports whether a send and a receive have the same tag: 1 yes, 0 no, -1
// unknown.
func fits(send, recv msg) int {
	switch {
	case send.comm != recv.comm:
		return 0
	case recv.anyTag || same(send.tag, recv.tag):
		return 1
	case differ(send.tag, recv.tag):
		return 0
	}
	return -1
}

func remove(l []msg, i int) []msg {
	return append(append([]msg(nil), l[:i]...), l[i+1:]...)
}

func (a *analyzer) send(m msg, s *state) {
	for i, o := range s.opens {
		if o.dst == m.dst && fits(m, msg{comm: o.comm, tag: o.tag, anyTag: o.anyTag}) != 0 {
			if one := newSet(a.n).with(m.src); !o.srcs.sub(one).empty() {
				a.revokeSafe(o, m.by)
			}
			s.opens = append([]open(nil), s.opens...)
			s.opens[i].srcs = o.srcs.with(m.src)
		}
	}
	wild := false
	a.steps += (len(s.recvs[m.dst]) + len(s.sends[m.src])) / 8
	for i, r := range s.recvs[m.dst] {
		if r.src >= 0 && r.src != m.src {
			continue
		}
		switch fits(m, r) {
		case -1:
			a.ruinTags(s, m.by, r.by)
			return
		case 1:
			if r.src < 0 {
				wild = true
				continue
			}
			if wild {
				a.giveUp(s, Reason{m.by.Pos, called(m.by), fmt.Sprintf("may be received by more than one receive, as that at %v", r.by.Pos)})
				return
			}
			s.recvs[m.dst] = remove(s.recvs[m.dst], i)
			return
		}
	}
	s.sends[m.src] = append(append([]msg(nil), s.sends[m.src]...), m)
	if wild {
		a.resolve(m.dst, m.comm, s)
	}
}

func (a *analyzer) ruinTags(s *state, x, y *ir.Comm) {
	a.giveUp(s, Reason{x.Pos, called(x), fmt.Sprintf("and that at %v have tags that cannot be compared", y.Pos)})
}

func (a *analyzer) receive(m msg, s *state) {
	if m.src < 0 {
		s.recvs[m.dst] = append(append([]msg(nil), s.recvs[m.dst]...), m)
		a.resolve(m.dst, m.comm, s)
		return
	}
	a.steps += (len(s.recvs[m.dst]) + len(s.sends[m.src])) / 8
	for i, x := range s.sends[m.src] {
		if x.dst != m.dst {
			continue
		}
		switch fits(x, m) {
		case -1:
			a.ruinTags(s, x.by, m.by)
			return
		case 1:
			for _, w := range s.recvs[m.dst] {
				if w.src < 0 && fits(x, w) != 0 {
					a.giveUp(s, Reason{x.by.Pos, called(x.by), fmt.Sprintf("may be received by more than one receive, as that at %v", w.by.Pos)})
					return
				}
			}
			s.sends[m.src] = remove(s.sends[m.src], i)
			return
		}
	}
	s.recvs[m.dst] = append(append([]msg(nil), s.recvs[m.dst]...), m)
}

// resolve matches receives from any rank at dst, if there are as many of them
// as there are sends that they can match. Then it does not matter which matches
// which. But a later send might have matched, too; the receives stay open for
// that.
func (a *analyzer) resolve(dst, comm int, s *state) {
	type pattern struct {
		tag    entry
		anyTag bool
	}
	tried := map[pattern]bool{}
	for _, first := range s.recvs[dst] {
		p := pattern{first.tag, first.anyTag}
		if first.src >= 0 || first.comm != comm || tried[p] {
			continue
		}
		tried[p] = true
		inGroup := func(w msg) bool {
			return w.src < 0 && w.comm == comm && w.anyTag == first.anyTag && (w.anyTag || same(w.tag, first.tag))
		}
		meant := func(x msg) bool { return x.dst == dst && x.comm == comm && fits(x, first) == 1 }
		xs, srcs, clear := 0, newSet(a.n), true
		others := without(s.recvs[dst], inGroup)
		ws := len(s.recvs[dst]) - len(others)
		a.steps += len(s.recvs[dst]) / 4
		for _, l := range s.sends {
			a.steps += len(l) / 4
			for _, x := range l {
				if !clear || x.dst != dst || x.comm != comm {
					continue
				}
				f := fits(x, first)
				if f == 0 {
					continue
				}
				xs, clear = xs+1, f == 1
				srcs[x.src/64] |= 1 << (x.src % 64)
				a.steps += len(others) / 4
				for _, w := range others {
					if (w.src < 0 || w.src == x.src) && fits(x, w) != 0 {
						clear = false
						break
					}
				}
			}
		}
		if !clear || ws == 0 || ws != xs {
			continue
		}
		for r := range s.sends {
			s.sends[r] = without(s.sends[r], meant)
		}
		s.recvs[dst] = without(s.recvs[dst], inGroup)
		a.leaveOpen(open{dst: dst, comm: comm, tag: first.tag, anyTag: first.anyTag, srcs: srcs, by: first.by}, s)
		return
	}
}

func (a *analyzer) leaveOpen(o open, s *state) {
	out := append([]open(nil), s.opens...)
	for i, x := range out {
		if x.dst == o.dst && x.comm == o.comm && x.tag == o.tag && x.anyTag == o.anyTag {
			out[i].srcs = x.srcs.or(o.srcs)
			s.opens = out
			return
		}
	}
	s.opens = append(out, o)
}

// revokeSafe revokes that places are safe, because o may have received a
// message that m sends after them. m is nil if the sender is unknown.
func (a *analyzer) revokeSafe(o open, m *ir.Comm) {
	why := "receives from any rank, and may have got a message that is sent later"
	if m != nil {
		why += fmt.Sprintf(" at %v", m.Pos)
	}
	for _, p := range o.since.list() {
		a.note(p, Unknown, o.by, Reason{o.by.Pos, called(o.by), why})
	}
}

// collective interprets c, which all ranks of a group must call in the same
// order.
func (a *analyzer) collective(c *ir.Comm, ranks []int, groups []*comm, s *state) {
	root := a.all(anything)
	if c.Peer != nil {
		root = a.eval(c.Peer, s)
	}
	name := strings.ToLower(c.Name)
	split := strings.Contains(name, "split")
	complete := len(ranks) == a.n // all ranks call it at once, and no earlier call is incomplete
	a.steps += len(s.colls) * (1 + len(ranks)/4)
	colls := append([]coll(nil), s.colls...)
	if len(colls) > 0 {
		complete = false
	}
	for _, r := range ranks {
		g := groups[r]
		if g.members == nil {
			continue
		}
		if g.members[r] == nil {
			a.giveUp(s, Reason{c.Pos, called(c), fmt.Sprintf("is called by rank %d, which is not in the communicator", r)})
			return
		}
		found := false
		for i, p := range colls {
			if p.comm != g.id || p.first != g.members[r][0] || p.came.has(r) {
				continue
			}
			if p.by.Name != c.Name || !split && differ(p.root, root[r]) {
				a.giveUp(s, Reason{c.Pos, called(c), fmt.Sprintf("on rank %d meets %s at %v on others", r, called(p.by), p.by.Pos)})
				return
			}
			if p.by != c && writesComm(c) {
				a.giveUp(s, Reason{c.Pos, called(c), fmt.Sprintf("makes a communicator together with that at %v", p.by.Pos)})
				return
			}
			colls[i].came, found = p.came.with(r), true
			break
		}
		if !found {
			colls = append(colls, coll{g.id, g.members[r][0], c, root[r], newSet(a.n).with(r)})
		}
	}
	for _, r := range ranks {
		if groups[r].members == nil && len(ranks) < a.n {
			a.giveUp(s, Reason{c.Pos, called(c), "is called by some ranks only, in a communicator whose ranks are not known"})
			return
		}
		if groups[r] != groups[ranks[0]] {
			complete = false
			if groups[r].members == nil || groups[ranks[0]].members == nil {
				a.giveUp(s, Reason{c.Pos, called(c), "is called in different communicators whose ranks are not known"})
				return
			}
		}
	}
	s.colls = without(colls, func(p coll) bool { return p.came.count() == len(a.comms[p.comm].members[p.first]) })
	sort.SliceStable(s.colls, func(i, j int) bool {
		x, y := s.colls[i], s.colls[j]
		return x.comm < y.comm || x.comm == y.comm && x.first < y.first
	})
	if len(s.colls) > 0 {
		complete = false
	}
	whole := complete && groups[0].members != nil && len(groups[0].members[0]) == a.n
	if whole && synchronises(name) {
		s.opens = without(s.opens, func(o open) bool {
			return !slices.ContainsFunc(s.reqs, func(q req) bool { return q.rank == o.dst && q.recv })
		})
	}
	if writesComm(c) {
		a.makeComm(c, complete, split, root, groups, s)
		return
	}
	// Such a collective gives the same result to all ranks.
	out := a.all(anything)
	if whole && (strings.Contains(name, "bcast") || strings.Contains(name, "broadcast") || strings.Contains(name, "allreduce")) {
		out = a.all(a.fresh(false))
	}
	for _, v := range c.Status {
		a.store(v, out, s)
		if out[0].sym > 0 {
			out = a.all(a.fresh(false))
		}
	}
}

func writesComm(c *ir.Comm) bool {
	name := strings.ToLower(c.Name)
	return len(c.Status) > 0 && (strings.Contains(name, "split") || strings.Contains(name, "dup"))
}

// synchronises reports whether no rank leaves the collective before all ranks
// have called it.
func synchronises(name string) bool {
	return slices.ContainsFunc([]string{"barrier", "allreduce"}, func(p string) bool { return strings.Contains(name, p) })
}

// makeComm creates the communicator of a split or a duplication.
func (a *analyzer) makeComm(c *ir.Comm, complete, split bool, colour vec, groups []*comm, s *state) {
	out := a.all(anything)
	if complete {
		old := groups[0]
		members := old.members
		if split {
			members = nil
			key := a.all(num(0))
			if c.Tag != nil {
				key = a.eval(c.Tag, s)
			}
			if old.members != nil && c.Peer != nil {
				members = splitBy(old, colour, key)
			}
		}
		h := a.fresh(false)
		a.handles[h.sym] = a.newComm(members)
		out = a.all(h)
	}
	a.store(c.Status[0], out, s)
	for _, v := range c.Status[1:] {
		a.store(v, a.all(anything), s)
	}
}

func splitBy(old *comm, colour, key vec) [][]int {
	out := make([][]int, len(colour))
	for r := range colour {
		if !colour[r].known() || !key[r].known() || old.members[r] == nil {
			return nil
		}
	}
	for r := range colour {
		if colour[r].v < 0 {
			continue
		}
		for _, m := range old.members[r] {
			if colour[m] == colour[r] {
				out[r] = append(out[r], m)
			}
		}
		g := out[r]
		sort.SliceStable(g, func(i, j int) bool { return key[g[i]].v < key[g[j]].v })
	}
	return out
}
