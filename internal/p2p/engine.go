package p2p

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/transport"
)

// Any matches every source or tag.
const Any = -1

// The errors of operations wrap one of these.
var (
	// ErrLost: a rank of the run died. No operation works any more.
	ErrLost = errors.New("a rank of the run was lost")
	// ErrEnded: a message cannot come any more, because its sender has
	// ended.
	ErrEnded = errors.New("the rank has ended")
	// ErrTruncated: a message is longer than the buffer of its receive.
	ErrTruncated = errors.New("message longer than the buffer that receives it")
	// ErrClosed: Close was called.
	ErrClosed = errors.New("the run is closed")
	// ErrNotConnected: the engine is not connected yet.
	ErrNotConnected = errors.New("a process that takes over a rank cannot exchange messages before Restore")
)

// Observer is informed of what the coordination of checkpoints must know. Its
// methods are called with the engine's lock held.
type Observer interface {
	Control(from int, message []byte) // a control message came; the observer may keep the slice
	MessageDone(from int)             // Received(from) has grown, or a send to it is done
	Blocked()                         // the result of BlockedOn may have changed
	Ended(rank int)                   // the rank sends no more messages
	Lost(rank int, err error)         // the rank died
	Rollback()                        // RollbackWanted returns an error from now on
}

// Config is the configuration of an Engine.
type Config struct {
	Rank, Size int
	Drivers    []transport.Driver // in order of preference
	// Exchange gives every rank's endpoint to every rank. Connect calls it
	// once, and Reopen again.
	Exchange func(ctx context.Context, endpoint []byte) ([][]byte, error)
	// Machine names this rank's machine. Where a machine has more ranks
	// than processors, ranks yield sooner. Oversubscribed says so in
	// advance.
	Machine        string
	Oversubscribed bool
	// Observer may be nil.
	Observer Observer
	// Uncounted leaves out the counting for checkpoints, to measure its
	// cost.
	Uncounted bool
	// OtherByteOrder and OtherIntSize make this rank behave like one on a
	// machine with another byte order, or with ints of another size. For
	// tests.
	OtherByteOrder, OtherIntSize bool
}

// peer is what an engine knows about a rank.
type peer struct {
	link         transport.Link
	puller       transport.Puller // nil: this rank cannot pull from it
	eager        int
	sent         uint64 // complete messages
	received     uint64
	taken        uint64        // messages that the program has received
	recorded     *SavedMessage // the recording of the incoming message, see Record
	incoming     *message      // the message whose payload is coming in …
	into         *Request      // … or the receive whose buffer the payload is written to
	ended        bool
	finished     bool     // it has ended, and its work is done
	detached     bool     // it sends no more on this link: the link will be closed, or its process replaced
	muted        bool     // this rank sends no more on this link either
	detaches     uint64   // detach frames that this rank has sent on this link
	peerDetaches uint64   // detach frames that the peer has sent
	gone         error    // why it was lost after it had detached
	backlog      [][]byte // control messages that wait until it is not muted
	rollbacks    uint64   // number in its last Rollback frame
	machine      string   // its machine
}

// Engine connects a rank with its peers. Any goroutine may call its exported
// methods. Where a method says that the lock is held, the caller is an
// Observer, or is between Lock and Unlock.
type Engine struct {
	mu             sync.Mutex
	wanted         atomic.Int32 // number of goroutines that wait for mu
	waiters        []*waiter    // goroutines that wait for messages
	rank, size     int
	cfg            Config
	count          bool
	observer       Observer
	peers          []peer
	endpoints      []endpoint // of all ranks, as far as known
	links          []link
	matchers       map[uint32]*matchQueues
	lastCtx        uint32
	lastQueues     *matchQueues
	requests       map[uint64]*Request // requests in rendezvous, by number
	lastID         uint64
	clock          uint64 // orders receives and arrivals
	eagers         uint   // sends since the last poll
	openSends      uint64 // sends that are not done
	free           []*Request
	pulls          []*message
	deferred       []*message // messages of the next epoch that came while paused
	saved          int        // see SavedReceives
	restored       []restoredReceive
	paused         bool
	pulling        bool // announced messages are fetched before the program asks for them
	epoch          uint32
	contexts       uint32 // the next free context
	order          byte   // byte order and int size of this rank, as in frames
	oversubscribed bool   // this machine has more ranks than processors
	unconnected    bool   // it is not connected yet
	replaying      bool   // the program gets the messages that its predecessor received
	recording      recording
	resuming       bool // receives of a checkpoint are being posted
	flows          map[*flow]struct{}
	working        int    // goroutines of flows
	settling       uint64 // see Settle
	restoredFlags  []bool // see Counters
	rollbacks      uint64 // number of the last Rollback of this rank
	rollbackBy     int    // the rank that began it
	rollbackWhy    string // its reason
	err            error  // why nothing works any more, or until Rollback
	closed         bool
	header         transport.Header
	head           frame

	sleep sleeper
}

type link struct {
	transport.Link
	driver transport.Driver
}

// New returns an engine that is not connected.
func New(cfg Config) (*Engine, error) {
	if cfg.Size < 1 || cfg.Rank < 0 || cfg.Rank >= cfg.Size {
		return nil, fmt.Errorf("rank %d of %d ranks", cfg.Rank, cfg.Size)
	}
	e := &Engine{
		rank: cfg.Rank, size: cfg.Size, cfg: cfg, count: !cfg.Uncounted, observer: cfg.Observer,
		peers: make([]peer, cfg.Size), endpoints: make([]endpoint, cfg.Size), matchers: make(map[uint32]*matchQueues), requests: make(map[uint64]*Request),
		contexts: 2, order: order, oversubscribed: cfg.Oversubscribed, unconnected: cfg.Size > 1,
	}
	if cfg.OtherByteOrder {
		e.order ^= orderLittle
	}
	if cfg.OtherIntSize {
		e.order ^= orderNarrow
	}
	if err := e.sleep.init(); err != nil {
		return nil, err
	}
	return e, nil
}

// Rank and Size return this rank's number and the number of ranks.
func (e *Engine) Rank() int { return e.rank }
func (e *Engine) Size() int { return e.size }

// Lock keeps the engine from moving anything until Unlock.
func (e *Engine) Lock()   { e.lock() }
func (e *Engine) Unlock() { e.mu.Unlock() }

// Sent returns the number of complete messages sent to a rank. The lock is
// held.
func (e *Engine) Sent(to int) uint64 { return e.peers[to].sent }

// Received returns the number of complete messages that came from a rank. The
// lock is held.
func (e *Engine) Received(from int) uint64 { return e.peers[from].received }

// Totals returns the sums of Sent and Received over all other ranks. A send
// that is not done counts twice: its message may have been received, but the
// news of that can still wake this rank, which must not look as if nothing were
// in flight to it. A message that is being stored counts as sent again, for the
// same reason. The lock is held.
func (e *Engine) Totals() (sent, received uint64) {
	sent = e.openSends + e.settling
	for i := range e.peers {
		sent += e.peers[i].sent
		received += e.peers[i].received
	}
	return sent, received
}

// Peers returns the ranks with which messages were exchanged. The lock is held.
func (e *Engine) Peers() []int {
	var list []int
	for i := range e.peers {
		if e.peers[i].sent > 0 || e.peers[i].received > 0 {
			list = append(list, i)
		}
	}
	return list
}

// Taken returns how many messages of a rank the program has received. The lock
// is held.
func (e *Engine) Taken(from int) uint64 { return e.peers[from].taken }

// Err returns why the engine does not work any more, or nil. The lock is held.
func (e *Engine) Err() error { return e.err }

// Transport returns the name of the transport to a peer.
func (e *Engine) Transport(to int) string {
	e.lock()
	defer e.mu.Unlock()
	for _, l := range e.links {
		if e.peers[to].link == l.Link {
			return l.driver.Name()
		}
	}
	return "self"
}

// Contexts returns the next free context of this rank. A new communicator gets
// the highest one of its members. If n is higher, it becomes the next free
// context first.
func (e *Engine) Contexts(n uint32) uint32 {
	e.lock()
	defer e.mu.Unlock()
	e.contexts = max(e.contexts, n)
	return e.contexts
}

// NextContext is Contexts(0) with the lock held.
func (e *Engine) NextContext() uint32 { return e.contexts }

// Traffic returns how many messages were sent and received.
func (e *Engine) Traffic() uint64 {
	e.lock()
	defer e.mu.Unlock()
	n := uint64(0)
	for i := range e.peers {
		n += e.peers[i].sent + e.peers[i].taken
	}
	return n
}

// Fail makes all operations fail with an error, now and later.
func (e *Engine) Fail(err error) {
	e.lock()
	defer e.mu.Unlock()
	e.fail(err)
}

// FailLocked is Fail with the lock held.
func (e *Engine) FailLocked(err error) { e.fail(err) }

func (e *Engine) fail(err error) {
	if e.err == nil || errors.Is(e.err, ErrRollback) {
		e.err = err
	}
	e.sleep.wake()
	e.sleep.broadcast()
}

// Wake makes a sleeping operation check its condition again.
func (e *Engine) Wake() { e.sleep.wake() }

// Arriving is called by links. It returns the buffer for a payload.
func (e *Engine) Arriving(from int, h *transport.Header, n int) []byte {
	p := &e.peers[from]
	f := &e.head
	f.get(h)
	if p.rollbacks < e.rollbacks { // its time is abandoned
		return make([]byte, n)
	}
	if f.kind == kindEager {
		p.recorded = e.record(from, f, n)
		m := (*message)(nil)
		if !e.afterCheckpoint(f) {
			if r := e.queues(f.ctx).take(from, f.tag); r != nil {
				if n <= len(r.buf) {
					p.into = r
					return r.buf[:n]
				}
				m = e.newMessage(from, f, n)
				m.want = r
			}
		}
		if m == nil {
			m = e.newMessage(from, f, n)
			e.enqueue(m)
		}
		m.data = make([]byte, n)
		p.incoming = m
		return m.data
	}
	if f.kind == kindData {
		r := e.requests[f.id]
		if r != nil && r.from == from && f.seq <= uint64(r.length) && n <= r.length-int(f.seq) {
			off := int(f.seq)
			switch {
			case r.flow != nil:
				if buf := r.flow.arriving(off, n); buf != nil {
					return buf
				}
			case off != r.got:
			case r.message != nil:
				return r.message.data[off:][:n]
			default:
				return r.buf[off:][:n]
			}
		}
		e.protocolError(from, "it sent data that was not requested")
	}
	return make([]byte, n)
}

// Arrived is called by links when a frame is complete.
func (e *Engine) Arrived(from int, h *transport.Header, buf []byte) {
	p := &e.peers[from]
	f := &e.head
	f.get(h)
	if p.rollbacks < e.rollbacks && f.kind != kindRollback && f.kind != kindBye {
		return // see Rollback
	}
	switch f.kind {
	case kindEager:
		p.recorded.setData(buf)
		if r := p.into; r != nil {
			p.into = nil
			r.order = f.order
			e.countReceived(from)
			e.completeReceive(r, from, f.tag, len(buf))
			return
		}
		m := p.incoming
		p.incoming = nil
		m.whole = true
		e.countReceived(from)
		if m.want != nil {
			e.deliver(m, m.want)
		}
	case kindAnnounce:
		if f.length > maxLength {
			e.protocolError(from, "it announced a message of impossible length")
			return
		}
		m := e.newMessage(from, f, int(f.length))
		m.id, m.addr, m.recorded = f.id, f.other, e.record(from, f, int(f.length))
		if e.afterCheckpoint(f) {
			e.enqueue(m)
		} else if r := e.queues(f.ctx).take(from, f.tag); r != nil {
			m.want = r
			e.fetch(m)
		} else {
			e.enqueue(m)
			if e.pulling {
				e.fetch(m)
			}
		}
	case kindReady:
		r := e.requests[f.id]
		if r == nil || r.peer != from || r.kind != sending {
			e.protocolError(from, "it is ready for a message that was not announced")
			return
		}
		e.ready(r, f)
	case kindData:
		r := e.requests[f.id]
		if r == nil || r.from != from {
			return // a protocol error, see Arriving
		}
		if r.flow != nil {
			r.flow.partArrived(int(f.seq), len(buf))
			return
		}
		r.recorded.addData(buf)
		if r.got += len(buf); r.got < r.length {
			return // it comes in parts
		}
		delete(e.requests, f.id)
		e.countReceived(from)
		if m := r.message; m != nil {
			r.message, m.whole = nil, true
			if m.want != nil {
				e.deliver(m, m.want)
			}
			return
		}
		e.completeReceive(r, from, r.tagGot, len(buf))
	case kindDone:
		r := e.requests[f.id]
		if r == nil || r.peer != from || r.kind != sending {
			e.protocolError(from, "it has read a message that was not announced")
			return
		}
		delete(e.requests, f.id)
		e.complete(r, nil)
	case kindControl:
		if e.observer != nil {
			e.observer.Control(from, buf)
		}
	case kindBye:
		p.ended, p.finished = true, f.tag == 1
		e.dropEnded()
		if e.observer != nil {
			e.observer.Ended(from)
		}
		e.sleep.broadcast()
	case kindRollback:
		e.rollbackArrived(from, f.seq, int(f.tag), string(buf))
	case kindDetach:
		p.detached, p.peerDetaches = true, f.seq
		e.sleep.broadcast()
	case kindReattach:
		p.detached = false
		if !p.muted { // it may have detached for a move that was cancelled
			p.detaches = max(p.detaches, f.seq)
		}
	default:
		e.protocolError(from, fmt.Sprintf("it sent a frame of unknown kind %d", f.kind))
	}
}

// ready sends a message, or a part of it, to a rank that is ready for it.
func (e *Engine) ready(r *Request, f *frame) {
	from, to := r.peer, f.other
	total := len(r.buf)
	if r.flow != nil {
		total = r.flow.m.Len()
	}
	off, n := int(f.seq), int(f.length)
	if n == 0 { // all of it
		n = total
	}
	if off != r.asked || n < 0 || n > total-off {
		e.protocolError(from, "it is ready for a part of a message that is not the next one")
		return
	}
	if r.asked += n; r.asked == total {
		delete(e.requests, f.id)
	}
	if r.flow != nil {
		r.flow.send(off, n, to)
		return
	}
	r.frames++
	e.head = frame{kind: kindData, order: e.order, id: to, seq: uint64(off)}
	if e.emit(from, r.buf[off:][:n], r) {
		e.frameSent(r)
	}
}

// frameSent notes that a link has sent a frame of a message. It completes the
// send after the last one.
func (e *Engine) frameSent(r *Request) {
	if r.frames--; r.frames <= 0 && r.asked >= r.announced {
		e.complete(r, nil)
	}
}

// protocolError fails the engine because a peer violates the protocol.
func (e *Engine) protocolError(from int, what string) {
	e.fail(fmt.Errorf("rank %d violates the protocol: %s (do all ranks run the same program?)", from, what))
}

// sentPayload is called by links when a payload is free again.
func (e *Engine) sentPayload(token any) {
	switch t := token.(type) {
	case *Request:
		e.frameSent(t)
	case sentSlot:
		t.f.sent(t.slot)
	}
}

// lost is called by links when a peer is lost.
func (e *Engine) lost(rank int, err error) {
	p := &e.peers[rank]
	if p.ended && e.closed { // it has announced its end, and has waited for this rank
		return
	}
	if p.detached && p.muted { // Relink or Reattach decides what follows
		p.gone = err
		return
	}
	if p.ended && !p.finished {
		err = fmt.Errorf("it left before its work was done: %w", err)
	}
	p.ended = true
	err = fmt.Errorf("%w: rank %d: %w", ErrLost, rank, err)
	e.fail(err)
	if e.observer != nil {
		e.observer.Lost(rank, err)
	}
}

// handler is the engine for one link. A link reports only on the ranks that it
// serves. If an old link reports on a rank that another link serves now, the
// report concerns a process that was replaced, and is ignored.
type handler struct {
	*Engine
	link transport.Link
}

func (h *handler) Sent(token any) { h.sentPayload(token) }

func (h *handler) Lost(rank int, err error) {
	if h.peers[rank].link == h.link {
		h.lost(rank, err)
	}
}

// afterCheckpoint reports whether a message was sent after the checkpoint that
// is being taken.
func (e *Engine) afterCheckpoint(f *frame) bool { return e.paused && f.epoch > e.epoch }

func (e *Engine) newMessage(from int, f *frame, n int) *message {
	e.clock++
	return &message{source: from, ctx: f.ctx, tag: f.tag, epoch: f.epoch, order: f.order, length: n, arrival: e.clock}
}

// enqueue stores a message for later receives.
func (e *Engine) enqueue(m *message) {
	if e.paused && m.epoch > e.epoch {
		e.deferred = append(e.deferred, m)
		return
	}
	e.queues(m.ctx).add(m)
	e.sleep.broadcast() // for Probe
}

// countReceived counts a complete message.
func (e *Engine) countReceived(from int) {
	if !e.count {
		return
	}
	e.peers[from].received++
	if e.observer != nil {
		e.observer.MessageDone(from)
	}
}

// fetch gets the payload of an announced message.
func (e *Engine) fetch(m *message) {
	if m.asked {
		return
	}
	m.asked = true
	if m.addr != 0 && e.peers[m.source].puller != nil && (m.want == nil || !m.want.flows()) {
		e.pulls = append(e.pulls, m) // fetched later, not inside Poll
		return
	}
	e.lastID++
	r := m.want
	if r != nil && r.flows() && m.length <= r.memory.Len() && m.recorded == nil {
		r.from, r.length, r.tagGot, r.order = m.source, m.length, m.tag, m.order
		e.requests[e.lastID] = r
		e.fetchParts(m, r)
		return
	}
	if r == nil || m.length > len(r.buf) { // it cannot be written to the program's buffer
		m.data = make([]byte, m.length)
		r = &Request{message: m}
	}
	r.from, r.length, r.tagGot, r.order, r.recorded = m.source, m.length, m.tag, m.order, m.recorded
	e.requests[e.lastID] = r
	e.head = frame{kind: kindReady, id: m.id, other: e.lastID}
	e.emit(m.source, nil, nil)
}

// pull reads announced payloads from their senders' memory.
func (e *Engine) pull() {
	for len(e.pulls) > 0 {
		m := e.pulls[0]
		e.pulls = e.pulls[1:]
		var dst []byte
		direct := false
		if r := m.want; r != nil && m.length <= len(r.buf) {
			dst, direct = r.buf[:m.length], true
		} else {
			m.data = make([]byte, m.length)
			dst = m.data
		}
		if err := e.peers[m.source].puller.Pull(m.source, dst, m.addr); err != nil {
			e.lost(m.source, err)
			continue
		}
		e.head = frame{kind: kindDone, id: m.id}
		e.emit(m.source, nil, nil)
		m.whole = true
		m.recorded.setData(dst)
		e.countReceived(m.source)
		if direct {
			m.want.order = m.order
			e.completeReceive(m.want, m.source, m.tag, m.length)
		} else if m.want != nil {
			e.deliver(m, m.want)
		}
	}
}

// deliver gives a complete message to a receive.
func (e *Engine) deliver(m *message, r *Request) {
	r.order = m.order
	if r.flows() && m.length > 0 {
		e.settleLater(m, r)
		return
	}
	n := copy(r.buf, m.data)
	if m.length > n {
		r.err = errTruncated(m, n)
	}
	e.completeReceive(r, m.source, m.tag, m.length)
	if m.restored {
		e.peers[m.source].taken--
	}
}

// completeReceive completes a receive.
func (e *Engine) completeReceive(r *Request, from int, tag int32, n int) {
	e.peers[from].taken++
	r.from, r.tagGot, r.length = from, tag, n
	e.complete(r, r.err)
}

func (e *Engine) complete(r *Request, err error) {
	r.done, r.err = true, err
	if r.kind == receiving && r.memory != nil && r.buf != nil {
		n := 0
		if err == nil {
			n = min(r.length, len(r.buf))
			r.memory.swap(r.buf[:n], r.order, e)
		}
		r.memory.Release(n)
	}
	if r.open {
		r.open = false
		e.openSends--
		if e.observer != nil && e.count { // Totals have changed
			e.observer.MessageDone(r.peer)
		}
	}
	e.sleep.broadcast()
}

// emit sends a frame whose header is e.head. It returns true when the payload
// may be changed.
func (e *Engine) emit(to int, payload []byte, token any) bool {
	l := e.peers[to].link
	if l == nil {
		return true // lost, or closed
	}
	e.head.put(&e.header)
	return l.Send(to, &e.header, payload, token)
}

// Control sends a control message. The lock is held. The engine keeps the
// slice.
func (e *Engine) Control(to int, message []byte) {
	if p := &e.peers[to]; p.muted || p.link == nil && e.unconnected {
		p.backlog = append(p.backlog, message)
		return
	}
	e.control(to, message)
}

func (e *Engine) control(to int, message []byte) {
	e.head = frame{kind: kindControl}
	e.emit(to, message, nil)
}
