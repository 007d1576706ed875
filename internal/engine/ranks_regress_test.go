package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// within runs a crew, and fails if it hangs.
func within(t *testing.T, d time.Duration, c *crew, opts Options, program func(p *Run) error) []error {
	t.Helper()
	done := make(chan []error, 1)
	go func() { done <- c.run(opts, program) }()
	select {
	case errs := <-done:
		return errs
	case <-time.After(d):
		t.Fatalf("hangs for %v", d)
		return nil
	}
}

// TestSpatialEpoch: the epoch of the engines differs after spatial sets that some ranks left out.
func TestSpatialEpoch(t *testing.T) {
	const K = 12
	const tagX, tagY = 1, 2
	dir := t.TempDir()
	program := func(stop bool) func(p *Run) error {
		return func(p *Run) error {
			ctx := context.Background()
			w := p.World()
			k := 1
			Protect(p, "k", &k)
			restored, err := p.Restore(ctx)
			if err != nil {
				return err
			}
			if p.Rank() == 0 {
				for ; k <= K+1; k++ {
					if err := p.Point(ctx); err != nil {
						return err
					}
					if stop && k == 4 {
						p.requestStop("test")
					}
					if err := mpi.Send(w, []int{k}, 1, tagX); err != nil {
						return err
					}
					if stop && k == 5 {
						time.Sleep(300 * time.Millisecond) // rank 1 is held by now
					}
					if err := mpi.Send(w, []int{k}, 1, tagY); err != nil {
						return err
					}
				}
				return nil
			}
			x := []int{0}
			recv := func(tag, want int) error {
				if _, err := mpi.Recv(w, x, 0, tag); err != nil {
					return err
				}
				if x[0] != want {
					return fmt.Errorf("tag %d: got %d, want %d", tag, x[0], want)
				}
				return nil
			}
			if !restored {
				if err := recv(tagX, 1); err != nil {
					return err
				}
			}
			for ; k <= K; k++ {
				if !restored {
					if err := recv(tagX, k+1); err != nil {
						return err
					}
				}
				restored = false
				if err := p.Point(ctx); err != nil {
					return err
				}
				if k >= 3 {
					if err := recv(tagY, k-2); err != nil {
						return err
					}
				}
			}
			return nil
		}
	}
	opts := Options{Dir: dir, EveryPoints: 2, SafePoints: true}
	mustStop(t, within(t, 20*time.Second, newCrew(2, mem.Options{}), opts, program(true)))
	errs := within(t, 20*time.Second, newCrew(2, mem.Options{}), opts, program(false))
	if errs[1] != nil {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// TestSpatialSelf: messages to oneself in spatial sets.
func TestSpatialSelf(t *testing.T) {
	for _, across := range []bool{false, true} {
		t.Run(fmt.Sprint("across ", across), func(t *testing.T) {
			dir := t.TempDir()
			program := func(kill bool) func(p *Run) error {
				return func(p *Run) error {
					ctx := context.Background()
					w := p.World()
					step := 0
					Protect(p, "step", &step)
					restored, err := p.Restore(ctx)
					if err != nil {
						return err
					}
					if !restored && across {
						if err := mpi.Send(w, []int{-1}, p.Rank(), 1); err != nil {
							return err
						}
					}
					x := []int{0}
					for ; step < 20; step++ {
						if err := p.Point(ctx); err != nil {
							return err
						}
						if across && step == 19 {
							if ok, _, err := w.Iprobe(p.Rank(), 1); !ok || err != nil {
								return fmt.Errorf("the message that was sent before the point is gone (%v)", err)
							}
						}
						if !across {
							if err := mpi.Send(w, []int{step}, p.Rank(), 0); err != nil {
								return err
							}
							if _, err := mpi.Recv(w, x, p.Rank(), 0); err != nil {
								return err
							}
						}
						if err := w.Barrier(); err != nil {
							return err
						}
						if kill && step == 15 {
							return errKilled
						}
					}
					return nil
				}
			}
			opts := Options{Dir: dir, EveryPoints: 4, SafePoints: true}
			within(t, 10*time.Second, newCrew(2, mem.Options{}), opts, program(true))
			mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), opts, program(false)))
		})
	}
}

// TestCheckpointEnds: Checkpoint when another rank is lost, or has finished.
func TestCheckpointEnds(t *testing.T) {
	for _, end := range []error{errKilled, nil} {
		t.Run(fmt.Sprint(end), func(t *testing.T) {
			errs := within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: t.TempDir()}, func(p *Run) error {
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
				t.Error("Checkpoint says that a set is safe")
			}
			t.Log(errs[0])
		})
	}
}

// damageRank flips a bit in the middle of a rank's file of the newest set.
func damageRank(t *testing.T, dir string, rank int) {
	t.Helper()
	name := filepath.Join(newest(t, dir), fmt.Sprintf("rank-%04d.h5", rank))
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 4
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFilesSteppedOver: files of a set that loads here, but not on another rank.
func TestFilesSteppedOver(t *testing.T) {
	for _, how := range []string{"next file", "closed"} {
		t.Run(how, func(t *testing.T) {
			dir, data := t.TempDir(), t.TempDir()
			program := func(fresh bool) func(p *Run) error {
				return func(p *Run) error {
					ctx := context.Background()
					step := 0
					big := make([]uint64, 1<<16)
					for i := range big {
						big[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
					}
					Protect(p, "step", &step)
					Protect(p, "big", &big)
					name := func() string { return filepath.Join(data, fmt.Sprintf("out-%d", step)) }
					const flag = os.O_CREATE | os.O_WRONLY | os.O_TRUNC
					var first *os.File
					if p.Rank() == 0 && how == "closed" {
						var err error
						if first, err = p.OpenFile(filepath.Join(data, "first"), flag, 0o600); err != nil {
							return err
						}
					}
					if _, err := p.Restore(ctx); err != nil {
						return err
					}
					if !fresh {
						if step != 1 {
							return fmt.Errorf("step %d", step)
						}
						return nil
					}
					for step = 1; step <= 2; step++ {
						if p.Rank() == 0 && how == "next file" {
							f, err := p.OpenFile(name(), flag, 0o600)
							if err != nil {
								return err
							}
							fmt.Fprintln(f, "hello")
							defer f.Close()
							if err := p.Checkpoint(ctx); err != nil {
								return err
							}
							f.Close()
							continue
						}
						if first != nil {
							fmt.Fprintln(first, "hello")
							if step == 2 {
								first.Close() // it is complete
							}
						}
						if err := p.Checkpoint(ctx); err != nil {
							return err
						}
					}
					return nil
				}
			}
			mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(true)))
			damageRank(t, dir, 1)
			mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(false)))
		})
	}
}

// TestOptionalMixture: an Optional variable of a set that loads here, but not on another rank.
func TestOptionalMixture(t *testing.T) {
	dir := t.TempDir()
	program := func(version int, last bool) func(p *Run) error {
		return func(p *Run) error {
			ctx := context.Background()
			step, extra := 0, 0
			big := make([]uint64, 1<<16)
			for i := range big {
				big[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
			}
			Protect(p, "step", &step)
			Protect(p, "big", &big)
			if version == 2 && p.Rank() == 0 {
				Protect(p, "extra", &extra, Optional)
			}
			if _, err := p.Restore(ctx); err != nil {
				return err
			}
			if last {
				if step != 1 || extra != 0 {
					return fmt.Errorf("step %d, extra %d: the set of step 1 has no extra", step, extra)
				}
				return nil
			}
			step, extra = version, 42
			return p.Checkpoint(ctx)
		}
	}
	mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(1, false)))
	mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(2, false)))
	damageRank(t, dir, 1)
	mustEnd(t, within(t, 10*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, MaxBases: -1}, program(2, true)))
}

// TestStopWhileHeld: a signal that says stop, and cancels the context, while a rank is held.
func TestStopWhileHeld(t *testing.T) {
	told := make(chan struct{})
	errs := within(t, 15*time.Second, newCrew(2, mem.Options{}), Options{Dir: t.TempDir(), EveryPoints: 1}, func(p *Run) error {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		if p.Rank() == 1 {
			<-told
		} else {
			go func() {
				for held := false; !held; time.Sleep(time.Millisecond) {
					p.peers.engine.Lock()
					held = p.peers.paused
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

// TestPointDeadline: a program that gives Point a deadline, and goes on after
// it. It can't: the others may count on it. But nothing hangs or is wrong.
func TestPointDeadline(t *testing.T) {
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
		for r, err := range within(t, 15*time.Second, newCrew(n, mem.Options{}), Options{Dir: dir, EveryPoints: 3}, program) {
			if err != nil && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, mpi.ErrLost) && !errors.Is(err, mpi.ErrEnded) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
	}
}

// TestDiesInClose: a rank that dies after it has said that it ends.
func TestDiesInClose(t *testing.T) {
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

// TestLeavesTree: a rank in the middle of the tree leaves while the root is busy.
func TestLeavesTree(t *testing.T) {
	errs := within(t, 25*time.Second, newCrew(6, mem.Options{}), Options{Dir: t.TempDir(), EveryPoints: 2, closeTimeout: time.Second}, func(p *Run) error {
		ctx := context.Background()
		if _, err := p.Restore(ctx); err != nil {
			return err
		}
		switch p.Rank() {
		case 1:
			time.Sleep(200 * time.Millisecond) // the root is busy by now
			return nil
		case 0:
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

// TestMeetingAgain: a Slurm job that is started again under the same name.
func TestMeetingAgain(t *testing.T) {
	dir := t.TempDir()
	for start := range 2 {
		var wg sync.WaitGroup
		for r := range 2 {
			wg.Go(func() {
				m := &fileBootstrap{dir: dir, rank: r, size: 2}
				for round := range 2 {
					if start == 1 && round == 1 && r == 1 {
						time.Sleep(200 * time.Millisecond)
					}
					endpoints, err := m.exchange(t.Context(), fmt.Appendf(nil, "start %d round %d", start, round))
					if err != nil {
						t.Error(err)
						return
					}
					for _, c := range endpoints {
						if want := fmt.Sprintf("start %d round %d", start, round); string(c) != want {
							t.Errorf("rank %d got %q, want %q", r, c, want)
						}
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestGoroutineSends: another goroutine of a rank sends messages while its first is in Point.
func TestGoroutineSends(t *testing.T) {
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
	errs := within(t, 20*time.Second, newCrew(2, mem.Options{}), opts, program(60))
	mustEnd(t, errs)
	if n := saved.Load(); n < 30 {
		t.Errorf("told of %d sets", n)
	}
	mustEnd(t, within(t, 20*time.Second, newCrew(2, mem.Options{}), Options{Dir: dir, EveryPoints: 3}, program(0)))
}

// TestWorldReport: World beside the reports to the supervisor.
func TestWorldReport(t *testing.T) {
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
