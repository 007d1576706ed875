package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/mpi"
)

// rounds drives the coordination of checkpoints: it does what the node of
// package coord decides. The engine's lock guards all fields but the atomics.
type rounds struct {
	node          *coord.Node // nil until the state is restored
	earlyMessages []earlyMessage
	earlyRequests []earlyRequest
	earlyMoves    []uint64
	paused        bool // the program is paused, and package p2p knows it
	mayPass       bool // the program may leave its point
	save          *coord.Save
	moving        *coord.Move
	stop          *coord.Stop
	noMore        error     // why there are no more checkpoints
	stopCanceled  error     // why a requested stop is impossible
	outcomes      []outcome // outcomes of checkpoints, for the next Point
	line          chan uint64
	recorderDone  chan struct{} // closed when recordLines has ended

	writing sync.WaitGroup // goroutines that wait for outcomes

	points    atomic.Uint64 // points that the program has entered
	nextCheck atomic.Uint64 // the first point at which the node must be asked
	polledAt  atomic.Int64  // when links were last polled at a point
	stopping  atomic.Bool   // this rank was asked to save and stop
}

type earlyMessage struct {
	from int
	raw  []byte
}

type earlyRequest struct {
	reason string
	stop   bool
}

// outcome is the outcome of a checkpoint on all ranks.
type outcome struct {
	index uint64
	err   error
}

// begin starts the coordination after the ranks have restored the same
// checkpoint.
func (t *peers) begin() error {
	p, e := t.run, t.engine
	if e.Size() == 1 {
		return nil
	}
	next, err := t.samePlan(plan{p.saver.Next(), uint64(p.opts.EveryPoints), p.opts.SafePoints})
	if err != nil {
		return err
	}
	e.Lock()
	defer e.Unlock()
	return t.coordinate(coord.Config{NextIndex: next, Due: t.inflight.Due}, nil)
}

// coordinate makes the node; if state is set, with the state of another
// process's node. The lock is held.
func (t *peers) coordinate(cfg coord.Config, state []byte) (err error) {
	p, e := t.run, t.engine
	t.points.Store(max(p.points, cfg.Due)) // a driven program may save without passing points
	c := &counts{Engine: e, t: t, begun: state != nil}
	cfg.Rank, cfg.Size, cfg.Counts, cfg.Every, cfg.Spatial = e.Rank(), e.Size(), c, uint64(p.opts.EveryPoints), p.opts.SafePoints
	if state == nil {
		t.node = coord.New(cfg)
	} else if t.node, err = coord.Import(cfg, state); err != nil {
		return err
	}
	c.begun = true
	t.line, t.recorderDone = make(chan uint64, 1), make(chan struct{})
	go t.recordLines(t.line, t.recorderDone)
	for _, m := range t.earlyMessages {
		t.Control(m.from, m.raw)
	}
	for _, a := range t.earlyRequests {
		t.node.Ask(a.reason, a.stop)
	}
	for _, id := range t.earlyMoves {
		t.node.AskMove(id)
	}
	t.earlyMessages, t.earlyRequests, t.earlyMoves = nil, nil, nil
	t.act()
	return nil
}

// plan is what a rank's options say about checkpoints.
type plan struct {
	Next, Every uint64
	Spatial     bool
}

// samePlan checks that all ranks have the same options. It returns the largest
// Next.
func (t *peers) samePlan(mine plan) (next uint64, err error) {
	e := t.engine
	plans := make([]plan, e.Size())
	if err := mpi.Allgather(t.world, []plan{mine}, plans); err != nil {
		return 0, err
	}
	for r, o := range plans {
		if o.Every != mine.Every || o.Spatial != mine.Spatial {
			return 0, fmt.Errorf("rank %d has Options.EveryPoints %d and SafePoints %v, rank %d has %d and %v: they must be the same on all ranks", e.Rank(), mine.Every, mine.Spatial, r, o.Every, o.Spatial)
		}
		next = max(next, o.Next)
	}
	return next, nil
}

// counts is what a node reads about its rank. Messages may be under way when
// the node is made, so its counts begin at zero.
type counts struct {
	*p2p.Engine
	t     *peers
	begun bool
}

func (c *counts) Point() uint64 { return c.t.points.Load() }

func (c *counts) Peers() []int {
	if !c.begun {
		return nil
	}
	return c.Engine.Peers()
}

func (c *counts) Totals() (sent, received uint64) {
	if !c.begun {
		return 0, 0
	}
	return c.Engine.Totals()
}

// Package p2p calls these with the lock held.

func (t *peers) Control(from int, raw []byte) {
	if t.node == nil {
		t.earlyMessages = append(t.earlyMessages, earlyMessage{from, raw})
		return
	}
	t.nextCheck.Store(0)
	m, err := coord.Parse(raw)
	if err == nil {
		err = t.node.Receive(from, m)
	}
	if err != nil { // the ranks run different programs
		t.engine.FailLocked(fmt.Errorf("a control message of rank %d: %w", from, err))
	}
	t.act()
}

func (t *peers) MessageDone(int) {
	if t.node != nil && !t.node.Idle() {
		t.act()
	}
}

func (t *peers) Blocked() {
	if t.node != nil && !t.node.Idle() {
		t.act()
	}
}

func (t *peers) Ended(int) {}

func (t *peers) Lost(rank int, err error) {
	if t.node != nil {
		t.nextCheck.Store(0)
		t.node.Lost(rank, err.Error())
		t.act()
	}
}

// request asks all ranks for a checkpoint. Any goroutine may call it.
func (t *peers) request(reason string, stop bool) {
	e := t.engine
	if stop {
		t.stopping.Store(true)
	}
	e.Lock()
	defer e.Unlock()
	if t.node == nil {
		t.earlyRequests = append(t.earlyRequests, earlyRequest{reason, stop})
		return
	}
	t.nextCheck.Store(0)
	t.node.Ask(reason, stop)
	t.act()
}

// act tells the node whether the program waits, and does what the node decides.
// The lock is held.
func (t *peers) act() {
	for {
		switch on, blocked := t.engine.BlockedOn(); {
		case !blocked:
			t.node.Unblocked()
		case on == p2p.Any:
			t.node.Blocked(nil)
		default:
			t.node.Blocked([]int{on})
		}
		list := t.node.Take()
		if len(list) == 0 {
			break
		}
		for _, a := range list {
			t.perform(a)
		}
	}
	t.engine.Pull(t.node.Pulling())
	t.nextCheck.Store(t.node.Limit())
}

func (t *peers) perform(a coord.Action) {
	switch a := a.(type) {
	case coord.Send:
		t.engine.Control(a.To, a.Msg.AppendTo(nil))
		return
	case coord.Pause:
		t.paused = true
		t.engine.Pause()
		return
	case coord.Continue:
		t.mayPass = true
	case coord.Save:
		t.save = &a
	case coord.Move:
		t.moving = &a
	case coord.MoveOff:
		t.run.moveFailed(a.ID, a.Err)
		return
	case coord.Stop:
		t.stop = &a
	case coord.Committed:
		t.outcomes = append(t.outcomes, outcome{index: a.Index})
		t.recordLine(a.Index)
	case coord.Failed:
		t.outcomes = append(t.outcomes, outcome{a.Index, a.Err})
		if errors.Is(a.Err, coord.ErrCounts) && t.engine.Rank() == 0 { // all ranks take another one together
			t.node.Ask("unsafe point", false)
		}
	case coord.CalledOff:
		t.outcomes = append(t.outcomes, outcome{err: a.Err})
		if a.Stop {
			t.stopCanceled = a.Err
		}
	case coord.AllFinished:
		return
	}
	t.run.wakePoint()
	t.engine.Wake()
}

// recordLine makes recordLines record a checkpoint. The lock is held.
func (t *peers) recordLine(index uint64) {
	select {
	case <-t.line: // only the newest counts
	default:
	}
	t.line <- index
}

// recordLines records the recovery line, in a goroutine of its own: the
// program's may be busy for long.
func (t *peers) recordLines(line <-chan uint64, done chan<- struct{}) {
	defer close(done)
	for index := range line {
		if !t.recordsLine() {
			continue
		}
		step.At("commit.all")
		if err := t.run.dir.SetLine(store.Line{Index: index, Ranks: t.engine.Size(), Run: t.run.runID.Run, Attempt: t.run.runID.Attempt}); err != nil {
			t.run.log.Warn("cairn: the recovery line could not be recorded", "checkpoint", index, "error", err)
		}
		if t.engine.Rank() == 0 {
			t.run.identity.supervisor.send(&control.Committed{Index: index})
		}
	}
}

// recordsLine reports whether this rank records the recovery line.
func (t *peers) recordsLine() bool { return t.engine.Rank() == 0 || t.run.opts.PerHost }

// pollEvery is the shortest time between two looks for control messages at
// points.
const pollEvery = 100 * time.Microsecond

// started is when this process started.
var started = time.Now()

// nothingDue reports whether the program may pass its point at once.
func (t *peers) nothingDue() bool {
	k := t.points.Add(1)
	// Not by the time of day: if the clock is set back by an hour, messages
	// would wait for an hour.
	if now := int64(time.Since(started)); now-t.polledAt.Load() > int64(pollEvery) {
		t.polledAt.Store(now)
		t.engine.Poll()
	}
	return k < t.nextCheck.Load()
}

// point is a point at which there may be something to do.
func (t *peers) point(ctx context.Context) error {
	p, e := t.run, t.engine
	if t.stopping.Load() { // the same signal may have canceled ctx
		ctx = context.WithoutCancel(ctx)
	}
	defer context.AfterFunc(ctx, e.Wake)()
	e.Lock()
	defer e.Unlock()
	if err := e.RollbackWanted(); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	t.mayPass = false
	if t.node.AtPoint(t.points.Load()) {
		t.act()
		return t.takeOutcomes()
	}
	t.act()
	for !t.mayPass && t.stop == nil {
		if s := t.save; s != nil {
			t.save = nil
			e.Unlock()
			err := p.saveTogether(ctx, s)
			if err != nil {
				p.identity.supervisor.send(&control.SaveFailed{Index: s.Index, Error: err.Error()})
			}
			e.Lock()
			t.paused = false
			e.Continue(!s.Alone) // checkpoints that ranks take alone have no epoch: some ranks may skip one
			t.nextCheck.Store(0)
			if err != nil {
				t.node.Saved(s.Index, err)
			} else {
				t.node.Copied(s.Index)
			}
			t.act()
			continue
		}
		if m := t.moving; m != nil {
			t.moving = nil
			e.Unlock()
			err := t.move(ctx, m)
			e.Lock()
			if err != nil { // the other ranks rely on it
				e.FailLocked(err)
				return fmt.Errorf("cairn: a move of ranks: %w", err)
			}
			continue
		}
		err := e.Serve(func() bool {
			return t.mayPass || t.stop != nil || t.save != nil || t.moving != nil || ctx.Err() != nil && !t.stopping.Load()
		})
		if err == nil && !t.stopping.Load() && ctx.Err() != nil && !t.mayPass && t.stop == nil && t.save == nil && t.moving == nil {
			err = ctx.Err()
			// The other ranks may rely on this one staying where it is: if the
			// program continues now, nothing that it does may reach them.
			e.FailLocked(fmt.Errorf("a point was left before the other ranks were there: %w", err))
		}
		if err != nil {
			return fmt.Errorf("cairn: waiting for the other ranks at a point: %w", err)
		}
	}
	if t.paused {
		t.paused = false
		e.Continue(false)
	}
	return t.takeOutcomes()
}

// awaitRound waits until the next point may have something to do. The caller
// passes no points meanwhile: ranks agree on a point by its number, and this
// rank would run ahead of the others.
func (t *peers) awaitRound(ctx context.Context) {
	e := t.engine
	defer context.AfterFunc(ctx, e.Wake)()
	e.Lock()
	defer e.Unlock()
	e.Serve(func() bool { // Point finds out if it fails
		return t.points.Load()+1 >= t.nextCheck.Load() || t.run.wake.Load() || ctx.Err() != nil
	})
}

// takeCommitted notes the checkpoints that were committed, before this rank's
// state is sent to a destination.
func (t *peers) takeCommitted() {
	t.engine.Lock()
	list := t.outcomes
	t.outcomes = nil
	t.engine.Unlock()
	var kept []outcome
	for _, n := range list {
		if n.err == nil {
			t.run.committed(n.index)
		} else {
			kept = append(kept, n)
		}
	}
	t.engine.Lock()
	t.outcomes = append(kept, t.outcomes...)
	t.engine.Unlock()
}

// takeOutcomes notes the outcomes of checkpoints, and returns the error for the
// program. The lock is held.
func (t *peers) takeOutcomes() error {
	p := t.run
	list := t.outcomes
	t.outcomes = nil
	t.engine.Unlock() // the program's callbacks may send messages
	for _, n := range list {
		switch {
		case n.err == nil:
			p.committed(n.index)
		case n.index == 0 && (errors.Is(n.err, coord.ErrFinished) || errors.Is(n.err, coord.ErrLost)):
			t.noMore = n.err
		case n.index != 0:
			p.saver.Failed(n.index)
			p.failedTogether(n.err)
		case errors.Is(n.err, coord.ErrNoCut), errors.Is(n.err, coord.ErrCounts):
			p.fail(n.err)
		}
	}
	t.engine.Lock()
	if s := t.stop; s != nil {
		p.pendingErr = nil
		p.identity.supervisor.send(&control.Stopped{Index: p.lastCommitted, Error: errorText(s.Err)})
		if s.Err != nil {
			return fmt.Errorf("cairn: %w: %w: the state is NOT saved; the last committed checkpoint is %d: %w", ErrStopped, ErrNotSaved, p.lastCommitted, s.Err)
		}
		return p.stoppedWith(s.Index, "")
	}
	if err := t.stopCanceled; err != nil && !errors.Is(err, coord.ErrFinished) {
		t.stopCanceled = nil
		p.pendingErr = nil
		return fmt.Errorf("cairn: %w: %w: the state is NOT saved; the last committed checkpoint is %d: %w", ErrStopped, ErrNotSaved, p.lastCommitted, err)
	}
	return p.takeError()
}

// failedTogether notes that a checkpoint failed on some rank. If a message
// crossed a checkpoint that was taken without coordination, that is no failure:
// the ranks take another one together.
func (p *Run) failedTogether(err error) {
	if errors.Is(err, coord.ErrCounts) {
		if p.identity.Rank == 0 && !p.crossed {
			p.log.Warn("cairn: messages cross the points at which ranks save without coordination: all ranks take each such checkpoint again together", "error", err, "next", "do not set Options.SafePoints, or move the point")
		}
		p.crossed = true
		return
	}
	p.fail(p.markReported(err))
}

// await waits until the outcome of a checkpoint on all ranks is known.
func (t *peers) await(ctx context.Context, index uint64) error {
	e := t.engine
	defer context.AfterFunc(ctx, e.Wake)()
	e.Lock()
	defer e.Unlock()
	err := e.Serve(func() bool {
		return ctx.Err() != nil || t.run.lastCommitted >= index || slices.ContainsFunc(t.outcomes, func(n outcome) bool { return n.index == index })
	})
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("cairn: waiting for the other ranks: %w", err)
	}
	return t.takeOutcomes()
}

// reportSaved tells all ranks the outcome of this rank's part of a checkpoint.
func (t *peers) reportSaved(index uint64, sums coord.Sums, err error) {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if t.node != nil {
		t.nextCheck.Store(0)
		t.node.SavedAlone(index, sums, err)
		t.act()
	}
}

// closeTimeout is how long a rank that ends before its work is done waits for
// the others to end.
const closeTimeout = 30 * time.Second

// abort ends a destination that has not taken over: the other ranks do not know
// this process.
func (t *peers) abort() error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	t.engine.Close(ctx, false)
	return t.closeDrivers()
}

// close disconnects the ranks. done says that this rank's work is done; close
// returns whether that holds for all.
func (t *peers) close(done bool) (all bool, err error) {
	e := t.engine
	ctx := context.Background()
	e.Lock()
	stopped := t.stop != nil
	e.Unlock()
	if !done && !stopped {
		c, cancel := context.WithTimeout(ctx, cmp.Or(t.run.opts.closeTimeout, closeTimeout))
		defer cancel()
		if index := t.run.current.Index; t.run.driven.abandoned {
			if _, ok := t.run.uncommitted[index]; ok && t.node != nil {
				t.await(c, index)
			}
			cancel()
		}
		ctx = c
	}
	if t.node != nil {
		e.Lock()
		t.nextCheck.Store(0)
		t.node.Finished()
		t.act()
		e.Unlock()
	}
	all, err = e.Close(ctx, done)
	if t.line != nil {
		e.Lock()
		close(t.line)
		t.node = nil
		list := t.outcomes
		e.Unlock()
		for _, n := range list { // the outcome of the last checkpoint
			if n.err == nil {
				t.run.committed(n.index)
			}
		}
		<-t.recorderDone
	}
	if err != nil && !done { // the program knows it already
		err = nil
	}
	return all, errors.Join(err, t.closeDrivers())
}
