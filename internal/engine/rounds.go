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

// rounds drives the coordination of checkpoints: what the node of package
// coord wants done is done here. Except for the atomics, all of it is guarded
// by the engine's lock.
type rounds struct {
	node          *coord.Node // nil until the state is restored
	earlyMessages []earlyMessage
	earlyRequests []earlyRequest
	earlyMoves    []uint64
	paused        bool // the program is held, and the engine knows
	mayPass       bool // it may leave its point
	save          *coord.Save
	moving        *coord.Move
	stop          *coord.Stop
	noMore        error     // why there are no more sets
	stopCanceled  error     // a stop that was asked for can't be had
	outcomes      []outcome // what became of sets, for the next Point
	line          chan uint64
	recorderDone  chan struct{} // closed when the clerk is gone

	writing sync.WaitGroup // outcomes of sets that are awaited

	points    atomic.Uint64 // that the program has entered
	nextCheck atomic.Uint64 // the first one at which the node must be asked
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

// outcome is the outcome of a set on all ranks.
type outcome struct {
	index uint64
	err   error
}

// begin starts coordination, when the ranks have restored the same set.
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

// coordinate makes the node; with state, of one that another process had. The
// lock is held.
func (t *peers) coordinate(cfg coord.Config, state []byte) (err error) {
	p, e := t.run, t.engine
	t.points.Store(p.points)
	c := &counts{Engine: e, t: t, begun: state != nil}
	cfg.Rank, cfg.Size, cfg.Counts, cfg.Every, cfg.Spatial = e.Rank(), e.Size(), c, uint64(p.opts.EveryPoints), p.opts.SafePoints
	if state == nil {
		t.node = coord.New(cfg)
	} else if t.node, err = coord.Import(cfg, state); err != nil {
		return err
	}
	c.begun = true
	t.line, t.recorderDone = make(chan uint64, 1), make(chan struct{})
	go t.recordLines()
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

// plan is what a rank's options say about sets.
type plan struct {
	Next, Every uint64
	Spatial     bool
}

// samePlan makes sure that all ranks have the same options. It returns the
// largest Next.
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

// counts is what a node reads about its rank. The node is made while messages
// are under way already, so its counts begin where there were none.
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

// The engine tells, with its lock held:

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
	if err != nil { // the ranks run different programs, or something is badly wrong
		t.engine.FailLocked(fmt.Errorf("a control message of rank %d: %w", from, err))
	}
	t.act()
}

func (t *peers) Arrived(int) {
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

// act tells the node whether the program waits, and does what the node wants.
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
		select {
		case <-t.line: // only the newest counts
		default:
		}
		t.line <- a.Index
	case coord.Failed:
		t.outcomes = append(t.outcomes, outcome{a.Index, a.Err})
		if errors.Is(a.Err, coord.ErrCounts) && t.engine.Rank() == 0 { // all ranks together take one that holds
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

// recordLines records the recovery line. It is not the program's goroutine, which
// may be busy for long.
func (t *peers) recordLines() {
	defer close(t.recorderDone)
	for index := range t.line {
		if t.engine.Rank() != 0 {
			continue
		}
		step.At("commit.all")
		if err := t.run.dir.SetLine(store.Line{Index: index, Ranks: t.engine.Size(), Run: t.run.runID.Run, Attempt: t.run.runID.Attempt}); err != nil {
			t.run.log.Warn("cairn: the recovery line could not be recorded", "set", index, "error", err)
		}
		t.run.identity.supervisor.send(&control.Committed{Index: index})
	}
}

// pollEvery is how often, at most, points look for control messages.
const pollEvery = 100 * time.Microsecond

// started is when this process was, to measure from.
var started = time.Now()

// nothingDue reports whether the program may pass its point at once.
func (t *peers) nothingDue() bool {
	k := t.points.Add(1)
	// Not by the time of day: set back by an hour, it would keep all messages
	// waiting for an hour.
	if now := int64(time.Since(started)); now-t.polledAt.Load() > int64(pollEvery) {
		t.polledAt.Store(now)
		t.engine.Poll()
	}
	return k < t.nextCheck.Load()
}

// point is the program's stay in a point at which there is, or may be,
// something to do.
func (t *peers) point(ctx context.Context) error {
	p, e := t.run, t.engine
	if t.stopping.Load() { // the signal that says so may have canceled ctx, too
		ctx = context.WithoutCancel(ctx)
	}
	defer context.AfterFunc(ctx, e.Wake)()
	e.Lock()
	defer e.Unlock()
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
			e.Continue(!s.Alone) // sets that ranks take alone have no epoch: some may leave one out
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
			if err != nil { // the others count on what this rank can't do
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
			// The others may count on this rank staying where it is: if the
			// program goes on now, nothing that it does may reach them.
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

// takeCommitted takes in what became of sets, before this rank's state goes elsewhere.
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

// takeOutcomes takes in what became of sets and returns what the program must know.
// The lock is held.
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
			return fmt.Errorf("cairn: %w: %w: the state is NOT saved, the last set that is safe is %d: %w", ErrStopped, ErrNotSaved, p.lastCommitted, s.Err)
		}
		return fmt.Errorf("cairn: %w: set %d is saved by all ranks; start the program again to go on", ErrStopped, s.Index)
	}
	if err := t.stopCanceled; err != nil && !errors.Is(err, coord.ErrFinished) {
		t.stopCanceled = nil
		p.pendingErr = nil
		return fmt.Errorf("cairn: %w: %w: the state is NOT saved, the last set that is safe is %d: %w", ErrStopped, ErrNotSaved, p.lastCommitted, err)
	}
	return p.takeError()
}

// failedTogether takes in that not all ranks have a set. One that was taken
// without coordination, and that a message crossed, is no failure of the
// program's or the disk's: the ranks take another one, together.
func (p *Run) failedTogether(err error) {
	if errors.Is(err, coord.ErrCounts) {
		if p.identity.Rank == 0 && !p.crossed {
			p.log.Warn("cairn: messages cross the points at which ranks save without coordination: each such checkpoint is taken again by all ranks together", "error", err, "next", "do without Options.SafePoints, or move the point")
		}
		p.crossed = true
		return
	}
	p.fail(p.markReported(err))
}

// await waits until the outcome of a set on all ranks is known.
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

// reportSaved tells all ranks what became of this rank's part of a set.
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

// closeTimeout is how long a rank that leaves before its work is done waits for
// the others to do so.
const closeTimeout = 30 * time.Second

// close ends the team. done says that this rank's work is; it returns whether
// that holds for all.
func (t *peers) close(done bool) (all bool, err error) {
	e := t.engine
	ctx := context.Background()
	if t.run.isDestination() && !t.run.restored { // nobody knows of it
		c, cancel := context.WithCancel(ctx)
		cancel()
		e.Close(c, false)
		return false, t.closeDrivers()
	}
	e.Lock()
	stopped := t.stop != nil
	e.Unlock()
	if !done && !stopped {
		c, cancel := context.WithTimeout(ctx, cmp.Or(t.run.opts.closeTimeout, closeTimeout))
		defer cancel()
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
		for _, n := range list { // the outcome of the last set
			if n.err == nil {
				t.run.committed(n.index)
			}
		}
		<-t.recorderDone
	}
	if err != nil && !done { // it was said before
		err = nil
	}
	return all, errors.Join(err, t.closeDrivers())
}
