package shm

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/transport"
	"golang.org/x/sys/unix"
)

const (
	burst     = 64   // maximum number of records taken from one peer in one Poll
	lookEvery = 4096 // number of polls between two calls of lookAround
)

// Link is a rank's transport.Link. It is a transport.Puller.
type Link struct {
	d           *Driver
	h           transport.Handler
	rank        int
	peers       []*peer // by rank; nil where there is none
	live        []*peer // peers that are not lost
	inbox       *inbox
	sleeping    *uint64
	epoll       int
	eager       int
	polls       uint64
	unreadRings int  // rings of the bell that have not been read from the FIFO yet
	look        bool // call lookAround in the next Poll
	ending      bool // some peer has why set
	closed      bool
}

// peer is the other end of a connection, with the two rings.
type peer struct {
	rank    int
	r       reader
	w       writer
	queue   []outgoing // frames that Send kept
	first   int        // index of the first one in queue
	bell    bell
	in      []byte  // control page of the reader's ring
	blocked *uint64 // in the control page of the writer's ring
	gone    *uint64 // in the control page of the writer's ring
	waits   bool    // blocked is set
	why     error   // reason to be lost, once the ring has been read to its end
	ended   bool    // nothing more can be read: there was a last record, or invalid data
	lost    bool
	pull    bool
	address address
	pidfd   int
	out     *sendRing
}

// outgoing is a frame that is not completely in the ring yet.
type outgoing struct {
	head    transport.Header
	payload []byte
	off     int
	token   any
}

// EagerLimit returns a sixteenth of the size of the smallest ring.
func (l *Link) EagerLimit() int { return l.eager }

// FD returns an epoll descriptor with the bell and the peers' processes.
func (l *Link) FD() int { return l.epoll }

// Send writes a frame into the peer's ring, as far as there is room.
func (l *Link) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	p := l.peers[peer]
	if p == nil {
		panic(fmt.Sprintf("shm: rank %d sends to rank %d, which this link does not serve", l.rank, peer))
	}
	if p.lost || l.closed {
		return true
	}
	off := 0
	if p.first == len(p.queue) {
		if len(payload) <= inline && p.w.room(0) {
			p.w.short(h, payload)
			return true
		}
		if len(payload) > maxFrame {
			panic(fmt.Sprintf("shm: a frame of %d bytes; at most %d are possible", len(payload), uint64(maxFrame)))
		}
		var done bool
		if off, done = p.w.push(h, payload, 0); done {
			return true
		}
		if p.w.bad {
			l.end(p, fmt.Errorf("%w: the reader's place makes no sense", ErrCorrupt))
		}
	}
	p.queue = append(p.queue, outgoing{*h, payload, off, token})
	return false
}

// end records why a peer will be lost.
func (l *Link) end(p *peer, why error) {
	if p.why == nil {
		p.why = why
	}
	l.ending = true
}

// Poll moves frames out of the inbox and out of the queues.
func (l *Link) Poll() (moved bool) {
	for _, p := range l.live {
		if p.r.ready() {
			l.receive(p, l.h)
			moved = true
		}
		if p.first != len(p.queue) && l.flush(p, l.h) {
			moved = true
		}
	}
	l.polls++
	if l.look || l.polls%lookEvery == 0 {
		l.look = false
		l.lookAround()
	}
	if l.ending && l.lose() {
		moved = true
	}
	return moved
}

// receive reads records from a peer. If h is nil, they are dropped.
func (l *Link) receive(p *peer, h transport.Handler) {
	for range burst {
		told, err := p.r.next(p.rank, h)
		if told && atomic.LoadUint64(word(p.in, offBlocked)) != 0 {
			p.bell.ring()
		}
		if err != nil {
			p.why, p.ended = err, true
			l.ending = true
			return
		}
		if !p.r.ready() {
			return
		}
	}
}

// flush moves kept frames into the ring. If h is nil, Sent is not called.
func (l *Link) flush(p *peer, h transport.Handler) (moved bool) {
	for p.first < len(p.queue) {
		o := &p.queue[p.first]
		off, done := p.w.push(&o.head, o.payload, o.off)
		moved = moved || off != o.off
		o.off = off
		if !done {
			if p.w.bad {
				l.end(p, fmt.Errorf("%w: the reader's place makes no sense", ErrCorrupt))
			}
			return moved
		}
		moved = true
		l.pop(p, h)
	}
	return moved
}

// pop removes the first frame from the queue and returns its payload by Sent.
func (l *Link) pop(p *peer, h transport.Handler) {
	token := p.queue[p.first].token
	p.queue[p.first] = outgoing{}
	p.first++
	if p.first == len(p.queue) {
		p.queue, p.first = p.queue[:0], 0
	} else if p.first >= 64 && p.first > len(p.queue)/2 {
		n := copy(p.queue, p.queue[p.first:])
		clear(p.queue[n:])
		p.queue, p.first = p.queue[:n], 0
	}
	if h != nil {
		h.Sent(token)
	}
}

// lookAround finds peers that have died, or have ended without a last record.
func (l *Link) lookAround() {
	var events [16]unix.EpollEvent
	n, _ := unix.EpollWait(l.epoll, events[:], 0)
	for _, e := range events[:max(n, 0)] {
		if e.Fd < 0 {
			continue
		}
		p := l.peers[e.Fd]
		if p == nil {
			continue // it was dropped
		}
		unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, p.pidfd, nil)
		l.end(p, ErrDied)
	}
	for _, p := range l.live {
		if atomic.LoadUint64(word(p.in, offGone)) != 0 {
			l.end(p, ErrClosed)
		}
	}
}

// lose calls Lost for the peers that have a reason to be lost, once all their
// frames have been read.
func (l *Link) lose() (moved bool) {
	l.ending = false
	live := l.live[:0:0]
	for _, p := range l.live {
		if p.why == nil {
			live = append(live, p)
			continue
		}
		if !p.ended && p.r.ready() {
			l.ending = true
			live = append(live, p)
			continue
		}
		moved = true
		p.lost = true
		for p.first < len(p.queue) {
			l.pop(p, l.h)
		}
		// The peer may be alive and wait for an answer.
		atomic.StoreUint64(p.gone, 1)
		p.bell.ring()
		unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, p.pidfd, nil)
		if l.h != nil {
			l.h.Lost(p.rank, fmt.Errorf("shm: rank %d: %w", p.rank, p.why))
		}
	}
	l.live = live
	return moved
}

// Drop implements transport.Link. If the peer is alive, it sees that the link
// is closed.
func (l *Link) Drop(rank int) {
	p := l.peers[rank]
	if p == nil || l.closed {
		return
	}
	l.live = slices.DeleteFunc(slices.Clone(l.live), func(o *peer) bool { return o == p })
	l.peers[rank], p.lost = nil, true
	for p.first < len(p.queue) {
		l.pop(p, l.h)
	}
	unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, p.pidfd, nil)
	p.free()
}

// Arm implements transport.Link.
func (l *Link) Arm() bool {
	if l.closed {
		return true
	}
	atomic.StoreUint64(l.sleeping, 1)
	ready := l.ending
	for _, p := range l.live {
		if p.first < len(p.queue) {
			// From now on the reader rings when there is more room.
			atomic.StoreUint64(p.blocked, 1)
			p.waits = true
			o := &p.queue[p.first]
			rest := len(o.payload) - o.off
			if len(o.payload) <= inline {
				rest = 0
			}
			ready = ready || p.w.room(min(rest, p.w.piece())) || p.w.bad
		}
		ready = ready || p.r.ready() || atomic.LoadUint64(word(p.in, offGone)) != 0
	}
	if ready {
		l.Disarm()
		return false
	}
	return true
}

// Disarm implements transport.Link.
func (l *Link) Disarm() {
	if l.closed {
		return
	}
	if atomic.SwapUint64(l.sleeping, 0) == 2 {
		l.unreadRings++
	} else {
		l.look = true // not woken by the bell, so perhaps by a death
	}
	for _, p := range l.live {
		if p.waits {
			atomic.StoreUint64(p.blocked, 0)
			p.waits = false
		}
	}
	if l.unreadRings > 0 {
		var b [16]byte
		if n, err := unix.Read(l.inbox.fd, b[:]); err == nil {
			l.unreadRings = max(0, l.unreadRings-n)
		} else {
			l.look = true
		}
	}
}

// CanPull reports whether reading the peer's memory worked in Connect.
func (l *Link) CanPull(peer int) bool { return l.peers[peer] != nil && l.peers[peer].pull }

// Pull reads the peer's memory with process_vm_readv.
func (l *Link) Pull(peer int, buf []byte, addr uint64) error {
	p := l.peers[peer]
	if p == nil || !p.pull {
		return fmt.Errorf("shm: cannot read memory of rank %d; ask CanPull first", peer)
	}
	if l.closed || p.lost {
		return fmt.Errorf("shm: cannot read memory of rank %d, which is lost", peer)
	}
	err := p.readMemory(buf, addr)
	// If the peer has died, its process number may belong to another process,
	// and the bytes may be wrong.
	if p.died() {
		err = ErrDied
	}
	if err != nil {
		return fmt.Errorf("shm: cannot read %d bytes of memory of rank %d at %#x: %w", len(buf), peer, addr, err)
	}
	return nil
}

// Close waits until all frames and a last record are in the peers' rings.
// Frames that arrive meanwhile are dropped, so that peers can close at the same
// time.
func (l *Link) Close(ctx context.Context) error {
	if l.closed {
		return nil
	}
	l.h = nil
	for _, p := range l.live {
		p.r.buf = nil
	}
	var err error
	bye := make([]bool, len(l.peers))
	for {
		waits := -1
		for _, p := range l.live {
			if p.r.ready() {
				l.receive(p, nil)
			}
			l.flush(p, nil)
			if p.first == len(p.queue) && !bye[p.rank] && p.w.room(0) {
				p.w.bye()
				bye[p.rank] = true
			}
			if !bye[p.rank] && p.why == nil {
				waits = p.rank
			}
		}
		l.lookAround()
		l.lose()
		if waits < 0 {
			break
		}
		if err = context.Cause(ctx); err != nil {
			err = fmt.Errorf("shm: rank %d does not take what rank %d sent: %w", waits, l.rank, err)
			break
		}
		if l.Arm() {
			unix.Poll([]unix.PollFd{{Fd: int32(l.epoll), Events: unix.POLLIN}}, 10)
			l.Disarm()
		}
	}
	l.free()
	return err
}
