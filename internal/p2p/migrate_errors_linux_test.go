package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/transport/mem"
)

// TestSend_NotConnected shows that an engine without a place among the ranks
// refuses everything that needs another rank, and waits for nothing.
func TestSend_NotConnected(t *testing.T) {
	s := newStage(t, "mem", 3)
	p := s.enter(1, nil)
	defer p.kill()
	buf := make([]byte, 10)
	for what, f := range map[string]func() error{
		"Send":  func() error { return p.Send(0, 0, 1, buf) },
		"Isend": func() error { _, err := p.Wait(p.Isend(0, 2, 1, buf)); return err },
		"Recv":  func() error { _, err := p.Recv(0, 0, 1, buf); return err },
		"Irecv": func() error { _, err := p.Wait(p.Irecv(0, 0, 1, buf)); return err },
		"any":   func() error { _, err := p.Recv(0, Any, Any, buf); return err },
		"Test":  func() error { _, _, err := p.Test(p.Irecv(0, Any, 1, buf)); return err },
		"WaitAny": func() error {
			_, _, err := p.WaitAny([]*Request{nil, p.Irecv(0, 2, 1, buf)})
			return err
		},
		"Probe":  func() error { _, err := p.Probe(0, 0, 1); return err },
		"Iprobe": func() error { _, _, err := p.Iprobe(0, Any, 1); return err },
		"Part": func() error {
			p.Lock()
			defer p.Unlock()
			return p.Detach(t.Context(), []int{1})
		},
	} {
		if err := f(); !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "before Restore") {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Messages from a rank to itself need no other rank.
	if err := p.Send(0, 1, 1, pattern(10, 1)); err != nil {
		t.Error(err)
	}
	if st, err := p.Recv(0, Any, Any, buf); err != nil || st.Source != 1 || !slices.Equal(buf, pattern(10, 1)) {
		t.Error(st, err)
	}
}

// rejoin cancels a move on all ranks.
func (s *stage) rejoin(moving []int) {
	s.t.Helper()
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		p.Reattach(moving)
		return nil
	})
}

// TestDetach_InVain shows that ranks continue after they have detached from a
// rank that never detaches, and that the next move does not confuse this detach
// with its own.
func TestDetach_InVain(t *testing.T) {
	for _, way := range stages {
		t.Run(way, func(t *testing.T) {
			s := newStage(t, way, 3)
			x := newTraffic(3)
			x.run(s, 2, 1)
			s.hold()
			enough := errors.New("enough")
			s.all(func(p *place) error {
				if p.rank == 1 { // it cannot be moved, and the cancellation comes from another rank
					return nil
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(20*time.Millisecond, func() { cancel(enough) })
				p.Lock()
				defer p.Unlock()
				if err := p.Detach(ctx, []int{1}); !errors.Is(err, enough) {
					return fmt.Errorf("Part ended with %v", err)
				}
				p.Control(1, []byte("waits"))
				return nil
			})
			s.rejoin([]int{1})
			s.release()
			x.wake(s)
			x.run(s, 2, 1)
			s.hold()
			s.move([]int{1}, x.waits)
			s.release()
			x.wake(s)
			x.run(s, 1, 0)
		})
	}
}

// TestReattach_Early has a rank that learns of the cancellation and reattaches
// while another one still detaches from a third.
func TestReattach_Early(t *testing.T) {
	f, es := world(t, 3, mem.Options{})
	moving := []int{1}
	for round := range 3 {
		f.Hold(2, 1)
		done := make(chan error, 3)
		part := func(e *Engine) {
			e.Lock()
			defer e.Unlock()
			e.Pause()
			done <- e.Detach(t.Context(), moving)
		}
		rejoin := func(e *Engine) {
			e.Lock()
			defer e.Unlock()
			e.Reattach(moving)
			e.Control(1, fmt.Appendf(nil, "round %d", round))
			e.Continue(false)
		}
		go part(es[1])
		for _, r := range []int{0, 2} {
			go part(es[r])
		}
		for range 2 { // ranks 0 and 2 need nothing more from each other
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		rejoin(es[0])
		f.Release(2, 1)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		rejoin(es[1])
		rejoin(es[2])
		each(t, es, func(e *Engine) error {
			to, from := (e.rank+1)%3, (e.rank+2)%3
			s := e.Isend(0, to, 1, []byte{byte(round)})
			buf := []byte{9}
			if _, err := e.Recv(0, from, 1, buf); err != nil || buf[0] != byte(round) {
				return fmt.Errorf("%v, %w", buf, err)
			}
			_, err := e.Wait(s)
			return err
		})
	}
}

// TestLost_WhileDetached shows that a rank which dies after the others have
// detached from it is reported when they reattach, not before.
func TestLost_WhileDetached(t *testing.T) {
	for _, way := range stages {
		t.Run(way, func(t *testing.T) {
			s := newStage(t, way, 3)
			s.hold()
			s.part([]int{1})
			s.at[1].kill()
			// Poll long enough for the links to notice.
			for _, p := range []*place{s.at[0], s.at[2]} {
				p.Lock()
				end := time.Now().Add(5 * time.Second)
				for p.peers[1].gone == nil && time.Now().Before(end) {
					p.poll()
				}
				if p.peers[1].gone == nil || p.err != nil || len(p.log.lost) > 0 {
					t.Fatalf("gone: %v, error %v, lost %v", p.peers[1].gone, p.err, p.log.lost)
				}
				p.Reattach([]int{1})
				if !errors.Is(p.err, ErrLost) || !slices.Equal(p.log.lost, []int{1}) {
					t.Errorf("after Rejoin: %v, lost %v", p.err, p.log.lost)
				}
				p.Unlock()
			}
		})
	}
}

// TestLost_BeforeDetach shows that a rank which dies before it has detached is
// lost as usual.
func TestLost_BeforeDetach(t *testing.T) {
	for _, way := range stages {
		t.Run(way, func(t *testing.T) {
			s := newStage(t, way, 3)
			s.hold()
			done := make(chan error, 2)
			for _, r := range []int{0, 2} {
				go func() {
					p := s.at[r]
					p.Lock()
					defer p.Unlock()
					done <- p.Detach(t.Context(), []int{1})
				}()
			}
			s.at[1].kill()
			for range 2 {
				if err := <-done; !errors.Is(err, ErrLost) {
					t.Error(err)
				}
			}
		})
	}
}

// TestRelink_Fails shows that an error of Relink ends the engine, with the
// reason.
func TestRelink_Fails(t *testing.T) {
	s := newStage(t, "tcp", 3)
	destination := s.enter(1, nil)
	defer destination.kill()
	endpoint, err := destination.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	other := newStage(t, "mem", 3)
	alien, err := other.at[1].Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, want string
		endpoints  [][]byte
	}{
		{"none", "needs the endpoint of rank 1", make([][]byte, 3)},
		{"another rank's", "is that of rank 1", [][]byte{endpoint}},
		{"of another kind", "no transport leads", [][]byte{nil, alien}},
		{"no endpoint at all", "endpoint of rank 1", [][]byte{nil, []byte("{")}},
		{"too many", "in a run of 3", [][]byte{nil, endpoint, nil, endpoint}},
	} {
		s := newStage(t, "tcp", 3)
		s.hold()
		s.part([]int{1})
		err := s.at[0].Relink(t.Context(), []int{1}, c.endpoints)
		if err == nil || !strings.Contains(err.Error(), c.want) || s.at[0].err == nil {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	s.hold()
	s.part([]int{1})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := s.at[0].Relink(ctx, []int{1}, [][]byte{nil, endpoint}); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "rank 1") {
		t.Errorf("a destination that does not come: %v", err)
	}
	if err := s.at[1].Relink(t.Context(), []int{1}, s.endpoints); err == nil || !strings.Contains(err.Error(), "has moved to another process") {
		t.Errorf("in the source: %v", err)
	}
}

// TestSetCounters refuses counters that do not fit, and those for an engine
// that is connected.
func TestSetCounters(t *testing.T) {
	s := newStage(t, "mem", 2)
	good := Counters{Epoch: 3, Contexts: 8, Sent: make([]uint64, 2), Received: []uint64{4, 0}, Taken: []uint64{2, 0}}
	if err := s.at[1].SetCounters(good); err == nil {
		t.Error("an engine that is connected takes another one's counts")
	}
	p := s.enter(1, nil)
	defer p.kill()
	bad := good
	bad.Sent = nil
	if err := p.SetCounters(bad); err == nil {
		t.Error("counts of no ranks")
	}
	bad = good
	bad.Taken = []uint64{5, 0}
	if err := p.SetCounters(bad); err == nil {
		t.Error("more taken than came")
	}
	if err := p.SetCounters(good); err != nil || p.epoch != 3 || p.NextContext() != 8 || p.Received(0) != 4 || p.Taken(0) != 2 {
		t.Error(err, p.epoch, p.NextContext())
	}
}

// TestCounters_Restored shows that messages from before a restart are kept
// apart: their senders do not count them.
func TestCounters_Restored(t *testing.T) {
	s := newStage(t, "mem", 2)
	old := s.at[1]
	old.Lock()
	if err := old.RestoreInflight([]SavedMessage{{Source: 0, Tag: 5, Little: true, Data: []byte("old")}}, false); err != nil {
		t.Fatal(err)
	}
	old.Unlock()
	if err := s.at[0].Send(0, 1, 5, []byte("new")); err != nil {
		t.Fatal(err)
	}
	s.hold()
	s.move([]int{1}, make([][]*pending, 2))
	s.release()
	p := s.at[1]
	if p == old {
		t.Fatal("nothing moved")
	}
	for _, want := range []string{"old", "new"} {
		buf := make([]byte, 3)
		if _, err := p.Recv(0, 0, 5, buf); err != nil || string(buf) != want {
			t.Fatalf("%q, %v", buf, err)
		}
	}
	if p.Received(0) != 1 || p.Taken(0) != 1 {
		t.Errorf("%d received and %d taken of 1 that is counted", p.Received(0), p.Taken(0))
	}
}

// TestMove_FragileLinksClosed shows that links which are closed for every
// checkpoint are also closed for destinations.
func TestMove_FragileLinksClosed(t *testing.T) {
	for _, o := range []mem.Options{{MustClose: true}, {MustClose: true, EagerLimit: 16, Pull: true}} {
		ways["fragile"] = o
		s := newStage(t, "fragile", 3)
		delete(ways, "fragile")
		meet := func(context.Context, []byte) ([][]byte, error) { return s.endpoints, nil }
		x := newTraffic(3)
		for round := range 6 {
			x.run(s, 2, 1)
			s.hold()
			if round%2 == 0 {
				s.move([]int{1, round / 2 % 3}[:1+round%3%2], x.waits)
			} else {
				s.all(func(p *place) error {
					p.cfg.Exchange = meet
					p.Lock()
					any, err := p.CloseFragile(t.Context())
					p.Unlock()
					if err == nil && !any {
						err = errors.New("nothing was closed")
					}
					if err == nil {
						err = p.Reopen(t.Context())
					}
					return err
				})
			}
			s.release()
			x.wake(s)
		}
		x.run(s, 1, 0)
	}
}
