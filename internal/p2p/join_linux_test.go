package p2p

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
)

// club is the shared state of drivers that must join, in a test.
type club struct {
	mu    sync.Mutex
	first *circle // the drivers that exist from the beginning
	calls map[string]*gathered
	times int // how often drivers have joined
}

// circle is the set of addresses that can be reached.
type circle map[string]bool

type gathered struct {
	came int
	full chan struct{}
	all  circle
}

// joiner wraps another driver. It connects only processes that have joined, and
// has one link at a time.
type joiner struct {
	transport.Driver
	club *club
	in   *circle
	open bool
}

// driver wraps a driver that exists from the beginning, or comes later.
func (c *club) driver(d transport.Driver, late bool) *joiner {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil {
		c.first, c.calls = new(circle), make(map[string]*gathered)
		*c.first = make(circle)
	}
	j := &joiner{Driver: d, club: c, in: c.first}
	if late {
		j.in = &circle{}
	}
	(*j.in)[string(d.Address())] = true
	return j
}

func (*joiner) Name() string { return "lib" }

func (j *joiner) Reaches(endpoint []byte) bool {
	j.club.mu.Lock()
	defer j.club.mu.Unlock()
	return (*j.in)[string(endpoint)]
}

func (j *joiner) Joins(endpoints [][]byte, _ []int) bool {
	return slices.ContainsFunc(endpoints, func(c []byte) bool { return c != nil && !j.Reaches(c) })
}

func (j *joiner) Join(ctx context.Context, endpoints [][]byte, fresh []int) error {
	if j.open {
		return errors.New("there is a link")
	}
	all, n := make(circle), 0
	var name strings.Builder
	for _, c := range endpoints {
		if c != nil {
			all[string(c)] = true
			n++
		}
		fmt.Fprintf(&name, "%q", c)
	}
	fmt.Fprint(&name, fresh)
	c := j.club
	c.mu.Lock()
	g := c.calls[name.String()]
	if g == nil {
		g = &gathered{full: make(chan struct{}), all: all}
		c.calls[name.String()] = g
	}
	if g.came++; g.came == n {
		close(g.full)
		c.times++
	}
	j.in = &g.all
	c.mu.Unlock()
	select {
	case <-g.full:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (j *joiner) Connect(ctx context.Context, endpoints [][]byte, h transport.Handler) (transport.Link, error) {
	if j.open {
		return nil, errors.New("there is a link already")
	}
	for i, c := range endpoints {
		if c != nil && !j.Reaches(c) {
			return nil, fmt.Errorf("rank %d has not joined", i)
		}
	}
	l, err := j.Driver.Connect(ctx, endpoints, h)
	if err != nil {
		return nil, err
	}
	j.open = true
	return &joinedLink{l, j}, nil
}

type joinedLink struct {
	transport.Link
	j *joiner
}

func (l *joinedLink) Close(ctx context.Context) error {
	l.j.open = false
	return l.Link.Close(ctx)
}

// TestMove_DestinationsJoin shows that destinations join where that is useful.
// TestMove_MessagesInflight checks the messages; this test checks which
// transport they use.
func TestMove_DestinationsJoin(t *testing.T) {
	routes := func(s *stage) (out []string) {
		for _, p := range s.at {
			for i := range s.n {
				if i != p.rank {
					out = append(out, p.Transport(i))
				}
			}
		}
		return slices.Compact(out)
	}
	for _, c := range []struct {
		way   string
		moves [][]int
		want  string
		times int
	}{
		{"joins", [][]int{{1}, {0, 2}, {1}, {0, 1, 2}, {2}}, "[lib]", 5},
		{"together", [][]int{{1}, {0, 2}, {1}, {0, 1, 2}, {2}}, "[shm]", 0}, // all share memory and prefer it
		{"apart", [][]int{{0}, {0}, {1}}, "[shm lib shm lib]", 3},
	} {
		t.Run(c.way, func(t *testing.T) {
			s := newStage(t, c.way, 3)
			x := newTraffic(3)
			for _, moving := range c.moves {
				x.run(s, 2, 1)
				s.hold()
				s.move(moving, x.waits)
				s.release()
				x.wake(s)
			}
			x.run(s, 1, 0)
			if got := fmt.Sprint(routes(s)); got != c.want || s.club.times != c.times {
				t.Errorf("%s, and %d joined; not %s and %d", got, s.club.times, c.want, c.times)
			}
		})
	}
}
