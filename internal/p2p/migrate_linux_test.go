package p2p

import (
	"bytes"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/mem"
	"github.com/cairnrun/cairn/internal/transport/shm"
	"github.com/cairnrun/cairn/internal/transport/tcp"
)

// place is a process of the test: an engine with its drivers.
type place struct {
	*Engine
	drivers []transport.Driver
	log     *controls
}

// kill ends it as SIGKILL would.
func (p *place) kill() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	p.lock()
	for _, d := range p.drivers {
		if m, ok := d.(*mem.Driver); ok {
			m.Kill()
		}
	}
	for _, l := range p.links {
		l.Close(over)
	}
	p.links = nil
	p.sleep.close()
	p.mu.Unlock()
	for _, d := range p.drivers {
		d.Close()
	}
}

// controls is an observer that keeps control messages.
type controls struct {
	got  map[int][]string
	lost []int
}

func (c *controls) Control(from int, m []byte) { c.got[from] = append(c.got[from], string(m)) }
func (c *controls) MessageDone(int)            {}
func (c *controls) Blocked()                   {}
func (c *controls) Ended(int)                  {}
func (c *controls) Rollback()                  {}
func (c *controls) Lost(rank int, err error)   { c.lost = append(c.lost, rank) }

// stage is a run whose ranks move.
type stage struct {
	t         *testing.T
	n         int
	open      func(rank int) []transport.Driver
	endpoints [][]byte // as a supervisor has them
	dir       string   // directory for the transports' files
	club      club
	at        []*place
}

// stages are the ways in which ranks are connected.
var stages = []string{"mem", "pull", "narrow", "shm", "tcp", "mixed", "joins", "some join"}

func newStage(t *testing.T, way string, n int) *stage {
	f := mem.New(n)
	dir := t.TempDir()
	secret := bytes.Repeat([]byte{7}, 32)
	must := func(d transport.Driver, err error) transport.Driver {
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	viaShm := func(r int, host string) transport.Driver {
		return must(shm.Open(shm.Options{Rank: r, Size: n, Host: host, Run: "move", Dir: dir, Ring: 8 << 10}))
	}
	viaTCP := func(r int, host string) transport.Driver {
		return must(tcp.Open(tcp.Options{Rank: r, Size: n, Host: host, Secret: secret, Listen: "127.0.0.1"}))
	}
	opened, options := 0, ways[way]
	s := &stage{t: t, n: n, dir: dir, at: make([]*place, n), endpoints: make([][]byte, n)}
	s.open = func(r int) []transport.Driver {
		switch way {
		case "shm":
			return []transport.Driver{viaShm(r, "here")}
		case "tcp":
			return []transport.Driver{viaTCP(r, "here")}
		case "mixed": // destinations are on this host or another one
			host := fmt.Sprint("host", opened/2%2)
			opened++
			return []transport.Driver{viaShm(r, host), viaTCP(r, host)}
		case "joins", "some join":
			opened++
			if way == "some join" && opened > n && opened%3 == 0 { // this one cannot join
				return []transport.Driver{viaTCP(r, "here")}
			}
			return []transport.Driver{s.club.driver(viaTCP(r, "here"), opened > n), viaTCP(r, "here")}
		case "together", "apart":
			opened++
			host := "here"
			if way == "apart" && r == 2 {
				host = "there"
			}
			return []transport.Driver{viaShm(r, host), s.club.driver(viaTCP(r, host), opened > n), viaTCP(r, host)}
		case "mem":
			return []transport.Driver{f.Driver(r, mem.Options{EagerLimit: 1 << 20})}
		}
		return []transport.Driver{f.Driver(r, options)}
	}
	full, came := make(chan struct{}), 0
	var mu sync.Mutex
	meet := func(r int) func(context.Context, []byte) ([][]byte, error) {
		return func(_ context.Context, endpoint []byte) ([][]byte, error) {
			mu.Lock()
			s.endpoints[r] = endpoint
			if came++; came == n {
				close(full)
			}
			mu.Unlock()
			<-full
			return s.endpoints, nil
		}
	}
	for r := range n {
		s.at[r] = s.enter(r, meet(r))
	}
	s.all(func(e *place) error { return e.Connect(t.Context()) })
	t.Cleanup(func() {
		for _, p := range s.at {
			p.kill()
		}
	})
	return s
}

// enter creates the engine of a process.
func (s *stage) enter(r int, meet func(context.Context, []byte) ([][]byte, error)) *place {
	p := &place{drivers: s.open(r), log: &controls{got: make(map[int][]string)}}
	e, err := New(Config{Rank: r, Size: s.n, Oversubscribed: true, Drivers: p.drivers, Exchange: meet, Observer: p.log})
	if err != nil {
		s.t.Fatal(err)
	}
	p.Engine = e
	return p
}

// all runs body on all ranks. A rank that is done continues to serve the
// others.
func (s *stage) all(body func(p *place) error) {
	s.t.Helper()
	var wg sync.WaitGroup
	var done atomic.Int32
	errs := make([]error, s.n)
	for i, p := range s.at {
		wg.Go(func() {
			err := body(p)
			if done.Add(1); err != nil {
				p.Fail(err)
			}
			for _, o := range s.at {
				o.Wake()
			}
			if p.Lock(); len(p.links) > 0 && err == nil {
				err = p.Serve(func() bool { return int(done.Load()) == s.n })
			}
			p.Unlock()
			if err != nil {
				errs[i] = fmt.Errorf("rank %d: %w", p.rank, err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		s.t.Fatal(err)
	}
}

// hold pauses all ranks, and receives what is in flight.
func (s *stage) hold() {
	s.t.Helper()
	sent := make([][]uint64, s.n)
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		p.Pause()
		p.Pull(true)
		for r := range s.n {
			sent[p.rank] = append(sent[p.rank], p.Sent(r))
		}
		return nil
	})
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		return p.Serve(func() bool {
			for r := range s.n {
				if r != p.rank && p.Received(r) < sent[r][p.rank] {
					return false
				}
			}
			return p.openSends == 0
		})
	})
}

func (s *stage) release() {
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		p.Pull(false)
		p.Continue(false)
		return nil
	})
}

// part makes all ranks detach. Control messages that are sent after it arrive
// when the move is over, whether it succeeds or is cancelled.
func (s *stage) part(moving []int) {
	s.t.Helper()
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		if err := p.Detach(s.t.Context(), moving); err != nil {
			return err
		}
		for r := range s.n {
			if r != p.rank && !slices.Contains(moving, p.rank) {
				p.Control(r, fmt.Appendf(nil, "after %v of %d", moving, p.rank))
			}
		}
		return nil
	})
}

// controlsCame waits for the control messages that part sent.
func (s *stage) controlsCame(moving []int) {
	s.t.Helper()
	s.all(func(p *place) error {
		p.Lock()
		defer p.Unlock()
		return p.Serve(func() bool {
			for r := range s.n {
				if r == p.rank || slices.Contains(moving, r) {
					continue
				}
				want := fmt.Sprintf("after %v of %d", moving, r)
				if got := p.log.got[r]; len(got) == 0 || got[len(got)-1] != want {
					return false
				}
			}
			return true
		})
	})
}

// pending is a list of receives that wait when their rank moves.
type pending struct {
	from int
	tag  int32
	buf  []byte
	r    *Request
}

// move moves ranks. waits are the pending receives, by rank.
func (s *stage) move(moving []int, waits [][]*pending) {
	s.t.Helper()
	destinations := make(map[int]*place)
	for _, r := range moving {
		destinations[r] = s.enter(r, nil)
	}
	s.part(moving)
	endpoints := make([][]byte, s.n)
	for _, r := range moving {
		old, p := s.at[r], destinations[r]
		old.Lock()
		ledger, kept := old.Counters(), old.Capture(false)
		posted := make([]uint64, len(waits[r]))
		for i, w := range waits[r] {
			posted[i] = w.r.posted
		}
		old.Unlock()
		// The counters are transferred as bytes.
		var wire bytes.Buffer
		var carried Counters
		if err := errors.Join(gob.NewEncoder(&wire).Encode(ledger), gob.NewDecoder(&wire).Decode(&carried)); err != nil {
			s.t.Fatal(err)
		}
		if err := p.SetCounters(carried); err != nil {
			s.t.Fatal(err)
		}
		for i, w := range waits[r] {
			p.RestoreReceive(posted[i], func() (*Request, uint32, int, int32, []byte, *Memory, error) {
				w.r = new(Request)
				return w.r, 0, w.from, w.tag, w.buf, nil, nil
			})
		}
		p.Lock()
		err := p.RestoreInflight(kept, false)
		p.Pause()
		p.Unlock()
		if err != nil {
			s.t.Fatal(err)
		}
		if s.endpoints[r], err = p.Endpoint(); err != nil {
			s.t.Fatal(err)
		}
		endpoints[r] = s.endpoints[r]
	}
	for _, r := range moving {
		s.at[r].kill()
		s.at[r] = destinations[r]
	}
	s.all(func(p *place) error {
		if slices.Contains(moving, p.rank) {
			return p.Relink(s.t.Context(), moving, s.endpoints)
		}
		return p.Relink(s.t.Context(), moving, endpoints)
	})
	s.controlsCame(moving)
}

// traffic sends messages between all pairs of ranks. Some of them are received
// only in the next call.
type traffic struct {
	sent, got [][]int // by sender, by receiver
	waits     [][]*pending
}

func newTraffic(n int) *traffic {
	x := &traffic{waits: make([][]*pending, n)}
	for range n {
		x.sent, x.got = append(x.sent, make([]int, n)), append(x.got, make([]int, n))
	}
	return x
}

func text(from, to, i int) []byte {
	n := []int{0, 5, 100, 3000, 20000}[(i*7+from+3*to)%5]
	return pattern(n, uint64(from*1000+to*100+i))
}

const waitTag = 9

// run sends count messages on each pair and receives all but keep of them.
func (x *traffic) run(s *stage, count, keep int) {
	s.t.Helper()
	s.all(func(p *place) error {
		me := p.rank
		for _, w := range x.waits[me] { // receives that were pending in the last call
			st, err := p.Wait(w.r)
			if want := pattern(50, uint64(w.from)); err != nil || !bytes.Equal(w.buf[:st.Bytes], want) {
				return fmt.Errorf("a receive from rank %d that was pending: %d bytes, %w", w.from, st.Bytes, err)
			}
		}
		x.waits[me] = nil
		var reqs []*Request
		for range count {
			for to := range s.n {
				reqs = append(reqs, p.Isend(0, to, 1, text(me, to, x.sent[me][to])))
				x.sent[me][to]++
			}
		}
		for from := range s.n {
			for i := x.got[from][me]; i < x.sent[me][from]-keep; i++ {
				buf := make([]byte, 20000)
				st, err := p.Recv(0, from, 1, buf)
				if err != nil {
					return err
				}
				if want := text(from, me, i); !bytes.Equal(buf[:st.Bytes], want) {
					return fmt.Errorf("message %d of rank %d has %d bytes, want %d", i, from, st.Bytes, len(want))
				}
				x.got[from][me]++
			}
		}
		for _, from := range []int{(me + 1) % s.n, (me + 2) % s.n} {
			w := &pending{from: from, tag: waitTag, buf: make([]byte, 50)}
			w.r = p.Irecv(0, from, waitTag, w.buf)
			x.waits[me] = append(x.waits[me], w)
		}
		p.Lock()
		err := p.Serve(func() bool { // large messages are fetched when all ranks are paused
			return !slices.ContainsFunc(reqs, func(r *Request) bool { return !r.done && len(r.buf) <= p.peers[r.peer].eager })
		})
		p.Unlock()
		return err
	})
}

// wake satisfies the pending receives.
func (x *traffic) wake(s *stage) {
	s.t.Helper()
	s.all(func(p *place) error {
		for _, d := range []int{1, 2} {
			if err := p.Send(0, (p.rank-d+s.n)%s.n, waitTag, pattern(50, uint64(p.rank))); err != nil {
				return err
			}
		}
		return nil
	})
}

// held counts the resources of this process: descriptors, and files of
// transports, by name and in memory.
func (s *stage) held() (fds, files, maps int) {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		s.t.Skip(err)
	}
	left, _ := os.ReadDir(s.dir)
	m, _ := os.ReadFile("/proc/self/maps")
	return len(list), len(left), strings.Count(string(m), "/cairn-move-")
}

// TestMove_MessagesInflight moves ranks back and forth, one, several or all at
// a time, with unreceived messages and pending receives. Some moves are
// cancelled.
func TestMove_MessagesInflight(t *testing.T) {
	for _, way := range stages {
		t.Run(way, func(t *testing.T) {
			const n = 4
			s := newStage(t, way, n)
			x := newTraffic(n)
			rng := rand.New(rand.NewPCG(1, uint64(len(way))))
			var fds, maps int
			rounds := 24
			if testing.Short() {
				rounds = 8
			}
			for round := range rounds {
				x.run(s, 3, 2)
				s.hold()
				moving := rng.Perm(n)[:1+rng.IntN(n)]
				if round%4 == 3 {
					moving = []int{0, 1, 2, 3}
				}
				if round%5 == 4 {
					s.part(moving)
					s.all(func(p *place) error {
						p.Lock()
						defer p.Unlock()
						p.Reattach(moving)
						return nil
					})
					s.controlsCame(moving)
				} else {
					s.move(moving, x.waits)
				}
				s.release()
				x.wake(s)
				if round == 3 {
					fds, _, maps = s.held()
				}
			}
			x.run(s, 1, 0)
			for a, p := range s.at {
				for b, q := range s.at {
					if want := uint64(x.sent[a][b] + 0); a != b && (p.Sent(b) < want || p.Sent(b) != q.Received(a) || q.Taken(a) != q.Received(a)) {
						t.Errorf("%d → %d: %d sent, %d received, %d taken; the program sent %d and more", a, b, p.Sent(b), q.Received(a), q.Taken(a), want)
					}
				}
				if len(p.log.lost) > 0 {
					t.Errorf("rank %d has lost %v", a, p.log.lost)
				}
			}
			// The resources of links depend on their number. A last move of all
			// ranks makes it the same as after the first move.
			s.hold()
			s.move([]int{0, 1, 2, 3}, x.waits)
			if f, left, m := s.held(); way != "mixed" && (f > fds || m > maps) || left > 0 {
				t.Errorf("%d descriptors, %d mappings and %d files after %d moves; %d and %d after four", f, m, left, rounds, fds, maps)
			}
		})
	}
}
