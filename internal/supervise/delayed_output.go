//go:build linux

package supervise

import (
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// delayedOutput says what of the ranks' stdout may be shown if it is delayed
// (see package output): what was printed before a secure checkpoint. A
// checkpoint is secure if the ranks never return to an older one: if it is
// committed and, in a run with tiers for the loss of hosts, a tier has it.
type delayedOutput struct {
	printed  map[uint64]map[int]int64 // sizes of stdout in checkpoints of this attempt, by rank
	secure   uint64                   // the newest secure checkpoint of this attempt
	restored int                      // ranks that have restored their checkpoint
	told     bool                     // the user was told that output is delayed
}

// tellDelayed is how long output is delayed before the user is told.
const tellDelayed = 20 * time.Second

// startDelayed begins an attempt.
func (s *Supervisor) startDelayed() {
	s.delayed.printed, s.delayed.secure, s.delayed.restored = make(map[uint64]map[int]int64), 0, 0
	if s.o.Delay && !s.delayed.told {
		s.after(tellDelayed, s.watchDelayed)
	}
}

// watchDelayed tells the user, once, that output is delayed.
func (s *Supervisor) watchDelayed() {
	since := s.sink.DelayedSince()
	if since.IsZero() || time.Since(since) < tellDelayed {
		s.after(tellDelayed, s.watchDelayed)
		return
	}
	s.delayed.told = true
	secure := "committed checkpoint"
	if len(s.tiers) > 0 {
		secure = "checkpoint on a tier"
	}
	s.say("the program's output is delayed until the next %s, because a restart could repeat it; %s has all of it; --live shows output at once, and -o FILE writes it to a file at once",
		secure, rundir.OutputFile(s.o.RankOutput, 0, control.Stdout))
}

// restoredOutput notes the size of a rank's stdout in the checkpoint that it
// has restored. When all ranks have done so, the checkpoint is committed.
func (s *Supervisor) restoredOutput(rank int, m *control.Restored) {
	s.printed(rank, m.Index, m.Stdout)
	if s.delayed.restored++; s.delayed.restored == s.n {
		s.secureOutput(m.Index, slices.ContainsFunc(s.tiers, func(t *storageTier) bool { return t.state.Index == m.Index }))
	}
}

// printed notes the size of a rank's stdout in a checkpoint.
func (s *Supervisor) printed(rank int, index uint64, size int64) {
	if size == control.NoStdout {
		return
	}
	of := s.delayed.printed[index]
	if of == nil {
		of = make(map[int]int64)
		s.delayed.printed[index] = of
	}
	of[rank] = size
	if index <= s.delayed.secure {
		s.sink.Commit(rank, size)
	}
}

// secureOutput shows what the ranks have printed before a checkpoint, if the
// checkpoint is secure now. onTier says that a tier has it.
func (s *Supervisor) secureOutput(index uint64, onTier bool) {
	if !onTier && len(s.tiers) > 0 || s.delayed.printed[index] == nil {
		return
	}
	s.delayed.secure = max(s.delayed.secure, index)
	for i, of := range s.delayed.printed {
		if i > index {
			continue
		}
		for rank, size := range of {
			s.sink.Commit(rank, size)
		}
		delete(s.delayed.printed, i)
	}
}
