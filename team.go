package cairn

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/cairnrun/cairn/ckpt"
	"github.com/cairnrun/cairn/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/mpi"
	"github.com/cairnrun/cairn/store"
	"github.com/cairnrun/cairn/transport"
)

// team is a run's connection with its other ranks.
type team struct {
	p       *Run
	engine  *p2p.Engine
	world   *mpi.Comm
	drivers []transport.Driver
	flight  flight
	rounds
}

// flight is what was under way between ranks when a set was taken. It is
// saved like a variable of the program.
type flight struct {
	Due      uint64 // the last point that was due, see coord.Save
	Contexts uint32
	Messages []p2p.Kept
}

const (
	// flightName is the name of that variable, in the space of names that
	// programs can't use.
	flightName = reserved + "flight"
	reserved   = "cairn."
)

// assemble connects the ranks of a run.
func assemble(ctx context.Context, p *Run, s *seat) (*team, error) {
	t := &team{p: p}
	var err error
	if s.Size > 1 {
		if t.drivers, err = s.drivers(p.log); err != nil {
			return nil, err
		}
	}
	t.engine, err = p2p.New(p2p.Config{
		Rank: s.Rank, Size: s.Size, Host: s.Host, Drivers: t.drivers, Exchange: s.meet, Observer: t,
	})
	if err == nil {
		err = t.engine.Connect(ctx)
	}
	if err != nil {
		t.dissolve()
		return nil, fmt.Errorf("cairn: rank %d: %w", s.Rank, err)
	}
	t.world = mpi.World(t.engine)
	return t, nil
}

func (t *team) dissolve() error {
	var errs []error
	for _, d := range t.drivers {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// World returns the communicator of all ranks of the run; of one rank, when
// the program runs alone. Called before Restore, messages that a rank sends to
// itself are part of the state also when it is alone.
func (p *Run) World() *mpi.Comm {
	if p.team == nil {
		p.team = &team{p: p}
		e, err := p2p.New(p2p.Config{Size: 1})
		if err != nil {
			panic(fmt.Sprintf("cairn: a communicator for one rank: %v", err)) // out of descriptors
		}
		p.team.engine, p.team.world = e, mpi.World(e)
		if !p.tried {
			p.team.protect()
		}
	}
	return p.team.world
}

// Rank is this process's number among the ranks of the run, and Ranks how
// many there are.
func (p *Run) Rank() int  { return p.seat.Rank }
func (p *Run) Ranks() int { return p.seat.Size }

// protect makes what is in flight part of the state.
func (t *team) protect() {
	t.p.roots = append(t.p.roots, graph.Root{Name: flightName, Ptr: &t.flight})
	t.p.how[flightName] = Optional // a program that sends messages now may not have before
}

// pack puts what is in flight into the variable that is saved with the
// state, and adds the totals of messages to the note.
func (t *team) pack(note *ckpt.Note, s *coord.Save) {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	t.flight = flight{Due: s.Due, Contexts: e.NextContext()}
	e.Saved()
	if !s.Alone {
		t.flight.Messages = e.Capture()
	}
	if e.Size() == 1 {
		return
	}
	note.Sent, note.Received = make([]uint64, e.Size()), s.Cut
	for r := range note.Sent {
		note.Sent[r] = e.Sent(r)
	}
	if s.Alone { // what has come and was not taken was sent after the point
		note.Received = make([]uint64, e.Size())
		for r := range note.Received {
			note.Received[r] = e.Taken(r)
		}
	}
}

// packed checks that all receives that wait for a message are in the state,
// and that none of what is there has been spoiled by the loss of a rank.
func (t *team) packed(alone bool) error {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if err := e.Err(); err != nil { // some operations may have ended with it
		return err
	}
	pending, saved := e.Pending(), e.Saved()
	if alone && pending > 0 {
		return fmt.Errorf("%d receives are pending at a point that is saved without the other ranks: wait for them before it, or leave Options.Spatial out", pending)
	}
	if pending > saved {
		return fmt.Errorf("%d receives are pending that no protected variable holds: protect their *mpi.Request, or wait for them before the point", pending-saved)
	}
	return nil
}

// verdict is what a rank thinks of a step that all take together.
type verdict struct {
	Code int32
	Len  int32
	Text [240]byte
}

const (
	fine = iota
	damaged
	fatal
)

func verdictOf(err error) verdict {
	var v verdict
	switch {
	case err == nil:
		return v
	case errors.Is(err, ErrCorrupt), errors.Is(err, syscall.EIO), errors.Is(err, errUnsafe):
		v.Code = damaged
	default:
		v.Code = fatal
	}
	v.Len = int32(copy(v.Text[:], err.Error()))
	return v
}

// errUnsafe says that messages crossed a set that was taken without
// coordination.
var errUnsafe = errors.New("the point was not safe")

// agree tells all ranks how a step went here. It returns nil if it went well
// everywhere; this rank's own error if there is one; else one that names a
// rank that has one. The error wraps ErrCorrupt if the set can be stepped over
// by all.
func (t *team) agree(mine error) error {
	v := verdictOf(mine)
	all := make([]verdict, t.world.Size())
	if err := mpi.Allgather(t.world, []verdict{v}, all); err != nil {
		return errors.Join(mine, err)
	}
	worst := 0
	for r, v := range all {
		if v.Code > all[worst].Code {
			worst = r
		}
	}
	switch w := all[worst]; {
	case w.Code == fine:
		return nil
	case w.Code == v.Code:
		if w.Code == damaged && !errors.Is(mine, ErrCorrupt) {
			return fmt.Errorf("%w: %w", ErrCorrupt, mine)
		}
		return mine
	case w.Code == damaged:
		return fmt.Errorf("%w: on rank %d: %s", ErrCorrupt, worst, w.Text[:max(0, min(int(w.Len), len(w.Text)))])
	default:
		return fmt.Errorf("rank %d can't restore: %s", worst, w.Text[:max(0, min(int(w.Len), len(w.Text)))])
	}
}

// lists gives every rank's list of sets to all ranks.
func (t *team) lists(mine []uint64) ([][]uint64, error) {
	n := t.world.Size()
	counts := make([]int, n)
	if err := mpi.Allgather(t.world, []int{len(mine)}, counts); err != nil {
		return nil, err
	}
	displs := make([]int, n)
	total := 0
	for r, c := range counts {
		displs[r] = total
		total += c
	}
	flat := make([]uint64, total)
	if err := mpi.Allgatherv(t.world, mine, flat, counts, displs); err != nil {
		return nil, err
	}
	out := make([][]uint64, n)
	for r, c := range counts {
		out[r] = flat[displs[r] : displs[r]+c]
	}
	return out, nil
}

// restore loads the newest set that all ranks can load. It returns nil if
// there never was one.
func (t *team) restore(ctx context.Context, sets []uint64) (*ckpt.Table, error) {
	p := t.p
	var bad []error
	for {
		var have []uint64
		for _, n := range sets {
			if !p.damaged[n] {
				have = append(have, n)
			}
		}
		all, err := t.lists(have)
		if err != nil {
			return nil, err
		}
		line, ok := coord.Line(all)
		if !ok {
			return nil, t.afresh(bad)
		}
		if err = t.agree(t.examine(ctx, line)); err == nil {
			var table *ckpt.Table
			table, err = p.load(ctx, line)
			if err = t.agree(err); err == nil {
				for _, n := range have {
					if n > line { // not all ranks have it
						p.damaged[n] = true
					}
				}
				p.safe = line
				return table, t.resume()
			}
			t.engine.Lock()
			t.engine.Resume(nil, true)
			t.engine.Unlock()
		}
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		p.damaged[line] = true
		bad = append(bad, err)
		p.log.Warn("cairn: a damaged checkpoint is stepped over", "set", line, "error", err)
	}
}

// afresh says whether a run that found no set may begin anew.
func (t *team) afresh(bad []error) error {
	var err error
	if t.engine.Rank() == 0 {
		l, lerr := t.p.dir.Line()
		switch {
		case len(bad) > 0:
			err = errors.Join(bad...)
		case errors.Is(lerr, store.ErrLine):
			err = lerr
		case lerr != nil:
			err = lerr
		case l.Set > 0:
			err = fmt.Errorf("set %d was complete on all of %d ranks, and is not any more", l.Set, l.Ranks)
		}
		if err != nil {
			err = fmt.Errorf("no checkpoint in %s can be loaded by all ranks; to start afresh, move that folder away: %w", t.p.dir.Path(), err)
		}
	}
	if err != nil {
		err = notCorrupt{err}
	}
	err = t.agree(err)
	if n, ok := err.(notCorrupt); ok {
		err = n.error
	}
	return err
}

// notCorrupt is an error after which there is nothing to step over to.
type notCorrupt struct{ error }

// examine looks whether this rank's part of a set can be loaded, as far as
// that can be seen without changing anything.
func (t *team) examine(ctx context.Context, index uint64) error {
	s, err := ckpt.Open(t.p.dir.FS(), t.p.dir.File(index))
	sent, received := make([]uint64, t.world.Size()), make([]uint64, t.world.Size())
	if err == nil {
		defer s.Close()
		_, _, err = t.p.fits(ctx, s)
		copy(sent, s.Header.Sent)
		copy(received, s.Header.Received)
	}
	theirs := make([]uint64, len(sent))
	if merr := mpi.Alltoall(t.world, sent, theirs); merr != nil {
		return errors.Join(err, merr)
	}
	if err != nil {
		return err
	}
	for r := range theirs {
		if theirs[r] != received[r] {
			return fmt.Errorf("%w: %s: rank %d had sent %d messages to rank %d, which had received %d: they crossed the point at which set %d was taken; take it with the other ranks, without Options.Spatial", errUnsafe, s.Path, r, theirs[r], t.engine.Rank(), received[r], index)
		}
	}
	return nil
}

// resume puts back what was in flight.
func (t *team) resume() error {
	e := t.engine
	e.Contexts(t.flight.Contexts)
	e.Lock()
	defer e.Unlock()
	return e.Resume(t.flight.Messages, false)
}
