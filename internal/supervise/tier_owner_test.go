//go:build linux

package supervise

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/dir"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs"
)

// TestOwnPlace lets runs have a place one after the other, and two new ones at
// the same time: whatever the order of their operations, one of them keeps it.
func TestOwnPlace(t *testing.T) {
	m := tiertest.NewMem()
	own := func(run string, isNew bool) error { return ownPlace(t.Context(), m, run, isNew) }
	if err := errors.Join(own("a", true), own("a", false), own("b", true), own("b", false)); err != nil {
		t.Fatal(err)
	}
	if err := own("a", false); !errors.Is(err, errSuperseded) || !strings.Contains(err.Error(), "another run was begun at the place") {
		t.Errorf("the run that had the place: %v", err)
	}
	if err := disown(t.Context(), m, "a"); err != nil || own("b", false) != nil {
		t.Errorf("after the end of another one: %v", err)
	}
	if err := errors.Join(disown(t.Context(), m, "b"), own("a", false)); err != nil || len(m.Names()) != 1 {
		t.Errorf("a place that is free: %v; %v", err, m.Names())
	}
	// Two at once: the second begins at each operation of the first.
	for at, end := 1, false; !end; at++ {
		m := tiertest.NewMem()
		n := 0
		var second error
		x := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
			if n++; n == at {
				second = ownPlace(t.Context(), m, "second", true)
			}
			return tiertest.None
		})
		first := ownPlace(t.Context(), x, "first", true)
		end = n < at
		if again := ownPlace(t.Context(), m, "first", false); first == nil {
			first = again
		}
		if second == nil && !end {
			second = ownPlace(t.Context(), m, "second", false)
		}
		if end {
			second = errSuperseded
		}
		if (first == nil) == (second == nil) {
			t.Errorf("at operation %d: %v; %v", at, first, second)
		}
	}
}

// TestFindOn_IgnoresClocks finds two runs at a place. It takes the one that
// owns the place, though the clock of the other one's host is years ahead.
func TestFindOn_IgnoresClocks(t *testing.T) {
	at := t.TempDir()
	x, err := dir.Open(vfs.OS(), at+"/sim", vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	ids := []string{store.NewID(), store.NewID()}
	for i, run := range ids {
		a := new(control.AttemptRecord).Next(0, store.NewID())
		a.Run, a.Ranks, a.Host, a.Pid, a.Time = run, 1, "here", 1, time.Now().AddDate(5*(1-i), 0, 0)
		a.Homes = []control.Home{{Host: "here", Dir: "d"}}
		if err := x.Create(t.Context(), "runs/"+run, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := ownPlace(t.Context(), x, run, true); err != nil {
			t.Fatal(err)
		}
		if _, err := createAttempt(t.Context(), x, a); err != nil {
			t.Fatal(err)
		}
	}
	if runs, err := tier.Runs(t.Context(), x); err != nil || len(runs) != 2 {
		t.Fatal(runs, err)
	}
	p := policy.Defaults(policy.Shared)
	p.Place = at
	s := &Supervisor{rec: &rundir.Record{Name: "sim"}}
	found, err := s.findOn(t.Context(), &p)
	if err != nil || found == nil || found.record.Run != ids[1] {
		t.Errorf("found %+v, %v", found, err)
	}
}
