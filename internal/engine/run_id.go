package engine

import (
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/mpi"
)

// runID identifies the run and the attempt that a checkpoint file belongs to.
// Every file holds it, and Restore compares it: it detects files of another
// rank, checkpoint, run or attempt, and never loads a mixture.
type runID struct {
	Run     string // of the run; also in DIR/run-id
	Attempt string // of this start of all ranks
}

// findRunID finds out which run the checkpoints of the directory belong to: by
// DIR/run-id, or by the checkpoints themselves if that file is missing or
// damaged. All ranks find the same.
func (p *Run) findRunID(indices []uint64) error {
	if p.told() {
		p.runID.Run = p.identity.RunID
		return nil
	}
	mine, err := p.ownRunID(indices)
	if p.identity.Size == 1 {
		p.runID.Run = mine.name()
		return err
	}
	t := p.peers
	if _, err := t.agree(err); err != nil {
		return err
	}
	all := make([]recordedID, t.world.Size())
	if err := mpi.Allgather(t.world, []recordedID{mine}, all); err != nil {
		return err
	}
	best := 0
	for r := range all {
		if all[r].From > all[best].From {
			best = r
		}
	}
	for r := range all {
		if all[r].From == all[best].From && all[r].Run != all[best].Run {
			return fmt.Errorf("%w: the checkpoint directory of rank %d is that of run %s, and that of rank %d is that of run %s: start all ranks with the directories of one run", ErrMismatch, best, all[best].name(), r, all[r].name())
		}
	}
	p.runID.Run = all[best].name()
	return nil
}

// recordedID is the run that a rank finds in its directory.
type recordedID struct {
	From int32 // how it was found: a larger value is more reliable
	Run  [32]byte
}

const (
	fromNothing     = iota // there are no checkpoints that can be read
	fromCheckpoints        // by their headers
	fromRecord             // by DIR/run-id
)

func (r *recordedID) name() string {
	if r.Run == [32]byte{} {
		return ""
	}
	return string(r.Run[:])
}

// ownRunID looks into this rank's directory.
func (p *Run) ownRunID(indices []uint64) (r recordedID, err error) {
	id, err := p.dir.ID()
	switch {
	case errors.Is(err, store.ErrDamaged):
		p.log.Warn("cairn: the identity of the run is taken from its checkpoints", "error", err)
	case err != nil:
		return r, err
	case id != "":
		r.From = fromRecord
		copy(r.Run[:], id)
		return r, nil
	}
	first := uint64(0)
	for _, n := range indices {
		s, err := ckpt.Open(p.dir.FS(), p.dir.File(n))
		if err != nil {
			continue // loading it reports the error
		}
		run := s.Header.Run
		s.Close()
		switch {
		case r.From == fromNothing:
			first, r.From = n, fromCheckpoints
			copy(r.Run[:], run)
		case run != r.name():
			return r, fmt.Errorf("%s: %w: checkpoint %d is of run %q, checkpoint %d of run %q, and the file run-id, which says whose directory this is, is not there: move the checkpoints of the other run away", p.dir.Path(), ErrMismatch, first, r.name(), n, run)
		}
	}
	return r, nil
}

// settleRunID records the run's ID, a new one if nothing was restored. All
// ranks have the same when it returns.
func (p *Run) settleRunID(restored bool) error {
	renew := !p.told() && (!restored || p.runID.Run == "")
	if renew {
		p.runID.Run = store.NewID()
	}
	if p.runID.Attempt = store.NewID(); p.told() {
		p.runID.Attempt = p.identity.AttemptID
	}
	var err error
	if p.identity.Rank == 0 { // first: the others may see the same directory
		if err = p.recordRunID(); err != nil && renew { // use the one that is there
			p.runID.Run, err = p.dir.ID()
		}
	}
	if p.identity.Size == 1 {
		return err
	}
	t := p.peers
	if _, err = t.agree(err); err != nil {
		return err
	}
	var both [64]byte
	copy(both[:32], p.runID.Run)
	copy(both[32:], p.runID.Attempt)
	if err := mpi.Bcast(t.world, both[:], 0); err != nil {
		return err
	}
	p.runID = runID{string(both[:32]), string(both[32:])}
	if err = nil; p.leads || !p.opts.PerHost { // only one rank can write to a directory
		err = p.recordRunID()
	}
	_, err = t.agree(err)
	return err
}

// recordRunID writes DIR/run-id if it has changed. On a full disk it may fail
// without an error: checkpoint files hold the ID as well.
func (p *Run) recordRunID() error {
	old, err := p.dir.ID()
	if err == nil && old == p.runID.Run {
		return nil
	}
	if err = p.dir.SetID(p.runID.Run); err == nil {
		return nil
	}
	if now, rerr := p.dir.ID(); rerr == nil && now == p.runID.Run || old == "" {
		p.log.Warn("cairn: the identity of the run could not be recorded", "error", err)
		return nil
	}
	return err
}

// sameAttempt checks that all ranks' files of a checkpoint are of one attempt,
// the one that the recovery line names. It returns what agree does.
func (t *peers) sameAttempt(s *ckpt.File) (worst int, err error) {
	var mine [32]byte
	copy(mine[:], s.Header.Attempt)
	all := make([][32]byte, t.world.Size())
	if err := mpi.Allgather(t.world, [][32]byte{mine}, all); err != nil {
		return 0, err
	}
	if mine != all[0] {
		err = fmt.Errorf("%s: %w: it was saved by another start of the run than rank 0's file of checkpoint %d: they do not belong together", s.Path, ErrCorrupt, s.Header.Index)
	}
	if t.recordsLine() {
		l, lerr := t.run.dir.Line()
		if lerr == nil && l.Index == s.Header.Index && l.Attempt != "" && l.Attempt != s.Header.Attempt {
			err = fmt.Errorf("%s: %w: it was saved by another start of the run than checkpoint %d, which all ranks had", s.Path, ErrCorrupt, l.Index)
		}
	}
	return t.agree(err)
}
