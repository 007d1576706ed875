package shm

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
)

// These values of a frame tell the other process what to do.
const (
	askEcho    = 1 + iota // send it back
	askNothing            // only receive it
	askAnswer             // receive it and send an empty frame back
	askPull               // read memory, then send an empty frame back
	askEnd
)

// endpoint is one end of the benchmarks' link.
type endpoint struct {
	link transport.Link
	buf  []byte
	got  int
	stop bool
}

func (e *endpoint) Arriving(peer int, h *transport.Header, n int) []byte {
	if n == 0 {
		return nil
	}
	return e.buf[:n]
}

func (e *endpoint) Arrived(peer int, h *transport.Header, buf []byte) {
	e.got++
	switch h[0] {
	case askEcho:
		answer := transport.Header{}
		e.link.Send(peer, &answer, buf, nil)
	case askAnswer:
		e.link.Send(peer, &transport.Header{}, nil, nil)
	case askPull:
		le := binary.LittleEndian
		if err := e.link.(transport.Puller).Pull(peer, e.buf[:le.Uint64(h[16:])], le.Uint64(h[8:])); err != nil {
			panic(err)
		}
		e.link.Send(peer, &transport.Header{}, nil, nil)
	case askEnd:
		e.stop = true
	}
}

func (e *endpoint) Sent(any)        {}
func (e *endpoint) Lost(int, error) { e.stop = true }

// meet connects rank 0 or 1. The addresses are exchanged through files in dir.
func meet(t testing.TB, dir string, rank int) *endpoint {
	t.Helper()
	d, err := Open(Options{Rank: rank, Host: "here", Run: "bench"})
	if err != nil {
		t.Fatal(err)
	}
	name := func(r int) string { return filepath.Join(dir, fmt.Sprint("address", r)) }
	if err := os.WriteFile(name(rank)+".new", d.Address(), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name(rank)+".new", name(rank)); err != nil {
		t.Fatal(err)
	}
	addresses := make([][]byte, 2)
	for addresses[1-rank] == nil && t.Context().Err() == nil {
		addresses[1-rank], _ = os.ReadFile(name(1 - rank))
		time.Sleep(time.Millisecond)
	}
	e := &endpoint{buf: make([]byte, 32<<20)}
	clear(e.buf)
	for i := range e.buf {
		e.buf[i] = byte(i)
	}
	if e.link, err = d.Connect(t.Context(), addresses, e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestBenchmarkPeer is the other process of the benchmarks.
func TestBenchmarkPeer(t *testing.T) {
	dir := os.Getenv("CAIRN_SHM_BENCH")
	if dir == "" {
		t.Skip("only for the benchmarks")
	}
	e := meet(t, dir, 1)
	for !e.stop {
		e.link.Poll()
	}
	e.link.Close(t.Context())
}

// partner starts the other process.
func partner(b *testing.B) *endpoint {
	b.Helper()
	dir := b.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestBenchmarkPeer$")
	cmd.Env = append(os.Environ(), "CAIRN_SHM_BENCH="+dir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	e := meet(b, dir, 0)
	b.Cleanup(func() {
		e.link.Send(1, &transport.Header{askEnd}, nil, nil)
		cmd.Wait()
		e.link.Close(b.Context())
	})
	return e
}

// wait polls until n frames came.
func (e *endpoint) wait(n int) {
	for e.got < n {
		e.link.Poll()
	}
	e.got -= n
}

// best runs batches and reports the best one: the speed of the link when no
// other process uses the processors.
func best(b *testing.B, size, batch int, unit string, scale float64, f func()) {
	f()
	low := math.Inf(1)
	for b.Loop() {
		start := time.Now()
		for range batch {
			f()
		}
		low = min(low, float64(time.Since(start).Nanoseconds())/float64(batch))
	}
	if size > 0 {
		b.ReportMetric(float64(size)/low, unit)
	} else {
		b.ReportMetric(low*scale, unit)
	}
}

func BenchmarkPingPong(b *testing.B) {
	e := partner(b)
	for _, n := range []int{0, 1, 8, 64, 512, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h, payload := transport.Header{askEcho}, make([]byte, n)
			best(b, 0, 500, "ns/one-way", 0.5, func() {
				e.link.Send(1, &h, payload, nil)
				e.wait(1)
			})
		})
	}
}

func BenchmarkBandwidth(b *testing.B) {
	e := partner(b)
	for _, n := range []int{4 << 10, 64 << 10, 1 << 20, 16 << 20} {
		payload := make([]byte, n)
		for i := range payload {
			payload[i] = byte(i)
		}
		window := max(1, min(64, (16<<20)/n))
		b.Run(fmt.Sprint("ring/", n), func(b *testing.B) {
			take, last := transport.Header{askNothing}, transport.Header{askAnswer}
			best(b, n*window, max(1, (8<<20)/n/window), "GB/s", 0, func() {
				for range window - 1 {
					e.link.Send(1, &take, payload, nil)
				}
				e.link.Send(1, &last, payload, nil)
				e.wait(1)
			})
		})
		b.Run(fmt.Sprint("pull/", n), func(b *testing.B) {
			if !e.link.(transport.Puller).CanPull(1) {
				b.Skip("no right to read memory of another process")
			}
			h := transport.Header{askPull}
			binary.LittleEndian.PutUint64(h[8:], uint64(uintptr(unsafe.Pointer(&payload[0]))))
			binary.LittleEndian.PutUint64(h[16:], uint64(n))
			best(b, n*window, max(1, (8<<20)/n/window), "GB/s", 0, func() {
				for range window {
					e.link.Send(1, &h, nil, nil)
				}
				e.wait(window)
			})
		})
		b.Run(fmt.Sprint("copy/", n), func(b *testing.B) {
			to := make([]byte, n)
			copy(to, payload)
			best(b, n, max(1, (16<<20)/n), "GB/s", 0, func() { copy(to, payload) })
		})
	}
}
