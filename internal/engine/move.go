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

// A rank moves: its state goes to a process on another host, the newcomer,
// which takes its place among the ranks (docs/migration.md). Here is what the
// ranks do; the supervisor decides.

// mover is a rank's part in the moves of its run.
type mover struct {
	mu       sync.Mutex
	changed  chan struct{} // closed when something below is new
	plans    map[uint64]*control.Move
	verdicts map[uint64]*control.Switch
	out      *leaver  // this rank is to leave
	from     net.Conn // of a newcomer: its source
	gone     error    // there are no more moves

	spawning sync.Mutex // held while the MPI library starts a process
}

// leaver is the way from a source to its newcomer.
type leaver struct {
	id        uint64
	stream    *migrate.Source
	collector graph.Collector
	images    chan chan error // a point is to hand over the image, and tell when it has
	sent      int64           // ahead
	rounds    int
	off       context.CancelCauseFunc
}

// luggage is what a newcomer has to know besides the state of the program.
type luggage struct {
	Identity identity     `json:"identity"`
	Ledger   p2p.Counters `json:"ledger"`
	Node     []byte       `json:"node"`     // of coord
	Meetings uint64       `json:"meetings"` // exchanges of cards so far
	Next     uint64       `json:"next"`     // set
	Safe     uint64       `json:"safe"`
	Damaged  []uint64     `json:"damaged"` // sets that do not count as kept
	Aside    []uint64     `json:"aside"`   // … and are not removed
	Left     int          `json:"left"`    // points until a checkpoint is due by count
	Late     string       `json:"late"`
	// Due is how long it is until the next checkpoint is.
	Due time.Duration `json:"due"`
}

func (v *mover) news() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// await waits until f, which is called with the lock held, says so.
func (v *mover) await(ctx context.Context, f func() bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for {
		if f() {
			return nil
		}
		if v.gone != nil {
			return v.gone
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

// verdict waits for what the supervisor decides about a move.
func (v *mover) verdict(ctx context.Context, id uint64) (m *control.Switch, err error) {
	err = v.await(ctx, func() bool {
		m = v.verdicts[id]
		return m != nil
	})
	return m, err
}

// moveTold takes in what the supervisor says about a move.
func (p *Run) moveTold(m control.Message) {
	if m, ok := m.(*control.Pause); ok && p.seat.Size > 1 && m.Endpoints != nil && !slices.Contains(m.Ranks, p.seat.Rank) {
		if err := p.team.engine.Reaches(m.Endpoints); err != nil { // it has a lock that comes before the mover's
			p.unmoved(m.ID, err)
		}
	}
	v := &p.mover
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.plans == nil {
		v.plans, v.verdicts = make(map[uint64]*control.Move), make(map[uint64]*control.Switch)
	}
	switch m := m.(type) {
	case *control.Precopy:
		ctx, cancel := context.WithCancelCause(context.Background())
		l := &leaver{id: m.ID, images: make(chan chan error, 1), off: cancel}
		v.out = l
		if v.gone != nil {
			cancel(v.gone)
		}
		go p.sendAhead(ctx, l, m)
	case *control.Pause:
		// Ranks may still have to be held for one that was called off.
		maps.DeleteFunc(v.verdicts, func(id uint64, _ *control.Switch) bool { return v.plans[id] == nil })
		v.plans[m.ID] = &m.Move
		if p.seat.Size > 1 && p.seat.Rank == 0 {
			go p.team.askMove(m.ID)
		}
	case *control.Switch:
		v.verdicts[m.ID] = m
		if !m.OK && v.out != nil && v.out.id == m.ID {
			v.out.close(errCalledOff)
			v.out = nil
		}
	}
	v.news()
	p.rouse()
	if p.seat.Size > 1 { // alone, World may make a team at any time
		p.team.engine.Wake()
	}
}

// end says why there are no more moves.
func (v *mover) end(why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.gone = why
	if v.out != nil {
		v.out.close(why)
	}
	v.news()
}

// unmoved tells the supervisor that a move can't be.
func (p *Run) unmoved(id uint64, err error) {
	p.seat.ctl.say(&control.MoveFailed{Move: id, Error: fmt.Sprintf("rank %d: %v", p.seat.Rank, err)})
}

func moveOptions(m *control.Move, s *seat) migrate.Options {
	return migrate.Options{Rank: s.Rank, Ranks: s.Size, BatchSize: m.Chunk, Sequential: m.Sequential, Files: m.Files}
}

// moveSecret is what a source and its newcomer prove to each other that they know.
func (s *seat) moveSecret(id uint64) []byte {
	return control.Derive(s.Secret, fmt.Sprintf("move %d of rank %d", id, s.Rank))
}

// askMove asks all ranks to be held together.
func (t *team) askMove(id uint64) {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if t.node == nil {
		t.askedMoves = append(t.askedMoves, id)
		return
	}
	t.limit.Store(0)
	t.node.AskMove(id)
	t.act()
}

// move is what this rank does while all are held for a move, see coord.Move.
// The engine's lock is not held.
func (t *team) move(ctx context.Context, a *coord.Move) error {
	p, e := t.p, t.engine
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
		p.seat.ctl.say(&control.Paused{Move: a.ID})
		if stats, err := p.moveOut(ctx, plan, a); err != nil {
			p.unmoved(a.ID, err)
		} else {
			p.seat.ctl.say(&control.Sent{Move: a.ID, Stats: stats})
		}
	}
	verdict, err := t.verdictOn(a.ID)
	p.mover.forget(a.ID)
	switch {
	case err != nil:
		return err
	case !verdict.OK:
		p.stay(a.ID)
		e.Lock()
		e.Reattach(plan.Ranks)
	case mine:
		p.leave(a.ID)
	default:
		if err := e.Relink(ctx, plan.Ranks, verdict.Endpoints); err != nil {
			return err
		}
		p.seat.ctl.say(&control.Linked{Move: a.ID})
		e.Lock()
	}
	defer e.Unlock()
	t.held = false // the node may hold it again at once
	e.Continue(false)
	t.limit.Store(0)
	err = t.node.Moved(a.ID)
	t.act()
	return err
}

// planOf waits for the supervisor's word on who moves, and serves the others
// meanwhile; so does verdictOn.
func (t *team) planOf(id uint64) (plan *control.Move, err error) {
	err = t.serveUntil(func(v *mover) bool {
		plan = v.plans[id]
		return plan != nil
	})
	return plan, err
}

func (t *team) verdictOn(id uint64) (m *control.Switch, err error) {
	err = t.serveUntil(func(v *mover) bool {
		m = v.verdicts[id]
		return m != nil
	})
	return m, err
}

func (t *team) serveUntil(f func(v *mover) bool) error {
	v := &t.p.mover
	t.engine.Lock()
	defer t.engine.Unlock()
	return t.engine.Serve(func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return f(v)
	})
}

// moveOut sends the rest of the state to the newcomer.
func (p *Run) moveOut(ctx context.Context, plan *control.Move, a *coord.Move) (*control.MoveStats, error) {
	v := &p.mover
	v.mu.Lock()
	l := v.out
	ready := l != nil && l.id == plan.ID && l.stream != nil
	v.mu.Unlock()
	if !ready {
		return nil, errors.New("there is no connection to the process that is to take its place")
	}
	if err := p.await(ctx); err != nil {
		return nil, err
	}
	if p.seat.Size > 1 {
		p.team.hear()
	}
	bag := luggage{Identity: p.id, Meetings: p.seat.ctl.meetings(), Next: p.saver.Next(), Safe: p.safe}
	bag.Left, bag.Late = p.left, p.late
	for n, bad := range p.damaged {
		if bad {
			bag.Damaged = append(bag.Damaged, n)
		} else {
			bag.Aside = append(bag.Aside, n)
		}
	}
	if p.timer != nil {
		bag.Due = max(time.Until(p.dueAt), time.Millisecond)
	}
	note := ckpt.Note{Points: p.points, Reason: "move"}
	if t := p.team; t != nil {
		t.pack(&note, &coord.Save{Point: a.Point, Due: t.flight.Due})
		e := t.engine
		e.Lock()
		bag.Ledger = e.Counters()
		if t.node != nil {
			bag.Node = t.node.Export()
		}
		e.Unlock()
	}
	if p.opts.OnCopy != nil {
		if err := p.opts.OnCopy(); err != nil {
			return nil, err
		}
	}
	img, err := p.image(&l.collector)
	if err != nil {
		return nil, err
	}
	if p.team != nil {
		if err := p.team.packed(false); err != nil {
			return nil, err
		}
	}
	files, err := p.files.entries()
	if err != nil {
		return nil, err
	}
	extra, err := json.Marshal(bag)
	if err != nil {
		return nil, err
	}
	step.At("migrate.copied")
	s, err := l.stream.Finish(ctx, img, files, note, extra)
	if err != nil {
		return nil, err
	}
	s.Precopied, s.Rounds = l.sent, l.rounds
	return &s, nil
}

// forget drops what is known of a move that is decided.
func (v *mover) forget(id uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.plans, id)
	delete(v.verdicts, id)
}

// stay ends a move that is not to be.
func (p *Run) stay(id uint64) {
	v := &p.mover
	v.mu.Lock()
	defer v.mu.Unlock()
	if l := v.out; l != nil && l.id == id {
		l.close(errCalledOff)
		v.out = nil
	}
}

// leave ends this process's part in the run: the newcomer has it. It gives up
// what there can be only one of, and does nothing any more; whoever started it
// kills it.
func (p *Run) leave(id uint64) {
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
		p.log.Warn("cairn: the checkpoint folder of a rank that has moved could not be closed", "error", err)
	}
	p.seat.ctl.say(&control.HandedOver{Move: id})
	select {}
}

// moveHere is a point of a run of one rank that is to move.
func (p *Run) moveHere(ctx context.Context) error {
	v := &p.mover
	v.mu.Lock()
	var plan *control.Move
	for id, m := range v.plans {
		if v.verdicts[id] == nil {
			plan = m
		} else {
			delete(v.plans, id)
		}
	}
	v.mu.Unlock()
	if plan == nil || p.saver.Busy() { // its outcome rouses the next point
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	p.seat.ctl.say(&control.Paused{Move: plan.ID})
	if by := p.stop.Load(); by != nil {
		p.unmoved(plan.ID, fmt.Errorf("the program is to stop: %s", *by))
	} else if stats, err := p.moveOut(ctx, plan, new(coord.Move)); err != nil {
		p.unmoved(plan.ID, err)
	} else {
		p.seat.ctl.say(&control.Sent{Move: plan.ID, Stats: stats})
	}
	verdict, err := v.verdict(ctx, plan.ID)
	if err != nil {
		return fmt.Errorf("cairn: %w; end the program: it is started again from its last set", err)
	}
	if verdict.OK {
		p.leave(plan.ID)
	}
	p.stay(plan.ID)
	return nil
}
