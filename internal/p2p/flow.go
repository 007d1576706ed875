package p2p

import (
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/mem"
)

// A flow moves a message between a link and memory that a link cannot reach:
// an array on a device, or a view with gaps. The message passes through a few
// buffers, in parts, so that copies of the device overlap with the link's work:
//
//	sender     device ──▶ buffer ──▶ Data(part) …       when Ready has come
//	receiver   Ready(part) …  ──▶ buffer ──▶ device     a few parts at a time
//
// Either side may be ordinary memory: its Ready asks for everything, and it
// answers Ready with the part that was asked for. Such messages are always
// announced.
//
// Calls of Slot, Load and Store wait for the device, and so run in a goroutine,
// which exists while there is something to do. All else happens with the lock.

const (
	partSize  = 1 << 20
	flowSlots = 3 // buffers of a flow
)

// Memory is where a message is sent from or received into, if it is no slice.
type Memory struct {
	mem.Parts
	Swap func([]byte) // changes the byte order of elements
}

// part returns the size of the parts: whole elements.
func (m *Memory) part() int {
	unit := max(int(m.Elem().Size()), 1)
	return min(max(partSize/unit, 1)*unit, m.Len())
}

// swap changes the byte order of elements that have another one.
func (m *Memory) swap(p []byte, order byte, e *Engine) {
	if (order^e.order)&orderLittle != 0 && m.Swap != nil {
		m.Swap(p)
	}
}

type flow struct {
	e    *Engine
	r    *Request
	m    *Memory
	todo []flowPart

	spare   []mem.Slot
	used    int // other buffers
	running bool
	err     error

	// of a receive
	message *message
	id      uint64
	asked   int
	arrived int
	stored  int
	waiting map[int]*awaited // parts that were asked for, by offset
	settles bool             // it stores a message that has arrived completely
}

// flowPart is a part that is to be sent or stored.
type flowPart struct {
	off, n int
	slot   mem.Slot
	to     uint64 // the receiver's request
}

// awaited is a part that a receiver has asked for. It may come in pieces: the
// sender's elements may have another size, and then its buffers do.
type awaited struct {
	slot mem.Slot
	left int // bytes that have not come
}

// sentSlot is the token of a part that a link sends.
type sentSlot struct {
	f    *flow
	slot mem.Slot
}

func (e *Engine) newFlow(r *Request) *flow {
	f := &flow{e: e, r: r, m: r.memory, waiting: make(map[int]*awaited)}
	if e.flows == nil {
		e.flows = make(map[*flow]struct{})
	}
	e.flows[f] = struct{}{}
	r.flow = f
	return f
}

// kick makes sure that a goroutine works.
func (f *flow) kick() {
	if !f.running {
		f.running = true
		f.e.works(1)
		go f.run()
	}
}

func (f *flow) run() {
	e := f.e
	e.lock()
	defer e.mu.Unlock()
	for !f.r.done && f.step() {
	}
	f.running = false
	if f.r.done {
		f.end()
	}
	e.works(-1)
	e.sleep.broadcast()
	e.sleep.wake() // links may have something to send
}

// works counts goroutines of flows. While one works, the program is not
// blocked.
func (e *Engine) works(n int) {
	before := e.working
	e.working += n
	if len(e.waiters) > 0 && min(before, e.working) == 0 && e.observer != nil {
		e.observer.Blocked()
	}
}

// end gives back the buffers.
func (f *flow) end() {
	for _, s := range f.spare {
		s.Free()
	}
	for _, p := range f.waiting {
		p.slot.Drop()
	}
	for _, p := range f.todo {
		if p.slot != nil {
			p.slot.Free()
		}
	}
	f.spare, f.todo = nil, nil
	f.settled()
	clear(f.waiting)
	delete(f.e.flows, f)
}

// step does one thing, and reports whether there was any. It releases the lock
// meanwhile.
func (f *flow) step() bool {
	switch {
	case f.settles:
		f.settle()
	case f.r.kind == sending:
		return f.sendPart()
	case len(f.todo) > 0:
		f.storePart()
	case f.asked < f.r.length && f.used < flowSlots:
		f.askPart()
	default:
		return false
	}
	return true
}

// slot returns a buffer. The lock is released meanwhile.
func (f *flow) slot() (s mem.Slot, err error) {
	if n := len(f.spare); n > 0 {
		s, f.spare = f.spare[n-1], f.spare[:n-1]
		return s, nil
	}
	f.unlocked(func() { s, err = f.m.Slot(f.m.part()) })
	return s, err
}

func (f *flow) unlocked(do func()) {
	f.e.mu.Unlock()
	defer f.e.lock()
	do()
}

// send notes that the receiver wants bytes off…off+n of the message.
func (f *flow) send(off, n int, to uint64) {
	size := f.m.part()
	for end := off + n; off < end; off += size {
		f.todo = append(f.todo, flowPart{off: off, n: min(size, end-off), to: to})
	}
	f.kick()
}

func (f *flow) sendPart() bool {
	if len(f.todo) == 0 || f.used >= flowSlots {
		return false
	}
	p := f.todo[0]
	f.todo = f.todo[1:]
	f.used++
	s, err := f.slot()
	if err == nil {
		f.unlocked(func() { err = s.Load(p.off, p.n) })
	}
	switch {
	case err != nil:
		if s != nil {
			s.Drop()
		}
		f.used--
		if !f.r.done {
			f.e.complete(f.r, err)
		}
	case f.r.done:
		s.Free()
		f.used--
	default:
		f.r.frames++
		f.e.head = frame{kind: kindData, order: f.e.order, id: p.to, seq: uint64(p.off)}
		if f.e.emit(f.r.peer, s.Bytes()[:p.n], sentSlot{f, s}) {
			f.sent(s)
		} else {
			f.e.sleep.wake() // the link may wait for others only
		}
	}
	return true
}

// sent takes back a buffer from the link.
func (f *flow) sent(s mem.Slot) {
	f.used--
	f.r.frames--
	if f.r.done {
		s.Free()
		return
	}
	f.spare = append(f.spare, s)
	if f.r.asked == f.m.Len() && f.r.frames == 0 && len(f.todo) == 0 && f.used == 0 {
		f.e.complete(f.r, nil)
		if !f.running {
			f.end()
		}
		return
	}
	if len(f.todo) > 0 {
		f.kick()
	}
}

// fetchParts begins to receive an announced message.
func (e *Engine) fetchParts(m *message, r *Request) {
	f := e.newFlow(r)
	f.message, f.id = m, e.lastID
	f.kick()
}

func (f *flow) askPart() {
	f.used++
	s, err := f.slot()
	if err != nil {
		f.err, s = err, discard(make([]byte, f.m.part())) // the message must come in nevertheless
	}
	if f.r.done {
		s.Free()
		return
	}
	n := min(f.m.part(), f.r.length-f.asked)
	f.waiting[f.asked] = &awaited{s, n}
	f.e.head = frame{kind: kindReady, id: f.message.id, other: f.id, seq: uint64(f.asked), length: uint64(n)}
	f.asked += n
	f.e.emit(f.message.source, nil, nil)
	f.e.sleep.wake()
}

// awaits returns the part that n bytes at off belong to, and where it begins.
func (f *flow) awaits(off, n int) (p *awaited, start int) {
	start = off / f.m.part() * f.m.part()
	p = f.waiting[start]
	if p == nil || n > p.left || off+n > min(start+f.m.part(), f.r.length) {
		return nil, 0 // it was not asked for
	}
	return p, start
}

// arriving returns the buffer for bytes of a part, or nil if they were not
// asked for.
func (f *flow) arriving(off, n int) []byte {
	p, start := f.awaits(off, n)
	if p == nil {
		return nil
	}
	return p.slot.Bytes()[off-start:][:n]
}

// partArrived notes that bytes of a part have come.
func (f *flow) partArrived(off, n int) {
	p, start := f.awaits(off, n)
	if p == nil {
		return // a protocol error, see arriving
	}
	p.left -= n
	if f.arrived += n; f.arrived == f.r.length {
		delete(f.e.requests, f.id)
	}
	if p.left > 0 {
		return
	}
	delete(f.waiting, start)
	f.todo = append(f.todo, flowPart{off: start, n: min(f.m.part(), f.r.length-start), slot: p.slot})
	f.kick()
}

func (f *flow) storePart() {
	p := f.todo[0]
	f.todo = f.todo[1:]
	err := f.err
	if err == nil {
		f.unlocked(func() { err = f.store(p) })
	}
	f.used--
	f.spare = append(f.spare, p.slot)
	f.err = err
	if f.stored += p.n; f.stored == f.r.length && !f.r.done {
		f.e.countReceived(f.r.from)
		f.received()
	}
}

func (f *flow) store(p flowPart) error {
	f.m.swap(p.slot.Bytes()[:p.n], f.r.order, f.e)
	return p.slot.Store(p.off, p.n)
}

// received completes the receive.
func (f *flow) received() {
	f.unlocked(func() { f.m.Stored(f.stored) })
	if f.r.done {
		return
	}
	if f.r.err == nil {
		f.r.err = f.err
	}
	f.e.completeReceive(f.r, f.r.from, f.r.tagGot, f.r.length)
}

// settleLater stores a message that has arrived. It counts as received, so a
// checkpoint waits until it is stored: see Settle.
func (e *Engine) settleLater(m *message, r *Request) {
	f := e.newFlow(r)
	f.message, f.settles = m, true
	r.from, r.tagGot, r.length = m.source, m.tag, m.length
	e.settling++
	f.kick()
}

func (f *flow) settle() {
	m, e := f.message, f.e
	size := f.m.part()
	n := min(m.length, f.m.Len())
	s, err := f.slot()
	for off := 0; off < n && err == nil && !f.r.done; off += size {
		p := flowPart{off: off, n: min(size, n-off), slot: s}
		f.unlocked(func() {
			copy(s.Bytes(), m.data[off:off+p.n])
			err = f.store(p)
		})
	}
	if s != nil {
		f.spare = append(f.spare, s)
	}
	if f.err, f.stored = err, n; m.length > n {
		f.r.err = errTruncated(m, n)
	}
	f.settled()
	if f.r.done {
		return
	}
	f.received()
	if m.restored {
		e.peers[m.source].taken--
	}
	if e.observer != nil && e.count { // Totals have changed
		e.observer.MessageDone(m.source)
	}
}

// settled ends what settleLater began.
func (f *flow) settled() {
	if f.settles {
		f.settles = false
		f.e.settling--
	}
}

// Settle waits until all messages that count as received are where the program
// wants them. A checkpoint of the program's state calls it first. The lock is
// held.
func (e *Engine) Settle() error {
	return e.until(none, func() bool { return e.settling == 0 })
}

// abandonFlows ends all flows with an error. Goroutines of some may still be at
// work.
func (e *Engine) abandonFlows(end func(*Request)) {
	for f := range e.flows {
		end(f.r)
		if !f.running {
			f.end()
		}
	}
}

// discard is a buffer whose bytes are dropped.
type discard []byte

func (d discard) Bytes() []byte      { return d }
func (discard) Load(int, int) error  { return nil }
func (discard) Store(int, int) error { return nil }
func (discard) Free()                {}
func (discard) Drop()                {}

// Blocking messages of up to smallMessage bytes are copied before they are
// sent, and after they have come: a flow would take longer than the copy.
const smallMessage = 128 << 10

// SendMemory is Send for other memory than slices.
func (e *Engine) SendMemory(ctx uint32, to int, tag int32, m *Memory) error {
	if m.Len() <= smallMessage {
		p, err := m.Direct(false)
		if err == nil && p == nil {
			p, err = m.bytes()
		}
		if err != nil {
			return err
		}
		return e.Send(ctx, to, tag, p)
	}
	_, err := e.Wait(e.IsendMemory(ctx, to, tag, m))
	return err
}

// IsendMemory is Isend for other memory than slices.
func (e *Engine) IsendMemory(ctx uint32, to int, tag int32, m *Memory) *Request {
	p, err := m.Direct(false)
	if err == nil && p == nil && (to == e.rank || m.Len() == 0) {
		p, err = m.bytes()
	}
	if err != nil {
		return &Request{kind: sending, peer: to, tag: tag, done: true, err: err}
	}
	if p != nil {
		return e.Isend(ctx, to, tag, p)
	}
	e.lock()
	defer e.mu.Unlock()
	e.awaitContinue()
	r := new(Request)
	if err := e.usable(to); err != nil {
		*r = Request{kind: sending, peer: to, tag: tag, done: true, err: err}
	} else if e.unconnected { // see Replay
		*r = Request{kind: sending, peer: to, tag: tag, done: true}
	} else {
		e.beginMemory(r, ctx, to, tag, m)
	}
	return r
}

// beginMemory announces a message.
func (e *Engine) beginMemory(r *Request, ctx uint32, to int, tag int32, m *Memory) {
	*r = Request{kind: sending, ctx: ctx, peer: to, tag: tag, memory: m, length: m.Len()}
	if e.count {
		e.peers[to].sent++
	}
	e.newFlow(r)
	e.announce(r, m.Len())
}

// bytes returns a copy of all bytes.
func (m *Memory) bytes() ([]byte, error) {
	p := make([]byte, m.Len())
	return p, m.Read(p)
}

// Slice returns bytes from…to.
func (m *Memory) Slice(from, to int) *Memory { return &Memory{m.Sub(from, to), m.Swap} }

// Read copies all bytes to p, which is as long.
func (m *Memory) Read(p []byte) error {
	return m.pass(len(p), func(s mem.Slot, off, n int) error {
		err := s.Load(off, n)
		copy(p[off:], s.Bytes()[:n])
		return err
	})
}

// Write copies p to the first bytes.
func (m *Memory) Write(p []byte) error {
	err := m.pass(len(p), func(s mem.Slot, off, n int) error {
		copy(s.Bytes(), p[off:off+n])
		return s.Store(off, n)
	})
	if err == nil {
		m.Stored(len(p))
	}
	return err
}

// pass calls do for each part of n bytes.
func (m *Memory) pass(n int, do func(s mem.Slot, off, n int) error) error {
	if n == 0 {
		return nil
	}
	s, err := m.Slot(m.part())
	if err != nil {
		return err
	}
	for off := 0; off < n; off += m.part() {
		if err := do(s, off, min(m.part(), n-off)); err != nil {
			s.Drop()
			return err
		}
	}
	s.Free()
	return nil
}

// RecvMemory is Recv for other memory than slices.
func (e *Engine) RecvMemory(ctx uint32, from int, tag int32, m *Memory) (Status, error) {
	direct, err := m.Direct(true)
	if err != nil {
		return Status{}, err
	}
	if direct != nil || m.Len() > smallMessage {
		return e.Wait(e.irecvMemory(ctx, from, tag, m, direct))
	}
	p := make([]byte, m.Len())
	st, err := e.Recv(ctx, from, tag, p)
	if err != nil && !errors.Is(err, ErrTruncated) {
		return st, err
	}
	p = p[:min(st.Bytes, len(p))]
	if st.OtherByteOrder && m.Swap != nil {
		m.Swap(p)
	}
	if werr := m.Write(p); werr != nil {
		return st, werr
	}
	return st, err
}

// IrecvMemory is Irecv for other memory than slices.
func (e *Engine) IrecvMemory(ctx uint32, from int, tag int32, m *Memory) *Request {
	direct, err := m.Direct(true)
	if err != nil {
		return &Request{kind: receiving, peer: from, tag: tag, done: true, err: err}
	}
	return e.irecvMemory(ctx, from, tag, m, direct)
}

func (e *Engine) irecvMemory(ctx uint32, from int, tag int32, m *Memory, direct []byte) *Request {
	e.lock()
	defer e.mu.Unlock()
	r := new(Request)
	e.receive(r, ctx, from, tag, direct, m)
	return r
}

func errTruncated(m *message, room int) error {
	return fmt.Errorf("%w: %d bytes with tag %d from rank %d, room for %d", ErrTruncated, m.length, m.tag, m.source, room)
}
