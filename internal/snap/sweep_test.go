package snap

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// filled returns a buffer of n bytes of random content. n is a multiple of 1
// MiB.
func (w *world) filled(n int64) driver.Buffer {
	w.t.Helper()
	b := must(w.dev.Alloc(n))(w.t)
	w.t.Cleanup(func() { b.Free() })
	if err := w.q.CopyIn(b, 0, random(1<<20, 9)); err != nil {
		w.t.Fatal(err)
	}
	for have := int64(1 << 20); have < n; have *= 2 {
		if err := w.q.Copy(b, have, b, 0, min(have, n-have)); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := w.q.Finish(); err != nil {
		w.t.Fatal(err)
	}
	return b
}

// speed runs f often enough, after one run to warm up, and returns GB/s.
func (w *world) speed(bytes int64, f func() error) float64 {
	w.t.Helper()
	best := 0.0
	for range 4 {
		begin, n := time.Now(), 0
		for ; n == 0 || n < 10 && time.Since(begin) < 200*time.Millisecond; n++ {
			if err := f(); err != nil {
				w.t.Fatal(err)
			}
		}
		if err := w.q.Finish(); err != nil {
			w.t.Fatal(err)
		}
		best = max(best, float64(bytes)*float64(n)/time.Since(begin).Seconds()/1e9)
	}
	return best
}

// TestSpeed_AllShapes prints the speed of all shapes, of Freeze and of Read,
// compared with copies on the device. CAIRN_SNAP_SWEEP is the number of MiB.
// CAIRN_SNAP_SWEEP_ON is the ID of the device; by default, the first one that
// is not a host.
func TestSpeed_AllShapes(t *testing.T) {
	mib, _ := strconv.ParseInt(os.Getenv("CAIRN_SNAP_SWEEP"), 10, 64)
	if mib <= 0 {
		t.Skip("CAIRN_SNAP_SWEEP is not set")
	}
	var dev driver.Device
	for _, d := range opened {
		info, on := d.Info(), os.Getenv("CAIRN_SNAP_SWEEP_ON")
		if on == info.ID || on == "" && info.Backend != "host" {
			dev = d
			break
		}
	}
	if dev == nil {
		t.Fatal("there is no such device")
	}
	w := newWorld(t, dev)
	size := mib << 20
	src, dst := w.filled(size), w.filled(size)
	fmt.Printf("%s, %s: %d MiB\n", w.info.ID, w.info.Name, mib)
	traffic := 2 * w.speed(size, func() error { return w.q.Copy(dst, 0, src, 0, size) })
	fmt.Printf("copy on the device: %.0f GB/s read and written\n", traffic)

	fmt.Printf("%-34s %10s %12s %8s %12s\n", "shape", "block", "kernel GB/s", "of copy", "call GB/s")
	for _, s := range append([]shape{alone}, shapes...) {
		if s.Alone && w.info.Backend != "opencl" || s.items() > w.info.MaxGroup || s.local() > w.info.LocalMemory {
			continue
		}
		e := newWorld(t, dev)
		e.shape = s
		for _, block := range []int64{4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20} {
			if block == 64<<10 || s == w.shape || w.info.Kind != driver.CPU {
				e.sweep(src, 0, size, block, traffic)
			}
		}
		if s == w.shape {
			for _, off := range []int64{64, 16, 8, 4, 1} {
				e.sweep(src, off, size-64<<10, 64<<10, traffic)
			}
		}
	}

	every := []mem.Extent{}
	for off := int64(0); off+64<<10 <= size; off += 128 << 10 {
		every = append(every, mem.Extent{Buffer: src, Off: off, Len: 64 << 10, Block: 64 << 10})
	}
	for name, at := range map[string][]mem.Extent{
		"freeze of one extent":     {{Buffer: src, Len: size, Block: 64 << 10}},
		"freeze of scattered ones": every,
	} {
		n := int64(0)
		for i := range at {
			n += at[i].Len
		}
		w.Reserve(size)
		rate := 2 * w.speed(n, func() error {
			f, err := w.Freeze(at)
			if err == nil {
				f.Close()
			}
			return err
		})
		fmt.Printf("%-34s %10s %12.0f %7.0f%%\n", name, "", rate, 100*rate/traffic)
	}
	host := mem.NewStaging(16)
	if err := host.GrowRing(16); err != nil {
		t.Fatal(err)
	}
	defer host.Close()
	for _, p := range host.RingMaps() {
		if err := w.Pin(p); err != nil {
			t.Fatal(err)
		}
		defer w.Unpin(p)
	}
	f := must(w.Live([]mem.Extent{{Buffer: src, Len: size, Block: 64 << 10}}))(t)
	defer f.Close()
	rate := w.speed(size, func() error {
		i := 0
		for off := int64(0); off < size; off += mem.SegmentSize {
			if err := f.Read(host.Segment(i % 16)[:min(mem.SegmentSize, size-off)], 0, off); err != nil {
				return err
			}
			i++
		}
		wait, err := f.Mark()
		if err != nil {
			return err
		}
		return wait()
	})
	fmt.Printf("%-34s %10s %12.1f\n", "read to pinned staging", "", rate)
}

// sweep prints one line.
func (w *world) sweep(src driver.Buffer, off, size, block int64, traffic float64) {
	at := []mem.Extent{{Buffer: src, Off: off, Len: size, Block: block}}
	// A sample of the results must be right.
	got := must(digests(w.Engine, at))(w.t)
	p := make([]byte, 2<<20)
	if err := w.q.CopyOut(p, src, 0); err != nil {
		w.t.Fatal(err)
	}
	n := min(int64(1<<20)/block, 100)
	compare(w.t, w.shape.String(), got[:n], want(map[driver.Buffer][]byte{src: p}, []mem.Extent{{Buffer: src, Off: off, Len: n * block, Block: block}}))

	blocks := at[0].Blocks()
	scratch := must(w.Engine.scratch(16*blocks, 0))(w.t)
	kernel := w.speed(size, func() error { return w.launchDigest(w.q, scratch, 0, part{src, off, size, block, blocks}) })
	w.put(scratch)
	call := w.speed(size, func() error { return second(digests(w.Engine, at)) })
	what := strconv.FormatInt(block, 10)
	if off > 0 {
		what += fmt.Sprintf("+%d", off)
	}
	fmt.Printf("%-34s %10s %12.1f %7.0f%% %12.1f\n", w.shape, what, kernel, 100*kernel/traffic, call)
}

// BenchmarkDigest digests 64 KiB blocks, and compares with copying on the
// device. A digest reads; a copy reads and writes.
func BenchmarkDigest(b *testing.B) {
	for _, dev := range opened {
		b.Run(dev.Info().ID, func(b *testing.B) {
			q := must(dev.NewQueue())(b)
			defer q.Close()
			e := must(New(dev, q))(b)
			defer e.Close()
			size := int64(32 << 20)
			if dev.Info().Kind == driver.GPU {
				size = 1 << 30
			}
			src, dst := must(dev.Alloc(size))(b), must(dev.Alloc(size))(b)
			defer src.Free()
			defer dst.Free()
			if err := q.CopyIn(src, 0, make([]byte, size)); err != nil {
				b.Fatal(err)
			}
			copied := 0.0
			for range 4 {
				begin := time.Now()
				if err := q.Copy(dst, 0, src, 0, size); err != nil {
					b.Fatal(err)
				}
				if err := q.Finish(); err != nil {
					b.Fatal(err)
				}
				copied = max(copied, 2*float64(size)/time.Since(begin).Seconds()/1e9)
			}
			at := []mem.Extent{{Buffer: src, Len: size, Block: 64 << 10}}
			must(digests(e, at))(b)
			n := 0
			for b.Loop() {
				must(digests(e, at))(b)
				n++
			}
			rate := float64(size) * float64(n) / b.Elapsed().Seconds() / 1e9
			b.ReportMetric(rate, "GB/s")
			b.ReportMetric(rate/copied, "of-copy")
		})
	}
}
