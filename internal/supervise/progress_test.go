//go:build linux

package supervise

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// goes is a planned attempt: from a checkpoint (0: the beginning), with
// checkpoints at these seconds after it, and a failure after that many seconds.
type goes struct {
	from   uint64
	saves  []float64
	fails  float64
	killed bool
	hidden bool // its checkpoints are not reported
}

// failures plays attempts. It returns the number of consecutive failures after
// each of them.
func failures(list []goes) (out []int) {
	var w progress
	index, n := uint64(0), 0
	start := time.Now()
	for _, g := range list {
		a := &attempt{phase: launched, since: start, failure: &failure{own: !g.killed}}
		if g.from > 0 {
			w.began(a, g.from)
			a.restored = &g.from
			a.since = start
			if w.computed[g.from] == 0 {
				panic("a checkpoint without a time")
			}
		}
		after := func(s float64) time.Time { return start.Add(time.Duration(s * 1e9)) }
		for _, s := range g.saves {
			if index++; !g.hidden && w.saved(a, index, after(s)) {
				n = 0
			}
		}
		a.failed = after(g.fails)
		n++
		w.failed(a)
		out = append(out, n)
	}
	return out
}

// TestProgress_Attempts checks after which failures the program is considered
// stuck at one place.
func TestProgress_Attempts(t *testing.T) {
	for name, c := range map[string]struct {
		attempts []goes
		want     []int
	}{
		"one place": {[]goes{{0, []float64{100, 200}, 250, false, false}, {2, nil, 50, false, false}, {2, nil, 52, false, false}, {2, nil, 51, false, false},
			{1, []float64{100}, 150, false, false}, {3, nil, 50, false, false}, {1, []float64{100}, 160, false, false}, {4, nil, 49, false, false}}, []int{1, 2, 3, 4, 5, 6, 7, 8}},
		"one place, and a slow computer": {[]goes{{0, []float64{100, 200}, 250, false, false}, {1, []float64{100, 200}, 280, false, false}, {4, nil, 80, false, false}}, []int{1, 2, 3}},
		"one place, within moments": {[]goes{{0, []float64{0.05, 0.1}, 0.11, false, false}, {2, nil, 0.3, false, false}, {1, []float64{0.05, 0.3}, 0.31, false, false}, {4, nil, 0.1, false, false}},
			[]int{1, 2, 3, 4}},
		"one place, sets of the dead": {[]goes{{0, []float64{100}, 150, false, false}, {1, []float64{49}, 50, false, true}, {2, nil, 1, false, false}, {2, nil, 1, false, false}}, []int{1, 2, 3, 4}},
		"here and there":              {[]goes{{0, []float64{100}, 150, false, false}, {1, []float64{100, 200}, 290, false, false}, {3, []float64{100}, 190, false, false}, {4, []float64{100}, 120, false, false}}, []int{1, 1, 2, 1}},
		// Every attempt gets one checkpoint further, and fails shortly before
		// the next.
		"at regular times": {[]goes{{0, []float64{100}, 195, false, false}, {1, []float64{100}, 195, false, false}, {2, []float64{100}, 195, false, false}, {3, []float64{100}, 195, false, false},
			{4, []float64{100}, 195, false, false}, {5, []float64{100}, 195, false, false}}, []int{1, 2, 1, 2, 1, 2}},
		"killed": {[]goes{{0, []float64{1}, 1.1, true, false}, {1, []float64{1}, 1.1, true, false}, {2, nil, 1, true, false}, {2, []float64{1}, 1.1, true, false}}, []int{1, 1, 2, 1}},
	} {
		if got := failures(c.attempts); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// TestProgress_SamePlaceGivenUp has a program that always fails at one place.
// Its checkpoints are quarantined and made again, and it is given up
// nevertheless.
func TestProgress_SamePlaceGivenUp(t *testing.T) {
	o := options(t, 1, "exit:0:13:0")
	o.Retries, o.Quarantine = 4, 1
	l := begin(t, o)
	l.ends(rundir.Failed, 3).says("checkpoint 2 quarantined", "restored checkpoint 1", "checkpoint 3 committed", "checkpoint 3 quarantined", "(4th of 4)", "5 failures in a row without progress")
	if l.last.Attempt != 5 {
		t.Errorf("%d starts", l.last.Attempt)
	}
}

// TestQuarantine_CheckpointRemoved shows that checkpoints which do not exist
// any more are removed from the quarantine.
func TestQuarantine_CheckpointRemoved(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "ckpt-00000002"), 0o700); err != nil {
		t.Fatal(err)
	}
	told := []uint64{1, 2, 3}
	s := &Supervisor{rec: &rundir.Record{CheckpointDir: dir, Quarantined: told}}
	s.forgetRemoved()
	if !slices.Equal(s.rec.Quarantined, []uint64{2}) || !slices.Equal(told, []uint64{1, 2, 3}) {
		t.Errorf("%v, %v", s.rec.Quarantined, told)
	}
}

// TestStop_NoCheckpoint shows that a run which is stopped before its first
// checkpoint does not claim that it can be resumed.
func TestStop_NoCheckpoint(t *testing.T) {
	o := options(t, 1, "hang:0:3:1")
	o.Grace = 100 * time.Millisecond
	l := begin(t, o)
	l.reaches(0, 3)
	l.s.Stop("interrupted")
	l.ends(rundir.Stopped, UnsavedStatus).says("stopped: interrupted; but the state could NOT be saved, and the work since the beginning is lost")
	l = begin(t, o)
	l.ends(rundir.Finished, 0).says("started again from the beginning: 1 rank on localhost:1")
	exact(t, o, 20)
}

// TestProgress_UnheardCommit shows that a committed checkpoint is progress even
// if the rank that should report it was killed before.
func TestProgress_UnheardCommit(t *testing.T) {
	dir := t.TempDir()
	for _, index := range []string{"ckpt-00000002", "ckpt-00000003"} {
		if err := os.Mkdir(filepath.Join(dir, index), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, index, "rank-0000.h5"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	restored := uint64(2)
	for _, c := range []struct {
		reached  uint64
		aside    []uint64
		failures int
	}{{2, nil, 0}, {3, nil, 1}, {2, []uint64{3}, 1}} {
		now := time.Now()
		a := &attempt{phase: launched, kept: true, restored: &restored, since: now, failed: now.Add(time.Second), failure: new(failure)}
		s := &Supervisor{rec: &rundir.Record{CheckpointDir: dir, Quarantined: c.aside}, n: 1, setbacks: setbacks{reached: c.reached, failures: 1}}
		if s.unheard(a); s.failures != c.failures || a.unreportedCommit != (c.failures == 0) {
			t.Errorf("%+v: %d failures, unheard %v", c, s.failures, a.unreportedCommit)
		}
	}
}
