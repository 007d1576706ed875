package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/migrate"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/step"
)

// A rank migrates: its state is sent to another process, the destination, which
// takes its place among the ranks (docs/migration.md). The supervisor decides;
// this file has the source's part, precopy.go the copy while the program
// computes, and receive.go the destination's part.

// migration is a rank's part in the moves of its run.
type migration struct {
	mu        sync.Mutex
	changed   chan struct{} // closed when a field below changes
	plans     map[uint64]*control.Move
	decisions map[uint64]*control.Switch
	outgoing  *outgoing // this rank is the source of a move
	source    net.Conn  // in a destination: the connection to the source
	ended     error     // why there are no more moves

	spawning sync.Mutex // held while the MPI library starts a process
}

// outgoing is the connection from a source to its destination.
type outgoing struct {
	id        uint64
	stream    *migrate.Source
	collector graph.Collector
	images    chan chan error // requests for the image at the next point
	sent      int64           // bytes of precopy
	rounds    int
	cancel    context.CancelCauseFunc
}

// handoff is what a destination must know besides the state of the program.
type handoff struct {
	Identity  runID        `json:"identity"`
	Ledger    p2p.Counters `json:"ledger"`
	Node      []byte       `json:"node"`      // state of the coordination
	Exchanges uint64       `json:"exchanges"` // exchanges of endpoints so far
	Next      uint64       `json:"next"`      // index of the next checkpoint
	Safe      uint64       `json:"safe"`      // the newest checkpoint that all ranks have; 0: none
	Damaged   []uint64     `json:"damaged"`   // checkpoints that do not count as kept
	Aside     []uint64     `json:"aside"`     // checkpoints that are damaged or another run's, and not removed
	Left      int          `json:"left"`      // points until a checkpoint is due by count
	Late      string       `json:"late"`      // why a checkpoint is due that waits for the writer
	// Due is the time until the next checkpoint is due.
	Due time.Duration `json:"due"`
}

func (v *migration) notify() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// await waits until f returns true. It calls f with the lock held.
func (v *migration) await(ctx context.Context, f func() bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		if f() {
			return nil
		}
		if v.ended != nil {
			return v.ended
		}
		if v.changed == nil {
			v.changed = make(chan struct{})
		}
		c := v.changed
		v.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			v.mu.Lock()
			return ctx.Err()
		}
		v.mu.Lock()
	}
}

// decision waits for the supervisor's decision about a move.
func (v *migration) decision(ctx context.Context, id uint64) (m *control.Switch, err error) {
	err = v.await(ctx, func() bool {
		m = v.decisions[id]
		return m != nil
	})
	return m, err
}

// handleMove handles a message of the supervisor about a move.
func (p *Run) handleMove(m control.Message) {
	if m, ok := m.(*control.Pause); ok && p.identity.Size > 1 && m.Endpoints != nil && !slices.Contains(m.Ranks, p.identity.Rank) {
		if err := p.peers.engine.Reaches(m.Endpoints); err != nil { // before v.mu: Reaches takes another lock
			p.moveFailed(m.ID, err)
		}
	}
	v := &p.migration
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.plans == nil {
		v.plans, v.decisions = make(map[uint64]*control.Move), make(map[uint64]*control.Switch)
	}
	switch m := m.(type) {
	case *control.Precopy:
		ctx, cancel := context.WithCancelCause(context.Background())
		l := &outgoing{id: m.ID, images: make(chan chan error, 1), cancel: cancel}
		v.outgoing = l
		if v.ended != nil {
			cancel(v.ended)
		}
		go p.precopy(ctx, l, m)
	case *control.Pause:
		// Ranks may still have to pause for a move that was canceled.
		maps.DeleteFunc(v.decisions, func(id uint64, _ *control.Switch) bool { return v.plans[id] == nil })
		v.plans[m.ID] = &m.Move
		if p.identity.Size > 1 && p.identity.Rank == 0 {
			go p.peers.requestMove(m.ID)
		}
	case *control.Switch:
		v.decisions[m.ID] = m
		if !m.OK && v.outgoing != nil && v.outgoing.id == m.ID {
			v.outgoing.close(errMoveCanceled)
			v.outgoing = nil
		}
	}
	v.notify()
	p.wakePoint()
	if p.identity.Size > 1 { // in a run of one rank, World may set peers at any time
		p.peers.engine.Wake()
	}
}

// end ends all moves, for a reason.
func (v *migration) end(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.ended = why
	if v.outgoing != nil {
		v.outgoing.close(why)
	}
	v.notify()
}

// moveFailed tells the supervisor that a move failed.
func (p *Run) moveFailed(id uint64, err error) {
	p.identity.supervisor.send(&control.MoveFailed{Move: id, Error: fmt.Sprintf("rank %d: %v", p.identity.Rank, err)})
}

func moveOptions(m *control.Move, s *identity) migrate.Options {
	return migrate.Options{Rank: s.Rank, Ranks: s.Size, BatchSize: m.Chunk, Files: m.Files, Output: s.PerHost}
}

// moveSecret returns the secret of a move. A source and its destination prove
// to each other that they know it.
func (s *identity) moveSecret(id uint64) []byte {
	return control.Derive(s.Secret, fmt.Sprintf("move %d of rank %d", id, s.Rank))
}

// requestMove asks all ranks to pause together.
func (t *peers) requestMove(id uint64) {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if t.node == nil {
		t.earlyMoves = append(t.earlyMoves, id)
		return
	}
	t.nextCheck.Store(0)
	t.node.AskMove(id)
	t.act()
}

// move is what this rank does while all ranks pause for a move; see coord.Move.
// The engine's lock is not held.
func (t *peers) move(ctx context.Context, a *coord.Move) error {
	p, e := t.run, t.engine
	ctx = context.WithoutCancel(ctx)
	plan, err := t.planOf(a.ID)
	if err != nil {
		return err
	}
	e.Lock()
	err = e.Detach(ctx, plan.Ranks)
	e.Unlock()
	if err != nil {
		return err
	}
	mine := slices.Contains(plan.Ranks, e.Rank())
	if mine {
		p.identity.supervisor.send(&control.Paused{Move: a.ID})
		if stats, err := p.sendFinalCopy(ctx, plan, a); err != nil {
			p.moveFailed(a.ID, err)
		} else {
			p.identity.supervisor.send(&control.Sent{Move: a.ID, Stats: stats})
		}
	}
	verdict, err := t.decisionOn(a.ID)
	p.migration.forget(a.ID)
	switch {
	case err != nil:
		return err
	case !verdict.OK:
		p.cancelMove(a.ID)
		e.Lock()
		e.Reattach(plan.Ranks)
	case mine:
		p.handOver(a.ID)
	default:
		if err := e.Relink(ctx, plan.Ranks, verdict.Endpoints); err != nil {
			return err
		}
		p.identity.supervisor.send(&control.Linked{Move: a.ID})
		e.Lock()
	}
	defer e.Unlock()
	t.paused = false // the node may pause it again at once
	e.Continue(false)
	t.nextCheck.Store(0)
	err = t.node.Moved(a.ID)
	t.act()
	return err
}

// planOf waits until the supervisor says who moves, and serves the other ranks
// meanwhile; so does decisionOn.
func (t *peers) planOf(id uint64) (plan *control.Move, err error) {
	err = t.serveUntil(func(v *migration) bool {
		plan = v.plans[id]
		return plan != nil
	})
	return plan, err
}

func (t *peers) decisionOn(id uint64) (m *control.Switch, err error) {
	err = t.serveUntil(func(v *migration) bool {
		m = v.decisions[id]
		return m != nil
	})
	return m, err
}

func (t *peers) serveUntil(f func(v *migration) bool) error {
	v := &t.run.migration
	t.engine.Lock()
	defer t.engine.Unlock()
	return t.engine.Serve(func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return f(v)
	})
}

// sendFinalCopy sends the rest of the state to the destination.
func (p *Run) sendFinalCopy(ctx context.Context, plan *control.Move, a *coord.Move) (*control.MoveStats, error) {
	v := &p.migration
	v.mu.Lock()
	l := v.outgoing
	ready := l != nil && l.id == plan.ID && l.stream != nil
	v.mu.Unlock()
	if !ready {
		return nil, errors.New("there is no connection to the destination")
	}
	if err := p.awaitWriter(ctx); err != nil {
		return nil, err
	}
	if p.identity.Size > 1 {
		p.peers.takeCommitted()
	}
	h := handoff{Identity: p.runID, Exchanges: p.identity.supervisor.exchangeCount(), Next: p.saver.Next(), Safe: p.lastCommitted}
	h.Left, h.Late = p.pointsLeft, p.deferredReason
	for n, bad := range p.damaged {
		if bad {
			h.Damaged = append(h.Damaged, n)
		} else {
			h.Aside = append(h.Aside, n)
		}
	}
	if p.timer != nil {
		h.Due = max(time.Until(p.dueAt), time.Millisecond)
	}
	if p.opts.OnCopy != nil {
		if err := p.opts.OnCopy(); err != nil {
			return nil, err
		}
	}
	note := ckpt.Note{Points: p.points, Reason: "move"}
	if t := p.peers; t != nil { // after OnCopy: until then, another goroutine may receive
		t.captureInflight(&note, &coord.Save{Point: a.Point, Due: t.inflight.Due})
		e := t.engine
		e.Lock()
		h.Ledger = e.Counters()
		if t.node != nil {
			h.Node = t.node.Export()
		}
		e.Unlock()
	}
	img, err := p.image(&l.collector)
	if err != nil {
		return nil, err
	}
	if p.peers != nil {
		if err := p.peers.checkPending(false); err != nil {
			return nil, err
		}
	}
	files, err := p.files.entries()
	if err != nil {
		return nil, err
	}
	extra, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	step.At("migrate.copied")
	files = append(files, p.files.closed.entries()...)
	s, err := l.stream.Finish(ctx, img, files, note, extra)
	if err != nil {
		return nil, err
	}
	s.Precopied, s.Rounds = l.sent, l.rounds
	return &s, nil
}

// forget removes a move that is decided.
func (v *migration) forget(id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.plans, id)
	delete(v.decisions, id)
}

// cancelMove ends a move that was canceled.
func (p *Run) cancelMove(id uint64) {
	v := &p.migration
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.outgoing; l != nil && l.id == id {
		l.close(errMoveCanceled)
		v.outgoing = nil
	}
}

// handOver ends this process's part in the run after the destination has taken
// over. It gives up what only one process may have, and then blocks until it is
// killed.
func (p *Run) handOver(id uint64) {
	if p.timer != nil {
		p.timer.Stop()
	}
	if p.reporting != nil {
		close(p.reporting)
	}
	step.At("migrate.source")
	p.saver.CloseAtExit()
	err := p.dir.Close()
	if err != nil {
		p.log.Warn("cairn: the checkpoint directory of a migrated rank could not be closed", "error", err)
	}
	p.identity.supervisor.send(&control.HandedOver{Move: id})
	select {}
}

// moveSingle is a point in a run of one rank that is to move.
func (p *Run) moveSingle(ctx context.Context) error {
	v := &p.migration
	v.mu.Lock()
	var plan *control.Move
	for id, m := range v.plans {
		if v.decisions[id] == nil {
			plan = m
		} else {
			delete(v.plans, id)
		}
	}
	v.mu.Unlock()
	if plan == nil || p.saver.Busy() { // the writer's outcome wakes the next point
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	p.identity.supervisor.send(&control.Paused{Move: plan.ID})
	if by := p.stop.Load(); by != nil {
		p.moveFailed(plan.ID, fmt.Errorf("the program is about to stop: %s", *by))
	} else if stats, err := p.sendFinalCopy(ctx, plan, new(coord.Move)); err != nil {
		p.moveFailed(plan.ID, err)
	} else {
		p.identity.supervisor.send(&control.Sent{Move: plan.ID, Stats: stats})
	}
	verdict, err := v.decision(ctx, plan.ID)
	if err != nil {
		return fmt.Errorf("cairn: %w; end the program: it is restarted from its last checkpoint", err)
	}
	if verdict.OK {
		p.handOver(plan.ID)
	}
	p.cancelMove(plan.ID)
	return nil
}
