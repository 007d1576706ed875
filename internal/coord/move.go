package coord

import (
	"fmt"
	"slices"
)

// queuedMessage is a message that came between Move and Moved.
type queuedMessage struct {
	from int // this rank itself: Ask or AskMove was called
	m    Message
}

// AskMove asks all ranks to pause together, so that some of them can move. Any
// rank may call it at any time. The result is Move on all ranks, or MoveOff.
// Each id has a round of its own. If a request with this id waits already,
// AskMove does nothing. AskMove panics if id is 0.
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

// askMove sends an AskMove up. The root notes it, unless it is too late.
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

// noMove reports that it is too late for a move.
func (n *Node) noMove(id uint64) {
	err := n.stopError()
	if n.over {
		err = n.overError()
	}
	n.emit(MoveOff{ID: id, Err: err})
}

// noMoves gives up all moves that wait at the root.
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
	return fmt.Errorf("coord: %w: all ranks save and end, so none can move; move it after the next start", ErrStops)
}

// movesNow reports, at the root, whether the round under way is for a move. due
// is the last due point that any rank has reached. If ranks pause together at
// due points, its checkpoint goes first. A move that has let a checkpoint go
// first gets the next round. So both have their turns even if every point is
// due. A run that stops does not move ranks.
func (n *Node) movesNow(due uint64) bool {
	r := n.root
	if len(r.moves) == 0 || r.stop {
		return false
	}
	return r.passed || r.move && (n.cfg.Spatial || due <= n.due)
}

// decideMove begins the first move that waits. If all ranks are at the same
// point, and it is due, it stays due: after Moved, they pause there again, or
// save alone. Otherwise all ranks skip due points up to that of the furthest
// rank, as if the round were called off. With spatial checkpoints, they skip
// nothing.
func (n *Node) decideMove(due uint64) {
	r := n.root
	m := Message{Kind: KindMove, Epoch: n.epoch, Move: r.moves[0]}
	if n.step > 0 && !n.cfg.Spatial {
		m.Point = due
	}
	r.moves, r.passed = r.moves[1:], false
	n.moveNow(m)
}

// moveNow ends the round with a move. Until Moved, the Node sends only Lost,
// and queues the messages that it receives.
func (n *Node) moveNow(m Message) {
	n.sendDown(m)
	n.drained()
	n.setDue(max(n.due, m.Point))
	n.moving = m.Move
	n.emit(Move{ID: m.Move, Point: n.at})
	n.endRound()
}

// Moved tells the Node that the move is over on this rank, whether a rank has
// moved or not. The next action is Continue; or Pause, if the program's point
// is due and the ranks pause together there; or Save, if they save alone there.
// A destination's program is not at a point yet: for it, this happens at
// AtPoint. No rank waits for the others.
//
// Moved then handles the queued messages of ranks that continued earlier. Its
// error wraps ErrMessage, like that of Receive. Moved does nothing if id is not
// that of Move.
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
