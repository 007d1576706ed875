package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

// movesWhen moves a run whenever it requests it, until it has ended, and
// returns the number of moves.
func (s *stage) movesWhen(ask <-chan []int) (moved int) {
	s.t.Helper()
	over := make(chan error, 1)
	go func() { over <- s.end() }()
	for {
		select {
		case ranks := <-ask:
			if err := s.move(ranks, 1, nil); err == nil {
				moved++
			} else {
				s.t.Log(err)
			}
		case err := <-over:
			if err != nil {
				s.t.Error(err)
			}
			return moved
		}
	}
}

// TestMove_ClosedFile: a file that the program has closed does not change,
// although a destination opens it again and the move is canceled.
func TestMove_ClosedFile(t *testing.T) {
	dir := t.TempDir()
	ask, over := make(chan struct{}, 1), make(chan struct{})
	program := func(p *Run) error {
		f, err := p.OpenFile(dir+"/params", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		step := 0
		Protect(p, "step", &step)
		restored, err := p.Restore(context.Background())
		if err != nil {
			return err
		}
		if !restored {
			fmt.Fprintln(f, "written once")
		}
		f.Close()
		for done := false; !done; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			if step == 3 {
				ask <- struct{}{}
			}
			select {
			case <-over:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		p.Finish()
		return nil
	}
	s := newStage(t, 1, nil, Options{Dir: dir + "/sets", EveryPoints: 1000}, program)
	<-ask
	if err := s.move([]int{0}, 1, func() bool { return false }); err == nil || err.Error() != "called off" {
		t.Error(err)
	}
	close(over)
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(dir + "/params"); string(text) != "written once\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestMove_CheckpointsDueByCount: checkpoints that are due by the number of
// points stay so after moves, and all ranks learn of all checkpoints.
func TestMove_CheckpointsDueByCount(t *testing.T) {
	for _, n := range []int{1, 2} {
		var mu sync.Mutex
		saved := make([][]uint64, n)
		ask := make(chan []int)
		program := func(p *Run) error {
			step := 0
			Protect(p, "step", &step)
			p.opts.OnSaved = func(s CheckpointInfo) {
				mu.Lock()
				defer mu.Unlock()
				saved[p.Rank()] = append(saved[p.Rank()], s.Index)
			}
			if _, err := p.Restore(context.Background()); err != nil {
				return err
			}
			x := []int{1}
			for ; step < 200; step++ {
				if err := p.Point(context.Background()); err != nil {
					return err
				}
				if err := mpi.Allreduce(p.World(), x, x, mpi.Max); err != nil {
					return err
				}
				if p.Rank() == 0 && step%30 == 25 {
					ask <- []int{n - 1}
				}
				time.Sleep(time.Millisecond) // leave a move some points
			}
			p.Finish()
			return nil
		}
		s := newStage(t, n, []string{"tcp"}, Options{Dir: t.TempDir(), EveryPoints: 40}, program)
		if moved := s.movesWhen(ask); moved == 0 {
			t.Error("it was not moved")
		}
		for r := range saved {
			if want := []uint64{1, 2, 3, 4, 5}; !slices.Equal(saved[r], want[:len(saved[r])]) || len(saved[r]) < 4 {
				t.Errorf("%d ranks: rank %d has heard of sets %v", n, r, saved[r])
			}
		}
	}
}

// TestMove_DueTimeKept shows that a checkpoint that is due in half an hour is
// still so after several moves, with an interval of an hour.
func TestMove_DueTimeKept(t *testing.T) {
	const left = 30 * time.Minute
	var due []time.Duration
	ask, over := make(chan []int, 1), make(chan struct{})
	program := func(p *Run) error {
		step := 0
		Protect(p, "step", &step)
		restored, err := p.Restore(context.Background())
		if err != nil {
			return err
		}
		if !restored {
			p.postpone(-left)
		}
		due = append(due, time.Until(p.dueAt))
		if len(due) <= 3 {
			ask <- []int{0}
		} else {
			close(over)
		}
		for done := false; !done; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			select {
			case <-over:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		p.Finish()
		return nil
	}
	s := newStage(t, 1, nil, Options{Dir: t.TempDir(), Every: time.Hour}, program)
	if moved := s.movesWhen(ask); moved != 3 {
		t.Errorf("moved %d times", moved)
	}
	for i, d := range due {
		if d > left || d < left/2 {
			t.Errorf("after %d moves, a checkpoint is due in %s", i, d)
		}
	}
}

// TestMove_OtherDirectory: a rank does not move to a host without the run's
// checkpoints.
func TestMove_OtherDirectory(t *testing.T) {
	dir := t.TempDir() + "/sets"
	ask, over := make(chan struct{}, 1), make(chan struct{})
	program := func(p *Run) error {
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		for done := false; !done; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			if step == 5 {
				if err := p.Checkpoint(context.Background()); err != nil {
					return err
				}
				ask <- struct{}{}
			}
			select {
			case <-over:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		return nil
	}
	s := newStage(t, 1, nil, Options{Dir: dir, EveryPoints: 1 << 20}, program)
	<-ask
	s.opts.Dir = dir + "-elsewhere" // as on a host that does not share it
	if err := s.move([]int{0}, 1, nil); err == nil || !strings.Contains(err.Error(), "on a file system that all hosts share") {
		t.Error(err)
	}
	close(over)
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir + "-elsewhere"); err == nil {
		t.Error("the directory was made there")
	}
}

// TestMove_AfterCanceledMove cancels a move before all ranks have reached a
// point, and requests the next one: they pause for both.
func TestMove_AfterCanceledMove(t *testing.T) {
	const slow = 1
	waits, goOn := make(chan struct{}), make(chan struct{})
	program := func(p *Run) error {
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		for ; step < 30; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			if step == 5 && p.Rank() == slow {
				close(waits)
				<-goOn
			}
			time.Sleep(time.Millisecond)
			if err := p.World().Barrier(); err != nil {
				return err
			}
		}
		p.Finish()
		return nil
	}
	s := newStage(t, 3, []string{"tcp"}, Options{Dir: t.TempDir(), EveryPoints: 1000}, program)
	s.told = func(id uint64) error {
		if id == 1 {
			return errors.New("called off")
		}
		close(goOn)
		return nil
	}
	<-waits
	if err := s.move([]int{2}, 0, nil); err == nil || err.Error() != "called off" {
		t.Fatal(err)
	}
	if err := s.move([]int{0}, 0, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.end(); err != nil {
		t.Error(err)
	}
}

// TestMove_OutputOfCanceledDestination: what a destination prints after the
// move is canceled is not the rank's output.
func TestMove_OutputOfCanceledDestination(t *testing.T) {
	out := t.TempDir() + "/out"
	failed, over := make(chan struct{}), make(chan struct{})
	program := func(p *Run) error {
		step := 0
		Protect(p, "step", &step)
		if _, err := p.Restore(context.Background()); err != nil {
			fmt.Println(err)
			close(failed)
			return err
		}
		for done := false; !done; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			select {
			case <-over:
				done = true
			case <-time.After(time.Millisecond):
			}
		}
		p.Finish()
		return nil
	}
	s := newStage(t, 1, nil, Options{Dir: t.TempDir(), EveryPoints: 1000}, program)
	s.out = out
	if err := s.move([]int{0}, 0, func() bool { return false }); err == nil || err.Error() != "called off" {
		t.Error(err)
	}
	<-failed
	close(over)
	if err := s.end(); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(out); err != nil || len(got) > 0 {
		t.Errorf("%q, %v", got, err)
	}
}
