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
	"time"
)

// byItself reports whether a rank's end is its own doing: then the set that
// it was restored from may be at fault. Whoever is killed from outside, or
// goes down with its host, says nothing about its set.
func byItself(code, signal int) bool {
	switch syscall.Signal(signal) {
	case 0:
		return code != 0
	case syscall.SIGSEGV, syscall.SIGABRT, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL:
		return true
	}
	return false
}

// hasSets reports whether there is something that a start goes on from.
func (s *Supervisor) hasSets() bool {
	if _, _, ok := newestSet(s.rec.Sets, s.n); ok {
		return true
	}
	_, err := os.Stat(filepath.Join(s.rec.Sets, "line"))
	return err == nil
}

// newestUsable returns the newest set that all ranks have and that is not put
// aside.
func (s *Supervisor) newestUsable(aside []uint64) (uint64, bool) {
	sets, _ := wholeSets(s.rec.Sets, s.n)
	for _, set := range sets {
		if !slices.Contains(aside, set.index) {
			return set.index, true
		}
	}
	return 0, false
}

// advanced notes that a set was restored. One that is newer than all before
// may be progress, even if nobody heard of its commit.
func (s *Supervisor) advanced(set uint64) {
	if set <= s.reached {
		return
	}
	s.reached, s.faults = set, 0
	if s.headway.further(s.a, s.a.base) {
		s.failures = 0
	}
}

// unheard looks for a checkpoint that a failed attempt has committed, and nobody
// has told of: whoever was to tell may have been killed first. It may be progress.
func (s *Supervisor) unheard(a *attempt) {
	set, ok := s.newestUsable(s.rec.Aside)
	if !ok || set <= s.reached || !a.begun || a.kept && a.restored == nil {
		return
	}
	s.reached, s.faults = set, 0
	at := a.at + (a.base+a.failed.Sub(a.since)-a.at)/2
	s.headway.note(set, at)
	a.unheard = true
	if s.headway.further(a, at) {
		s.failures = 0
	}
}

// blame counts a failed attempt against the set that it went on from, or was
// about to, and puts a set aside that has failed too often. The list of sets
// put aside is recorded before anything is started from an older one.
func (s *Supervisor) blame(a *attempt) {
	if a.newSet || a.unheard || a.fresh || a.outside || !a.failure.own || s.o.Distrust <= 0 {
		return
	}
	set := uint64(0)
	switch {
	case a.restored != nil:
		set = *a.restored
	case a.failure.greeted:
		var ok bool
		if set, ok = s.newestUsable(s.rec.Aside); !ok {
			return
		}
	default:
		return
	}
	if set != s.suspect {
		s.suspect, s.faults = set, 0
	}
	s.faults++
	if s.faults < s.o.Distrust {
		return
	}
	old := s.rec.Aside
	aside := append(slices.Clone(old), set)
	_, left := s.newestUsable(aside)
	if !left {
		aside = nil
	}
	s.rec.Aside = aside
	if err := s.record(); err != nil {
		s.rec.Aside = old
		s.say("set %d is not put aside, because run.json could not be written: %v", set, err)
		return
	}
	if left {
		s.say("set %d put aside: %d starts from it failed without a new set", set, s.faults)
	} else {
		s.say("set %d: %d starts from it failed without a new set, and there is no other one left; the newest is tried again", set, s.faults)
	}
	s.faults = 0
}

// trustAgain clears the list of sets put aside when it leaves none: the
// others were removed.
func (s *Supervisor) trustAgain() {
	if len(s.rec.Aside) == 0 {
		return
	}
	if _, ok := s.newestUsable(s.rec.Aside); ok {
		return
	}
	if _, ok := s.newestUsable(nil); ok {
		s.say("all sets that are left were put aside; the newest is tried again")
		s.rec.Aside = nil
	}
}

// tidy takes sets off the list of those put aside that are gone. Helpers may
// still be told of the old list.
func (s *Supervisor) tidy() {
	s.rec.Aside = slices.DeleteFunc(slices.Clone(s.rec.Aside), func(set uint64) bool {
		_, err := os.Stat(filepath.Join(s.rec.Sets, fmt.Sprintf("set-%08d", set)))
		return errors.Is(err, fs.ErrNotExist)
	})
}

// found is a set that has a file of every rank.
type found struct {
	index uint64
	at    time.Time
}
