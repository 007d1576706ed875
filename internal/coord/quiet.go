package coord

import "slices"

// maxOn is the largest number of ranks that a Wait names. A rank that waits for
// more ranks counts as waiting for any rank.
const maxOn = 16

// add adds the numbers of a Quiet.
func (m *Message) add(q Message) {
	m.Paused += q.Paused
	m.Sent += q.Sent
	m.Received += q.Received
	m.Point = max(m.Point, q.Point)
	m.Waits = append(m.Waits, q.Waits...)
}

// quiet reports that the program cannot continue by itself, and that this rank
// knows of a round.
func (n *Node) quiet() bool {
	return n.paused || n.blocked && n.phase == phaseTargeted
}

func (n *Node) newWave(wave uint64, detail bool) {
	m := Message{Kind: KindProbe, Epoch: n.epoch, Step: n.step, Wave: wave}
	if detail {
		m.Flags = FlagDetail
	}
	n.sendDown(m)
	n.resetWave(wave, detail)
}

func (n *Node) resetWave(wave uint64, detail bool) {
	n.wave, n.detail = wave, detail
	n.quietSent, n.noticed, n.childQuiet = false, false, 0
	n.sum, n.mine = Message{}, [3]uint64{}
	if n.root != nil {
		n.root.waveIdle = false
	}
}

// state returns the numbers that a wave adds up.
func (n *Node) state() [3]uint64 {
	sent, received := n.cfg.Counts.Totals()
	s := [3]uint64{sent - n.sent0, received - n.received0, 0}
	if n.paused {
		s[2] = 1
	}
	return s
}

// tellQuiet reports, once in each wave, that this rank and all ranks below it
// are quiet. After that it reports once that the counts have changed. At the
// root, it returns whether the root has decided something.
func (n *Node) tellQuiet() bool {
	if n.quietSent {
		if !n.noticed && n.state() != n.mine {
			n.notice()
			return n.root != nil
		}
		return false
	}
	if n.childQuiet < len(n.children) {
		return false
	}
	n.quietSent = true
	n.mine = n.state()
	own := Message{Sent: n.mine[0], Received: n.mine[1], Paused: n.mine[2], Point: n.cfg.Counts.Point()}
	if n.detail && !n.paused {
		w := Wait{Rank: n.cfg.Rank}
		if len(n.on) <= maxOn {
			w.On = slices.Compact(slices.Sorted(slices.Values(n.on)))
		}
		own.Waits = []Wait{w}
	}
	n.sum.add(own)
	if n.root != nil {
		return n.waveDone()
	}
	q := n.sum
	q.Kind, q.Epoch, q.Step, q.Wave = KindQuiet, n.epoch, n.step, n.wave
	slices.SortFunc(q.Waits, func(a, b Wait) int { return a.Rank - b.Rank })
	n.sendUp(q)
	return false
}

// notice reports, once in each wave, that a count has changed since it was
// reported.
func (n *Node) notice() {
	if n.noticed {
		return
	}
	n.noticed = true
	if n.root == nil {
		n.sendUp(Message{Kind: KindNotice, Epoch: n.epoch, Step: n.step, Wave: n.wave})
	} else if n.root.waveIdle {
		n.newWave(n.wave+1, false)
	}
}

// released begins a new step: the named ranks continue by one point, the others
// stay paused, and every rank that runs pauses at its next point.
func (n *Node) released(m Message) {
	below := make([][]int, len(n.children))
	for _, r := range m.Ranks {
		if i := n.childAbove(r); i >= 0 {
			below[i] = append(below[i], r)
		}
	}
	for i, c := range n.children {
		n.send(c, Message{Kind: KindRelease, Flags: m.Flags, Epoch: m.Epoch, Step: m.Step, Ranks: below[i]})
	}
	n.newStep(m.Step)
	switch {
	case !n.paused:
		n.decide()
	case m.Flags&FlagAll != 0 || slices.Contains(m.Ranks, n.cfg.Rank):
		n.paused = false
		if n.cfg.Spatial && n.isDue(n.at) { // skip that checkpoint, and count it
			n.setDue(n.at)
			n.next++
		}
		n.continueProgram()
	default:
		n.exchange()
	}
}

// childAbove returns the index of the child whose subtree holds rank r, or -1.
func (n *Node) childAbove(r int) int {
	for r > n.cfg.Rank {
		up := (r - 1) / n.cfg.Arity
		if up == n.cfg.Rank {
			return r - n.cfg.Rank*n.cfg.Arity - 1
		}
		r = up
	}
	return -1
}
