package mem

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// Link is a rank's transport.Link. It is a transport.Puller and
// transport.Fragile as the options say.
type Link struct {
	f     *Fabric
	o     Options
	h     transport.Handler
	d     *Driver
	peers []int     // the ranks that it serves
	with  []*Driver // per rank

	// f.mu guards the following fields.
	peer    []*Link   // per rank: the link at the other end
	lost    []bool    // per rank: Lost was called
	dropped []bool    // per rank: the other end has dropped this link
	queue   [][]frame // per rank: frames that Send kept
	in, out []*pipe   // per rank
	back    []any     // tokens of kept frames that have entered their pipe since
	bell    bell
	armed   bool
	closed  bool
}

// EagerLimit returns Options.EagerLimit.
func (l *Link) EagerLimit() int { return l.o.EagerLimit }

// MustClose returns Options.MustClose.
func (l *Link) MustClose() bool { return l.o.MustClose }

// FD returns a descriptor to sleep on.
func (l *Link) FD() int { return l.bell.fd() }

// Send puts a frame into the pipe, or into the queue before it.
func (l *Link) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	out := l.out[peer]
	if out == nil {
		panic(fmt.Sprintf("mem: rank %d sends to rank %d, which this link does not serve", l.d.rank, peer))
	}
	if l.closed || l.lost[peer] || !out.readable || l.with[peer].killed || l.d.killed {
		return true
	}
	fr := frame{*h, payload, token}
	if len(l.queue[peer]) > 0 || out.bytes+fr.cost() > l.o.Window {
		l.queue[peer] = append(l.queue[peer], fr)
		return false
	}
	l.enter(peer, fr)
	return true
}

// enter puts a frame into the pipe. f.mu is held.
func (l *Link) enter(peer int, fr frame) {
	out := l.out[peer]
	fr.payload, fr.token = append([]byte(nil), fr.payload...), nil
	out.frames = append(out.frames, fr)
	out.bytes += fr.cost()
	if to := l.peer[peer]; to != nil {
		to.bell.ring(to.armed)
	}
}

// push moves frames from the queue into the pipe, as far as they fit.
// f.mu is held.
func (l *Link) push(peer int) (moved bool) {
	for len(l.queue[peer]) > 0 && l.canPush(peer) {
		fr := l.queue[peer][0]
		l.queue[peer] = l.queue[peer][1:]
		l.back = append(l.back, fr.token)
		moved = true
		if l.out[peer].readable && !l.with[peer].killed && !l.d.killed {
			l.enter(peer, fr)
		}
	}
	return moved
}

func (l *Link) canPush(peer int) bool {
	out := l.out[peer]
	return out.bytes == 0 || out.bytes+l.queue[peer][0].cost() <= l.o.Window ||
		!out.readable || l.with[peer].killed || l.d.killed
}

// arrived reports whether a frame can be taken. f.mu is held.
func (l *Link) arrived(peer int) bool {
	if len(l.in[peer].frames) == 0 || l.d.killed {
		return false
	}
	g := l.f.gates[[2]int{peer, l.d.rank}]
	return g == nil || g.pass > 0
}

// gone returns why nothing more comes from a peer, or nil. f.mu is held.
func (l *Link) gone(peer int) error {
	switch from := l.peer[peer]; {
	case l.d.killed:
		return fmt.Errorf("mem: rank %d: %w", l.d.rank, ErrKilled)
	case len(l.in[peer].frames) > 0:
		return nil
	case l.with[peer].killed:
		return fmt.Errorf("mem: rank %d: %w", peer, ErrKilled)
	case from != nil && from.closed, l.dropped[peer]:
		return fmt.Errorf("mem: rank %d: %w", peer, ErrClosed)
	}
	return nil
}

// Poll delivers the frames that have arrived, up to a number of frames per
// peer.
func (l *Link) Poll() (moved bool) {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.closed {
		return false
	}
	for _, r := range l.peers {
		if l.lost[r] {
			continue
		}
		moved = l.push(r) || moved
		moved = l.giveBack() || moved
		for range 64 {
			if !l.arrived(r) {
				break
			}
			moved = true
			l.take(r)
		}
		if err := l.gone(r); err != nil {
			moved = true
			l.lost[r] = true
			for _, fr := range l.queue[r] {
				l.back = append(l.back, fr.token)
			}
			l.queue[r] = nil
			l.giveBack()
			l.tellLost(r, err)
		}
	}
	return moved
}

// tellLost calls Lost. The caller holds f.mu, which is released during the
// call.
func (l *Link) tellLost(r int, err error) {
	l.f.mu.Unlock()
	defer l.f.mu.Lock()
	l.h.Lost(r, err)
}

// take hands one frame to the handler. The caller holds f.mu, which is released
// during the calls.
func (l *Link) take(r int) {
	f, in := l.f, l.in[r]
	fr := in.frames[0]
	in.frames = in.frames[1:]
	in.bytes -= fr.cost()
	if g := f.gates[[2]int{r, l.d.rank}]; g != nil {
		g.pass--
	}
	if from := l.peer[r]; from != nil {
		from.bell.ring(from.armed)
	}
	f.mu.Unlock()
	defer f.mu.Lock()
	n := len(fr.payload)
	buf := l.h.Arriving(r, &fr.head, n)
	if len(buf) != n {
		panic(fmt.Sprintf("mem: Arriving returned %d bytes for a payload of %d", len(buf), n))
	}
	copy(buf, fr.payload)
	l.h.Arrived(r, &fr.head, buf)
}

// giveBack calls Sent for all kept frames that have entered their pipes. The
// caller holds f.mu, which is released during the calls.
func (l *Link) giveBack() bool {
	back := l.back
	l.back = nil
	if len(back) == 0 {
		return false
	}
	l.f.mu.Unlock()
	defer l.f.mu.Lock()
	for _, t := range back {
		l.h.Sent(t)
	}
	return true
}

// Arm implements transport.Link.
func (l *Link) Arm() bool {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	for _, r := range l.peers {
		if !l.closed && !l.lost[r] && (l.arrived(r) || l.gone(r) != nil || len(l.queue[r]) > 0 && l.canPush(r)) {
			return false
		}
	}
	l.armed = true
	return true
}

// Disarm implements transport.Link.
func (l *Link) Disarm() {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.armed = false
	l.bell.clear()
}

// Drop implements transport.Link. The peer sees that the link is closed.
func (l *Link) Drop(peer int) {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.Index(l.peers, peer)
	if i < 0 || l.closed {
		return
	}
	l.peers = slices.Delete(slices.Clone(l.peers), i, i+1) // a copy, because Poll may be iterating over the list
	for _, fr := range l.queue[peer] {
		l.back = append(l.back, fr.token)
	}
	l.queue[peer] = nil
	in, from := l.in[peer], l.peer[peer]
	in.readable, in.frames, in.bytes = false, nil, 0
	l.lost[peer], l.peer[peer] = true, nil
	if from != nil && from.peer[l.d.rank] == l {
		from.dropped[l.d.rank] = true
		from.bell.ring(from.armed)
	}
	l.giveBack()
}

// CanPull reports whether the options allow it and the peer is connected.
func (l *Link) CanPull(peer int) bool {
	return l.o.Pull && l.out[peer] != nil
}

// Pull copies memory of this process.
func (l *Link) Pull(peer int, buf []byte, addr uint64) error {
	l.f.mu.Lock()
	from := l.peer[peer]
	bad := l.closed || l.lost[peer] || l.with[peer].killed || l.d.killed || from == nil || from.closed || l.dropped[peer]
	l.f.mu.Unlock()
	if bad {
		return fmt.Errorf("mem: cannot read memory of rank %d: it is gone", peer)
	}
	if len(buf) > 0 {
		a := uintptr(addr)
		copy(buf, unsafe.Slice(*(**byte)(unsafe.Pointer(&a)), len(buf)))
	}
	return nil
}

// Close waits until all frames are in their pipes. While it waits, frames for
// this rank are dropped.
func (l *Link) Close(ctx context.Context) error {
	f := l.f
	f.mu.Lock()
	defer f.mu.Unlock()
	if l.closed {
		return nil
	}
	for _, r := range l.peers {
		in := l.in[r]
		in.readable, in.frames, in.bytes = false, nil, 0
		if from := l.peer[r]; from != nil {
			from.bell.ring(from.armed)
		}
	}
	f.shake()
	var err error
	for {
		waits := -1
		for _, r := range l.peers {
			if l.push(r); len(l.queue[r]) > 0 {
				waits = r
			}
		}
		if waits < 0 {
			break
		}
		l.armed = true
		f.mu.Unlock()
		err = l.bell.wait(ctx)
		f.mu.Lock()
		l.armed = false
		l.bell.clear()
		if err != nil {
			err = fmt.Errorf("mem: rank %d does not take what rank %d sent: %w", waits, l.d.rank, err)
			break
		}
	}
	l.closed, l.back = true, nil
	l.withdraw()
	delete(f.links, l)
	clear(l.queue)
	l.bell.close()
	f.shake()
	return err
}
