//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// finish ends a run whose ranks have all ended well, with an exit status. If
// discard is set, the checkpoints are not needed any more. finish first records
// this durably: from then on the ranks never start again, and after a crash the
// next start completes the end.
func (s *Supervisor) finish(status int, discard bool) (Result, error) {
	step.At("finish.begin")
	s.happens(finishEvent)
	err := syncOutput(s.o.RankOutput)
	if err == nil {
		err = s.recordFinishing(status, discard)
	}
	if err != nil {
		s.rec.State = Running
		return s.end(Result{State: Failed, Status: UnsavedStatus,
			Why: fmt.Sprintf("the ranks have finished, but that could not be recorded: %v; the same command resumes from their last checkpoint", err)})
	}
	step.At("finish.recorded")
	return s.complete()
}

func (s *Supervisor) recordFinishing(status int, discard bool) error {
	s.rec.State, s.rec.Status, s.rec.Discard, s.rec.Why = Finishing, status, discard, ""
	return s.record()
}

// complete writes the output of ranks that have finished and discards their
// checkpoints. It may repeat what an earlier supervisor did.
func (s *Supervisor) complete() (Result, error) {
	if err := s.putTogether(); err != nil {
		return s.incomplete(err), nil
	}
	step.At("finish.output")
	if s.rec.Discard {
		if err := store.Clear(s.dir.fs, s.rec.CheckpointDir); err != nil { // the next run does
			s.say("the checkpoints of the finished run could not be removed: %v", err)
		}
	}
	step.At("finish.discarded")
	return s.end(Result{State: Finished, Status: s.rec.Status})
}

// completeEarlier completes the end of a run whose supervisor was killed
// meanwhile, or could not write.
func (s *Supervisor) completeEarlier() (res Result, err error) {
	s.happens(finishEvent)
	s.owned = true
	s.say("the ranks have finished before; their end is completed, and they are not started again")
	if s.sink, err = newSink(&s.o, s.n); err != nil {
		return s.incomplete(err), nil
	}
	defer s.sink.close()
	if err := s.sink.showRest(); err != nil {
		return s.incomplete(err), nil
	}
	return s.complete()
}

// incomplete reports why the end of the run could not be completed.
func (s *Supervisor) incomplete(err error) Result {
	res := Result{State: Finishing, Status: UnsavedStatus,
		Why: fmt.Sprintf("the ranks have finished, but their output could not be put together: %v; it is in %s; the same command does that, without starting them again", err, s.o.RankOutput)}
	s.why, s.rec.Why = res.Why, res.Why
	s.say("%s", res.Why)
	s.save()
	return res
}

// recordFinished records that the run is complete: all output was shown. From
// here on the same command begins a new run. So this comes last: if the
// supervisor is killed before, the same command reports how the run ended.
func (s *Supervisor) recordFinished() {
	step.At("finish.shown")
	s.rec.State = Finished
	if err := s.record(); err != nil { // the same command completes the end once more
		s.say("that the run has finished could not be recorded: %v", err)
	}
}

// putTogether finishes the output, and serves requests meanwhile. If it waits for
// a reader of the output, a stop ends the wait.
func (s *Supervisor) putTogether() (err error) {
	done, stopping := false, s.stopping
	go func() {
		e := s.sink.finish()
		s.post(func() { done, err = true, e })
	}()
	s.until(context.Background(), func() bool {
		if s.stopping && !stopping {
			stopping = true
			s.sink.hasten(true)
			s.sink.closeLive()
		}
		return done
	}, nil)
	return err
}

// syncOutput makes the ranks' output files durable.
func syncOutput(dir string) error {
	names, err := rankFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range append(names, dir) {
		if err := syncPath(name); err != nil {
			return err
		}
	}
	return nil
}

// syncPath makes a file, or the names in a directory, durable. It need not
// exist.
func syncPath(name string) error {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// showRest shows the output of ended ranks that was not shown yet.
func (k *sink) showRest() error {
	const most = 64 << 10
	for r := range k.ranks {
		for i := range k.ranks[r] {
			f, err := vfs.OpenPrivate(outputFile(k.o.RankOutput, r, i+1), os.O_RDONLY)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			for at := k.position(r)[i]; ; {
				data := make([]byte, most)
				n, _ := f.ReadAt(data, at)
				if n == 0 {
					break
				}
				k.take(piece{from: &control.FromRank{Process: control.Process{Rank: r}}, Output: &control.Output{Stream: i + 1, Offset: at, Data: data[:n]}})
				at += int64(n)
			}
			f.Close()
		}
	}
	return nil
}

// syncNew makes a file and its name durable. It ignores pipes and devices.
func syncNew(f *os.File) error {
	if !regular(f) {
		return nil
	}
	return errors.Join(f.Sync(), syncPath(filepath.Dir(f.Name())))
}
