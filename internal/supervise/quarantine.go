//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/cairnrun/cairn/internal/events"
)

// setbacks are the failures of a run, as far as they decide what follows.
type setbacks struct {
	failures            int    // consecutive failures without progress
	failuresBeforePoint int    // consecutive failures before the first point
	suspect             uint64 // the checkpoint that the last attempts restored
	suspectFailures     int    // how many of these attempts failed without a new checkpoint
	reached             uint64 // the newest checkpoint that was committed or restored
	progress            progress
}

// byItself reports whether the program caused a rank's end. Then the checkpoint
// that it resumed from may be the cause. A rank that is killed from outside, or
// lost with its host, says nothing about its checkpoint.
func byItself(code, signal int) bool {
	switch syscall.Signal(signal) {
	case 0:
		return code != 0
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL:
		return true
	}
	return false
}

// hasCheckpoints reports whether there is a checkpoint to resume from.
func (s *Supervisor) hasCheckpoints() bool {
	if _, ok := s.newest(); ok {
		return true
	}
	if s.local != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(s.rec.CheckpointDir, "line"))
	return err == nil
}

// newestUsable returns the newest checkpoint that all ranks have and that is
// not quarantined.
func (s *Supervisor) newestUsable(quarantined []uint64) (uint64, bool) {
	for _, c := range s.completeCheckpoints() {
		if !slices.Contains(quarantined, c.Index) {
			return c.Index, true
		}
	}
	return 0, false
}

// advanced records that a checkpoint was restored. If it is newer than all
// before, it may be progress, even if no rank reported its commit.
func (s *Supervisor) advanced(index uint64) {
	if index <= s.reached {
		return
	}
	s.reached, s.suspectFailures = index, 0
	if s.progress.further(s.a, s.a.base) {
		s.failures = 0
	}
}

// unheard looks for a checkpoint that a failed attempt has committed and no
// rank has reported, because it was killed first. It may be progress.
func (s *Supervisor) unheard(a *attempt) {
	index, ok := s.newestUsable(s.rec.Quarantined)
	if !ok || index <= s.reached || !a.begun() || a.kept && a.restored == nil {
		return
	}
	s.reached, s.suspectFailures = index, 0
	at := a.at + (a.base+a.failed.Sub(a.since)-a.at)/2
	s.progress.note(index, at)
	a.unreportedCommit = true
	if s.progress.further(a, at) {
		s.failures = 0
	}
}

// blame counts a failed attempt against the checkpoint that it resumed from, or
// was about to, and quarantines a checkpoint that has failed too often. The
// quarantine is recorded before anything is started from an older checkpoint.
func (s *Supervisor) blame(a *attempt) {
	if a.newCheckpoint || a.unreportedCommit || a.fresh || a.outside || !a.failure.own || s.o.Quarantine <= 0 {
		return
	}
	index := uint64(0)
	switch {
	case a.restored != nil:
		index = *a.restored
	case a.failure.greeted:
		var ok bool
		if index, ok = s.newestUsable(s.rec.Quarantined); !ok {
			return
		}
	default:
		return
	}
	if index != s.suspect {
		s.suspect, s.suspectFailures = index, 0
	}
	s.suspectFailures++
	if s.suspectFailures < s.o.Quarantine {
		return
	}
	old := s.rec.Quarantined
	quarantined := append(slices.Clone(old), index)
	_, left := s.newestUsable(quarantined)
	if !left {
		quarantined = nil
	}
	s.rec.Quarantined = quarantined
	if err := s.record(); err != nil {
		s.rec.Quarantined = old
		s.say("checkpoint %d is not quarantined: run.json could not be written: %v", index, err)
		return
	}
	if left {
		s.report(events.Event{Kind: events.Quarantine, Index: index}, "checkpoint %d quarantined: %d attempts from it failed without a new checkpoint", index, s.suspectFailures)
	} else {
		s.say("checkpoint %d: %d attempts from it failed without a new checkpoint, and there is no other; the newest is tried again", index, s.suspectFailures)
	}
	s.suspectFailures = 0
}

// endQuarantine clears the quarantine if all remaining checkpoints are in it.
func (s *Supervisor) endQuarantine() {
	if len(s.rec.Quarantined) == 0 {
		return
	}
	if _, ok := s.newestUsable(s.rec.Quarantined); ok {
		return
	}
	if _, ok := s.newestUsable(nil); ok {
		s.say("all remaining checkpoints are quarantined; the newest is tried again")
		s.rec.Quarantined = nil
	}
}

// forgetRemoved removes checkpoints from the quarantine that do not exist any
// more. Helpers may still have the old list, so it makes a new one.
func (s *Supervisor) forgetRemoved() {
	if s.local != nil { // which ones there are is known when ranks start
		return
	}
	s.rec.Quarantined = slices.DeleteFunc(slices.Clone(s.rec.Quarantined), func(index uint64) bool {
		_, err := os.Stat(filepath.Join(s.rec.CheckpointDir, fmt.Sprintf("ckpt-%08d", index)))
		return errors.Is(err, fs.ErrNotExist)
	})
}
