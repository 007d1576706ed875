package engine

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
)

// EnvFresh is the environment variable that says what Options.Fresh does.
const EnvFresh = "CAIRN_FRESH"

// FinishedError is what Open returns for a run that has finished. It is an
// ErrFinished.
type FinishedError struct {
	Dir    string
	Status int // the program's exit status, where that is known; else 0
	Time   time.Time
}

func (e *FinishedError) Error() string {
	return fmt.Sprintf("%s: %v (%s); to start over, set Options.Fresh, or %s=1 in the environment", e.Dir, ErrFinished, e.Time.Format(time.DateTime), EnvFresh)
}

func (e *FinishedError) Unwrap() error { return ErrFinished }

// Finish says that the work is done: Close records that, and then removes the
// checkpoints. The next Open returns ErrFinished, unless there is consent to
// start over (Options.Fresh).
func (p *Run) Finish() { p.finished = !p.adopted }

// FinishWith is Finish for a program that ends with an exit status; it is for
// programs that 'cairn build' made.
func (p *Run) FinishWith(status int) {
	p.Finish()
	p.status = status
}

// Fresh reports whether the run was started over: what the directory held of an
// earlier one was discarded.
func (p *Run) Fresh() bool { return p.opts.Fresh }

// readFresh takes in whether the user wants to start over.
func (o *Options) readFresh(s *identity) {
	if s.supervisor != nil {
		o.Fresh = s.Fresh // the supervisor says it at the first start only
	} else if v := os.Getenv(EnvFresh); v != "" && v != "0" {
		o.Fresh = true
	}
}

// checkEnded looks at how an earlier run in the directory ended. A run that has
// finished is not started again without consent. With consent, or after a crash
// while an earlier run was being discarded, it discards what is left of it.
//
// The ranks of a run need not agree here: each looks at the same record, and
// removes what is its own.
func (p *Run) checkEnded() error {
	if p.isDestination() {
		return nil
	}
	end, err := p.dir.End()
	switch {
	case p.opts.Fresh || err == nil && end != nil && end.State == store.Discarded:
		return p.discard()
	case err != nil:
		return fmt.Errorf("%w; a run in this directory has ended, so nothing is started; to start over, set Options.Fresh, or %s=1 in the environment", err, EnvFresh)
	case end == nil:
		return nil
	}
	if p.identity.Rank == 0 { // a crash may have come while it did this
		if err := store.Clear(p.dir.FS(), p.dir.Path()); err != nil {
			return fmt.Errorf("removing the checkpoints of a finished run: %w", err)
		}
	}
	return &FinishedError{p.dir.Path(), end.Status, end.Time}
}

// discard removes what the directory holds of an earlier run: all of it for one
// rank, else this rank's part. It is recorded first, so that a crash on the way
// leaves nothing that a later start would take for a whole run.
func (p *Run) discard() error {
	fsys, dir := p.dir.FS(), p.dir.Path()
	if p.identity.Rank == 0 {
		there, err := store.Holds(fsys, dir)
		if err == nil && there {
			err = p.dir.SetEnd(store.Discarded, 0)
		}
		if err == nil {
			step.At("discard.recorded")
			err = p.dir.RemoveLine()
		}
		if err != nil {
			return err
		}
	}
	var err error
	if p.identity.Size == 1 {
		err = store.Clear(fsys, dir)
	} else {
		_, err = p.dir.Prune(0, nil)
	}
	if err != nil {
		return fmt.Errorf("discarding an earlier run: %w", err)
	}
	if p.identity.Rank == 0 {
		return p.dir.RemoveEnd()
	}
	return nil
}

// finish ends a run whose work is done. It is recorded, durably, before any
// checkpoint is removed: a crash on the way leaves a run that has finished, or
// one that resumes from its last checkpoint, and never one that starts from the
// beginning. A supervisor does that when all ranks have ended well. Of several
// ranks rank 0 does it for all, which write no more.
func (p *Run) finish() error {
	if err := p.files.sync(); err != nil {
		return fmt.Errorf("cairn: %w; the run has not finished", err)
	}
	if p.identity.supervisor != nil {
		p.identity.supervisor.send(&control.Finished{})
		return nil
	}
	if p.identity.Rank != 0 {
		return nil
	}
	step.At("finish.begin")
	if err := p.dir.SetEnd(store.Finished, p.status); err != nil {
		return fmt.Errorf("cairn: %w; its checkpoints are kept", err)
	}
	step.At("finish.recorded")
	if err := store.Clear(p.dir.FS(), p.dir.Path()); err != nil {
		return fmt.Errorf("cairn: removing the checkpoints of a finished run: %w", err)
	}
	step.At("finish.discarded")
	return nil
}

// sync makes what was written to the data files durable.
func (t *fileTable) sync() error {
	for _, o := range t.open {
		if o.entry.Mode == "r" {
			continue
		}
		if err := o.f.Sync(); err != nil && !errors.Is(err, os.ErrClosed) {
			return fmt.Errorf("data file: %w", err)
		}
	}
	return nil
}

// vanished is the error of a run that has saved checkpoints and finds none.
func (p *Run) vanished() error {
	return fileMismatch(fmt.Sprintf("checkpoint %d of this run was committed, but there is none in %s any more: bring that directory back (is its file system mounted?), or start over with --fresh", p.identity.Expect, p.dir.Path()))
}

// errorText is what an error says to a supervisor; nothing if there is none.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "cairn: ")
}
