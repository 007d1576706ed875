package coord

import (
	"fmt"
	"slices"
)

// queuedMessage is a message that waits while its rank is between Move and Moved.
type queuedMessage struct {
	from int // this rank itself: Ask or AskMove was called
	m    Message
}

// AskMove asks, on any rank at any time, that all ranks are held together so
// that some of them can change places. It leads to Move on all ranks, or to
// MoveOff. Each id has a round of its own; one that waits already is not taken
// twice. AskMove panics if id is 0.
func (n *Node) AskMove(id uint64) {
	if id == 0 {
		panic("coord: AskMove: id 0")
	}
	m := Message{Kind: KindAskMove, Move: id}
	switch {
	case len(n.lost) > 0:
		n.emit(MoveOff{ID: id, Err: n.lostError("")})
	case n.moving != 0:
		n.queue = append(n.queue, queuedMessage{n.cfg.Rank, m})
	case n.over || n.stopping || n.stopped:
		n.noMove(id)
	default:
		n.askMove(m)
	}
}

// askMove hands an AskMove up. The root notes it, unless it knows better.
func (n *Node) askMove(m Message) {
	switch r := n.root; {
	case r == nil:
		n.sendUp(m)
	case n.over || n.stopping || n.stopped:
		n.noMove(m.Move)
	case !slices.Contains(r.moves, m.Move):
		r.moves = append(r.moves, m.Move)
	}
}

// noMove says that it is too late for a move.
func (n *Node) noMove(id uint64) {
	err := n.stopError()
	if n.over {
		err = n.overError()
	}
	n.emit(MoveOff{ID: id, Err: err})
}

// noMoves gives up, at the root, all moves that wait.
func (n *Node) noMoves(err error) {
	if r := n.root; r != nil {
		for _, id := range r.moves {
			n.emit(MoveOff{ID: id, Err: err})
		}
		r.moves, r.passed = nil, false
	}
}

// lostMoves gives up the move under way and all that wait, because a rank was
// lost.
func (n *Node) lostMoves(err error) {
	if n.moving != 0 {
		n.emit(MoveOff{ID: n.moving, Err: err})
	}
	n.noMoves(err)
	for _, l := range n.queue {
		if l.m.Kind == KindAskMove && (l.from == n.cfg.Rank || n.root != nil) {
			n.emit(MoveOff{ID: l.m.Move, Err: err})
		}
	}
	n.queue = nil
}

func (n *Node) stopError() error {
	return fmt.Errorf("coord: %w: all ranks save and end, and none moves; let it move after the next start", ErrStops)
}

// movesNow reports, at the root, whether the round under way is for a move and
// not for a set. due is the last due point that any rank has reached: where
// ranks are held together there, its set goes first. A move that has let a set
// go first has the next round, whatever waits; so both have their turns where
// every point is due. Who wants to stop does not move.
func (n *Node) movesNow(due uint64) bool {
	r := n.root
	if len(r.moves) == 0 || r.stop {
		return false
	}
	return r.passed || r.move && (n.cfg.Spatial || due <= n.due)
}

// decideMove begins the first move that waits. Where all ranks are at the same
// point, and that is due, it stays so: after Moved they are held there again,
// or save alone. Else due points up to the furthest rank are left out as after
// a call-off; where ranks save alone nothing changes.
func (n *Node) decideMove(due uint64) {
	r := n.root
	m := Message{Kind: KindMove, Epoch: n.epoch, Move: r.moves[0]}
	if n.step > 0 && !n.cfg.Spatial {
		m.Point = due
	}
	r.moves, r.passed = r.moves[1:], false
	n.moveNow(m)
}

// moveNow ends the round with a move. From here to Moved the Node stands
// still: it sends nothing, and what comes is put aside.
func (n *Node) moveNow(m Message) {
	n.sendDown(m)
	n.drained()
	n.setDue(max(n.due, m.Point))
	n.moving = m.Move
	n.emit(Move{ID: m.Move, Point: n.at})
	n.endRound()
}

// Moved says that the move is over on this rank, whether somebody has changed
// places or not. The program goes on: Continue comes, or Pause if its point is due
// and the ranks are held together there, or Save if they save alone there. A
// newcomer's program is in no point yet: for it this happens at AtPoint. Nobody
// waits for the other ranks.
//
// Messages of ranks that went on earlier are looked at now. The error wraps
// ErrMessage, as that of Receive. Moved does nothing if id is not the one of
// Move.
func (n *Node) Moved(id uint64) error {
	if n.moving == 0 || id != n.moving {
		return nil
	}
	n.moving = 0
	n.decide()
	list := n.queue
	n.queue = nil
	for _, l := range list {
		if l.from != n.cfg.Rank {
			if err := n.Receive(l.from, l.m); err != nil {
				return err
			}
			continue
		}
		if l.m.Kind == KindAskMove {
			n.AskMove(l.m.Move)
		} else {
			n.Ask(l.m.Text, l.m.Flags&FlagStop != 0)
		}
	}
	return nil
}
