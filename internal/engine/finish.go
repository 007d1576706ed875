package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
)

// EnvFresh is the environment variable with the effect of Options.Fresh.
const EnvFresh = "CAIRN_FRESH"

// FinishedError is the error of Open for a run that has finished. It wraps
// ErrFinished.
type FinishedError struct {
	Dir    string
	Status int // the program's exit status, where that is known; else 0
	Time   time.Time
}

func (e *FinishedError) Error() string {
	return fmt.Sprintf("%s: %v (%s); to start over, set %s=1 in the environment, or Options.Fresh in a Go program", e.Dir, ErrFinished, e.Time.Format(time.DateTime), EnvFresh)
}

func (e *FinishedError) Unwrap() error { return ErrFinished }

// Finish marks the work as done; see cairn.Run.Finish.
func (p *Run) Finish() { p.FinishWith(0) }

// FinishWith is Finish for a program that ends with an exit status.
func (p *Run) FinishWith(status int) {
	if p.exit = &status; p.adopted {
		p.exit = nil
	}
}

// Fresh reports whether Open has discarded an earlier run.
func (p *Run) Fresh() bool { return p.opts.Fresh }

// readFresh sets Fresh if the supervisor or the environment says so.
func (o *Options) readFresh(s *identity) {
	if s.supervisor != nil {
		o.Fresh = s.Fresh // the supervisor sets it at the first start only
	} else if v := os.Getenv(EnvFresh); v != "" && v != "0" {
		o.Fresh = true
	}
	if o.Driver != nil && o.Driver.Running {
		o.Fresh = false // the checkpoints are those of the running program
	}
}

// checkDirectory finds out whether the run in the directory has ended, and if
// ranks have different directories, whether these fit together.
func (p *Run) checkDirectory(ctx context.Context) error {
	switch {
	case p.isDestination():
		return nil
	case p.together():
		return p.agreeOnDirectories(ctx)
	}
	return p.checkEnd(p.dir.End())
}

// checkEnd returns an error if the run in the directory has finished. If Fresh
// is set, or if a crash interrupted a discard, it discards what is left
// instead.
//
// The ranks of a run need not agree here: all look at the same record, or have
// compared theirs, and each removes its own files.
func (p *Run) checkEnd(end *store.End, err error) error {
	switch {
	case p.opts.Fresh || err == nil && end != nil && end.State == store.Discarded:
		return p.discard()
	case err != nil:
		return fmt.Errorf("%w; a run in this directory has ended, so nothing is started; to start over, set %s=1 in the environment, or Options.Fresh in a Go program", err, EnvFresh)
	case end == nil:
		return nil
	}
	if p.leads { // a crash may have interrupted this
		if err := p.endHere(end.Status); err != nil {
			return err
		}
	}
	return &FinishedError{p.dir.Path(), end.Status, end.Time}
}

// endHere records that the run has finished, and removes its checkpoints, of
// all ranks in this directory.
func (p *Run) endHere(status int) error {
	if end, err := p.dir.End(); err != nil || end == nil || end.State != store.Finished {
		if err := p.dir.SetEnd(store.Finished, status); err != nil {
			return fmt.Errorf("%w; its checkpoints are kept", err)
		}
	}
	step.At("finish.recorded")
	if err := store.Clear(p.dir.FS(), p.dir.Path()); err != nil {
		return fmt.Errorf("removing the checkpoints of a finished run: %w", err)
	}
	step.At("finish.discarded")
	return nil
}

// discard removes what the directory holds of an earlier run: everything if
// there is one rank, otherwise this rank's part. It first records that the run
// is discarded, so that a later start does not mistake what a crash leaves for
// a whole run.
func (p *Run) discard() error {
	fsys, dir := p.dir.FS(), p.dir.Path()
	if p.leads {
		there, err := store.Holds(fsys, dir)
		if err == nil && there {
			err = p.dir.SetEnd(store.Discarded, 0)
		}
		if err == nil {
			step.At("discard.recorded")
		}
		if err != nil {
			return err
		}
	}
	var err error
	if p.identity.Rank == 0 || p.opts.PerHost {
		if err := p.dir.RemoveLine(); err != nil {
			return err
		}
	}
	if p.identity.Size == 1 {
		err = store.Clear(fsys, dir)
	} else {
		_, err = p.dir.Prune(0, nil)
	}
	if err != nil {
		return fmt.Errorf("discarding an earlier run: %w", err)
	}
	if p.leads {
		return p.dir.RemoveEnd()
	}
	return nil
}

// finish ends a run whose work is done. It records that durably before it
// removes any checkpoint: after a crash the run has finished, or resumes from
// its last checkpoint; it never starts from the beginning. If there is a
// supervisor, it does both when all ranks have ended well. Otherwise rank 0
// does both for all ranks, or with a directory per host, one rank of each host.
func (p *Run) finish() error {
	if err := p.files.sync(); err != nil {
		return fmt.Errorf("cairn: %w; the run has not finished", err)
	}
	if p.identity.supervisor != nil {
		p.identity.supervisor.send(&control.Finished{})
		return nil
	}
	if !p.leads {
		return nil
	}
	step.At("finish.begin")
	if err := p.endHere(*p.exit); err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	return nil
}

// sync makes the content of the data files durable.
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

// vanished is the error for a run that has committed checkpoints and finds
// none.
func (p *Run) vanished() error {
	return fileMismatch(fmt.Sprintf("checkpoint %d of this run was committed, but there is none in %s any more: restore that directory (is its file system mounted?), or start over with --fresh", p.identity.Expect, p.dir.Path()))
}

// errorText is the text of an error for the supervisor, "" for nil.
func errorText(err error) string {
	if err == nil {
		return ""
	}
	return strings.TrimPrefix(err.Error(), "cairn: ")
}
