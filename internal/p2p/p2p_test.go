package p2p

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
)

// world connects n engines over one fabric.
func world(t *testing.T, n int, o mem.Options) (*mem.Fabric, []*Engine) {
	t.Helper()
	f := mem.New(n)
	endpoints := make([][]byte, n)
	var mu sync.Mutex
	full := make(chan struct{})
	came := 0
	es := make([]*Engine, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() {
			e, err := New(Config{Rank: r, Size: n, Oversubscribed: true, Drivers: []transport.Driver{f.Driver(r, o)}, Exchange: func(ctx context.Context, endpoint []byte) ([][]byte, error) {
				mu.Lock()
				endpoints[r] = endpoint
				if came++; came == n {
					close(full)
				}
				mu.Unlock()
				<-full
				return endpoints, nil
			}})
			if err == nil {
				err = e.Connect(context.Background())
			}
			es[r], errs[r] = e, err
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, e := range es {
			wg.Go(func() { e.Close(context.Background(), true) })
		}
		wg.Wait()
	})
	return f, es
}

// each runs body on all ranks.
func each(t *testing.T, es []*Engine, body func(e *Engine) error) {
	t.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(es))
	for i, e := range es {
		wg.Go(func() {
			if errs[i] = body(e); errs[i] != nil {
				errs[i] = fmt.Errorf("rank %d: %w", i, errs[i])
				e.Fail(errs[i])
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// ways are the ways in which messages are sent.
var ways = map[string]mem.Options{
	"eager":      {EagerLimit: 1 << 20},
	"rendezvous": {EagerLimit: 16},
	"pull":       {EagerLimit: 16, Pull: true},
	"narrow":     {EagerLimit: 64, Window: -1},
	"polled":     {NoFD: true},
}

func pattern(n int, seed uint64) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(uint64(i)*7 + seed*13 + seed>>8)
	}
	return p
}

// TestMessages_Order sends many messages of all sizes between all ranks: they
// are received in order.
func TestMessages_Order(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			_, es := world(t, 3, o)
			const count = 300
			each(t, es, func(e *Engine) error {
				var reqs []*Request
				for to := range 3 {
					rng := rand.New(rand.NewPCG(uint64(e.rank), uint64(to)))
					for i := range count {
						reqs = append(reqs, e.Isend(0, to, int32(i%3), pattern(rng.IntN(200), uint64(i))))
					}
				}
				for from := range 3 {
					rng := rand.New(rand.NewPCG(uint64(from), uint64(e.rank)))
					sizes := make([]int, count)
					for i := range sizes {
						sizes[i] = rng.IntN(200)
					}
					for tag := range 3 {
						for i := tag; i < count; i += 3 {
							buf := make([]byte, 200)
							st, err := e.Recv(0, from, int32(tag), buf)
							if err != nil {
								return err
							}
							if st.Bytes != sizes[i] || !bytes.Equal(buf[:st.Bytes], pattern(sizes[i], uint64(i))) {
								return fmt.Errorf("message %d from %d: %d bytes", i, from, st.Bytes)
							}
						}
					}
				}
				for _, r := range reqs {
					if _, err := e.Wait(r); err != nil {
						return err
					}
				}
				return nil
			})
			for i, e := range es {
				for j, f := range es {
					if i != j && (e.Sent(j) != count || f.Received(i) != count || f.Taken(i) != count) {
						t.Errorf("%d → %d: %d sent, %d received, %d taken", i, j, e.Sent(j), f.Received(i), f.Taken(i))
					}
				}
			}
		})
	}
}

// watcher is an observer that records calls.
type watcher struct {
	control [][]byte
	arrived map[int]int
}

func (w *watcher) Control(from int, m []byte) { w.control = append(w.control, m) }
func (w *watcher) MessageDone(from int)       { w.arrived[from]++ }
func (w *watcher) Blocked()                   {}
func (w *watcher) Ended(int)                  {}
func (w *watcher) Rollback()                  {}
func (w *watcher) Lost(int, error)            {}

// TestCapture_MessagesInflight captures the state of a rank while messages for
// it are unexpected or in the middle of a rendezvous, and restores it in
// another world.
func TestCapture_MessagesInflight(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			_, es := world(t, 2, o)
			var kept []SavedMessage
			const n = 20
			each(t, es, func(e *Engine) error {
				if e.rank == 0 {
					var reqs []*Request
					for i := range n {
						reqs = append(reqs, e.Isend(4, 1, int32(i), pattern(i*10, uint64(i))))
					}
					e.Control(1, []byte("sent"))
					for _, r := range reqs {
						if _, err := e.Wait(r); err != nil {
							return err
						}
					}
					return nil
				}
				w := &watcher{arrived: make(map[int]int)}
				e.Lock()
				defer e.Unlock()
				e.observer = w
				e.Pause()
				e.Pull(true)
				if err := e.Serve(func() bool { return e.Received(0) == n && len(w.control) == 1 }); err != nil {
					return err
				}
				if w.arrived[0] != n {
					return fmt.Errorf("told of %d arrivals", w.arrived[0])
				}
				kept = e.Capture(false)
				e.Continue(true)
				return nil
			})
			if len(kept) != n {
				t.Fatalf("%d messages kept", len(kept))
			}
			_, es = world(t, 2, mem.Options{})
			e := es[1]
			e.Lock()
			if err := e.RestoreInflight(kept, false); err != nil {
				t.Fatal(err)
			}
			e.Unlock()
			for i := range n {
				buf := make([]byte, 1000)
				st, err := e.Recv(4, Any, Any, buf)
				if err != nil || st.Tag != i || !bytes.Equal(buf[:st.Bytes], pattern(i*10, uint64(i))) {
					t.Fatal(i, st, err)
				}
			}
			if e.Taken(0) != 0 {
				t.Error("old messages are counted")
			}
		})
	}
}

// TestContinue_Early sends from a rank that has continued to one that has not
// yet copied.
func TestContinue_Early(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			_, es := world(t, 2, o)
			a, b := es[0], es[1]
			buf := make([]byte, 100)
			pending := b.Irecv(0, 0, 1, buf)
			b.Lock()
			b.Pause()
			b.Unlock()
			a.Lock()
			a.Continue(true)
			a.Unlock()
			done := make(chan error, 1)
			go func() {
				var reqs []*Request
				for tag := range 3 {
					reqs = append(reqs, a.Isend(0, 1, int32(tag), pattern(90, uint64(tag))))
				}
				for _, r := range reqs {
					if _, err := a.Wait(r); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
			b.Lock()
			for len(b.deferred) == 0 {
				b.poll()
			}
			for range 100 {
				b.poll()
			}
			if pending.done || len(b.Capture(false)) != 0 {
				t.Error("a message of the next epoch got in")
			}
			b.Continue(true)
			b.Unlock()
			if st, err := b.Wait(pending); err != nil || st.Tag != 1 || !bytes.Equal(buf[:90], pattern(90, 1)) {
				t.Error(st, err)
			}
			for _, tag := range []int32{0, 2} {
				if _, err := b.Recv(0, 0, tag, buf); err != nil || !bytes.Equal(buf[:90], pattern(90, uint64(tag))) {
					t.Error(tag, err)
				}
			}
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestLost_SendAndRecvFail shows that calls that need a lost rank fail, and
// others do not.
func TestLost_SendAndRecvFail(t *testing.T) {
	f, es := world(t, 3, mem.Options{})
	go f.Kill(2)
	for _, e := range es[:2] {
		if _, err := e.Recv(0, 1-e.rank, 0, nil); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
		if err := e.Send(0, 2, 0, nil); !errors.Is(err, ErrLost) {
			t.Error(err)
		}
	}
}

// TestLost_RankEnded receives from a rank that has closed its engine.
func TestLost_RankEnded(t *testing.T) {
	_, es := world(t, 2, mem.Options{})
	each(t, es, func(e *Engine) error {
		if e.rank == 0 {
			if err := e.Send(0, 1, 7, []byte{1}); err != nil {
				return err
			}
			_, err := e.Close(context.Background(), true)
			return err
		}
		b := make([]byte, 1)
		if _, err := e.Recv(0, 0, 8, b); !errors.Is(err, ErrEnded) {
			return fmt.Errorf("tag 8: %v", err)
		}
		if _, err := e.Recv(0, Any, 7, b); err != nil {
			return err
		}
		if _, err := e.Recv(0, Any, Any, b); !errors.Is(err, ErrEnded) {
			return fmt.Errorf("any: %v", err)
		}
		all, err := e.Close(context.Background(), false)
		if all {
			return errors.New("all are said to be done")
		}
		return err
	})
}

// TestCloseFragile closes and reopens links with nothing in flight.
func TestCloseFragile(t *testing.T) {
	_, es := world(t, 2, mem.Options{MustClose: true})
	x := make(chan struct{})
	endpoints := make([][]byte, 2)
	var mu sync.Mutex
	n := 0
	for _, e := range es {
		e.cfg.Exchange = func(ctx context.Context, endpoint []byte) ([][]byte, error) {
			mu.Lock()
			endpoints[e.rank] = endpoint
			if n++; n == 2 {
				close(x)
			}
			mu.Unlock()
			<-x
			return endpoints, nil
		}
	}
	each(t, es, func(e *Engine) error {
		e.Lock()
		closed, err := e.CloseFragile(context.Background())
		e.Unlock()
		if err != nil || !closed {
			return fmt.Errorf("closed %v: %v", closed, err)
		}
		if err := e.Reopen(context.Background()); err != nil {
			return err
		}
		b := []byte{byte(e.rank)}
		r := e.Irecv(0, 1-e.rank, 0, b[:1:1])
		if err := e.Send(0, 1-e.rank, 0, []byte{byte(e.rank)}); err != nil {
			return err
		}
		if _, err := e.Wait(r); err != nil || b[0] != byte(1-e.rank) {
			return fmt.Errorf("%v, %v", b, err)
		}
		return nil
	})
}

// TestSend_Goroutines makes many goroutines of one rank wait at the same time.
func TestSend_Goroutines(t *testing.T) {
	_, es := world(t, 2, mem.Options{})
	each(t, es, func(e *Engine) error {
		var wg sync.WaitGroup
		errs := make([]error, 16)
		for g := range errs {
			wg.Go(func() {
				b := make([]byte, 8)
				for i := range 200 {
					if errs[g] = e.Send(0, 1-e.rank, int32(g), pattern(8, uint64(i))); errs[g] != nil {
						return
					}
					if _, errs[g] = e.Recv(0, 1-e.rank, int32(g), b); errs[g] != nil {
						return
					}
					if !bytes.Equal(b, pattern(8, uint64(i))) {
						errs[g] = errors.New("wrong bytes")
					}
				}
			})
		}
		wg.Wait()
		return errors.Join(errs...)
	})
}

// TestTotals_OpenSends shows that the totals report something in flight until a
// sender knows that its message was received.
func TestTotals_OpenSends(t *testing.T) {
	for name, o := range ways {
		t.Run(name, func(t *testing.T) {
			_, es := world(t, 2, o)
			totals := func() (sent, received uint64) {
				for _, e := range es {
					e.Lock()
					s, r := e.Totals()
					e.Unlock()
					sent, received = sent+s, received+r
				}
				return sent, received
			}
			r := es[0].Isend(0, 1, 1, pattern(1<<12, 1))
			in := es[1].Irecv(0, 0, 1, make([]byte, 1<<12))
			for got := false; !got; {
				es[0].Lock()
				es[0].poll()
				done := r.done
				es[0].Unlock()
				es[1].Lock()
				es[1].poll()
				got = in.done
				es[1].Unlock()
				if sent, received := totals(); (sent == received) != (got && (done || r.done)) {
					t.Fatalf("the receiver has it: %v, the sender knows: %v; totals %d and %d", got, done, sent, received)
				}
			}
			if _, err := es[0].Wait(r); err != nil {
				t.Fatal(err)
			}
			if sent, received := totals(); sent != 1 || received != 1 {
				t.Fatalf("totals are %d and %d after one message", sent, received)
			}
		})
	}
}

// TestClose_DuringReceive closes an engine while a goroutine sleeps in it.
func TestClose_DuringReceive(t *testing.T) {
	_, es := world(t, 2, mem.Options{})
	es[0].cfg.Oversubscribed = false // so that Close polls, too
	got := make(chan error)
	go func() {
		_, err := es[0].Recv(0, 1, 1, make([]byte, 1))
		got <- err
	}()
	for asleep := false; !asleep; {
		es[0].Lock()
		asleep = es[0].sleep.asleep
		es[0].Unlock()
	}
	go es[1].Close(context.Background(), true)
	es[0].Close(context.Background(), true)
	if err := <-got; !errors.Is(err, ErrEnded) {
		t.Errorf("a receive that was pending when the run was closed: %v", err)
	}
}
