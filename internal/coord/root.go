package coord

import (
	"fmt"
	"slices"
	"strings"
)

// rootState is what only rank 0 knows.
type rootState struct {
	wanted bool // an Ask waits, or is served by the round under way
	stop   bool
	reason string

	moves  []uint64 // AskMoves that wait, in the order in which they came
	move   bool     // the round under way was begun for the first of them
	passed bool     // a checkpoint went first, so the next round is for the move

	waveIdle bool      // the last wave decided nothing; wait for a notice
	last     [2]uint64 // sent and received in the wave before
	releases int

	undecided bool // the outcome of checkpoint index, a coordinated one, is not known yet
	index     uint64
}

func (r *rootState) ask(m Message) {
	r.wanted = true
	r.stop = r.stop || m.Flags&FlagStop != 0
	if m.Text != "" && !slices.Contains(strings.Split(r.reason, ", "), m.Text) {
		if r.reason != "" {
			r.reason += ", "
		}
		r.reason = cut(r.reason + m.Text)
	}
}

func (r *rootState) stopFlag() Flags {
	if r.stop {
		return FlagStop
	}
	return 0
}

// served forgets the requests for checkpoints that were made so far: a round
// has served them.
func (r *rootState) served() {
	if r != nil {
		r.wanted, r.stop, r.reason = false, false, ""
	}
}

func (r *rootState) roundEnded() {
	r.move = false
	r.last, r.releases = [2]uint64{}, 0
}

// start begins the round that was requested, when the last checkpoint's outcome
// is known and no round is under way.
func (n *Node) start() bool {
	r := n.root
	if !r.wanted && len(r.moves) == 0 || r.undecided || n.phase != phaseIdle || n.over || n.finished {
		return false
	}
	if n.paused { // at a due point: the round is under way
		return false
	}
	r.move = !r.wanted
	n.polled()
	return true
}

// decideSave saves, or moves, when all ranks are paused, all channels are
// drained, and the last checkpoint's outcome is known.
func (n *Node) decideSave() bool {
	r := n.root
	if r.undecided || !n.paused {
		return false
	}
	due := n.dueUpTo(n.maxPoint)
	if n.movesNow(due) {
		n.decideMove(due)
		return true
	}
	if r.stop {
		n.noMoves(n.stopError())
	}
	r.passed = len(r.moves) > 0
	m := Message{Kind: KindSave, Epoch: n.epoch, Index: n.maxNext, Point: due,
		Text: r.reason, Flags: r.stopFlag()}
	if m.Text == "" && m.Point > n.due {
		m.Text = n.dueReason()
	}
	r.undecided, r.index = true, m.Index
	n.saveNow(m)
	return true
}

// dueUpTo returns the last due point up to a point that a rank has reached.
func (n *Node) dueUpTo(point uint64) uint64 {
	if n.cfg.Every == 0 {
		return n.due
	}
	return max(n.due, point-point%n.cfg.Every)
}

// callOff ends the round on all ranks. m.Point is the last due point that a
// rank may have reached. Spatial checkpoints are not called off.
func (n *Node) callOff(m Message) {
	m.Kind, m.Epoch = KindCalledOff, n.epoch
	if n.cfg.Spatial {
		m.Point = 0
	}
	r := n.root
	move := n.movesNow(m.Point)
	if move && m.Point <= n.due && m.Flags&FlagOver == 0 { // else a due checkpoint is called off too
		m.Flags |= FlagMove
	}
	err := n.calledOff(m)
	switch {
	case n.over:
		n.noMoves(err)
	case m.Flags&FlagStop != 0:
		n.noMoves(n.stopError())
	case move:
		n.emit(MoveOff{ID: r.moves[0], Err: err})
		r.moves, r.passed = r.moves[1:], false
	default:
		r.passed = len(r.moves) > 0
	}
}

// waveDone examines the counts of a wave, in which every rank was quiet at some
// moment. If two consecutive waves have the same totals, with as many messages
// received as sent, then nothing moved and nothing was in flight between them
// (Mattern's four counters).
func (n *Node) waveDone() bool {
	r := n.root
	now := [2]uint64{n.sum.Sent, n.sum.Received}
	last := r.last
	r.last = now
	even := now[0] == now[1] || n.cfg.trustWaves
	switch {
	case n.sum.Paused == uint64(n.cfg.Size): // bookmarks will match
		return false
	case n.detail && (even && now == last || n.cfg.trustWaves):
		r.last = [2]uint64{}
		n.stuck()
	case even || n.noticed:
		n.newWave(n.wave+1, even)
	default:
		r.waveIdle = true
		return false
	}
	return true
}

// stuck releases the paused ranks for which blocked ones wait.
func (n *Node) stuck() {
	waits := n.sum.Waits
	slices.SortFunc(waits, func(a, b Wait) int { return a.Rank - b.Rank })
	isBlocked := func(rank int) bool {
		_, found := slices.BinarySearchFunc(waits, rank, func(w Wait, r int) int { return w.Rank - r })
		return found
	}
	m := Message{Kind: KindRelease, Epoch: n.epoch, Step: n.step + 1}
	for _, w := range waits {
		if len(w.On) == 0 {
			m.Flags |= FlagAll
		}
		for _, p := range w.On {
			if !isBlocked(p) {
				m.Ranks = append(m.Ranks, p)
			}
		}
	}
	slices.Sort(m.Ranks)
	m.Ranks = slices.Compact(m.Ranks)
	if m.Flags&FlagAll != 0 {
		m.Ranks = nil
	}
	why := ""
	switch {
	case n.sum.Paused == 0 || m.Flags&FlagAll == 0 && len(m.Ranks) == 0:
		why = "the program is in a deadlock: "
	case n.root.releases >= n.cfg.MaxReleases:
		why = fmt.Sprintf("after %d releases there was still no moment with every rank in a point: ", n.root.releases)
	}
	if why != "" {
		n.callOff(Message{Point: n.dueUpTo(n.sum.Point), Text: cut(why + waitText(waits)), Flags: n.root.stopFlag()})
		return
	}
	n.root.releases++
	n.released(m)
}

// waitText says which rank waits for which, for the first few ranks.
func waitText(waits []Wait) string {
	const few = 8
	var text []string
	for i, w := range waits {
		if i == few {
			text = append(text, fmt.Sprintf("and %d more", len(waits)-few))
			break
		}
		for_ := "any rank"
		if len(w.On) > 0 {
			for_ = "rank " + strings.Trim(fmt.Sprint(w.On), "[]")
		}
		text = append(text, fmt.Sprintf("rank %d waits for %s", w.Rank, for_))
	}
	return strings.Join(text, "; ")
}
