package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/mpi"
)

// stage is a run whose ranks are goroutines, and its supervisor.
type stage struct {
	t       *testing.T
	n       int
	launch  control.Welcome
	opts    Options
	program func(p *Run) error
	events  chan said
	members sync.WaitGroup

	mu        sync.Mutex
	ranks     []*actor
	meets     map[uint64][][]byte
	endpoints [][]byte
	moves     uint64
	errs      []error
	ended     chan struct{} // closed by end1 when a rank has finished
	end1      func()
	told      func(id uint64) error // after Allgather; an error cancels the move
	out       string                // standard output of ranks, for destinations
}

// actor is a process of a run.
type actor struct {
	rank int
	conn *control.Conn
	left bool
}

// said is a message of an actor.
type said struct {
	by *actor
	m  control.Message
}

func newStage(t *testing.T, n int, transports []string, opts Options, program func(p *Run) error) *stage {
	s := &stage{t: t, n: n, opts: opts, program: program, events: make(chan said, 4096), meets: make(map[uint64][][]byte), endpoints: make([][]byte, n),
		launch: control.Welcome{Size: n, Host: "here", Launch: "move" + fmt.Sprint(time.Now().UnixNano()), Secret: []byte(strings.Repeat("s", 32)), Transports: transports, Dir: opts.Dir}}
	s.ended = make(chan struct{})
	s.end1 = sync.OnceFunc(func() { close(s.ended) })
	for r := range n {
		a := s.enter(r, nil)
		s.mu.Lock()
		s.ranks = append(s.ranks, a)
		s.mu.Unlock()
	}
	return s
}

// enter starts a process.
func (s *stage) enter(rank int, m *control.Move) *actor {
	mine, theirs := net.Pipe()
	a := &actor{rank: rank, conn: control.New(theirs)}
	w := s.launch
	w.Rank, w.Move = rank, m
	id := &identity{Welcome: w, supervisor: supervised(control.New(mine))}
	id.exchange = id.supervisor.exchange
	if m != nil {
		id.Host, id.Stdout = fmt.Sprintf("host %d", m.ID), s.out
	}
	go s.listen(a)
	run := func() {
		o := s.opts
		o.identity, o.Signals = id, map[os.Signal]SignalAction{}
		p, err := Open(context.Background(), o)
		if err == nil {
			err = s.program(p)
			err = errors.Join(err, p.Close())
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.ranks) <= rank || s.ranks[rank] == a {
			s.errs = append(s.errs, err)
			s.end1()
		} else {
			go func() { s.events <- said{a, &control.Exited{Error: fmt.Sprint(err)}} }()
		}
	}
	s.members.Add(1)
	done := sync.OnceFunc(s.members.Done)
	go func() { run(); done() }()
	go func() { // a source that has left never returns
		for !func() bool { s.mu.Lock(); defer s.mu.Unlock(); return a.left }() {
			time.Sleep(time.Millisecond)
		}
		done()
	}()
	return a
}

func (s *stage) listen(a *actor) {
	for {
		m, err := a.conn.Recv()
		if err != nil {
			s.mu.Lock()
			a.left = true
			s.mu.Unlock()
			return
		}
		switch m := m.(type) {
		case *control.Endpoint:
			s.meet(a, m)
		default:
			if moveOf(m) != 0 {
				s.events <- said{a, m}
			}
		}
	}
}

// moveOf returns the move that a message is about; 0: none.
func moveOf(m control.Message) uint64 {
	switch m := m.(type) {
	case *control.Listening:
		return m.Move
	case *control.Precopied:
		return m.Move
	case *control.Paused:
		return m.Move
	case *control.Sent:
		return m.Move
	case *control.Received:
		return m.Move
	case *control.HandedOver:
		return m.Move
	case *control.Linked:
		return m.Move
	case *control.MoveFailed:
		return m.Move
	}
	return 0
}

func (s *stage) meet(a *actor, m *control.Endpoint) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.meets[m.Epoch] == nil {
		s.meets[m.Epoch] = make([][]byte, s.n)
	}
	all := s.meets[m.Epoch]
	all[a.rank] = m.Data
	if slices.ContainsFunc(all, func(c []byte) bool { return c == nil }) {
		return
	}
	s.endpoints = slices.Clone(all)
	for _, r := range s.ranks {
		go r.conn.Send(&control.Endpoints{Epoch: m.Epoch, Endpoints: all})
	}
}

// await waits until each of the actors has sent a message of a kind.
func (s *stage) await(move uint64, who []*actor, what control.Message) (map[*actor]control.Message, error) {
	got := make(map[*actor]control.Message)
	late := time.After(time.Minute)
	ended := s.ended
	switch what.(type) {
	case *control.HandedOver, *control.Linked:
		ended = nil // it is decided
	}
	for len(got) < len(who) {
		select {
		case e := <-s.events:
			if id := moveOf(e.m); id != 0 && id != move { // of an earlier move
				continue
			}
			switch m := e.m.(type) {
			case *control.MoveFailed:
				return got, errors.New(m.Error)
			case *control.Exited:
				if slices.Contains(who, e.by) {
					return got, errors.New(m.Error)
				}
			}
			if slices.Contains(who, e.by) && e.m.Kind() == what.Kind() {
				got[e.by] = e.m
			}
		case <-ended:
			return got, errors.New("the run has ended")
		case <-late:
			return got, fmt.Errorf("nobody says %s", what.Kind())
		}
	}
	return got, nil
}

// move moves ranks, unless whether cancels it. whether is called when all could
// continue.
func (s *stage) move(ranks []int, rounds int, whether func() bool) error {
	s.mu.Lock()
	s.moves++
	m := &control.Move{ID: s.moves, Ranks: ranks, Rounds: rounds, Chunk: 1 << 20}
	old := slices.Clone(s.ranks)
	s.mu.Unlock()
	var sources, destinations, others []*actor
	for r, a := range old {
		if slices.Contains(ranks, r) {
			sources, destinations = append(sources, a), append(destinations, s.enter(r, m))
		} else {
			others = append(others, a)
		}
	}
	endpoints := slices.Clone(s.endpoints)
	gathered := false
	err := func() error {
		here, err := s.await(m.ID, destinations, new(control.Listening))
		if err != nil {
			return err
		}
		for i, a := range destinations {
			listening := here[a].(*control.Listening)
			endpoints[a.rank] = listening.Endpoint
			sources[i].conn.Send(&control.Precopy{Move: control.Move{ID: m.ID, Rounds: rounds, Chunk: m.Chunk}, Addresses: listening.Addresses})
		}
		if _, err := s.await(m.ID, sources, new(control.Precopied)); err != nil {
			return err
		}
		gathered = true
		fresh := make([][]byte, s.n)
		for _, a := range destinations {
			fresh[a.rank] = endpoints[a.rank]
		}
		for _, a := range old {
			a.conn.Send(&control.Pause{Move: *m, Endpoints: fresh})
		}
		if s.told != nil {
			if err := s.told(m.ID); err != nil {
				return err
			}
		}
		_, err = s.await(m.ID, destinations, new(control.Received))
		if err == nil && whether != nil && !whether() {
			err = errors.New("called off")
		}
		return err
	}()
	if err != nil {
		for _, a := range append(destinations, old...) {
			if gathered || !slices.Contains(old, a) {
				a.conn.Send(&control.Switch{Move: *m})
			}
		}
		return err
	}
	for _, a := range sources {
		a.conn.Send(&control.Switch{Move: *m, OK: true})
	}
	if _, err := s.await(m.ID, sources, new(control.HandedOver)); err != nil {
		return err
	}
	s.mu.Lock()
	for i, a := range destinations {
		s.ranks[a.rank], s.endpoints[a.rank] = a, endpoints[a.rank]
		sources[i].left = true
	}
	s.mu.Unlock()
	for _, a := range append(destinations, others...) {
		a.conn.Send(&control.Switch{Move: *m, OK: true, Endpoints: endpoints})
	}
	_, err = s.await(m.ID, append(destinations, others...), new(control.Linked))
	return err
}

// end waits for the end of the run.
func (s *stage) end() error {
	s.members.Wait()
	return errors.Join(s.errs...)
}

// TestMove_MessagesInflight moves ranks of a run repeatedly, with messages in
// flight and receives pending. Checkpoints are taken in between.
func TestMove_MessagesInflight(t *testing.T) {
	const n = 4
	for _, c := range []struct {
		name       string
		transports []string
		skew       bool
		every      int
	}{{"tcp", []string{"tcp"}, false, 1 << 30}, {"tcp, due points", []string{"tcp"}, false, 7}, {"shm", []string{"shm", "tcp"}, false, 1 << 30}, {"skew", []string{"shm", "tcp"}, true, 1 << 30}, {"reopened", []string{"tcp-reopen"}, false, 9}} {
		t.Run(c.name, func(t *testing.T) {
			steps := 400
			if c.skew {
				steps = 150
			}
			want := reference(t, n, steps, c.skew)
			got := make([]uint64, n)
			ask := make(chan int, steps)
			var s *stage
			var under atomic.Int32 // moves that are
			var reached atomic.Int32
			begun := make(chan struct{})
			program := relayProgram(steps, c.skew, func(p *Run, step int) error {
				<-begun
				if p.Rank() == 1 {
					reached.Store(int32(step))
				}
				if p.Rank() == 1 && step%40 == 10 {
					under.Add(1)
					ask <- step
				}
				for i := 0; i < 4 && (under.Load() > 0 || c.skew); i++ { // leave it some points
					time.Sleep(10 * time.Microsecond)
				}
				if p.Rank() == 2 && step%23 == 0 {
					p.Request()
				}
				return nil
			}, got)
			s = newStage(t, n, c.transports, Options{Dir: t.TempDir(), EveryPoints: c.every}, program)
			close(begun)
			over := make(chan error, 1)
			go func() { over <- s.end() }()
			rng := rand.New(rand.NewPCG(3, uint64(c.every)))
			moved, off := 0, 0
			var failure error // of a move at step failed
			failed := steps
			for {
				select {
				case step := <-ask:
					if step > failed {
						t.Fatal(failure)
					}
					ranks := rng.Perm(n)[:1+rng.IntN(n)]
					var whether func() bool
					if rng.IntN(4) == 0 {
						whether = func() bool { return false }
					}
					err := s.move(ranks, rng.IntN(3), whether)
					under.Add(-1)
					switch {
					case err == nil:
						moved++
					case whether != nil && err.Error() == "called off":
						off++
					case strings.Contains(err.Error(), "ended") || strings.Contains(err.Error(), "finished"): // the run was about to
					case c.skew && strings.Contains(err.Error(), "the other end closed the connection"): // rank 0 was
					default: // a rank may have ended first; else there are more steps
						failure, failed = fmt.Errorf("ranks %v: %w", ranks, err), int(reached.Load())
					}
					continue
				case err := <-over:
					if err != nil {
						t.Fatal(err)
					}
				case <-time.After(2 * time.Minute):
					t.Fatal("the run hangs")
				}
				break
			}
			if moved < 3 && !c.skew { // there rank 0 is done early, on a busy machine before the first move
				t.Errorf("moved %d times only", moved)
			}
			for r := range got {
				if got[r] != want[r] {
					t.Errorf("rank %d: %x, not %x", r, got[r], want[r])
				}
			}
			t.Logf("%d moves, %d called off", moved, off)
		})
	}
}

// TestMove_SingleRank moves a program of one rank, with files.
func TestMove_SingleRank(t *testing.T) {
	dir := t.TempDir()
	begun, ask := make(chan struct{}), make(chan int, 100)
	var sum uint64
	program := func(p *Run) error {
		<-begun
		f, err := p.OpenFile(dir+"/out", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		step, big := 0, make([]uint64, 1<<18)
		Protect(p, "step", &step)
		Protect(p, "big", &big)
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		for ; step < 300; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			if step%50 == 20 {
				ask <- step
			}
			for i := range big {
				if i%97 == step%97 {
					big[i] += uint64(step * i)
				}
			}
			fmt.Fprintln(f, step)
		}
		for _, x := range big {
			sum = sum*31 + x
		}
		p.Finish()
		return nil
	}
	s := newStage(t, 1, nil, Options{Dir: dir + "/sets", EveryPoints: 40}, program)
	close(begun)
	over := make(chan error, 1)
	go func() { over <- s.end() }()
	moved := 0
	for done := false; !done; {
		select {
		case <-ask:
			if err := s.move([]int{0}, 2, nil); err != nil {
				t.Log(err)
			} else {
				moved++
			}
		case err := <-over:
			if done = true; err != nil {
				t.Fatal(err)
			}
		}
	}
	big, want := make([]uint64, 1<<18), uint64(0)
	lines := ""
	for step := range 300 {
		for i := range big {
			if i%97 == step%97 {
				big[i] += uint64(step * i)
			}
		}
		lines += fmt.Sprintln(step)
	}
	for _, x := range big {
		want = want*31 + x
	}
	text, err := os.ReadFile(dir + "/out")
	if moved == 0 || sum != want || err != nil || string(text) != lines {
		t.Errorf("moved %d times: %x, not %x; %d bytes, not %d, %v", moved, sum, want, len(text), len(lines), err)
	}
}

// TestMove_MessagesBeforeRestore moves ranks of a program that exchanges
// messages before Restore: a communicator, and a table that is not part of the
// state.
func TestMove_MessagesBeforeRestore(t *testing.T) {
	const n, steps = 4, 200
	begun, ask := make(chan struct{}), make(chan int, steps)
	var under atomic.Int32
	sums := make([]int, n)
	program := func(p *Run) error {
		<-begun
		w := p.World()
		table := make([]int, 1<<17)
		if w.Rank() == 0 {
			for i := range table {
				table[i] = i * i
			}
		}
		if err := mpi.Bcast(w, table, 0); err != nil {
			return err
		}
		pair, err := w.Split(w.Rank()/2, w.Rank())
		if err != nil {
			return err
		}
		step, sum := 0, 0
		Protect(p, "step", &step)
		Protect(p, "sum", &sum)
		if _, err := p.Restore(context.Background()); err != nil {
			return err
		}
		for ; step < steps; step++ {
			if err := p.Point(context.Background()); err != nil {
				return err
			}
			x := []int{table[(step*997+w.Rank())%len(table)]}
			if err := mpi.Allreduce(pair, x, x, mpi.Sum); err != nil {
				return err
			}
			sum += x[0]
			if step%40 == 0 && w.Rank() == 0 {
				under.Add(1)
				ask <- step
			}
			for i := 0; i < 4 && under.Load() > 0; i++ {
				time.Sleep(10 * time.Microsecond)
			}
		}
		sums[w.Rank()] = sum
		p.Finish()
		return nil
	}
	s := newStage(t, n, []string{"shm", "tcp"}, Options{Dir: t.TempDir(), EveryPoints: 40}, program)
	close(begun)
	over := make(chan error, 1)
	go func() { over <- s.end() }()
	moved := 0
	for done := false; !done; {
		select {
		case step := <-ask:
			if err := s.move([]int{step / 40 % n, (step/40 + 1) % n}, 1, nil); err == nil {
				moved++
			} else {
				t.Log(err)
			}
			under.Add(-1)
		case err := <-over:
			if done = true; err != nil {
				t.Fatal(err)
			}
		}
	}
	for r, got := range sums {
		want := 0
		for step := range steps {
			for _, x := range []int{r, r ^ 1} {
				i := (step*997 + x) % (1 << 17)
				want += i * i
			}
		}
		if got != want || moved == 0 {
			t.Errorf("rank %d: %d, not %d, after %d moves", r, got, want, moved)
		}
	}
	t.Log(moved, "moves")
}
