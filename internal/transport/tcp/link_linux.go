package tcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/transport"
)

const (
	prefixSize = 8
	frameHead  = prefixSize + transport.HeaderSize
	frameMark  = uint64(0x1fca) << 48
	maxPayload = 1 << 47

	eagerLimit = 64 << 10
	// bufferSize is the maximum that one read takes of headers and short
	// payloads.
	bufferSize = 64 << 10
	// If at least directSize bytes of a payload are missing, they are read
	// separately, directly into the payload's buffer.
	directSize = 16 << 10
	// With up to fewPeers peers, Poll reads every socket instead of asking
	// epoll: an unsuccessful read takes 0.2 µs, and epoll takes 0.15 µs for any
	// number of sockets.
	fewPeers = 2
	maxVec   = 64 // pieces in one write
)

// link is a set of connections. There is no goroutine behind it: everything
// happens in Send and Poll, by non-blocking calls on bare descriptors.
type link struct {
	d     *Driver
	h     transport.Handler
	conns []*conn // by rank; nil if there is none or it is lost
	live  []*conn // those not nil, in any order
	ep    int     // epoll descriptor with all sockets
	timer int     // timer of the watch, or -1
	due   bool    // the timer has expired
	polls int     // polls since the last look at the timer
	buf   []byte  // buffer of read; empty between calls
	vec   []unix.Iovec
	event []unix.EpollEvent
}

// conn is one connection.
type conn struct {
	peer int
	host string
	fd   int
	slot int // index in link.live

	// The frame that is being received: have bytes of its head and got bytes of
	// its payload are here.
	head [frameHead]byte
	have int
	body []byte
	got  int
	in   bool // the head is complete and Arriving was called

	// Frames that wait to be sent. The first one is written up to off.
	queue  []item
	first  int
	off    int
	waits  bool  // epoll reports when the socket can be written again
	broken error // writing failed; reading will end soon
	asked  bool  // at the last look it was silent for too long, with unanswered data or probes
}

// item is a frame that waits to be sent.
type item struct {
	head    [frameHead]byte
	payload []byte
	token   any
}

func (it *item) size() int { return frameHead + len(it.payload) }

var _ transport.Fragile = (*link)(nil)

func newLink(d *Driver, peers []*address, conns []*net.TCPConn, h transport.Handler) (*link, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		err = fmt.Errorf("epoll_create: %w", err)
	}
	l := &link{
		d: d, h: h, ep: ep, timer: -1,
		conns: make([]*conn, len(conns)),
		buf:   make([]byte, bufferSize),
		vec:   make([]unix.Iovec, maxVec),
		event: make([]unix.EpollEvent, 64),
	}
	for rank, tc := range conns {
		if tc == nil {
			continue
		}
		fd := -1
		if err == nil {
			fd, err = takeSocket(tc, d.opts.Timeout)
		}
		tc.Close()
		if err != nil {
			continue
		}
		c := &conn{peer: rank, host: peers[rank].host, fd: fd, slot: len(l.live)}
		l.conns[rank] = c
		l.live = append(l.live, c)
		ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(rank)}
		if e := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); e != nil {
			err = fmt.Errorf("epoll_ctl: %w", e)
		}
	}
	if err == nil {
		err = l.startWatch()
	}
	if err != nil {
		l.shut()
		return nil, err
	}
	return l, nil
}

// EagerLimit returns a size that fits easily into the socket's buffers.
func (*link) EagerLimit() int { return eagerLimit }

// MustClose returns Options.Reopen.
func (l *link) MustClose() bool { return l.d.opts.Reopen }

// FD returns the epoll descriptor.
func (l *link) FD() int { return l.ep }

// Arm reports whether there is nothing to do. The descriptor is readable
// whenever a socket is, so nothing has to be switched on.
func (l *link) Arm() bool {
	n := epollWait(l.ep, l.event[:1])
	if n == 1 && l.event[0].Fd == timerMark && l.rang() {
		l.due = true
	}
	return n == 0 && !l.due
}

// Disarm does nothing: Poll reads everything that makes FD readable.
func (l *link) Disarm() {}

// Send writes a frame, or queues it if other frames wait or there is no room.
func (l *link) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	c := l.conns[peer]
	if c == nil || c.broken != nil {
		return true
	}
	if c.first < len(c.queue) {
		c.push(h, payload, token)
		return false
	}
	c.queue, c.first, c.off = c.queue[:0], 0, 0
	it := c.push(h, payload, token)
	l.vec[0].Base = &it.head[0]
	l.vec[0].SetLen(frameHead)
	n := 1
	if len(payload) > 0 {
		l.vec[1].Base = &payload[0]
		l.vec[1].SetLen(len(payload))
		n = 2
	}
	wrote, errno := writev(c.fd, l.vec[:n], it.size())
	if errno == unix.EAGAIN {
		wrote = 0
	} else if errno != 0 {
		// The peer is gone. Poll reads what it sent before, and then reports
		// the loss.
		c.broken = errno
		c.clear()
		return true
	}
	if wrote == it.size() {
		c.clear()
		return true
	}
	c.off = wrote
	l.watch(c, true)
	return false
}

func (c *conn) push(h *transport.Header, payload []byte, token any) *item {
	if cap(c.queue) == len(c.queue) && c.first > 0 {
		n := copy(c.queue, c.queue[c.first:])
		clear(c.queue[n:])
		c.queue, c.first = c.queue[:n], 0
	}
	c.queue = append(c.queue, item{payload: payload, token: token})
	it := &c.queue[len(c.queue)-1]
	binary.LittleEndian.PutUint64(it.head[:], uint64(len(payload))|frameMark)
	copy(it.head[prefixSize:], h[:])
	return it
}

// clear empties the queue, so that the garbage collector can free its frames.
func (c *conn) clear() {
	clear(c.queue[c.first:])
	c.queue, c.first, c.off = c.queue[:0], 0, 0
	if cap(c.queue) > 1024 {
		c.queue = nil
	}
}

// watch makes epoll report when the socket can be written, or stops that.
func (l *link) watch(c *conn, on bool) {
	if c.waits == on {
		return
	}
	c.waits = on
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: int32(c.peer)}
	if on {
		ev.Events |= unix.EPOLLOUT
	}
	unix.EpollCtl(l.ep, unix.EPOLL_CTL_MOD, c.fd, &ev)
}

// Poll reads and writes what it can.
func (l *link) Poll() bool {
	if len(l.live) <= fewPeers {
		moved := false
		if l.polls++; l.polls >= spins {
			l.polls = 0
			l.due = l.due || l.rang()
		}
		if l.due {
			moved = l.look()
		}
		for i := len(l.live) - 1; i >= 0; i-- {
			c := l.live[i] // if it is lost, the last one takes its place, which was handled before
			if c.first < len(c.queue) && l.flush(c) {
				moved = true
			}
			if l.read(c) {
				moved = true
			}
		}
		return moved
	}
	n := epollWait(l.ep, l.event)
	moved := false
	for _, ev := range l.event[:n] {
		if ev.Fd == timerMark {
			l.due = l.due || l.rang()
			continue
		}
		c := l.conns[ev.Fd]
		if c == nil {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 && l.flush(c) {
			moved = true
		}
		if ev.Events&^unix.EPOLLOUT != 0 && l.read(c) {
			moved = true
		}
	}
	if l.due && l.look() {
		moved = true
	}
	return moved
}

// flush writes from the queue.
func (l *link) flush(c *conn) (moved bool) {
	for c.first < len(c.queue) && c.broken == nil {
		n, total, off := 0, 0, c.off
		for i := c.first; i < len(c.queue) && n+2 <= maxVec && total < 4<<20; i++ {
			it := &c.queue[i]
			head, body := it.head[min(off, frameHead):], it.payload[max(0, off-frameHead):]
			off = 0
			for _, b := range [2][]byte{head, body} {
				if len(b) > 0 {
					l.vec[n].Base = &b[0]
					l.vec[n].SetLen(len(b))
					n++
					total += len(b)
				}
			}
		}
		wrote, errno := writev(c.fd, l.vec[:n], total)
		if errno == unix.EAGAIN {
			return moved
		}
		if errno != 0 {
			c.broken = errno
			l.giveBack(c)
			return true
		}
		moved = true
		short := wrote < total
		for wrote > 0 {
			it := &c.queue[c.first]
			rest := it.size() - c.off
			if wrote < rest {
				c.off += wrote
				break
			}
			wrote -= rest
			token := it.token
			*it = item{}
			c.first++
			c.off = 0
			l.h.Sent(token) // this may call Send
		}
		if short {
			return moved
		}
	}
	if c.first == len(c.queue) {
		c.clear()
		l.watch(c, false)
	}
	return moved
}

// giveBack returns all payloads that wait.
func (l *link) giveBack(c *conn) {
	for c.first < len(c.queue) {
		token := c.queue[c.first].token
		c.queue[c.first] = item{}
		c.first++
		l.h.Sent(token)
	}
	c.clear()
	l.watch(c, false)
}

// read makes one read call and delivers the frames in the result.
func (l *link) read(c *conn) bool {
	var n int
	var errno unix.Errno
	rest := len(c.body) - c.got
	switch {
	case rest >= directSize:
		n, errno = read(c.fd, c.body[c.got:])
	case rest > 0:
		l.vec[0].Base = &c.body[c.got]
		l.vec[0].SetLen(rest)
		l.vec[1].Base = &l.buf[0]
		l.vec[1].SetLen(len(l.buf))
		n, errno = readv(c.fd, l.vec[:2])
	default:
		n, errno = read(c.fd, l.buf)
	}
	switch {
	case errno == unix.EAGAIN:
		return false
	case errno != 0:
		l.lose(c, errno)
		return true
	case n == 0:
		l.lose(c, io.EOF)
		return true
	}
	if rest > 0 {
		took := min(n, rest)
		c.got += took
		n -= took
		if c.got < len(c.body) {
			return true
		}
		l.deliver(c)
	}
	l.parse(c, l.buf[:n])
	return true
}

// parse delivers the frames in b. b may begin and end inside a frame.
func (l *link) parse(c *conn, b []byte) {
	for len(b) > 0 {
		if !c.in {
			n := copy(c.head[c.have:], b)
			b = b[n:]
			if c.have += n; c.have < frameHead {
				return
			}
			word := binary.LittleEndian.Uint64(c.head[:])
			size := word &^ (0xffff << 48)
			if word&(0xffff<<48) != frameMark || size > maxPayload || uint64(int(size)) != size {
				l.lose(c, fmt.Errorf("%w: frame with length word %#x", errGarbled, word))
				return
			}
			c.in = true
			c.body = l.h.Arriving(c.peer, c.header(), int(size))
			c.got = 0
			if len(c.body) != int(size) {
				panic(fmt.Sprintf("tcp: Arriving returned %d bytes for a payload of %d", len(c.body), size))
			}
		}
		n := copy(c.body[c.got:], b)
		b = b[n:]
		if c.got += n; c.got < len(c.body) {
			return
		}
		l.deliver(c)
	}
}

func (c *conn) header() *transport.Header {
	return (*transport.Header)(c.head[prefixSize:])
}

// deliver completes a frame.
func (l *link) deliver(c *conn) {
	body := c.body
	c.body, c.got, c.have, c.in = nil, 0, 0, false
	l.h.Arrived(c.peer, c.header(), body)
}

// lose ends a connection: it returns the payloads and reports the loss.
func (l *link) lose(c *conn, why error) {
	if c.broken != nil {
		why = c.broken // it is the original reason
	}
	c.broken = why
	l.giveBack(c)
	l.drop(c)
	if why == io.EOF {
		why = errClosed
	}
	l.h.Lost(c.peer, fmt.Errorf("tcp: rank %d on %s is lost: %w", c.peer, c.host, why))
}

// drop closes a socket and forgets its connection.
func (l *link) drop(c *conn) {
	unix.Close(c.fd) // this also removes it from epoll
	c.fd = -1
	l.conns[c.peer] = nil
	last := l.live[len(l.live)-1]
	l.live[c.slot] = last
	last.slot = c.slot
	l.live = l.live[:len(l.live)-1]
}

// Drop closes the connection of a peer.
func (l *link) Drop(peer int) {
	if peer < len(l.conns) && l.conns[peer] != nil {
		c := l.conns[peer]
		c.broken = errDropped
		l.giveBack(c)
		l.drop(c)
	}
}

// Close writes what is queued, waits a little until the peers' kernels have
// received it, and closes all connections. Frames that arrive meanwhile are
// dropped.
func (l *link) Close(ctx context.Context) error {
	if l.ep < 0 {
		return nil
	}
	err := l.drain(ctx)
	l.shut()
	return err
}

// shut closes all descriptors.
func (l *link) shut() {
	for _, c := range l.live {
		unix.Close(c.fd)
		l.conns[c.peer] = nil
	}
	l.live = nil
	for _, fd := range []int{l.timer, l.ep} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	l.timer, l.ep = -1, -1
}
