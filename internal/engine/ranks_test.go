package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/mpi"
)

// crew is a run of several ranks in this process.
type crew struct {
	fabric     *mem.Fabric
	identities []*identity
}

// exchanger lets the ranks of a crew exchange endpoints, any number of times.
type exchanger struct {
	mu     sync.Mutex
	n      int
	rounds map[int]*exchangeRound
}

type exchangeRound struct {
	endpoints [][]byte
	came      int
	full      chan struct{}
}

func (m *exchanger) exchange(rank int) func(context.Context, []byte) ([][]byte, error) {
	round := 0
	return func(ctx context.Context, endpoint []byte) ([][]byte, error) {
		m.mu.Lock()
		r := m.rounds[round]
		if r == nil {
			r = &exchangeRound{endpoints: make([][]byte, m.n), full: make(chan struct{})}
			m.rounds[round] = r
		}
		round++
		r.endpoints[rank] = endpoint
		if r.came++; r.came == m.n {
			close(r.full)
		}
		m.mu.Unlock()
		select {
		case <-r.full:
			return r.endpoints, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func newCrew(n int, o mem.Options) *crew {
	c := &crew{fabric: mem.New(n)}
	m := &exchanger{n: n, rounds: make(map[int]*exchangeRound)}
	for r := range n {
		c.identities = append(c.identities, &identity{
			Welcome: control.Welcome{Rank: r, Size: n}, exchange: m.exchange(r),
			testDrivers: []transport.Driver{c.fabric.Driver(r, o)},
		})
	}
	return c
}

// errKilled makes a rank end without a message.
var errKilled = errors.New("killed")

// errDevice makes a rank roll back.
var errDevice = errors.New("a device is lost")

// run runs a program on all ranks and returns their errors.
func (c *crew) run(opts Options, program func(p *Run) error) []error {
	return c.runWith(opts, program, func(int, *Options) {})
}

// runWith is run with options that each may change for a rank.
func (c *crew) runWith(opts Options, program func(p *Run) error, each func(r int, o *Options)) []error {
	errs := make([]error, len(c.identities))
	var wg sync.WaitGroup
	for r, s := range c.identities {
		wg.Go(func() {
			o := opts
			o.identity = s
			o.Signals = map[os.Signal]SignalAction{}
			each(r, &o)
			p, err := Open(context.Background(), o)
			if err == nil {
				if err = program(p); errors.Is(err, errKilled) {
					c.fabric.Kill(r)
				}
				if cerr := p.Close(); err == nil {
					err = cerr
				}
			} else {
				c.fabric.Kill(r)
			}
			errs[r] = err
		})
	}
	wg.Wait()
	return errs
}

// relay is a program whose ranks pass numbers to their neighbours and to
// random others, some of them received much later, and digest all of it.
type relay struct {
	Step   int
	Sum    uint64
	Behind []uint64
}

const tagRing, tagLate, tagSkew = 1, 2, 3

func relayProgram(steps int, skew bool, at func(p *Run, step int) error, out []uint64) func(p *Run) error {
	return func(p *Run) error {
		ctx := context.Background()
		w := p.World()
		var s relay
		var pending *mpi.Request
		buf := make([]uint64, 300)
		Protect(p, "state", &s)
		Protect(p, "pending", &pending)
		Protect(p, "buf", &buf)
		restored, err := p.Restore(ctx)
		if err != nil {
			return err
		}
		n, r := w.Size(), w.Rank()
		right, left := (r+1)%n, (r+n-1)%n
		recvSkewed := func() error { // what its neighbour sends after its next point, before its own
			if !skew || r == 0 {
				return nil
			}
			var x [1]uint64
			_, err := mpi.Recv(w, x[:], left, tagSkew)
			s.Sum = s.Sum*31 + x[0]
			return err
		}
		work := func(restored bool) error {
			if !restored {
				if err := recvSkewed(); err != nil {
					return err
				}
			}
			for ; s.Step < steps; s.Step++ {
				if err := p.Point(ctx); err != nil {
					return err
				}
				if skew && r < n-1 {
					if err := mpi.Send(w, []uint64{s.Sum + uint64(s.Step)}, right, tagSkew); err != nil {
						return err
					}
				}
				if at != nil {
					if err := at(p, s.Step); err != nil {
						return err
					}
				}
				// A receive that stays pending over some points …
				if pending == nil && s.Step%5 == 0 && (!skew || r > 0) {
					pending = mpi.Irecv(w, buf, mpi.AnySource, tagLate)
				}
				// … and is satisfied by a message that was sent some points
				// ago.
				if s.Step%5 == 2 && (!skew || r < n-1) {
					big := make([]uint64, 1+(s.Step*37)%300)
					for i := range big {
						big[i] = uint64(r*1000 + s.Step + i)
					}
					if err := sendLater(w, big, right); err != nil {
						return err
					}
				}
				if s.Step%5 == 4 && pending != nil {
					st, err := pending.Wait()
					if err != nil {
						return err
					}
					for _, x := range buf[:mpi.Count[uint64](st)] {
						s.Sum = s.Sum*31 + x
					}
					pending = nil
				}
				if skew { // a ring would leave no moment at which all ranks are at a point
					if s.Step < steps-1 {
						if err := recvSkewed(); err != nil {
							return err
						}
					}
					continue
				}
				out, in := []uint64{s.Sum + uint64(r)}, []uint64{0}
				if _, err := mpi.Sendrecv(w, out, right, tagRing, in, left, tagRing); err != nil {
					return err
				}
				s.Sum = s.Sum*31 + in[0]
				if s.Step%7 == 0 {
					if err := mpi.Allreduce(w, []uint64{s.Sum}, in, mpi.BXor); err != nil {
						return err
					}
					s.Sum += in[0]
				}
			}
			return nil
		}
		err = work(restored)
		for errors.Is(err, errDevice) || errors.Is(err, ErrRollback) {
			ok, rerr := p.Rollback(ctx)
			if rerr != nil {
				return rerr
			}
			if !ok {
				s, pending = relay{}, nil
			}
			err = work(ok)
		}
		if err != nil {
			return err
		}
		out[r] = s.Sum
		p.Finish()
		return nil
	}
}

func reference(t *testing.T, n, steps int, skew bool) []uint64 {
	t.Helper()
	out := make([]uint64, n)
	for r, err := range newCrew(n, mem.Options{}).run(Options{Dir: t.TempDir(), EveryPoints: 1 << 30}, relayProgram(steps, skew, nil, out)) {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
	return out
}

// TestRanks_Killed kills ranks repeatedly until the work is done.
func TestRanks_Killed(t *testing.T) {
	steps := 24
	if os.Getenv("CAIRN_LONG") != "" {
		steps = 100
	}
	for name, o := range map[string]mem.Options{
		"eager": {}, "rendezvous": {EagerLimit: 64}, "pull": {EagerLimit: 64, Pull: true}, "narrow": {EagerLimit: 64, Window: -1}, "reopened": {MustClose: true},
	} {
		for _, skew := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, skew %v", name, skew), func(t *testing.T) {
				n := 4
				want := reference(t, n, steps, skew)
				rng := rand.New(rand.NewPCG(1, 2))
				dir := t.TempDir()
				got := make([]uint64, n)
				for attempt := 0; ; attempt++ {
					if attempt == 200 {
						t.Fatal("no progress")
					}
					c := newCrew(n, o)
					victim, when := rng.IntN(n), rng.IntN(25)
					var steps0 atomic.Int64
					opts := Options{Dir: dir, EveryPoints: 1 << 30}
					if attempt%2 == 0 {
						opts.EveryPoints = 3
					}
					errs := c.run(opts, relayProgram(steps, skew, func(p *Run, step int) error {
						if p.Rank() == victim {
							if steps0.Add(1) > int64(when) {
								return errKilled
							}
							if step%4 == 1 {
								p.Request()
							}
						}
						return nil
					}, got))
					if errors.Join(errs...) == nil {
						t.Logf("%d attempts", attempt+1)
						break
					}
					for r, err := range errs {
						if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, mpi.ErrLost) && !errors.Is(err, mpi.ErrEnded) {
							t.Errorf("rank %d: %v", r, err)
						}
					}
					if t.Failed() {
						t.FailNow()
					}
				}
				for r := range want {
					if got[r] != want[r] {
						t.Errorf("rank %d: %x, want %x", r, got[r], want[r])
					}
				}
			})
		}
	}
}

// TestRanks_Stopped stops at every step and resumes.
func TestRanks_Stopped(t *testing.T) {
	const n, steps = 3, 20
	for _, skew := range []bool{false, true} {
		want := reference(t, n, steps, skew)
		got := make([]uint64, n)
		dir := t.TempDir()
		for i := 0; ; i++ {
			errs := newCrew(n, mem.Options{EagerLimit: 64}).run(Options{Dir: dir, EveryPoints: 1 << 30}, relayProgram(steps, skew, func(p *Run, step int) error {
				if p.Rank() == i%n && step == i {
					p.requestStop("test")
				}
				return nil
			}, got))
			if errors.Join(errs...) == nil {
				break
			}
			for r, err := range errs {
				if !errors.Is(err, ErrStopped) || errors.Is(err, ErrNotSaved) {
					t.Fatalf("stop %d, rank %d: %v", i, r, err)
				}
			}
		}
		for r := range want {
			if got[r] != want[r] {
				t.Errorf("skew %v, rank %d: %x, want %x", skew, r, got[r], want[r])
			}
		}
	}
}

// sendLater starts a send that is not awaited.
func sendLater(w *mpi.Comm, data []uint64, to int) error {
	_, _, err := mpi.Isend(w, data, to, tagLate).Test()
	return err
}
