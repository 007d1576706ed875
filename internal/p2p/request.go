package p2p

import (
	"fmt"
	"slices"
)

const (
	sending = iota + 1
	receiving
)

// Request is a send or receive that is under way or done.
type Request struct {
	kind    int
	ctx     uint32
	peer    int // as the caller requested
	tag     int32
	buf     []byte
	posted  uint64
	message *message // a message whose payload is received into this request's buffer
	done    bool
	open    bool // a send that is not done, see Totals
	err     error

	memory    *Memory // instead of buf
	flow      *flow   // moves the message to or from memory
	asked     int     // bytes of a send that the receiver has asked for
	announced int     // bytes that it will ask for
	frames    int     // of them that a link is sending
	got       int     // bytes of the message that have come

	from     int // the received message
	tagGot   int32
	length   int
	order    byte
	recorded *SavedMessage // see Record
}

// Status describes the message that a receive got.
type Status struct {
	Source, Tag, Bytes int
	OtherByteOrder     bool // the sender has another byte order
	OtherIntSize       bool // the sender's ints have another size
}

func (e *Engine) status(r *Request) Status {
	st := Status{Source: r.from, Tag: int(r.tagGot), Bytes: r.length}
	if r.kind == receiving && r.done && r.err == nil {
		differs := r.order ^ e.order
		st.OtherByteOrder, st.OtherIntSize = differs&orderLittle != 0, differs&orderNarrow != 0
	}
	return st
}

// flows reports whether what is received cannot be written to r.buf.
func (r *Request) flows() bool { return r.memory != nil && r.buf == nil }

func (e *Engine) newRequest() *Request {
	if n := len(e.free); n > 0 {
		r := e.free[n-1]
		e.free = e.free[:n-1]
		return r
	}
	return new(Request)
}

// recycle takes back a request that nobody else refers to.
func (e *Engine) recycle(r *Request) {
	*r = Request{}
	if len(e.free) < 64 {
		e.free = append(e.free, r)
	}
}

// Send sends a message, and returns when data may be changed.
func (e *Engine) Send(ctx uint32, to int, tag int32, data []byte) error {
	e.lock()
	defer e.mu.Unlock()
	e.awaitContinue()
	if err := e.usable(to); err != nil {
		return err
	}
	if e.sendLocal(ctx, to, tag, data) {
		return nil
	}
	r := e.newRequest()
	e.begin(r, ctx, to, tag, data)
	if err := e.wait(r); err != nil {
		return err
	}
	e.recycle(r)
	return nil
}

// awaitContinue waits while another goroutine is paused at a point: the totals
// of messages sent are announced already.
func (e *Engine) awaitContinue() {
	if e.paused {
		e.until(none, func() bool { return !e.paused })
	}
}

// usable returns an error if nothing can be sent to a rank.
func (e *Engine) usable(to int) error {
	if e.err != nil {
		return e.err
	}
	if e.closed {
		return ErrClosed
	}
	if e.unconnected && to != e.rank && e.replaying {
		return nil
	}
	if e.unconnected && to != e.rank {
		return fmt.Errorf("%w (to rank %d)", ErrNotConnected, to)
	}
	if e.peers[to].ended {
		return fmt.Errorf("%w: cannot send to rank %d", ErrEnded, to)
	}
	if e.peers[to].link == nil && to != e.rank {
		return fmt.Errorf("cannot send to rank %d while its link is being replaced", to)
	}
	return nil
}

// sendLocal sends a message to this rank itself, or drops one during a replay.
// It returns false for other messages, which begin sends.
func (e *Engine) sendLocal(ctx uint32, to int, tag int32, data []byte) bool {
	if to != e.rank {
		return e.unconnected // see Replay
	}
	e.head = frame{kind: kindEager, order: e.order, ctx: ctx, tag: tag, epoch: e.epoch}
	m := e.newMessage(to, &e.head, len(data))
	m.data, m.whole = data, true
	if r := e.queues(ctx).take(to, tag); r != nil {
		e.deliver(m, r)
		return true
	}
	m.data = append([]byte(nil), data...)
	e.enqueue(m)
	return true
}

// begin starts to send a message.
func (e *Engine) begin(r *Request, ctx uint32, to int, tag int32, data []byte) {
	p := &e.peers[to]
	*r = Request{kind: sending, ctx: ctx, peer: to, tag: tag, buf: data}
	if e.count {
		p.sent++
	}
	e.head = frame{order: e.order, ctx: ctx, tag: tag, epoch: e.epoch, seq: p.sent}
	if len(data) <= p.eager {
		e.head.kind = kindEager
		r.frames = 1
		if r.done = e.emit(to, data, r); !r.done {
			r.open = true
			e.openSends++
		}
		// A program that only sends must poll, too.
		if e.eagers++; e.eagers%32 == 0 {
			e.poll()
		}
		return
	}
	e.announce(r, len(data))
}

// announce announces a message of n bytes, which are sent later.
func (e *Engine) announce(r *Request, n int) {
	p := &e.peers[r.peer]
	r.open, r.announced = true, n
	e.openSends++
	e.lastID++
	e.requests[e.lastID] = r
	e.head = frame{kind: kindAnnounce, order: e.order, ctx: r.ctx, tag: r.tag, epoch: e.epoch, seq: p.sent, length: uint64(n), id: e.lastID}
	if p.puller != nil && r.memory == nil {
		e.head.other = address(r.buf)
	}
	e.emit(r.peer, nil, nil)
}

// Isend starts to send a message. data must not be changed until the request is
// done.
func (e *Engine) Isend(ctx uint32, to int, tag int32, data []byte) *Request {
	e.lock()
	defer e.mu.Unlock()
	e.awaitContinue()
	r := new(Request)
	if err := e.usable(to); err != nil {
		*r = Request{kind: sending, peer: to, tag: tag, done: true, err: err}
	} else if e.sendLocal(ctx, to, tag, data) {
		*r = Request{kind: sending, peer: to, tag: tag, done: true}
	} else {
		e.begin(r, ctx, to, tag, data)
	}
	return r
}

// Recv receives a message.
func (e *Engine) Recv(ctx uint32, from int, tag int32, buf []byte) (Status, error) {
	e.lock()
	defer e.mu.Unlock()
	r := e.newRequest()
	e.receive(r, ctx, from, tag, buf, nil)
	err := e.wait(r)
	st := e.status(r)
	if r.done {
		e.recycle(r)
	}
	return st, err
}

// Irecv starts to receive a message into buf.
func (e *Engine) Irecv(ctx uint32, from int, tag int32, buf []byte) *Request {
	e.lock()
	defer e.mu.Unlock()
	r := new(Request)
	e.receive(r, ctx, from, tag, buf, nil)
	return r
}

// receive starts a receive: into buf if memory is nil or buf is memory's direct
// bytes, else into memory.
func (e *Engine) receive(r *Request, ctx uint32, from int, tag int32, buf []byte, memory *Memory) {
	e.clock++
	*r = Request{kind: receiving, ctx: ctx, peer: from, tag: tag, buf: buf, memory: memory, posted: e.clock}
	b := e.queues(ctx)
	m := b.find(from, tag)
	switch {
	case m != nil:
		b.remove(m)
		e.claim(m, r)
	case e.err != nil:
		e.complete(r, e.err)
	case e.closed:
		e.complete(r, ErrClosed)
	case e.over(from):
		e.complete(r, e.noMore(from))
	case e.unconnected && from != e.rank && !e.resuming:
		e.complete(r, ErrNotConnected)
	default:
		b.post(r)
	}
}

// claim gives a waiting message to a receive.
func (e *Engine) claim(m *message, r *Request) {
	switch {
	case m.whole:
		e.deliver(m, r)
	case m.id != 0 && !m.asked:
		m.want = r
		e.fetch(m)
		e.pull()
	default: // the rest is coming into m.data
		m.want = r
	}
}

// over reports whether no more messages can come from a rank.
func (e *Engine) over(from int) bool {
	if from != Any {
		return e.peers[from].ended
	}
	for i := range e.peers {
		if i != e.rank && !e.peers[i].ended {
			return false
		}
	}
	return e.size > 1
}

func (e *Engine) noMore(from int) error {
	if e.err != nil {
		return e.err
	}
	if from == Any {
		return fmt.Errorf("%w: no more messages can come, all other ranks have ended", ErrEnded)
	}
	return fmt.Errorf("%w: no more messages can come from rank %d", ErrEnded, from)
}

// dropEnded fails the receives for which no message can come any more.
func (e *Engine) dropEnded() {
	for _, b := range e.matchers {
		for i, q := range b.posted {
			if len(q) == 0 || !e.over(i-1) {
				continue
			}
			for _, r := range append(queue[*Request](nil), q...) {
				b.unpost(r)
				e.complete(r, e.noMore(i-1))
			}
		}
	}
}

// Wait waits until the request is done.
func (e *Engine) Wait(r *Request) (Status, error) {
	e.lock()
	defer e.mu.Unlock()
	err := e.wait(r)
	return e.status(r), err
}

// Test polls, and reports whether the request is done.
func (e *Engine) Test(r *Request) (bool, Status, error) {
	e.lock()
	defer e.mu.Unlock()
	if !r.done {
		e.poll()
	}
	if !r.done && e.err != nil {
		return true, e.status(r), e.err
	}
	if !r.done {
		return false, Status{}, nil
	}
	return true, e.status(r), r.err
}

// WaitAny waits until one request is done and returns its index, or -1 if all
// are nil.
func (e *Engine) WaitAny(rs []*Request) (int, Status, error) {
	e.lock()
	defer e.mu.Unlock()
	on, live := none, false
	for i, r := range rs {
		if r == nil {
			continue
		}
		if r.done {
			return i, e.status(r), r.err
		}
		live = true
		if on = r.peer; len(rs) > 1 {
			on = Any
		}
	}
	if !live {
		return -1, Status{}, nil
	}
	at := -1
	err := e.until(on, func() bool {
		for i, r := range rs {
			if r != nil && r.done {
				at = i
				return true
			}
		}
		return false
	})
	if at < 0 {
		return slices.IndexFunc(rs, func(r *Request) bool { return r != nil }), Status{}, err
	}
	return at, e.status(rs[at]), rs[at].err
}

// Probe waits until a message can be received. It does not receive it.
func (e *Engine) Probe(ctx uint32, from int, tag int32) (Status, error) {
	e.lock()
	defer e.mu.Unlock()
	var m *message
	b := e.queues(ctx)
	err := e.until(from, func() bool {
		m = b.find(from, tag)
		return m != nil || e.over(from)
	})
	if m != nil {
		return Status{Source: m.source, Tag: int(m.tag), Bytes: m.length}, nil
	}
	if err == nil {
		err = e.noMore(from)
	}
	return Status{}, err
}

// Iprobe polls, and reports whether a message can be received.
func (e *Engine) Iprobe(ctx uint32, from int, tag int32) (bool, Status, error) {
	e.lock()
	defer e.mu.Unlock()
	b := e.queues(ctx)
	m := b.find(from, tag)
	if m == nil {
		e.poll()
		m = b.find(from, tag)
	}
	switch {
	case m != nil:
	case e.err == nil && e.unconnected && from != e.rank:
		return false, Status{}, ErrNotConnected
	default:
		return false, Status{}, e.err
	}
	return true, Status{Source: m.source, Tag: int(m.tag), Bytes: m.length}, nil
}
