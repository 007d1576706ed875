package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// within runs a crew, and fails if it hangs.
func within(t *testing.T, c *crew, opts Options, program func(p *Run) error) []error {
	t.Helper()
	done := make(chan []error, 1)
	go func() { done <- c.run(opts, program) }()
	select {
	case errs := <-done:
		return errs
	case <-time.After(5 * time.Minute):
		t.Fatal("hangs for five minutes")
		return nil
	}
}

// TestCheckpoint_OtherRankLostOrFinished calls Checkpoint when another rank is
// lost, or has finished.
func TestCheckpoint_OtherRankLostOrFinished(t *testing.T) {
	for _, end := range []error{errKilled, nil} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			errs := within(t, newCrew(2, mem.Options{}), Options{Dir: t.TempDir()}, func(p *Run) error {
				if _, err := p.Restore(context.Background()); err != nil {
					return err
				}
				if p.Rank() == 1 {
					p.Finish()
					return end
				}
				return p.Checkpoint(context.Background())
			})
			if errs[0] == nil {
				t.Error("Checkpoint says that a checkpoint is committed")
			}
			t.Log(errs[0])
		})
	}
}

// TestStop_WhilePaused sends a signal that stops the run and cancels the
// context while a rank is paused.
func TestStop_WhilePaused(t *testing.T) {
	told := make(chan struct{})
	errs := within(t, newCrew(2, mem.Options{}), Options{Dir: t.TempDir(), EveryPoints: 1}, func(p *Run) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		if p.Rank() == 1 {
			<-told
		} else {
			go func() {
				for paused := false; !paused; time.Sleep(time.Millisecond) {
					p.peers.engine.Lock()
					paused = p.peers.paused
					p.peers.engine.Unlock()
				}
				p.requestStop("test") // as a signal does …
				cancel()              // … and signal.NotifyContext
				close(told)
			}()
		}
		for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
			if err := p.Point(ctx); err != nil {
				return err
			}
		}
		return errors.New("was not stopped")
	})
	t.Log(errs)
	mustStop(t, errs)
}

// TestPoint_Deadline gives Point a deadline, and continues after it. The other
// ranks may rely on this one, so its messages fail; nothing hangs or is wrong.
func TestPoint_Deadline(t *testing.T) {
	dir := t.TempDir()
	const n, steps = 3, 120
	program := func(p *Run) error {
		w := p.World()
		step, sum := 0, 0
		Protect(p, "step", &step)
		Protect(p, "sum", &sum)
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		right, left := (p.Rank()+1)%n, (p.Rank()+n-1)%n
		for ; step < steps; step++ {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Microsecond)
			err := p.Point(ctx)
			cancel()
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrNotSaved) {
				return err
			}
			in := []int{0}
			if _, err := mpi.Sendrecv(w, []int{step}, right, 0, in, left, 0); err != nil {
				return err
			}
			if in[0] != step {
				return fmt.Errorf("got %d at step %d", in[0], step)
			}
			sum += in[0]
		}
		if sum != steps*(steps-1)/2 {
			return fmt.Errorf("sum %d", sum)
		}
		return nil
	}
	for range 2 {
		for r, err := range within(t, newCrew(n, mem.Options{}), Options{Dir: dir, EveryPoints: 3}, program) {
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, mpi.ErrLost) && !errors.Is(err, mpi.ErrEnded) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
}

// TestClose_RankDies kills a rank after it has announced its end.
func TestClose_RankDies(t *testing.T) {
	for name, o := range map[string]mem.Options{"rendezvous": {EagerLimit: 64}, "pull": {EagerLimit: 64, Pull: true}} {
		t.Run(name, func(t *testing.T) {
			c := newCrew(2, o)
			got := make(chan error, 1)
			go c.run(Options{Dir: t.TempDir()}, func(p *Run) error {
				if _, err := p.Restore(context.Background()); err != nil {
					return err
				}
				w := p.World()
				big := make([]int, 1000)
				if p.Rank() == 1 {
					mpi.Isend(w, big, 0, 0)
					p.Finish()
					return nil
				}
				for { // until it has said that it ends
					p.peers.engine.Poll()
					if err := mpi.Send(w, []int{1}, 1, 9); errors.Is(err, mpi.ErrEnded) {
						break
					}
				}
				c.fabric.Kill(1)
				_, err := mpi.Recv(w, big, 1, 0)
				got <- err
				return err
			})
			select {
			case err := <-got:
				if err == nil {
					t.Error("received from a dead rank")
				}
			case <-time.After(10 * time.Second):
				t.Error("Recv hangs")
			}
		})
	}
}

// TestClose_InnerRankEndsFirst ends a rank in the middle of the tree while the
// root is busy.
func TestClose_InnerRankEndsFirst(t *testing.T) {
	busy := make(chan struct{}) // closed by the root
	errs := within(t, newCrew(6, mem.Options{}), Options{Dir: t.TempDir(), EveryPoints: 2, closeTimeout: time.Second}, func(p *Run) error {
		ctx := context.Background()
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		switch p.Rank() {
		case 1:
			<-busy
			return nil
		case 0:
			close(busy)
			time.Sleep(2 * p.opts.closeTimeout)
		}
		for range 10 {
			if err := p.Point(ctx); err != nil {
				return err
			}
		}
		p.Finish()
		return nil
	})
	t.Log(errs)
}

// TestPoint_OtherGoroutineSends sends messages in another goroutine while the
// first one is in Point.
func TestPoint_OtherGoroutineSends(t *testing.T) {
	dir := t.TempDir()
	var saved atomic.Int64
	program := func(steps int) func(p *Run) error {
		return func(p *Run) error {
			ctx := context.Background()
			w := p.World()
			step := 0
			Protect(p, "step", &step)
			if _, err := p.Restore(ctx); err != nil {
				return err
			}
			if steps == 0 {
				return nil
			}
			stop := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				for i := 0; p.Rank() == 0; i++ {
					select {
					case <-stop:
						return
					default:
					}
					mpi.Send(w, []int{i}, 1, 7)
					time.Sleep(50 * time.Microsecond)
				}
			})
			defer wg.Wait()
			defer close(stop)
			for ; step < steps; step++ {
				if err := p.Point(ctx); err != nil && !errors.Is(err, ErrNotSaved) {
					return err
				}
				if err := w.Barrier(); err != nil {
					return err
				}
			}
			return nil
		}
	}
	opts := Options{Dir: dir, EveryPoints: 3}
	opts.OnSaved = func(CheckpointInfo) { saved.Add(1) }
	errs := within(t, newCrew(2, mem.Options{}), opts, program(60))
	mustEnd(t, errs)
	if n := saved.Load(); n < 30 {
		t.Errorf("told of %d sets", n)
	}
	mustEnd(t, within(t, newCrew(2, mem.Options{}), Options{Dir: dir, EveryPoints: 3}, program(0)))
}

// TestWorld_WhileReporting calls World while the run reports to the supervisor.
func TestWorld_WhileReporting(t *testing.T) {
	for range 20 {
		a, b := net.Pipe()
		go io.Copy(io.Discard, b)
		s := singleIdentity()
		s.supervisor = supervised(control.New(a))
		p, err := Open(context.Background(), Options{Dir: t.TempDir(), identity: s, Signals: map[os.Signal]SignalAction{}})
		if err != nil {
			t.Fatal(err)
		}
		p.World()
		p.Close()
		b.Close()
	}
}
