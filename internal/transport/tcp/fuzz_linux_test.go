package tcp

import (
	"encoding/binary"
	"testing"

	"github.com/cairnrun/cairn/internal/transport"
)

// measurer is a Handler that records lengths.
type measurer struct {
	sizes []int
	open  bool
	lost  bool
	big   bool
}

func (m *measurer) Arriving(_ int, _ *transport.Header, n int) []byte {
	if m.open || m.lost || n < 0 {
		panic("Arriving out of turn")
	}
	m.open = true
	if n > 1<<20 {
		m.big = true // too long to allocate
		panic(m)
	}
	return make([]byte, n)
}
func (m *measurer) Arrived(_ int, _ *transport.Header, b []byte) {
	if !m.open || m.lost {
		panic("Arrived out of turn")
	}
	m.open = false
	m.sizes = append(m.sizes, len(b))
}
func (m *measurer) Sent(any)        {}
func (m *measurer) Lost(int, error) { m.lost = true }

// FuzzStream checks that the same frames come out however a stream is divided
// into reads.
func FuzzStream(f *testing.F) {
	var good []byte
	for _, n := range []int{0, 5, 300} {
		good = binary.LittleEndian.AppendUint64(good, uint64(n)|frameMark)
		good = append(good, make([]byte, transport.HeaderSize+n)...)
	}
	f.Add(good, uint8(7))
	f.Add(make([]byte, frameHead), uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, step uint8) {
		run := func(step int) (m *measurer) {
			m = &measurer{}
			c := &conn{fd: -1}
			l := &link{h: m, conns: []*conn{c}, live: []*conn{c}, ep: -1}
			defer func() {
				if r := recover(); r != nil && r != any(m) {
					panic(r)
				}
			}()
			for len(b) > 0 && !m.lost {
				n := min(step, len(b))
				l.parse(c, b[:n])
				b = b[n:]
			}
			return m
		}
		whole := b
		x := run(len(whole) + 1)
		b = whole
		y := run(int(step) + 1)
		if len(x.sizes) != len(y.sizes) || x.lost != y.lost || x.open != y.open {
			t.Fatalf("whole: %+v, in pieces: %+v", x, y)
		}
		for i := range x.sizes {
			if x.sizes[i] != y.sizes[i] {
				t.Fatal("other frames")
			}
		}
	})
}
