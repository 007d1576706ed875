// Package mem is a transport between goroutines of one process, for tests of
// what stands above. Every rank gets its Driver from a common Fabric, which
// can also do what networks do: keep frames back (Hold), let them through one
// by one (Pass), and lose a rank (Kill). A rank that has another process take
// its place is one with a second Driver.
//
//	rank a                        pair a → b                         rank b
//	Send ──▶ queue of the link ──▶ pipe, Options.Window bytes ──▶ Poll ──▶ Handler
//	         (Send said false)      (in flight; Hold stops it here)
//
// A payload is copied when it enters the pipe: then Send returns true, or
// Sent is called. A frame longer than the window enters an empty pipe.
package mem

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/cairnrun/cairn/internal/transport"
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
	// Window is how many payload bytes are in flight to one peer before
	// Send returns false; 0 means 256 KiB. A frame without payload counts
	// as one byte. With a negative Window nothing fits, so that Send
	// returns false always and a frame enters its pipe only in a Poll, when
	// it is empty.
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
	id      uint64 // distinguishes addresses of different fabrics
	size    int
	mu      sync.Mutex
	changed chan struct{} // closed and replaced when a link comes or goes
	drivers []*Driver
	links   map[*Link]bool       // links that are open
	offers  map[[2]*Driver]*Link // links that wait for their peer, by own driver and the peer's driver
	gates   map[[2]int]*gate
}

// gate is the state of Hold, Pass and Release. A pair without a gate is open.
type gate struct{ pass int }

// pipe holds the frames in flight from one link to another.
type pipe struct {
	frames   []frame
	bytes    int
	readable bool // the receiver has not closed its link
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
		id: rand.Uint64(), size: n, changed: make(chan struct{}),
		links: make(map[*Link]bool), offers: make(map[[2]*Driver]*Link), gates: make(map[[2]int]*gate),
	}
}

// Driver returns a driver of a rank. A second one is that of another process,
// which knows nothing of the first.
func (f *Fabric) Driver(rank int, o Options) *Driver {
	if rank < 0 || rank >= f.size {
		panic(fmt.Sprintf("mem: rank %d of a fabric of %d", rank, f.size))
	}
	o.EagerLimit = cmp.Or(o.EagerLimit, 4<<10)
	o.Window = cmp.Or(o.Window, 256<<10)
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &Driver{f: f, n: len(f.drivers), rank: rank, o: o}
	f.drivers = append(f.drivers, d)
	return d
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

// Kill ends a rank as a crash would: what it sent is delivered unless it is
// held back or did not fit its window, and then all peers lose it. The
// rank itself loses all its peers, so that what runs in it can end. Drivers
// that the rank gets later are alive.
func (f *Fabric) Kill(rank int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, d := range f.drivers {
		if d.rank == rank {
			d.kill()
		}
	}
	f.shake()
}

// Kill is Fabric.Kill for one of several processes that had this rank.
func (d *Driver) Kill() {
	d.f.mu.Lock()
	defer d.f.mu.Unlock()
	d.kill()
	d.f.shake()
}

// kill marks a driver as dead. The caller holds f.mu.
func (d *Driver) kill() {
	if d.killed {
		return
	}
	d.killed = true
	for l := range d.f.links {
		if p := l.in[d.rank]; p != nil && l.with[d.rank] == d && d.f.gates[[2]int{d.rank, l.d.rank}] != nil {
			p.frames, p.bytes = nil, 0
		}
	}
}

// shake tells all waiting goroutines that a link was opened or closed. The
// caller holds f.mu.
func (f *Fabric) shake() {
	close(f.changed)
	f.changed = make(chan struct{})
	for l := range f.links {
		l.bell.ring(l.armed)
	}
}

// wake wakes the links of a rank if they sleep. The caller holds f.mu.
func (f *Fabric) wake(rank int) {
	for l := range f.links {
		if l.d.rank == rank {
			l.bell.ring(l.armed)
		}
	}
}

// Driver is a rank's transport.Driver.
type Driver struct {
	f      *Fabric
	n      int // index in f.drivers
	rank   int
	o      Options
	killed bool
}

// Name returns "mem".
func (d *Driver) Name() string { return "mem" }

// Address names the fabric, the rank, and the driver.
func (d *Driver) Address() []byte {
	b := binary.LittleEndian.AppendUint64(nil, d.f.id)
	b = binary.LittleEndian.AppendUint64(b, uint64(d.rank))
	return binary.LittleEndian.AppendUint64(b, uint64(d.n))
}

// Reaches reports whether the address is of the same fabric.
func (d *Driver) Reaches(address []byte) bool {
	return len(address) == 24 && binary.LittleEndian.Uint64(address) == d.f.id
}

// named returns the driver that an address of a rank names, or nil.
func (d *Driver) named(rank int, address []byte) *Driver {
	if !d.Reaches(address) || binary.LittleEndian.Uint64(address[8:]) != uint64(rank) {
		return nil
	}
	n := binary.LittleEndian.Uint64(address[16:])
	if n >= uint64(len(d.f.drivers)) || d.f.drivers[n].rank != rank {
		return nil
	}
	return d.f.drivers[n]
}

// Close does nothing.
func (d *Driver) Close() error { return nil }

// Connect waits until all peers called it too.
func (d *Driver) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	f := d.f
	f.mu.Lock()
	defer f.mu.Unlock()
	l := &Link{
		f: f, o: d.o, h: h, d: d,
		with: make([]*Driver, f.size), peer: make([]*Link, f.size), lost: make([]bool, f.size), dropped: make([]bool, f.size),
		queue: make([][]frame, f.size), in: make([]*pipe, f.size), out: make([]*pipe, f.size),
	}
	for r, c := range addresses {
		if c == nil || r == d.rank {
			continue
		}
		if r >= f.size || d.named(r, c) == nil {
			return nil, fmt.Errorf("mem: rank %d cannot be reached from rank %d with the address %x; addresses are indexed by rank", r, d.rank, c)
		}
		l.peers = append(l.peers, r)
		l.with[r] = d.named(r, c)
		l.in[r], l.out[r] = &pipe{readable: true}, &pipe{readable: true}
	}
	if err := l.bell.open(d.o.NoFD); err != nil {
		return nil, fmt.Errorf("mem: %w", err)
	}
	f.links[l] = true
	for _, r := range l.peers {
		o := f.offers[[2]*Driver{l.with[r], d}]
		if o == nil {
			f.offers[[2]*Driver{d, l.with[r]}] = l
			continue
		}
		delete(f.offers, [2]*Driver{l.with[r], d})
		l.peer[r], o.peer[d.rank] = o, l
		l.in[r], l.out[r] = o.out[d.rank], o.in[d.rank]
	}
	f.shake()
	for {
		missing := -1
		for _, r := range l.peers {
			if l.peer[r] == nil && !l.with[r].killed {
				missing = r
			}
		}
		if missing < 0 {
			l.withdraw()
			return l, nil
		}
		changed := f.changed
		f.mu.Unlock()
		select {
		case <-changed:
			f.mu.Lock()
		case <-ctx.Done():
			l.Close(ctx)
			f.mu.Lock()
			return nil, fmt.Errorf("mem: rank %d waits for rank %d, which does not connect: %w", d.rank, missing, context.Cause(ctx))
		}
	}
}

// withdraw removes the link's offers. The caller holds f.mu.
func (l *Link) withdraw() {
	for _, r := range l.peers {
		if k := [2]*Driver{l.d, l.with[r]}; l.f.offers[k] == l {
			delete(l.f.offers, k)
		}
	}
}
