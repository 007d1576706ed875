package engine

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// TestDue_BeforePoint: a program that calls Due before Point misses no
// checkpoint.
func TestDue_BeforePoint(t *testing.T) {
	var told atomic.Int32
	dir := t.TempDir()
	p, err := Open(t.Context(), Options{Dir: dir, EveryPoints: 3, Signals: map[os.Signal]SignalAction{}, OnDue: func() { told.Add(1) }})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !p.Due() || !p.CountsPoints() || told.Load() == 0 { // the first point looks whether all is well
		t.Error("nothing is due at first", p.Due(), p.CountsPoints(), told.Load())
	}
	var saved []int
	for x = 1; x <= 12; x++ {
		if !p.Due() {
			p.PassPoint()
			continue
		}
		before := p.current.Index
		if err := p.Point(t.Context()); err != nil {
			t.Fatal(err)
		}
		if p.current.Index != before {
			saved = append(saved, x)
			if err := p.awaitWriter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(saved) != 4 || saved[0] != 3 || saved[3] != 12 {
		t.Errorf("saved at %v, not at every third point", saved)
	}
	if p.points != 12 {
		t.Errorf("%d points were counted", p.points)
	}
	p.opts.EveryPoints = 0
	p.schedule()
	if p.wake.Store(false); p.Due() || p.CountsPoints() {
		t.Error("something is due")
	}
	n := told.Load()
	if p.Request(); !p.Due() || told.Load() != n+1 {
		t.Error("a request makes nothing due, or tells nobody")
	}
}

// TestPoint_LongPause: what has stopped the program before Point is part of the
// pause, and the program gets as much time before the next checkpoint.
func TestPoint_LongPause(t *testing.T) {
	p, err := Open(t.Context(), Options{Dir: t.TempDir(), Every: time.Millisecond, Signals: map[os.Signal]SignalAction{}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	x := 0
	Protect(p, "x", &x)
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.StoppedSince(time.Now().Add(-time.Hour))
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.StoppedSince(time.Time{})
	if got := p.current.Pause; got < time.Hour || got > 2*time.Hour {
		t.Errorf("the pause is %v, not an hour", got)
	}
	if d := time.Until(p.dueAt); d < 30*time.Minute {
		t.Errorf("the next checkpoint is due in %v", d)
	}
}

// TestOpenFile_AfterFilesClaimed: after FilesClaimed, OpenFile opens a new
// file.
func TestOpenFile_AfterFilesClaimed(t *testing.T) {
	dir, name := t.TempDir(), filepath.Join(t.TempDir(), "log")
	start := func() *Run {
		p, err := Open(t.Context(), Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	open := func(p *Run) *os.File {
		f, err := p.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	p := start()
	var f *os.File
	Protect(p, "f", &f)
	if _, err := p.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	f = open(p)
	if err := p.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Close()
	f.Close()
	for _, claimed := range []bool{false, true} {
		p := start()
		var f *os.File
		Protect(p, "f", &f)
		if ok, err := p.Restore(t.Context()); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if claimed {
			p.FilesClaimed()
		}
		g := open(p)
		if (f == g) == claimed {
			t.Errorf("claimed: %v; the same file: %v", claimed, f == g)
		}
		p.Close()
		f.Close()
		g.Close()
	}
}
