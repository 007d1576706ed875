package mpilib

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

const (
	prefixSize = 8
	headSize   = prefixSize + transport.HeaderSize
	// inlineMax is the longest payload that is sent together with its header,
	// through buffers of the link.
	inlineMax = 8 << 10
	slotSize  = headSize + inlineMax
	// ringSize is how many messages MPI can receive into the link's buffers
	// before Poll sees them. Further messages wait in MPI's own memory.
	ringSize = 32
	// maxSending is the maximum number of messages to one peer that MPI has at
	// a time.
	maxSending = 128
	pieceSize  = 1 << 30 // pieces of long payloads: MPI counts with 32 bits
	// burst is the maximum number of frames that one Poll takes.
	burst = 64

	idleTag     = 0 // no message has this tag
	helloTag    = 1
	joinTag     = 2
	farewellTag = 3
	firstTag    = 16
	tagRounds   = 8000 // MPI promises tags up to 32767

	kindFrame = 1
	kindBye   = 2 // last message of a link that has sent everything
	kindGone  = 3 // last message of a link that gave up
)

var (
	errClosed  = errors.New("the peer closed the link")
	errGaveUp  = errors.New("the peer closed the link before all was sent")
	errGarbled = errors.New("the message is damaged")
)

// link moves frames as MPI messages, in Send and Poll only.
type link struct {
	d     *Driver
	lib   *library
	h     transport.Handler
	peers []*peer // by rank; nil if there is none or it is lost
	world []*peer // the same peers, by rank in the MPI world
	busy  []*peer // peers with unfinished sends or receives
	ring  []slot  // posted receives, in the order in which MPI fills them
	next  int     // the one that MPI fills next
	free  [][]byte
	dead  error // receiving has failed for all peers
	bye   []int // ranks in the MPI world of peers that closed the link
}

// slot is a posted receive of a short message.
type slot struct {
	buf     []byte
	request uint64
}

// peer is the state of one peer.
type peer struct {
	rank, world int
	tag         int // tag of frames to the peer
	met         bool
	answered    bool

	sending []pendingSend // messages that MPI has, in order
	queue   []item        // frames that MPI does not have yet
	busy    bool          // it is in link.busy

	// A long payload that is being received. Messages behind it wait.
	head    transport.Header
	body    []byte
	pieces  []uint64 // requests of its pieces
	stashed [][]byte
	lost    error // why it is lost; Lost is called when no receive is pending any more
}

// pendingSend is a message that MPI is sending.
type pendingSend struct {
	request uint64
	buf     []byte // buffer of the link
	payload []byte // payload of the layer above
	last    bool   // this is the last message of the frame
	token   any
}

// item is a frame that MPI does not have yet.
type item struct {
	head    transport.Header
	payload []byte
	token   any
}

func newLink(d *Driver, h transport.Handler) *link {
	return &link{d: d, lib: d.lib, h: h, world: make([]*peer, d.size)}
}

func (l *link) add(rank, world int) {
	p := &peer{rank: rank, world: world}
	for len(l.peers) <= rank {
		l.peers = append(l.peers, nil)
	}
	l.peers[rank] = p
	l.world[world] = p
}

// tagOf returns the tag of frames to a rank that is in a round.
func tagOf(round uint32) int { return firstTag + 2*int(round%tagRounds) }

// receive posts the receives of the ring.
func (l *link) receive() error {
	memory := make([]byte, ringSize*slotSize)
	l.ring = make([]slot, ringSize)
	for i := range l.ring {
		l.ring[i].buf = memory[i*slotSize:][:slotSize:slotSize]
		if err := l.post(&l.ring[i]); err != nil {
			return err
		}
	}
	return nil
}

func (l *link) post(s *slot) (err error) {
	s.request, err = l.lib.startIrecv(unsafe.Pointer(&s.buf[0]), slotSize, int(l.lib.anySource), tagOf(l.d.round), l.d.comm)
	return err
}

// EagerLimit returns the longest payload that is sent together with its header.
func (*link) EagerLimit() int { return inlineMax }

// Arm has no descriptor to prepare.
func (l *link) Arm() bool { return l.dead == nil && !l.anyLost() }

// Disarm does nothing.
func (*link) Disarm() {}

// FD is -1: MPI is polled.
func (*link) FD() int { return -1 }

func (l *link) anyLost() bool {
	return slices.ContainsFunc(l.busy, func(p *peer) bool { return p.lost != nil })
}

// Send gives a frame to MPI. The link keeps the payload if it is long, if MPI
// does not send it at once, or if MPI has many frames for this peer already. (A
// short payload is copied and could be returned at once. But MPI sends only
// while it is called, and a rank that has got all payloads back may stop
// polling.)
func (l *link) Send(peer int, h *transport.Header, payload []byte, token any) bool {
	p := l.peers[peer]
	if p == nil || p.lost != nil {
		return true
	}
	if len(p.queue) > 0 || len(p.sending) >= maxSending {
		p.queue = append(p.queue, item{*h, payload, token})
		l.mark(p)
		return false
	}
	return l.give(p, h, payload, token)
}

// give gives a frame to MPI, and reports whether the payload may be changed.
func (l *link) give(p *peer, h *transport.Header, payload []byte, token any) bool {
	buf := l.buffer()
	binary.LittleEndian.PutUint64(buf, uint64(len(payload))<<16|kindFrame)
	copy(buf[prefixSize:], h[:])
	if len(payload) <= inlineMax {
		n := headSize + copy(buf[headSize:], payload)
		if !l.launch(p, pendingSend{buf: buf, last: true, token: token}, buf[:n], p.tag) {
			return true
		}
		return l.newestSent(p)
	}
	if !l.launch(p, pendingSend{buf: buf}, buf[:headSize], p.tag) {
		return true
	}
	for rest := payload; len(rest) > 0 && p.lost == nil; {
		piece := rest[:min(len(rest), l.d.piece)]
		rest = rest[len(piece):]
		l.launch(p, pendingSend{payload: payload, last: len(rest) == 0, token: token}, piece, p.tag+1)
	}
	if p.lost != nil { // Sent will not be called for it
		p.sending = append(p.sending, pendingSend{payload: payload, last: true, token: token})
	}
	return false
}

// newestSent tests the newest message, and removes it if it is sent.
func (l *link) newestSent(p *peer) bool {
	last := len(p.sending) - 1
	f := &p.sending[last]
	done, err := l.lib.done(f.request)
	if err != nil {
		f.request = 0
		p.lost = err // lose returns the payload
		return false
	}
	if done {
		l.free = append(l.free, f.buf)
		*f = pendingSend{}
		p.sending = p.sending[:last]
	}
	return done
}

// launch starts to send a message, or marks the peer as lost.
func (l *link) launch(p *peer, f pendingSend, b []byte, tag int) bool {
	request, err := l.lib.startIsend(unsafe.Pointer(&b[0]), len(b), p.world, tag, l.d.comm)
	l.mark(p)
	if err != nil {
		p.lost = err
		return false
	}
	f.request = request
	p.sending = append(p.sending, f)
	return true
}

func (l *link) mark(p *peer) {
	if !p.busy {
		p.busy = true
		l.busy = append(l.busy, p)
	}
}

// buffer returns a buffer for a short message.
func (l *link) buffer() []byte {
	if n := len(l.free); n > 0 {
		b := l.free[n-1]
		l.free = l.free[:n-1]
		return b
	}
	return make([]byte, slotSize)
}

// Poll receives messages and continues unfinished sends and receives.
func (l *link) Poll() bool {
	moved := l.take(burst)
	for i := len(l.busy) - 1; i >= 0; i-- {
		if l.work(l.busy[i]) {
			moved = true
		}
		if p := l.busy[i]; len(p.sending) == 0 && len(p.queue) == 0 && p.body == nil && p.lost == nil {
			p.busy = false
			last := len(l.busy) - 1
			l.busy[i] = l.busy[last] // the last one was handled before
			l.busy = l.busy[:last]
		}
	}
	return moved
}

// work continues the unfinished sends and receives of a peer.
func (l *link) work(p *peer) (moved bool) {
	if l.finishSends(p) {
		moved = true
	}
	for len(p.queue) > 0 && len(p.sending) < maxSending && p.lost == nil {
		it := p.queue[0]
		p.queue[0] = item{}
		if p.queue = p.queue[1:]; len(p.queue) == 0 {
			p.queue = nil
		}
		moved = true
		if l.give(p, &it.head, it.payload, it.token) {
			l.h.Sent(it.token)
		}
	}
	if p.body != nil && l.finishBody(p) {
		moved = true
	}
	if p.lost != nil && p.body == nil {
		l.lose(p)
		moved = true
	}
	return moved
}

// finishSends removes messages that are sent, in order.
func (l *link) finishSends(p *peer) (moved bool) {
	for len(p.sending) > 0 && p.lost == nil {
		f := &p.sending[0]
		done, err := l.lib.done(f.request)
		if err != nil {
			f.request = 0
			p.lost = err
			return true
		}
		if !done {
			return moved
		}
		moved = true
		if f.buf != nil {
			l.free = append(l.free, f.buf)
		}
		last, token := f.last, f.token
		*f = pendingSend{}
		if p.sending = p.sending[1:]; len(p.sending) == 0 {
			p.sending = nil
		}
		if last {
			l.h.Sent(token)
		}
	}
	return moved
}

// take receives messages from the ring.
func (l *link) take(most int) (moved bool) {
	for ; most > 0 && l.dead == nil; most-- {
		s := &l.ring[l.next]
		done, err := l.lib.done(s.request)
		if err != nil {
			l.fail(err)
			return true
		}
		if !done {
			return moved
		}
		moved = true
		from, n := l.lib.received()
		if from >= 0 && from < len(l.world) && l.world[from] != nil {
			l.message(l.world[from], s.buf[:min(n, slotSize)])
		}
		if err := l.post(s); err != nil {
			l.fail(err)
			return true
		}
		l.next = (l.next + 1) % len(l.ring)
	}
	return moved
}

// fail marks all peers as lost: nothing can be received any more.
func (l *link) fail(err error) {
	l.dead = err
	for _, p := range l.peers {
		if p != nil && p.lost == nil {
			p.lost = err
			l.mark(p)
		}
	}
}

// message handles a short message. It does not keep b.
func (l *link) message(p *peer, b []byte) {
	switch {
	case p.lost != nil:
	case len(b) >= prefixSize && b[0] == kindGone:
		p.lost = errGaveUp
		p.stashed = nil
		l.mark(p)
	case p.body != nil:
		p.stashed = append(p.stashed, slices.Clone(b))
	default:
		l.frame(p, b)
	}
}

// frame handles a short message after all messages before it.
func (l *link) frame(p *peer, b []byte) {
	if len(b) < prefixSize {
		l.lost(p, errGarbled)
		return
	}
	word := binary.LittleEndian.Uint64(b)
	n := int(word >> 16)
	switch kind := word & 0xffff; {
	case kind == kindBye:
		l.lost(p, errClosed)
		return
	case kind != kindFrame, n > inlineMax && len(b) != headSize, n <= inlineMax && len(b) != headSize+n:
		l.lost(p, fmt.Errorf("%w: %d bytes that begin with %#x", errGarbled, len(b), word))
		return
	}
	head := (*transport.Header)(b[prefixSize:])
	body := l.h.Arriving(p.rank, head, n)
	if len(body) != n {
		panic(fmt.Sprintf("mpi: Arriving returned %d bytes for a payload of %d", len(body), n))
	}
	if n <= inlineMax {
		copy(body, b[headSize:])
		l.h.Arrived(p.rank, head, body)
		return
	}
	p.head, p.body = *head, body
	l.mark(p)
	for rest := body; len(rest) > 0; {
		piece := rest[:min(len(rest), l.d.piece)]
		rest = rest[len(piece):]
		request, err := l.lib.startIrecv(unsafe.Pointer(&piece[0]), len(piece), p.world, tagOf(l.d.round)+1, l.d.comm)
		if err != nil {
			p.lost = err
			break
		}
		p.pieces = append(p.pieces, request)
	}
}

func (l *link) lost(p *peer, why error) {
	p.lost = why
	l.mark(p)
}

// finishBody continues to receive a long payload. The payload of a lost peer
// must be finished, too: until then MPI may write to its memory.
func (l *link) finishBody(p *peer) (moved bool) {
	for len(p.pieces) > 0 {
		if p.lost != nil {
			l.lib.cancelRequest(p.pieces[0])
		}
		done, err := l.lib.done(p.pieces[0])
		if err != nil && p.lost == nil {
			p.lost = err
		}
		if !done {
			return moved
		}
		moved = true
		p.pieces = p.pieces[1:]
	}
	body := p.body
	p.body, p.pieces = nil, nil
	if p.lost != nil {
		return true
	}
	l.h.Arrived(p.rank, &p.head, body)
	for len(p.stashed) > 0 && p.body == nil && p.lost == nil {
		b := p.stashed[0]
		p.stashed = p.stashed[1:]
		l.frame(p, b)
	}
	if len(p.stashed) == 0 {
		p.stashed = nil
	}
	return true
}

// lose returns a peer's payloads and reports that the peer is lost. MPI may
// still use some of the memory, so that memory is not reused.
func (l *link) lose(p *peer) {
	l.forget(p)
	why := p.lost
	if why == errClosed {
		l.bye = append(l.bye, p.world)
	}
	l.giveBack(p)
	p.lost = nil
	l.h.Lost(p.rank, fmt.Errorf("mpi: rank %d on %s is lost: %w", p.rank, l.d.hosts[p.world], why))
}

// giveBack returns payloads for a peer that have not been sent.
func (l *link) giveBack(p *peer) {
	flying, queue := p.sending, p.queue
	p.sending, p.queue = nil, nil
	for _, f := range flying {
		l.d.kept = append(l.d.kept, f.buf, f.payload)
		if f.last {
			l.h.Sent(f.token)
		}
	}
	for _, it := range queue {
		l.h.Sent(it.token)
	}
}

// Drop forgets a peer. Memory that MPI may still use is not reused.
func (l *link) Drop(rank int) {
	if rank >= len(l.peers) || l.peers[rank] == nil {
		return
	}
	p := l.peers[rank]
	l.forget(p)
	l.busy = slices.DeleteFunc(l.busy, func(o *peer) bool { return o == p })
	l.giveBack(p)
	if p.body != nil {
		l.d.kept = append(l.d.kept, p.body)
	}
	p.body, p.pieces, p.stashed, p.lost = nil, nil, nil, nil
}

func (l *link) forget(p *peer) {
	l.peers[p.rank] = nil
	l.world[p.world] = nil
}

var _ transport.Link = (*link)(nil)

// Close waits until MPI has sent all frames, says farewell, and cancels the
// receives. Frames that arrive meanwhile are dropped.
func (l *link) Close(ctx context.Context) error {
	if !l.d.open || l.ring == nil {
		return nil
	}
	l.h = discard{}
	l.d.last = nil
	all := slices.DeleteFunc(slices.Clone(l.peers), func(p *peer) bool { return p == nil })
	said := slices.Clone(l.bye)
	settle := func(done func(*peer) bool) []*peer {
		left := slices.Clone(all)
		for idle := 0; ; idle++ {
			if l.Poll() {
				idle = 0
			}
			left = slices.DeleteFunc(left, func(p *peer) bool { return l.peers[p.rank] != p || done(p) })
			if len(left) == 0 || ctx.Err() != nil {
				return left
			}
			pause(idle)
		}
	}
	sent := func(p *peer) bool { return len(p.sending) == 0 && len(p.queue) == 0 }
	left := settle(sent)
	for _, p := range all {
		if l.peers[p.rank] != p || p.lost != nil {
			continue
		}
		kind := uint64(kindBye)
		if slices.Contains(left, p) {
			kind = kindGone
		}
		buf := l.buffer()
		binary.LittleEndian.PutUint64(buf, kind)
		l.launch(p, pendingSend{buf: buf}, buf[:prefixSize], p.tag)
	}
	last := settle(func(p *peer) bool { return sent(p) && p.body == nil })
	if len(left)+len(last) == 0 {
		for _, p := range all {
			said = append(said, p.world)
		}
		l.d.last = said
	}
	l.abandon()
	l.d.open = false
	if len(left) == 0 {
		return nil
	}
	var ranks []int
	for _, p := range left {
		ranks = append(ranks, p.rank)
	}
	return fmt.Errorf("mpi: rank %d: closed before all was sent to ranks %v: %w", l.d.rank, ranks, context.Cause(ctx))
}

// abandon cancels the receives of the ring. Memory that MPI may still use is
// kept for the life of the driver.
func (l *link) abandon() {
	for i := range l.ring {
		if s := &l.ring[i]; s.request != 0 {
			l.lib.cancelRequest(s.request)
		}
	}
	for i := range l.ring {
		s := &l.ring[i]
		for range 1000 {
			if s.request == 0 {
				break
			}
			if done, _ := l.lib.done(s.request); done {
				s.request = 0
			}
		}
		if s.request != 0 {
			l.d.kept = append(l.d.kept, s.buf)
		}
	}
	for _, p := range l.peers {
		if p != nil {
			l.d.kept = append(l.d.kept, p.sending, p.queue, p.body)
		}
	}
	l.ring, l.peers, l.busy = nil, nil, nil
}

// discard is the handler of a link that is closing. It ignores everything.
type discard struct{}

func (discard) Arriving(_ int, _ *transport.Header, n int) []byte { return make([]byte, n) }
func (discard) Arrived(int, *transport.Header, []byte)            {}
func (discard) Sent(any)                                          {}
func (discard) Lost(int, error)                                   {}
