package transporttest

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"sort"
	"strings"

	"github.com/cairnrun/cairn/internal/transport"
)

// The content of a frame follows from the sender, the receiver and the frame's
// number, so that the receiver can check that it is the next frame and
// complete.
//
//	header   from u16, to u16, round u32, number u64, length u64, crc32c of the
//	         payload u32, filler [20]
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// mix is a small hash.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// fill fills a payload with repetitions of 4 KiB of noise. Each begins with a
// number, so that no two are the same.
func fill(b []byte, seed uint64) {
	const block = 4096
	x := mix(seed + 1)
	first := b[:min(block, len(b))]
	for i := 0; i < len(first); i += 8 {
		x += 0x9e3779b97f4a7c15
		var w [8]byte
		le.PutUint64(w[:], x^x>>29)
		copy(first[i:], w[:])
	}
	for i := block; i < len(b); i += block {
		copy(b[i:], first)
		var w [8]byte
		le.PutUint64(w[:], mix(x+uint64(i)))
		copy(b[i:], w[:])
	}
}

func makeHeader(from, to, round int, number uint64, payload []byte) (h transport.Header) {
	le.PutUint16(h[0:], uint16(from))
	le.PutUint16(h[2:], uint16(to))
	le.PutUint32(h[4:], uint32(round))
	le.PutUint64(h[8:], number)
	le.PutUint64(h[16:], uint64(len(payload)))
	le.PutUint32(h[24:], crc32.Checksum(payload, castagnoli))
	fill(h[28:], uint64(crc32.ChecksumIEEE(h[:28])))
	return h
}

// token is the suite's token for Send.
type token struct {
	to      int
	payload []byte
	back    bool
}

// box is the suite's handler. It checks the promises that every link makes to
// its handler, and that frames are complete and in order.
type box struct {
	r       *Rank
	link    transport.Link
	round   int
	inside  bool  // Poll or Send is running
	err     error // the first error; the handler cannot panic through a link
	sent    []uint64
	got     []uint64
	lost    []error
	dropped []bool
	coming  []*arrival // per peer: Arriving was called, Arrived was not
	kept    int        // payloads that the link keeps
	keptFor []int      // the same, per peer
	// arrived, if set, is called with every frame.
	arrived func(peer int, number uint64, buf []byte)
	// lostPeer, if set, is called with every loss.
	lostPeer func(peer int)
}

type arrival struct {
	head transport.Header
	buf  []byte
}

func newBox(r *Rank) *box {
	return &box{
		r: r, sent: make([]uint64, r.N), got: make([]uint64, r.N),
		lost: make([]error, r.N), coming: make([]*arrival, r.N), keptFor: make([]int, r.N),
		dropped: make([]bool, r.N),
	}
}

// state describes the box, for messages.
func (b *box) state() string {
	return fmt.Sprintf("sent %v, got %v, %d payloads kept", b.sent, b.got, b.kept)
}

// send sends the next frame to a peer, with n bytes of payload. It spoils the
// payload as soon as the link has returned it, and reports whether Send did so
// at once.
func (b *box) send(to, n int) bool {
	payload := make([]byte, n)
	fill(payload, uint64(b.r.ID)<<48^uint64(to)<<32^b.sent[to])
	return b.sendPayload(to, payload)
}

func (b *box) sendPayload(to int, payload []byte) bool {
	h := makeHeader(b.r.ID, to, b.round, b.sent[to], payload)
	b.sent[to]++
	t := &token{to: to, payload: payload}
	was := b.inside
	b.inside = true
	now := b.link.Send(to, &h, payload, t)
	b.inside = was
	if b.err != nil && !was {
		b.r.Fatalf("%w", b.err)
	}
	clear(h[:])
	if now {
		t.back = true
		spoil(payload)
		return true
	}
	b.kept++
	b.keptFor[to]++
	return false
}

// spoil changes a payload that was returned. A link that still reads it
// delivers wrong bytes. In a long payload, changing some bytes is enough.
func spoil(b []byte) {
	step := 1
	if len(b) > 4096 {
		step = 251
	}
	for i := 0; i < len(b); i += step {
		b[i] ^= 0x5a
	}
}

// failf records an error. The rank ends with it when it has returned from the
// link.
func (b *box) failf(format string, args ...any) {
	if b.err == nil {
		b.err = fmt.Errorf(format, args...)
	}
}

// check reports whether a call of the handler is allowed.
func (b *box) check(peer int, what string) bool {
	switch {
	case !b.inside:
		b.failf("%s of rank %d was called outside of Poll and Send", what, peer)
	case peer < 0 || peer >= b.r.N || peer == b.r.ID:
		b.failf("%s for rank %d", what, peer)
	case b.lost[peer] != nil:
		b.failf("%s of rank %d after Lost", what, peer)
	case b.dropped[peer]:
		b.failf("%s of rank %d after Drop", what, peer)
	}
	return b.err == nil
}

// Arriving implements transport.Handler.
func (b *box) Arriving(peer int, h *transport.Header, n int) []byte {
	if !b.check(peer, "Arriving") {
		return make([]byte, n)
	}
	if b.coming[peer] != nil {
		b.failf("a frame of rank %d begins before the last one is complete", peer)
	}
	if want := le.Uint64(h[16:]); uint64(n) != want {
		b.failf("frame %d of rank %d has %d bytes, want %d", le.Uint64(h[8:]), peer, n, want)
	}
	a := &arrival{head: *h}
	if n > 0 {
		a.buf = make([]byte, n)
	}
	b.coming[peer] = a
	return a.buf
}

// Arrived implements transport.Handler.
func (b *box) Arrived(peer int, h *transport.Header, buf []byte) {
	if !b.check(peer, "Arrived") {
		return
	}
	a := b.coming[peer]
	b.coming[peer] = nil
	number := b.got[peer]
	if a == nil {
		b.failf("Arrived of rank %d without Arriving", peer)
		return
	}
	switch {
	case a.head != *h:
		b.failf("frame %d of rank %d: the header was %x in Arriving and is %x in Arrived", number, peer, a.head, *h)
	case len(a.buf) != len(buf) || len(buf) > 0 && &a.buf[0] != &buf[0]:
		b.failf("frame %d of rank %d: Arrived got another buffer than Arriving gave", number, peer)
	}
	if want := makeHeader(peer, b.r.ID, b.round, number, buf); want != *h {
		b.failf("frame %d of rank %d with %d bytes is wrong: the header is\n%x, want\n%x (from u16, to u16, round u32, number u64, length u64, crc u32, …)",
			number, peer, len(buf), *h, want)
	}
	if b.err != nil {
		return
	}
	b.got[peer]++
	if b.arrived != nil {
		b.arrived(peer, number, buf)
	}
}

// Sent implements transport.Handler.
func (b *box) Sent(tok any) {
	t, ok := tok.(*token)
	if !ok {
		b.failf("Sent with a token of type %T", tok)
		return
	}
	if !b.check(t.to, "Sent") {
		return
	}
	if t.back {
		b.failf("a payload to rank %d was given back twice", t.to)
		return
	}
	t.back = true
	b.kept--
	b.keptFor[t.to]--
	spoil(t.payload)
}

// Lost implements transport.Handler.
func (b *box) Lost(peer int, err error) {
	if !b.check(peer, "Lost") {
		return
	}
	if err == nil {
		b.failf("rank %d is lost without a reason", peer)
	}
	if b.keptFor[peer] > 0 {
		b.failf("rank %d is lost before %d payloads for it were given back", peer, b.keptFor[peer])
	}
	b.lost[peer] = err
	b.coming[peer] = nil
	if b.lostPeer != nil {
		b.lostPeer(peer)
	}
}

// drop drops a peer, which another process replaces.
func (b *box) drop(peer int) {
	b.inside = true
	b.link.Drop(peer)
	b.inside = false
	if b.keptFor[peer] > 0 {
		b.failf("rank %d is dropped and %d payloads for it were not given back", peer, b.keptFor[peer])
	}
	b.dropped[peer] = true
	b.coming[peer] = nil
	if b.err != nil {
		b.r.Fatalf("%w", b.err)
	}
}

// losses names the peers that were lost.
func (b *box) losses() string {
	var all []string
	for p, err := range b.lost {
		if err != nil {
			all = append(all, fmt.Sprintf("rank %d (%v)", p, err))
		}
	}
	sort.Strings(all)
	return strings.Join(all, ", ")
}

// noneLost ends the rank if a peer is lost.
func (b *box) noneLost() {
	if s := b.losses(); s != "" {
		b.r.Fatalf("lost: %s", s)
	}
}
