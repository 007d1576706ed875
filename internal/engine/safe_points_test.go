package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// awaitPaused waits until a rank, which runs in another goroutine, is paused.
func awaitPaused(p *Run) error {
	for end := time.Now().Add(2 * time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		p.peers.engine.Lock()
		paused := p.peers.paused
		p.peers.engine.Unlock()
		if paused {
			return nil
		}
	}
	return fmt.Errorf("rank %d is not paused", p.Rank())
}

// TestSafePoints_RankSkipsCheckpoint takes a checkpoint of all ranks after some
// have skipped one at a safe point.
func TestSafePoints_RankSkipsCheckpoint(t *testing.T) {
	const K = 12
	const tagX, tagY = 1, 2
	dir := t.TempDir()
	var other atomic.Pointer[Run] // rank 1
	program := func(stop bool) func(p *Run) error {
		return func(p *Run) error {
			ctx := context.Background()
			w := p.World()
			if p.Rank() == 1 {
				other.Store(p)
			}
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
						if err := awaitPaused(other.Load()); err != nil {
							return err
						}
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
	mustStop(t, within(t, newCrew(2, mem.Options{}), opts, program(true)))
	errs := within(t, newCrew(2, mem.Options{}), opts, program(false))
	if errs[1] != nil {
		t.Errorf("rank 1: %v", errs[1])
	}
}

// TestSafePoints_MessagesToSelf has messages of a rank to itself in flight at a
// safe point.
func TestSafePoints_MessagesToSelf(t *testing.T) {
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
			within(t, newCrew(2, mem.Options{}), opts, program(true))
			mustEnd(t, within(t, newCrew(2, mem.Options{}), opts, program(false)))
		})
	}
}
