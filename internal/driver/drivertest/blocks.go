package drivertest

import (
	"math/rand/v2"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

// blocks copies blocks of all shapes between two buffers, and compares with a
// model.
func (s *suite) blocks(t *testing.T) {
	q := s.queue(t)
	const n = 20000
	m1, m2 := noise(n, 15), noise(n, 16)
	b1, b2 := put(t, s, q, m1), put(t, s, q, m2)
	r := rand.New(rand.NewPCG(17, 18))
	for i := range 200 {
		c := driver.Rect{Width: 1 + r.Int64N(40), Rows: 1 + r.Int64N(12), Planes: 1 + r.Int64N(6)}
		if i%4 == 0 {
			c.Planes = 1
		}
		if i%8 == 0 {
			c.Rows = 1
		}
		lay := func() driver.Layout {
			l := c.Packed(0)
			if r.IntN(3) > 0 {
				l.Row += r.Int64N(20)
				l.Plane = l.Row * (c.Rows + r.Int64N(3))
			}
			_, size := c.Extent(l)
			l.Off = r.Int64N(n - size + 1)
			return l
		}
		c.Src, c.Dst = lay(), lay()
		to, from, tm, fm := b2, b1, m2, m1
		if i%2 == 0 {
			to, from, tm, fm = b1, b2, m1, m2
		}
		must(t, q.CopyRect(to, from, c))
		c.Each(func(src, dst int64) { copy(tm[dst:dst+c.Width], fm[src:src+c.Width]) })
	}
	same(t, "first buffer", get[byte](t, q, b1, n), m1)
	same(t, "second buffer", get[byte](t, q, b2, n), m2)
	good := driver.Rect{Width: 10, Rows: 10, Planes: 10, Src: driver.Layout{Row: 20, Plane: 400}, Dst: driver.Layout{Row: 10, Plane: 100}}
	must(t, q.CopyRect(b1, b2, good))
	good.Each(func(src, dst int64) { copy(m1[dst:dst+10], m2[src:src+10]) })
	for what, change := range map[string]func(*driver.Rect){
		"without rows":                      func(c *driver.Rect) { c.Rows = 0 },
		"without planes":                    func(c *driver.Rect) { c.Planes = 0 },
		"of -1 bytes":                       func(c *driver.Rect) { c.Width = -1 },
		"of rows that overlap":              func(c *driver.Rect) { c.Src.Row = 9 },
		"of planes that overlap":            func(c *driver.Rect) { c.Dst.Plane = 90 },
		"of planes that are no whole rows":  func(c *driver.Rect) { c.Src.Plane = 410 },
		"beyond the end of the source":      func(c *driver.Rect) { c.Src.Off = n - 3789 },
		"beyond the end of the destination": func(c *driver.Rect) { c.Dst.Off = n - 999 },
		"before the beginning":              func(c *driver.Rect) { c.Src.Off = -1 },
	} {
		bad := good
		change(&bad)
		s.refused(t, "CopyRect "+what, q.CopyRect(b1, b2, bad))
	}
	s.refused(t, "CopyRect inside of a buffer", q.CopyRect(b1, b1, good))
	must(t, q.Finish())
	same(t, "first buffer after errors", get[byte](t, q, b1, n), m1)
}

// RunPeers tests copies between two devices, which open returns. They need not
// reach each other.
func RunPeers(t *testing.T, open func(t *testing.T) (a, b driver.Device)) {
	x, y := open(t)
	one, two := &suite{d: x}, &suite{d: y}
	t.Cleanup(func() {
		if err := x.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := y.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	t.Run("copies", func(t *testing.T) {
		const n = 1 << 20
		q1, q2 := one.queue(t), two.queue(t)
		b1, b2 := one.alloc(t, n), two.alloc(t, n)
		p, ok := y.(driver.Peer)
		if !ok || !p.Reaches(x) {
			two.refused(t, "CopyFrom a device that cannot be reached", q2.CopyFrom(b2, 0, b1, 0, 10))
			t.Skip("the devices do not reach each other")
		}
		if p.Reaches(nil) {
			t.Error("a device reaches nothing")
		}
		var want []byte
		for round := range 20 {
			// The source is overwritten as soon as the queues allow it.
			src := noise(n, uint64(round))
			must(t, q1.CopyIn(b1, 0, src))
			ready, err := q1.Record()
			must(t, err)
			must(t, q2.After(ready))
			off := int64(round * 1000)
			must(t, q2.CopyFrom(b2, off, b1, 5, n/2))
			read, err := q2.Record()
			must(t, err)
			must(t, q1.After(read))
			must(t, q1.CopyIn(b1, 0, noise(n, 99)))
			want = src[5 : 5+n/2]
			got := make([]byte, n/2)
			must(t, q2.CopyOut(got, b2, off))
			same(t, "what came from the other device", got, want)
		}
		must(t, q2.CopyFrom(b2, 0, b1, 0, 0))
		two.refused(t, "CopyFrom beyond the end", q2.CopyFrom(b2, n-9, b1, 0, 10))
		if err := q2.CopyFrom(b2, 0, b1, n-9, 10); err == nil {
			t.Error("CopyFrom from beyond the end: no error")
		}
		two.refused(t, "CopyFrom into the other device's buffer", q2.CopyFrom(b1, 0, b2, 0, 10))
		must(t, q1.Finish())
		must(t, q2.Finish())
	})
}
