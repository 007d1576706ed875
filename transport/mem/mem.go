// Package mem is a transport between goroutines of one process, for tests of
// what stands above. Every rank gets its Driver from a common Fabric, which
// can also do what networks do: keep frames back (Hold), let them through one
// by one (Pass), and lose a rank (Kill).
//
//	rank a                        pair a → b                         rank b
//	Send ──▶ queue of the link ──▶ pipe, Options.Window bytes ──▶ Poll ──▶ Handler
//	         (Send said false)      (in flight; Hold stops it here)
//
// A payload is copied when it enters the pipe: then Send returns true, or
// Sent is called. A frame longer than the window enters an empty pipe.
package mem

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cairnrun/cairn/transport"
)

var (
	// ErrKilled is the reason of a loss by Kill.
	ErrKilled = errors.New("the rank was killed")
	// ErrClosed is the reason of a loss when the peer closed its link.
	ErrClosed = errors.New("the peer closed its link")
)

// Options are the properties of one rank's links. The zero value is usable.
type Options struct {
	// EagerLimit is what the link says; 0 means 4 KiB.
	EagerLimit int
	// Window is how many payload bytes are in flight to one peer before Send
	// returns false; 0 means 256 KiB. A frame without payload counts as one
	// byte. With a negative Window nothing fits, so that Send returns false
	// always and a frame enters its pipe only in a Poll, when it is empty.
	Window int
	// MustClose makes the link ask to be closed before a checkpoint.
	MustClose bool
	// Pull makes the link able to read the peers' memory.
	Pull bool
	// NoFD makes the link one without a descriptor to sleep on.
	NoFD bool
}

// Fabric connects the ranks of one process. Its methods may be called by any
// goroutine at any time.
type Fabric struct {
	id      uint64 // tells cards of different fabrics apart
	size    int
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a link comes or goes
	next    []uint64      // per rank: number of the next link
	links   map[end]*Link
	pipes   map[[2]end]*pipe
	gates   map[[2]int]*gate
	killed  []bool
}

// end names one link: the n-th of a rank.
type end struct {
	rank int
	n    uint64
}

// gate is what Hold, Pass and Release work on. A pair without one is open.
type gate struct{ pass int }

// pipe holds what is in flight from one link to another.
type pipe struct {
	frames   []frame
	bytes    int
	readable bool // the receiver has not closed
}

type frame struct {
	head    transport.Header
	payload []byte
	token   any
}

func (f *frame) cost() int { return max(1, len(f.payload)) }

// New returns a fabric for n ranks.
func New(n int) *Fabric {
	return &Fabric{
		id: rand.Uint64(), size: n, changed: make(chan struct{}), next: make([]uint64, n),
		links: make(map[end]*Link), pipes: make(map[[2]end]*pipe), gates: make(map[[2]int]*gate),
		killed: make([]bool, n),
	}
}

// Driver returns the driver of a rank.
func (f *Fabric) Driver(rank int, o Options) *Driver {
	if rank < 0 || rank >= f.size {
		panic(fmt.Sprintf("mem: rank %d of a fabric of %d", rank, f.size))
	}
	if o.EagerLimit == 0 {
		o.EagerLimit = 4 << 10
	}
	if o.Window == 0 {
		o.Window = 256 << 10
	}
	return &Driver{f: f, rank: rank, o: o}
}

// Hold keeps back all frames from one rank to another that are not delivered
// yet, and those to come, until Release. It holds for later links too.
func (f *Fabric) Hold(from, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gates[[2]int{from, to}] = &gate{}
}

// Pass lets n more frames through a pair that is held.
func (f *Fabric) Pass(from, to, n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.gates[[2]int{from, to}]; g != nil {
		g.pass += n
	}
	f.wake(to)
}

// Release ends Hold.
func (f *Fabric) Release(from, to int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.gates, [2]int{from, to})
	f.wake(to)
}

// InFlight returns how many frames Send took from one rank to another that
// were not handed to the handler yet.
func (f *Fabric) InFlight(from, to int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for k, p := range f.pipes {
		if k[0].rank == from && k[1].rank == to {
			n += len(p.frames)
		}
	}
	for k, l := range f.links {
		if k.rank == from && l.queue[to] != nil {
			n += len(l.queue[to])
		}
	}
	return n
}

// Kill ends a rank as a crash would: what it sent is delivered unless it is
// held back or did not fit its window, and then all peers lose it. The
// rank itself loses all its peers, so that what runs in it can end.
func (f *Fabric) Kill(rank int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.killed[rank] = true
	for k, p := range f.pipes {
		if k[0].rank == rank && f.gates[[2]int{rank, k[1].rank}] != nil {
			p.frames, p.bytes = nil, 0
		}
	}
	f.shake()
}

// shake tells everybody that a link came or went. f.mu is held.
func (f *Fabric) shake() {
	close(f.changed)
	f.changed = make(chan struct{})
	for _, l := range f.links {
		l.bell.ring(l.armed)
	}
}

// wake wakes the links of a rank if they sleep. f.mu is held.
func (f *Fabric) wake(rank int) {
	for k, l := range f.links {
		if k.rank == rank {
			l.bell.ring(l.armed)
		}
	}
}

// Driver is a rank's transport.Driver.
type Driver struct {
	f    *Fabric
	rank int
	o    Options
}

// Name returns "mem".
func (d *Driver) Name() string { return "mem" }

// Card names the fabric, the rank, and its next link.
func (d *Driver) Card() []byte {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	b := binary.LittleEndian.AppendUint64(nil, d.f.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.rank))
	return binary.LittleEndian.AppendUint64(b, d.f.next[d.rank])
}

// Reaches reports whether the card is of the same fabric.
func (d *Driver) Reaches(card []byte) bool {
	return len(card) == 24 && binary.LittleEndian.Uint64(card) == d.f.id
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Connect waits until all peers called it too.
func (d *Driver) Connect(ctx context.Context, cards [][]byte, h transport.Handler) (transport.Link, error) {
	f := d.f
	l := &Link{
		f: f, o: d.o, h: h, rank: d.rank,
		peer: make([]end, f.size), lost: make([]bool, f.size),
		queue: make([][]frame, f.size), in: make([]*pipe, f.size), out: make([]*pipe, f.size),
	}
	for r, c := range cards {
		if c == nil || r == d.rank {
			continue
		}
		if !d.Reaches(c) || r >= f.size || binary.LittleEndian.Uint64(c[8:]) != uint64(r) {
			return nil, fmt.Errorf("mem: rank %d cannot be reached from rank %d with the card %x; cards are indexed by rank", r, d.rank, c)
		}
		l.peers = append(l.peers, r)
		l.peer[r] = end{r, binary.LittleEndian.Uint64(c[16:])}
	}
	if err := l.bell.open(d.o.NoFD); err != nil {
		return nil, fmt.Errorf("mem: %w", err)
	}
	f.mu.Lock()
	me := end{d.rank, f.next[d.rank]}
	f.next[d.rank]++
	for _, r := range l.peers {
		l.in[r], l.out[r] = f.pipe(l.peer[r], me), f.pipe(me, l.peer[r])
	}
	f.links[me] = l
	f.shake()
	for {
		missing := -1
		for _, r := range l.peers {
			if f.links[l.peer[r]] == nil && !f.killed[r] {
				missing = r
			}
		}
		if missing < 0 {
			f.mu.Unlock()
			return l, nil
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			l.Close(ctx)
			return nil, fmt.Errorf("mem: rank %d waits for rank %d, which does not connect: %w", d.rank, missing, context.Cause(ctx))
		}
		f.mu.Lock()
	}
}

// pipe returns the pipe between two links. f.mu is held.
func (f *Fabric) pipe(from, to end) *pipe {
	k := [2]end{from, to}
	if f.pipes[k] == nil {
		f.pipes[k] = &pipe{readable: true}
	}
	return f.pipes[k]
}
