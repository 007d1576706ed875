package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// TestRollback_Ranks loses devices of random ranks at random steps. All ranks
// return to a common checkpoint in their running processes, also if two lose
// one at the same time, or one again at once. The result is that of an
// undisturbed run.
func TestRollback_Ranks(t *testing.T) {
	const n = 4
	steps, runs := 20, 1
	long := os.Getenv("CAIRN_LONG") != ""
	if long {
		steps, runs = 60, 20
	}
	for name, o := range map[string]mem.Options{
		"eager": {}, "rendezvous": {EagerLimit: 64}, "pull": {EagerLimit: 64, Pull: true}, "narrow": {EagerLimit: 64, Window: -1},
	} {
		for _, skew := range []bool{false, true} {
			if !long && (skew != (name == "rendezvous") || name == "narrow") {
				continue
			}
			t.Run(fmt.Sprintf("%s, skew %v", name, skew), func(t *testing.T) {
				want := reference(t, n, steps, skew)
				rng := rand.New(rand.NewPCG(3, 4))
				for range runs {
					losses := make([]map[int]bool, n) // by rank, counting its steps
					count := 0
					for r := range losses {
						losses[r] = make(map[int]bool)
						for range rng.IntN(3) {
							at := rng.IntN(steps - 10)
							losses[r][at], losses[r][at+1] = true, rng.IntN(3) == 0
							count++
						}
					}
					got, done := make([]uint64, n), make([]atomic.Int64, n)
					opts := Options{Dir: t.TempDir(), EveryPoints: 1 << 30}
					if rng.IntN(2) == 0 {
						opts.EveryPoints = 3
					}
					for r, err := range newCrew(n, o).run(opts, relayProgram(steps, skew, func(p *Run, step int) error {
						if p.Rank() == 0 && step%4 == 1 {
							p.Request()
						}
						count := int(done[p.Rank()].Add(1))
						if count == 1 { // all have restored
							return p.World().Barrier()
						}
						if losses[p.Rank()][count] {
							return errDevice
						}
						if step == steps-1 { // a rank that has ended cannot roll back
							return p.World().Barrier()
						}
						return nil
					}, got)) {
						if err != nil {
							t.Fatalf("rank %d: %v", r, err)
						}
						if got[r] != want[r] {
							t.Errorf("after %d losses, rank %d: %x, want %x", count, r, got[r], want[r])
						}
					}
				}
			})
		}
	}
}

// TestRollback_RanksKilled kills a rank while all roll back, or lets it end
// instead. The others end, too, with an error that says so, and a restart
// completes the work.
func TestRollback_RanksKilled(t *testing.T) {
	const n, steps = 3, 20
	want := reference(t, n, steps, false)
	for _, how := range []error{errKilled, errors.New("no rollback here")} {
		dir, got := t.TempDir(), make([]uint64, n)
		errs := newCrew(n, mem.Options{EagerLimit: 64}).run(Options{Dir: dir, EveryPoints: 3}, func(p *Run) error {
			program := relayProgram(steps, false, func(p *Run, step int) error {
				if p.Rank() == 1 && step == 10 {
					return errDevice
				}
				return nil
			}, got)
			if p.Rank() == 2 {
				program = relayProgram(steps, false, func(p *Run, step int) error {
					if step < 10 {
						return nil
					}
					p.peers.engine.Lock()
					defer p.peers.engine.Unlock()
					p.peers.engine.Serve(func() bool { return p.peers.engine.RollbackWanted() != nil })
					return how
				}, got)
			}
			return program(p)
		})
		for r, err := range errs {
			if err == nil || r == 1 && !errors.Is(how, errKilled) && !errors.Is(err, mpi.ErrLost) && errors.Is(err, ErrRollback) {
				t.Errorf("rank %d: %v", r, err)
			}
		}
		for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: dir, EveryPoints: 3}, relayProgram(steps, false, nil, got)) {
			if err != nil || got[r] != want[r] {
				t.Errorf("after a restart, rank %d: %v, %x, want %x", r, err, got[r], want[r])
			}
		}
	}
}
