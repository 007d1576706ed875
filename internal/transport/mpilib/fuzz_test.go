package mpilib

import (
	"encoding/binary"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
)

// short is a Handler that records frames, and stops before a long one.
type short struct {
	t    *testing.T
	n    int
	open bool
}

func (s *short) Arriving(_ int, _ *transport.Header, n int) []byte {
	if n < 0 || s.open {
		s.t.Fatalf("Arriving with %d bytes", n)
	}
	if n > inlineMax {
		panic(s)
	}
	s.open = true
	return make([]byte, n)
}
func (s *short) Arrived(int, *transport.Header, []byte) { s.n, s.open = s.n+1, false }
func (s *short) Sent(any)                               {}
func (s *short) Lost(int, error)                        {}

// FuzzMessage checks that any message is a frame, the end, or refused.
func FuzzMessage(f *testing.F) {
	for _, n := range []int{0, 5, 1 << 20} {
		b := binary.LittleEndian.AppendUint64(nil, uint64(n)<<16|kindFrame)
		b = append(b, make([]byte, transport.HeaderSize)...)
		if n <= inlineMax {
			b = append(b, make([]byte, n)...)
		}
		f.Add(b)
	}
	f.Add([]byte{kindBye, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{kindGone})
	f.Fuzz(func(t *testing.T, b []byte) {
		h := &short{t: t}
		l := &link{d: &Driver{hosts: []string{"", "host"}}, h: h, peers: []*peer{nil, {rank: 1, world: 1}}}
		l.world = l.peers
		defer func() {
			if r := recover(); r != nil && r != any(h) {
				panic(r)
			}
		}()
		p := l.peers[1]
		l.message(p, b)
		if (h.n == 1) == (p.lost != nil) || h.open {
			t.Fatalf("%x: %d frames, lost: %v", b, h.n, p.lost)
		}
	})
}

// FuzzAddress shows that arbitrary bytes are no address of another rank.
func FuzzAddress(f *testing.F) {
	d := &Driver{address: address{who: identify(2, [16]byte{1, 2, 3}), library: 7}}
	d.rankOf = map[identity]int{d.address.who: 2}
	f.Add(d.Address())
	d.address.port = "tcp://10.0.0.1:4711"
	f.Add(d.Address())
	f.Add(append(append([]byte("cnMp"), 1), d.address.who[:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		if rank, ok := d.parse(b); ok && rank != 2 {
			t.Fatalf("%x is rank %d", b, rank)
		}
		if c, ok := decode(b); ok && b[4] == addressVersion && string(c.encode()) != string(b) {
			t.Fatalf("%x is encoded as %x", b, c.encode())
		}
		d.gathering([][]byte{b, d.Address()}, []int{0})
	})
}
