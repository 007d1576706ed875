package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/mpi"
)

// peers connects this rank with the others.
type peers struct {
	run      *Run
	engine   *p2p.Engine
	world    *mpi.Comm
	drivers  []transport.Driver
	inflight inflight
	rounds
}

// inflight is what was in flight between ranks at a checkpoint. It is saved
// like a variable of the program.
type inflight struct {
	Due      uint64 // the last point that was due, see coord.Save
	Contexts uint32
	Messages []p2p.SavedMessage
}

const (
	// inflightName is the name of that variable. Programs cannot use names with
	// this prefix.
	inflightName = reserved + "inflight"
	reserved     = "cairn."
)

// connectPeers connects the ranks of a run.
func connectPeers(ctx context.Context, p *Run, s *identity) (*peers, error) {
	t := &peers{run: p}
	var err error
	if s.Size > 1 {
		if t.drivers, err = s.drivers(p.log); err != nil {
			return nil, err
		}
	}
	t.engine, err = p2p.New(p2p.Config{
		Rank: s.Rank, Size: s.Size, Machine: machineID(), Drivers: t.drivers, Exchange: s.exchange, Observer: t,
	})
	if err == nil && !p.isDestination() { // a destination connects when it has its state
		if s.supervisor != nil {
			t.engine.Record(setupLimit)
		}
		err = t.engine.Connect(ctx)
	}
	if err != nil {
		t.closeDrivers()
		return nil, fmt.Errorf("cairn: rank %d: %w", s.Rank, err)
	}
	t.world = (*mpi.Comm)(t.engine.World())
	return t, nil
}

func (t *peers) closeDrivers() error {
	var errs []error
	for _, d := range t.drivers {
		errs = append(errs, d.Close())
	}
	return errors.Join(errs...)
}

// World returns the communicator of all ranks; see cairn.Run.World.
func (p *Run) World() *mpi.Comm {
	if p.peers == nil {
		p.peers = &peers{run: p}
		e, err := p2p.New(p2p.Config{Size: 1})
		if err != nil {
			panic(fmt.Sprintf("cairn: a communicator for one rank: %v", err)) // out of descriptors
		}
		p.peers.engine, p.peers.world = e, (*mpi.Comm)(e.World())
		if p.phase == phaseOpen {
			p.peers.protect()
		}
	}
	return p.peers.world
}

// Rank returns the number of this process among the ranks, and Ranks their
// number.
func (p *Run) Rank() int  { return p.identity.Rank }
func (p *Run) Ranks() int { return p.identity.Size }

// protect makes what is in flight part of the state.
func (t *peers) protect() {
	t.run.roots = append(t.run.roots, graph.Root{Name: inflightName, Ptr: &t.inflight})
	t.run.varOptions[inflightName] = Optional // older checkpoints may be of a program without messages
}

// captureInflight puts what is in flight into the variable that is saved with
// the state, and adds the message counts to the note.
func (t *peers) captureInflight(note *ckpt.Note, s *coord.Save) {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if err := e.Settle(); err != nil {
		return // checkPending reports it
	}
	t.inflight = inflight{Due: s.Due, Contexts: e.NextContext()}
	e.SavedReceives()
	t.inflight.Messages = e.Capture(s.Alone)
	if e.Size() == 1 {
		return
	}
	note.Sent, note.Received = make([]uint64, e.Size()), s.Cut
	for r := range note.Sent {
		note.Sent[r] = e.Sent(r)
	}
	if s.Alone { // what was received and not taken was sent after the point
		note.Received = make([]uint64, e.Size())
		for r := range note.Received {
			if r != e.Rank() { // messages to itself are not counted as sent
				note.Received[r] = e.Taken(r)
			}
		}
	}
}

// checkPending returns an error if a pending receive is not part of the state,
// or if the loss of a rank has spoiled the state.
func (t *peers) checkPending(alone bool) error {
	e := t.engine
	e.Lock()
	defer e.Unlock()
	if err := e.Err(); err != nil { // some operations may have ended with it
		return err
	}
	pending, saved := e.Pending(), e.SavedReceives()
	if alone && pending > 0 {
		return fmt.Errorf("%d receives are pending at a point that is saved without the other ranks: wait for them before it, or leave Options.SafePoints out", pending)
	}
	if pending > saved {
		return fmt.Errorf("%d receives are pending that no protected variable holds: protect their *mpi.Request, or wait for them before the point", pending-saved)
	}
	return nil
}

// stepResult is a rank's result of a step that all ranks take together.
type stepResult struct {
	Code int32
	Len  int32
	Text [480]byte
}

const (
	stepOK = iota
	stepDamaged
	stepFatal
)

func resultOf(err error) stepResult {
	var v stepResult
	switch {
	case err == nil:
		return v
	case errors.Is(err, ErrCorrupt), errors.Is(err, syscall.EIO), errors.Is(err, errUnsafe):
		v.Code = stepDamaged
	default:
		v.Code = stepFatal
	}
	v.Len = int32(copy(v.Text[:], err.Error()))
	return v
}

// errUnsafe says that messages crossed a checkpoint that was taken without
// coordination.
var errUnsafe = errors.New("the point was not safe")

// agree tells all ranks how a step went here. It returns nil if it went well
// everywhere. Otherwise it returns a rank on which the step failed, the same on
// all ranks, and an error: this rank's own if it is as bad, otherwise that of
// the returned rank. The error wraps ErrCorrupt if all ranks can skip the
// checkpoint.
func (t *peers) agree(mine error) (worst int, err error) {
	all := make([]stepResult, t.world.Size())
	if err := mpi.Allgather(t.world, []stepResult{resultOf(mine)}, all); err != nil {
		return 0, errors.Join(mine, err)
	}
	for r, v := range all {
		if v.Code > all[worst].Code {
			worst = r
		}
	}
	w := all[worst]
	text := string(w.Text[:max(0, min(int(w.Len), len(w.Text)))])
	switch {
	case w.Code == stepOK:
		return 0, nil
	case worst == t.engine.Rank():
		if w.Code == stepDamaged && !errors.Is(mine, ErrCorrupt) {
			mine = fmt.Errorf("%w: %w", ErrCorrupt, mine)
		}
		return worst, mine
	case w.Code == stepDamaged:
		return worst, &remoteError{fmt.Sprintf("on rank %d: %s", worst, text), ErrCorrupt}
	case w.Code == all[t.engine.Rank()].Code:
		return worst, mine
	default:
		return worst, fmt.Errorf("rank %d cannot restore: %s", worst, text)
	}
}

// remoteError is an error of another rank.
type remoteError struct {
	text string
	is   error
}

func (r *remoteError) Error() string { return r.text }
func (r *remoteError) Unwrap() error { return r.is }

// gather gives every rank's list to all ranks.
func gather[T any](t *peers, mine []T) ([][]T, error) {
	n := t.world.Size()
	counts, displs := make([]int, n), make([]int, n)
	if err := mpi.Allgather(t.world, []int{len(mine)}, counts); err != nil {
		return nil, err
	}
	total := 0
	for r, c := range counts {
		displs[r] = total
		total += c
	}
	flat := make([]T, total)
	if err := mpi.Allgatherv(t.world, mine, flat, counts, displs); err != nil {
		return nil, err
	}
	out := make([][]T, n)
	for r, c := range counts {
		out[r] = flat[displs[r] : displs[r]+c]
	}
	return out, nil
}

// restore loads the newest checkpoint that all ranks can load. It returns nil
// if there never was one.
func (t *peers) restore(ctx context.Context, indices []uint64) (*ckpt.Table, error) {
	p := t.run
	var bad []error
	any := []int{0}
	if p.hasOptional() || p.stored.only {
		any[0] = 1
	}
	if err := mpi.Allreduce(t.world, any, any, mpi.Max); err != nil {
		return nil, err
	}
	careful, skip := any[0] == 1, make(map[uint64]bool)
	for {
		var have []uint64
		for _, n := range indices {
			if !p.damaged[n] && !skip[n] {
				have = append(have, n)
			}
		}
		all, err := gather(t, have)
		if err != nil {
			return nil, err
		}
		line, ok := coord.Line(all)
		if !ok {
			return nil, t.checkFreshStart(bad, all)
		}
		// Changes of files that are undone for an older checkpoint stay undone.
		worst, err := t.examine(ctx, line, careful || p.onChoose != nil && len(bad) > 0)
		if err == nil {
			if err := p.callOnChoose(line); err != nil {
				return nil, err
			}
			var table *ckpt.Table
			if table, worst, err = t.load(ctx, line); err == nil {
				t.warnMissing(all, line)
				for _, n := range have {
					if n > line { // not all ranks have it
						p.damaged[n] = true
					}
				}
				p.lastCommitted = line
				return table, t.restoreInflight()
			}
		}
		if !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		skip[line] = true
		if errors.Is(err, ErrCorrupt) && !errors.Is(err, syscall.EIO) { // it may be temporary: keep the checkpoint
			p.damaged[line] = !errors.Is(err, errOtherRun)
		}
		bad = append(bad, err)
		if worst == t.engine.Rank() { // one rank warns for all
			p.tellDamaged(line, err)
			p.log.Warn("cairn: skipping a damaged checkpoint", "checkpoint", line, "rank", worst, "error", err, "next", "an older checkpoint is tried; 'cairn verify' reports the damage")
		}
	}
}

// load loads a checkpoint on all ranks. It returns what agree does.
func (t *peers) load(ctx context.Context, line uint64) (table *ckpt.Table, worst int, err error) {
	p := t.run
	table, err = p.load(ctx, line)
	mine := err
	if worst, err = t.agree(err); err == nil {
		worst, err = t.agree(noOlderHelps(t.shareSizes(), p.dir.File(line)))
	}
	if err == nil { // no rank truncates a file before all have checked
		worst, err = t.agree(noOlderHelps(p.files.check(), p.dir.File(line)))
	}
	if err == nil {
		worst, err = t.agree(noOlderHelps(p.files.apply(p.phase == phaseRunning), p.dir.File(line)))
	}
	if err != nil {
		if mine == nil {
			p.files.abandon()
		}
		t.engine.Lock()
		t.engine.RestoreInflight(nil, true)
		t.engine.Unlock()
	}
	return table, worst, err
}

// warnMissing warns if a committed checkpoint has lost a file and an older one
// is taken.
func (t *peers) warnMissing(lists [][]uint64, line uint64) {
	if t.engine.Rank() != 0 {
		return
	}
	l, err := t.run.dir.Line()
	if err != nil || l.Index <= line || t.run.damaged[l.Index] {
		return
	}
	for r, list := range lists {
		if !slices.Contains(list, l.Index) {
			t.run.log.Warn("cairn: skipping a checkpoint that has lost a file", "checkpoint", l.Index, "rank", r, "taken", line,
				"next", "the run resumes from the older one and computes the rest again")
			return
		}
	}
}

// checkFreshStart returns an error if a run that found no checkpoint may not
// start from the beginning.
func (t *peers) checkFreshStart(bad []error, lists [][]uint64) error {
	var err error
	if t.recordsLine() {
		l, lerr := t.run.dir.Line()
		switch {
		case len(bad) > 0:
			err = t.run.permanent(bad, joinInLine(bad))
		case errors.Is(lerr, store.ErrLine):
			err = lerr
		case lerr != nil:
			err = lerr
		case l.Index > 0 && l.Ranks != t.engine.Size():
			err = fmt.Errorf("%s: %w: checkpoint %d was saved by a run of %d ranks, and this one has %d: start as many, or use another directory", t.run.dir.Path(), ErrMismatch, l.Index, l.Ranks, t.engine.Size())
		case l.Index > 0 && len(t.run.identity.Avoid) > 0:
			err = fmt.Errorf("the checkpoints %v are in quarantine because the program failed with them again and again, and no other is left: 'cairn run --quarantine 0' tries them once more", t.run.identity.Avoid)
		case l.Index > 0:
			err = fmt.Errorf("checkpoint %d was complete on all %d ranks, and is not any more%s", l.Index, l.Ranks, t.missingOn(lists, l.Index))
		}
		if err != nil && !errors.Is(err, ErrMismatch) && !(t.run.told() && len(bad) > 0) { // a supervisor may find another copy
			err = fmt.Errorf("no checkpoint in %s can be loaded by all ranks; to start over, move that directory away: %w", t.run.dir.Path(), err)
		}
	}
	if err != nil {
		err = notCorrupt{err}
	}
	_, err = t.agree(err)
	if n, ok := err.(notCorrupt); ok {
		err = n.error
	}
	return err
}

// missingOn names a rank that lacks a checkpoint which others have.
func (t *peers) missingOn(lists [][]uint64, index uint64) string {
	for r, list := range lists {
		if !slices.Contains(list, index) {
			return fmt.Sprintf(": rank %d has no file of it", r)
		}
	}
	return ""
}

// joinInLine joins errors in one line.
func joinInLine(errs []error) error {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return &remoteError{strings.Join(texts, "; "), errs[0]}
}

// notCorrupt is an error after which there is no older checkpoint to take.
type notCorrupt struct{ error }

// noOlderHelps adds the file to an error, and marks that no older checkpoint
// helps.
func noOlderHelps(err error, path string) error {
	if err == nil {
		return nil
	}
	return notCorrupt{fmt.Errorf("%s: %w", path, err)}
}

// examine checks whether all ranks' parts of a checkpoint can be loaded, as far
// as that can be seen without changing anything; if careful is set, also
// whether all blocks are intact. It returns what agree does.
func (t *peers) examine(ctx context.Context, index uint64, careful bool) (worst int, err error) {
	s, err := ckpt.Open(t.run.dir.FS(), t.run.dir.File(index))
	if err == nil {
		defer s.Close()
		_, _, err = t.run.checkFits(s)
		if err == nil && careful {
			err = t.run.verify(ctx, s)
		}
	}
	if worst, err = t.agree(err); err != nil {
		return worst, err
	}
	if worst, err = t.sameAttempt(s); err != nil {
		return worst, err
	}
	sent, received := make([]uint64, t.world.Size()), make([]uint64, t.world.Size())
	copy(sent, s.Header.Sent)
	copy(received, s.Header.Received)
	advice := ""
	if t.run.opts.SafePoints {
		advice = "; take it with the other ranks, without Options.SafePoints"
	}
	theirs := make([]uint64, len(sent))
	if err := mpi.Alltoall(t.world, sent, theirs); err != nil {
		return 0, err
	}
	for r := range theirs {
		if theirs[r] != received[r] {
			err = fmt.Errorf("%w: %s: rank %d had sent %d messages to rank %d, which had received %d: they crossed the point at which checkpoint %d was taken%s", errUnsafe, s.Path, r, theirs[r], t.engine.Rank(), received[r], index, advice)
			break
		}
	}
	return t.agree(err)
}

// restoreInflight puts back what was in flight.
func (t *peers) restoreInflight() error {
	e := t.engine
	e.Contexts(t.inflight.Contexts)
	e.Lock()
	defer e.Unlock()
	return e.RestoreInflight(t.inflight.Messages, false)
}
