package migrate

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// slow is a connection with a limited rate.
type slow struct {
	net.Conn
	rate float64
	next time.Time // when the line is free again
}

func (s *slow) Write(p []byte) (n int, err error) {
	for len(p) > 0 && err == nil {
		part := p[:min(len(p), 256<<10)]
		now := time.Now()
		if s.next.Before(now) {
			s.next = now
		}
		s.next = s.next.Add(time.Duration(float64(len(part)) / s.rate * 1e9))
		if wait := s.next.Sub(now); wait > time.Millisecond {
			time.Sleep(wait)
		}
		var k int
		k, err = s.Conn.Write(part)
		n, p = n+k, p[k:]
	}
	return n, err
}

// BenchmarkMigrate migrates 256 MiB: each stage alone, then all of them, over
// loopback and over a link of 1 GB/s.
func BenchmarkMigrate(b *testing.B) {
	const size = 256 << 20
	v := make([]uint64, size/8)
	for i := range v {
		v[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
	}
	from := []graph.Root{{Name: "v", Ptr: &v}}
	img, err := graph.Collect(from, nil)
	if err != nil {
		b.Fatal(err)
	}
	l, err := plan(img, new(ckpt.Description), true)
	if err != nil {
		b.Fatal(err)
	}
	digests := func() {
		for i := range l.Datasets {
			d := &l.Datasets[i]
			divide(d.NumBlocks(), func(k int) {
				p, _ := l.Memory[i].View(int64(k)*d.Block, d.BlockLen(k))
				mem.Digest(p)
			})
		}
	}
	lines := []struct {
		name string
		wrap func(net.Conn) net.Conn
	}{
		{"loopback", func(c net.Conn) net.Conn { return c }},
		{"1GBps", func(c net.Conn) net.Conn { return &slow{Conn: c, rate: 1e9} }},
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			digests()
		}
	})
	w := make([]uint64, len(v)) // taken over in place
	for _, line := range lines {
		b.Run("transfer/"+line.name, func(b *testing.B) {
			x, y := tcpPair(b)
			x = line.wrap(x)
			into := img.Pools[len(img.Pools)-1].Pieces
			room := make([]byte, size)
			b.SetBytes(size)
			for b.Loop() {
				done := make(chan error, 1)
				go func() {
					_, err := io.ReadFull(y, room)
					done <- err
				}()
				bufs := make(net.Buffers, len(into))
				copy(bufs, into)
				if _, err := bufs.WriteTo(x); err != nil {
					b.Fatal(err)
				}
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("pipelined/"+line.name, func(b *testing.B) {
			b.SetBytes(size)
			var sum Stats
			for b.Loop() {
				x, y := tcpPair(b)
				g := NewSource(line.wrap(x), Options{BatchSize: 16 << 20})
				done := receive(y, Options{}, fit([]graph.Root{{Name: "v", Ptr: &w}}))
				s, err := g.Finish(ctx, img, nil, ckpt.Note{}, nil)
				if err != nil {
					b.Fatal(err)
				}
				if r := <-done; r.err != nil {
					b.Fatal(r.err)
				}
				g.Close()
				sum.WriteNS += s.WriteNS
				sum.TransferNS += s.TransferNS
				sum.ReadNS += s.ReadNS
			}
			b.ReportMetric(float64(sum.WriteNS)/float64(b.N)/1e6, "write-ms")
			b.ReportMetric(float64(sum.TransferNS)/float64(b.N)/1e6, "transfer-ms")
			b.ReportMetric(float64(sum.ReadNS)/float64(b.N)/1e6, "read-ms")
		})
	}
}
