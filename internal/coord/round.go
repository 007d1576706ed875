package coord

import (
	"fmt"
	"maps"
	"slices"
)

// Receive handles a control message from another rank. Its error wraps
// ErrMessage: the ranks contradict each other, and the run must not continue.
func (n *Node) Receive(from int, m Message) error {
	if from < 0 || from >= n.cfg.Size || m.Kind == 0 || m.Kind >= kindLimit || m.Rank < 0 || m.Rank >= n.cfg.Size {
		return n.bad(from, m, "no such rank or kind")
	}
	if m.Kind == KindLost {
		n.Lost(m.Rank, m.Text)
		return nil
	}
	if len(n.lost) > 0 {
		return nil
	}
	if why := n.wrongWay(from, m); why != "" {
		return n.bad(from, m, why)
	}
	if n.moving != 0 {
		n.queue = append(n.queue, queuedMessage{from, m})
		return nil
	}
	return n.handle(from, m)
}

// wrongWay returns why a message cannot have come from that rank, or "".
func (n *Node) wrongWay(from int, m Message) string {
	switch m.Kind {
	case KindBookmark:
		if from == n.cfg.Rank {
			return "only another rank sends it"
		}
		return ""
	case KindPoll, KindTarget, KindProbe, KindRelease, KindSave, KindMove, KindOutcome, KindCalledOff, KindEnd:
		if from != n.parent {
			return "only the parent sends it"
		}
	default:
		if !slices.Contains(n.children, from) {
			return "only a child sends it"
		}
	}
	if (m.Kind == KindMove || m.Kind == KindAskMove) && m.Move == 0 {
		return "no id"
	}
	return ""
}

// handle handles a message that came from the right rank.
func (n *Node) handle(from int, m Message) error {
	switch {
	case m.Kind == KindBookmark:
		n.bookmarkFrom(from, m)
	case from == n.parent:
		return n.fromParent(m)
	default:
		n.fromChild(m)
	}
	return nil
}

func (n *Node) bad(from int, m Message, why string) error {
	return fmt.Errorf("coord: %w: %v (round %d, checkpoint %d) from rank %d at rank %d in round %d: %s",
		ErrMessage, m.Kind, m.Epoch, m.Index, from, n.cfg.Rank, n.epoch, why)
}

// fromParent handles a message that comes down the tree. It cannot be early or
// late: a rank never ends a round before its parent, and the parent's messages
// arrive in order.
func (n *Node) fromParent(m Message) error {
	switch m.Kind {
	case KindOutcome:
		n.outcome(m)
		return nil
	case KindEnd:
		n.sendDown(m)
		n.emit(AllFinished{})
		return nil
	}
	if m.Epoch != n.epoch {
		return n.bad(n.parent, m, "wrong round")
	}
	switch m.Kind {
	case KindPoll:
		if n.phase != phaseIdle {
			return n.bad(n.parent, m, "polled twice")
		}
		n.polled()
	case KindTarget:
		if n.phase == phaseTargeted {
			return n.bad(n.parent, m, "two targets")
		}
		n.awaitWrites = m.Flags&FlagMove != 0
		n.targeted(m.Point)
	case KindProbe:
		if m.Step != n.step {
			return n.bad(n.parent, m, "wrong step")
		}
		n.newWave(m.Wave, m.Flags&FlagDetail != 0)
	case KindRelease:
		if m.Step != n.step+1 {
			return n.bad(n.parent, m, "wrong step")
		}
		n.released(m)
	case KindSave, KindMove:
		if !n.paused || !n.complete {
			return n.bad(n.parent, m, "this rank is not ready")
		}
		if m.Kind == KindMove {
			n.moveNow(m)
		} else {
			n.saveNow(m)
		}
	case KindCalledOff:
		n.calledOff(m)
	}
	return nil
}

// fromChild handles a message that comes up the tree. It drops messages of a
// round, step or wave that is over for this rank.
func (n *Node) fromChild(m Message) {
	switch m.Kind {
	case KindAsk:
		if !n.over && !n.stopped {
			n.ask(m)
		}
	case KindAskMove:
		n.askMove(m)
	case KindSaved:
		n.result(m)
	case KindFinished:
		n.rankFinished(m)
	case KindEnded:
		n.ended++
		n.maybeEnded()
	}
	if m.Epoch != n.epoch {
		return
	}
	switch m.Kind {
	case KindDue:
		n.dueReached()
	case KindCount:
		n.counted(m.Point)
	}
	if m.Step != n.step {
		return
	}
	switch m.Kind {
	case KindFault:
		n.fault(m.Text)
	case KindComplete:
		n.childDone++
		n.maxPoint = max(n.maxPoint, m.Point)
		n.maxNext = max(n.maxNext, m.Index)
	case KindQuiet:
		if m.Wave == n.wave {
			n.childQuiet++
			n.sum.add(m)
		}
	case KindNotice:
		if m.Wave == n.wave {
			n.notice()
		}
	}
}

// polled begins the negotiation here and below.
func (n *Node) polled() {
	n.phase = phasePolled
	n.answered = n.cfg.Counts.Point()
	n.pollLeft = len(n.children) + 1
	n.sendDown(Message{Kind: KindPoll, Epoch: n.epoch})
	n.counted(n.answered)
}

func (n *Node) counted(points uint64) {
	n.pollMax = max(n.pollMax, points)
	if n.pollLeft--; n.pollLeft > 0 {
		return
	}
	if n.root == nil {
		n.sendUp(Message{Kind: KindCount, Epoch: n.epoch, Point: n.pollMax})
		return
	}
	target := n.pollMax + 1
	if n.cfg.Every > 0 && !n.cfg.Spatial {
		target = min(target, n.dueAt)
	}
	n.targeted(target)
}

func (n *Node) targeted(target uint64) {
	n.phase, n.target = phaseTargeted, target
	if r := n.root; r != nil {
		n.awaitWrites = r.move || r.passed
	}
	m := Message{Kind: KindTarget, Epoch: n.epoch, Point: target}
	if n.awaitWrites {
		m.Flags = FlagMove
	}
	n.sendDown(m)
	n.decide()
}

// dueReached informs the root, once per round, that a rank is paused at a due
// point, so that the others learn of the round.
func (n *Node) dueReached() {
	if n.dueSent || n.phase == phaseTargeted {
		return
	}
	n.dueSent = true
	if n.root == nil {
		n.sendUp(Message{Kind: KindDue, Epoch: n.epoch})
	} else if n.phase == phaseIdle {
		n.targeted(n.dueAt)
	}
}

// pause keeps the program in its point and begins the exchange of bookmarks.
func (n *Node) pause() {
	n.paused = true
	n.emit(Pause{})
	n.dueReached()
	n.exchange()
}

// exchange sends a bookmark to each peer to which this rank has sent messages
// since the channels were last drained.
func (n *Node) exchange() {
	for _, p := range n.cfg.Counts.Peers() {
		if sent := n.cfg.Counts.Sent(p); p != n.cfg.Rank && sent > n.base[p] {
			n.bookmarkTo(p)
			if _, came := n.marks[p]; !came {
				n.owed++
			}
		}
	}
}

func (n *Node) bookmarkTo(p int) {
	total := n.cfg.Counts.Sent(p)
	if n.told == nil {
		n.told = map[int]uint64{}
	}
	n.told[p] = total
	n.send(p, Message{Kind: KindBookmark, Epoch: n.epoch, Step: n.step, Sent: total})
}

func (n *Node) bookmarkFrom(p int, m Message) {
	switch {
	case m.Epoch < n.epoch || m.Epoch == n.epoch && m.Step < n.step: // of a pause that is over
	case m.Epoch > n.epoch || m.Step > n.step:
		n.early[p] = bookmark{m.Epoch, m.Step, m.Sent}
	default:
		n.mark(p, m.Sent)
	}
}

func (n *Node) mark(p int, total uint64) {
	if n.marks == nil {
		n.marks = map[int]uint64{}
	}
	n.marks[p] = total
	n.undrained = append(n.undrained, p)
	if _, told := n.told[p]; told {
		n.owed--
	}
}

// newStep forgets the bookmarks of the last step, and uses those that came
// early.
func (n *Node) newStep(step uint64) {
	n.step = step
	n.told, n.marks, n.snapshot = nil, nil, nil
	n.undrained, n.owed, n.faulty = nil, 0, false
	n.complete, n.reported, n.childDone = false, false, 0
	n.maxPoint, n.maxNext = 0, 0
	n.resetWave(1, false)
	var ready []int
	for p, b := range n.early {
		if b.epoch == n.epoch && b.step == n.step {
			ready = append(ready, p)
		}
	}
	slices.Sort(ready)
	for _, p := range ready {
		n.mark(p, n.early[p].total)
		delete(n.early, p)
	}
}

// endRound ends the round, and prepares for the next one.
func (n *Node) endRound() {
	n.epoch++
	n.phase, n.paused, n.dueSent, n.awaitWrites = phaseIdle, false, false, false
	n.answered, n.target, n.pollLeft, n.pollMax = 0, 0, 0, 0
	n.newStep(0)
	if n.root != nil {
		n.root.roundEnded()
	}
}

// settle reports upwards what has become true.
func (n *Node) settle() {
	for again := true; again; {
		again = false
		if len(n.lost) > 0 || n.stopped || n.moving != 0 {
			return
		}
		if n.paused {
			n.drain()
			if n.complete && !n.reported && n.childDone == len(n.children) {
				n.reported = true
				n.maxPoint, n.maxNext = max(n.maxPoint, n.at), max(n.maxNext, n.next)
				if n.root == nil {
					n.sendUp(Message{Kind: KindComplete, Epoch: n.epoch, Step: n.step, Point: n.maxPoint, Index: n.maxNext})
				}
			}
		}
		if n.root != nil && n.reported && n.decideSave() {
			again = true
			continue
		}
		if n.quiet() && n.tellQuiet() {
			again = true
			continue
		}
		if n.root != nil && n.start() {
			again = true
		}
	}
}

// drain finds out which channels are drained. It answers bookmarks of peers to
// which this rank has sent nothing: the answer says that the peer's messages
// have arrived.
func (n *Node) drain() {
	wrong := -1
	n.undrained = slices.DeleteFunc(n.undrained, func(p int) bool {
		got, total := n.cfg.Counts.Received(p), n.marks[p]
		if got > total {
			wrong = p
		}
		if got < total {
			return false
		}
		if _, told := n.told[p]; !told {
			n.bookmarkTo(p)
		}
		return true
	})
	if wrong >= 0 {
		n.fault(fmt.Sprintf("rank %d had sent %d messages to rank %d, which has received %d",
			wrong, n.marks[wrong], n.cfg.Rank, n.cfg.Counts.Received(wrong)))
	}
	if n.paused && !n.complete && !n.faulty && n.owed == 0 && len(n.undrained) == 0 && (!n.awaitWrites || n.writing == 0) {
		n.complete = true
		n.snapshot = map[int]uint64{}
		for _, p := range n.cfg.Counts.Peers() {
			n.snapshot[p] = n.cfg.Counts.Received(p)
		}
	}
}

// fault informs the root that counts contradict each other. The root ignores a
// report from a step that is over: the peer may have been released since.
func (n *Node) fault(text string) {
	if n.faulty {
		return
	}
	n.faulty = true
	if n.root == nil {
		n.sendUp(Message{Kind: KindFault, Epoch: n.epoch, Step: n.step, Text: cut(text)})
		return
	}
	// No rank is further past the target than one point per release.
	due := n.dueUpTo(n.target + n.step)
	if n.phase != phaseTargeted && n.cfg.Every > 0 && !n.cfg.Spatial {
		due = n.dueAt // the only point where a rank can be paused yet
	}
	n.callOff(Message{Point: due, Text: cut(text), Flags: n.root.stopFlag() | FlagFailed})
}

// saveNow ends the round with a copy.
func (n *Node) saveNow(m Message) {
	n.sendDown(m)
	cut := make([]uint64, n.cfg.Size)
	for p, total := range n.snapshot {
		cut[p] = total
	}
	for p, total := range n.marks {
		cut[p] = total
	}
	n.drained()
	n.setDue(m.Point)
	if !n.askedStop || m.Flags&FlagStop != 0 { // else the request reaches the root too late
		n.asked, n.askedStop = false, false
	}
	n.save(Save{Index: m.Index, Due: m.Point, Cut: cut, Reason: m.Text, Stop: m.Flags&FlagStop != 0})
	n.endRound()
	n.root.served()
}

// drained notes that everything sent so far has arrived.
func (n *Node) drained() {
	maps.Copy(n.base, n.told)
}

// calledOff ends the round without a copy, and returns the reason. If the round
// was for a move, requests for checkpoints wait for the next one.
func (n *Node) calledOff(m Message) error {
	n.sendDown(m)
	tell, stop := false, false
	if m.Flags&FlagMove == 0 {
		tell = n.asked || n.busy() && !n.finished
		stop = n.askedStop || m.Flags&FlagStop != 0
		n.asked, n.askedStop = false, false
		n.root.served()
	}
	n.setDue(max(n.due, m.Point))
	if m.Flags&FlagOver != 0 {
		n.over, n.overWhy = true, m.Text
	}
	n.endRound()
	var err error
	switch {
	case n.over:
		err = n.overError()
	case m.Flags&FlagFailed != 0:
		err = fmt.Errorf("coord: %w: %s; the checkpoint would not be consistent", ErrCounts, m.Text)
	default:
		err = fmt.Errorf("coord: %w: %s", ErrNoCut, m.Text)
	}
	if tell {
		n.emit(CalledOff{Err: err, Stop: stop})
	}
	n.decide()
	return err
}
