package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// holder has what a program gets from its run.
type holder struct {
	run   *Run
	world *mpi.Comm
	n     int
}

// TestProtectHandles_Restored: pointers to a run and to its communicator are
// restored as pointers to those of the new process. Other runs cannot be saved.
func TestProtectHandles_Restored(t *testing.T) {
	dir := t.TempDir()
	p := open(t, dir)
	p.ProtectHandles()
	h := holder{p, p.World(), 7}
	Protect(p, "holder", &h)
	restore(t, p, false)
	if err := p.Adopt(Options{EveryPoints: 3}, false); err != nil {
		t.Fatal(err)
	}
	checkpoint(t, p)
	p.Finish()
	if err := p.Close(); err != nil || p.phase == phaseClosed || p.exit != nil {
		t.Error("a program has ended an adopted run:", err)
	}
	if !p.Release() {
		t.Error("ranks are lost")
	}
	closeRun(t, p)

	q := open(t, dir)
	q.ProtectHandles()
	h = holder{}
	Protect(q, "holder", &h)
	restore(t, q, true)
	if h.run != q || h.world != q.World() || h.n != 7 {
		t.Error("the run, the communicator or what stood beside them is another")
	}

	third := open(t, t.TempDir())
	v := holder{run: third}
	err := Protect(third, "holder", &v)
	if err == nil {
		_, err = third.Restore(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), "a run cannot be saved") {
		t.Error("a run in a variable of a program that is not saved as a whole:", err)
	}
}

// TestAdopt_KeepsSettingsFromOutside shows that the program's own options do
// not replace those that the environment or 'cairn run' set.
func TestAdopt_KeepsSettingsFromOutside(t *testing.T) {
	t.Setenv("CAIRN_MTBF", "5h")
	p := open(t, t.TempDir())
	if err := p.Adopt(Options{MTBF: time.Hour, EveryPoints: 7}, false); err != nil {
		t.Fatal(err)
	}
	if p.opts.MTBF != 5*time.Hour || p.opts.EveryPoints != 7 {
		t.Errorf("MTBF %s, every %d points", p.opts.MTBF, p.opts.EveryPoints)
	}
}

// TestAdopt_OptionsAfterRestore: options that are set after Restore hold on all
// ranks, and no checkpoint is taken if OnCopy returns an error.
func TestAdopt_OptionsAfterRestore(t *testing.T) {
	const n, points = 3, 12
	for _, spatial := range []bool{false, true} {
		var indices atomic.Int64
		refused := errors.New("not here")
		var refuse atomic.Bool
		errs := newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), OnCopy: func() error {
			if refuse.Load() {
				return refused
			}
			return nil
		}}, func(p *Run) error {
			x := 0
			Protect(p, "x", &x)
			if _, err := p.Restore(context.Background()); err != nil {
				return err
			}
			o := Options{EveryPoints: 4, SafePoints: spatial, OnSaved: func(CheckpointInfo) { indices.Add(1) }}
			if err := p.Adopt(o, false); err != nil {
				return err
			}
			for x = 1; x <= points; x++ {
				if err := p.Point(context.Background()); err != nil {
					return err
				}
				if x%4 == 0 { // otherwise a newer checkpoint may overtake it, and only that one is reported
					if err := p.peers.await(context.Background(), p.current.Index); err != nil {
						return err
					}
				}
				if err := p.World().Barrier(); err != nil {
					return err
				}
			}
			refuse.Store(true)
			if err := p.Checkpoint(context.Background()); !errors.Is(err, ErrNotSaved) {
				return fmt.Errorf("a checkpoint was taken though OnCopy refused: %v", err)
			}
			if !p.Release() {
				return errors.New("ranks are lost")
			}
			p.Finish()
			return nil
		})
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if got := indices.Load(); got != n*points/4 {
			t.Errorf("spatial %v: %d files of checkpoints, and %d points on %d ranks with a checkpoint at each fourth", spatial, got, points, n)
		}
	}
	errs := newCrew(2, mem.Options{}).run(Options{Dir: t.TempDir()}, func(p *Run) error {
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		err := p.Adopt(Options{EveryPoints: 1 + p.Rank()}, false)
		p.Release()
		return err
	})
	if err := errors.Join(errs...); err == nil || !strings.Contains(err.Error(), "must be the same on all ranks") {
		t.Error("ranks with different options:", err)
	}
}
