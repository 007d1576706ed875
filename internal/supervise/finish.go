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

// finish ends a run whose ranks have all ended well, with an exit status;
// discard says that the ranks need their checkpoints no more. That is recorded,
// durably, before anything is done about it: from then on the ranks are never
// started again, and whoever comes after a crash completes the end.
func (s *Supervisor) finish(status int, discard bool) (Result, error) {
	step.At("finish.begin")
	s.state = Finishing
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

// complete does what is left to do for ranks that have finished. All of it may
// have been done before.
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

// completeEarlier completes the end of a run whose supervisor was killed on the
// way, or could not write.
func (s *Supervisor) completeEarlier() (res Result, err error) {
	s.state, s.owned = Finishing, true
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

// incomplete says that the end of the run could not be completed, and why.
func (s *Supervisor) incomplete(err error) Result {
	res := Result{State: Finishing, Status: UnsavedStatus,
		Why: fmt.Sprintf("the ranks have finished, but their output could not be put together: %v; it is in %s; the same command does that, without starting them again", err, s.o.RankOutput)}
	s.why, s.rec.Why = res.Why, res.Why
	s.say("%s", res.Why)
	s.save()
	return res
}

// recordFinished records that nothing is left to do: the output was shown, and
// nobody waits for anything. FormerDirs here on the same command begins a new run, so
// this comes as late as it can: who is killed before has not told how the run
// ended, and the same command tells it.
func (s *Supervisor) recordFinished() {
	step.At("finish.shown")
	s.rec.State = Finished
	if err := s.record(); err != nil { // the same command completes the end once more
		s.say("that the run has finished could not be recorded: %v", err)
	}
}

// putTogether lets the sink finish, and serves requests meanwhile. If it has to
// wait for who reads the output, a stop ends that.
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

// syncPath makes a file, or the names in a directory, durable. There need not be
// one.
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

// showRest shows what ranks that have ended have written and nobody has seen.
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

// syncNew makes a file durable that may be new in its directory. Pipes and
// devices have nothing to make durable.
func syncNew(f *os.File) error {
	if !regular(f) {
		return nil
	}
	return errors.Join(f.Sync(), syncPath(filepath.Dir(f.Name())))
}
