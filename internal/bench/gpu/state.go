package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// source is the source of the kernels that change the state.
const source = `
__kernel void fill(__global uint *x, uint seed, ulong n)
{
	ulong stride = get_global_size(0);
	for (ulong i = get_global_id(0); i < n; i += stride) {
		uint v = (uint)i * 2654435761u + seed;
		v ^= v >> 15; v *= 2246822519u; v ^= v >> 13;
		x[i] = v;
	}
}

/* one word in every every-th block */
__kernel void touch(__global uint *x, uint seed, ulong n, uint every, uint words)
{
	ulong block = get_global_id(0) * (ulong)every + seed % every;
	if (block * words < n) x[block * words] = seed * 2654435761u + (uint)block;
}
`

var (
	fill = device.NewKernel(source, "fill", func(w *device.Work) {
		x, seed := device.Slice[uint32](w, 0), device.Value[uint32](w, 1)
		lo, hi := w.Range(0)
		for p := lo; p < hi; p++ {
			for i := p; i < len(x); i += w.Global[0] {
				v := uint32(i)*2654435761 + seed
				v ^= v >> 15
				v *= 2246822519
				v ^= v >> 13
				x[i] = v
			}
		}
	})
	touch = device.NewKernel(source, "touch", func(w *device.Work) {
		x, seed, every := device.Slice[uint32](w, 0), device.Value[uint32](w, 1), device.Value[uint32](w, 3)
		words := int(device.Value[uint32](w, 4))
		lo, hi := w.Range(0)
		for p := lo; p < hi; p++ {
			if b := p*int(every) + int(seed%every); b*words < len(x) {
				x[b*words] = seed*2654435761 + uint32(b)
			}
		}
	})
)

// saver is a Saver with an array as its state.
type saver struct {
	*ckpt.Saver
	dir   *store.Dir
	dev   *target
	roots []graph.Root
	x     *device.Array[uint32]
	n     int
	block int64 // size of a block of the checkpoint
	col   graph.Collector
	then  func() error // what the program does when it continues; nil: nothing
}

// newSaver protects an array of the given size on dev, and other variables.
func newSaver(fsys vfs.FS, path string, dev *target, bytes int64, more ...graph.Root) (*saver, error) {
	dir, err := store.Create(fsys, path, 0)
	if err != nil {
		return nil, err
	}
	s := &saver{dir: dir, dev: dev, n: int(bytes / 4), x: device.New[uint32](int(bytes / 4))}
	s.roots = append([]graph.Root{{Name: "x", Ptr: s.x}}, more...)
	if err := s.fill(1); err != nil {
		return nil, err
	}
	if s.Saver, err = ckpt.NewSaver(dir, nil, ckpt.Options{}); err != nil {
		return nil, err
	}
	img, err := s.col.Collect(s.roots, nil)
	if err == nil {
		s.Reserve(img)
	}
	return s, err
}

func (s *saver) close() {
	s.Saver.Close()
	s.dir.Close()
	s.x.Free()
}

// fill gives the whole array new values, and waits.
func (s *saver) fill(seed int) error {
	if err := s.dev.Launch(fill, device.Size{1 << 20}.In(256), device.Out(s.x), uint32(seed), uint64(s.n)); err != nil {
		return err
	}
	return s.dev.Finish()
}

// touch changes one block out of every, and waits.
func (s *saver) touch(seed, every int) error {
	words := int(s.block / 4)
	blocks := s.n/words/every + 1
	if err := s.dev.Launch(touch, device.Size{blocks}.In(64), device.InOut(s.x), uint32(seed), uint64(s.n), uint32(every), uint32(words)); err != nil {
		return err
	}
	return s.dev.Finish()
}

// times holds the times of one save.
type times struct {
	pause float64 // until the device could also run the program's next kernel
	cpu   float64 // until Save returned
	drain float64 // from then until everything was in host memory
	safe  float64 // until the checkpoint was complete
	moved int64   // bytes that were read from the device
}

// save saves once.
func (s *saver) save(ctx context.Context) (times, error) {
	var t times
	before := s.dev.drv.out.Load()
	begin := time.Now()
	s.Prefetch()
	img, err := s.col.Collect(s.roots, nil)
	if err != nil {
		return t, err
	}
	if _, err := s.Save(ctx, img, nil, ckpt.Note{}); err != nil {
		return t, err
	}
	t.cpu = time.Since(begin).Seconds()
	if err := s.dev.Finish(); err != nil {
		return t, err
	}
	t.pause = time.Since(begin).Seconds()
	if s.then != nil {
		err = s.then()
	}
	r := <-s.Done()
	t.safe = time.Since(begin).Seconds()
	t.drain = time.Duration(s.dev.last.Load()-begin.UnixNano()).Seconds() - t.pause
	s.Collect(r)
	if r.Err == nil {
		for _, d := range r.Table.Datasets {
			if d.Var == "x" {
				s.block = max(s.block, d.Block)
			}
		}
	}
	t.moved = s.dev.drv.out.Load() - before
	return t, errors.Join(err, r.Err)
}

func measureState(ctx context.Context, d *target, bytes int64) error {
	begin := memory("VmRSS")
	raw, err := measureRaw(d, bytes)
	if err != nil {
		return err
	}
	base := memory("VmHWM")
	s, err := newSaver(vfstest.Discard(d.wrote), "/sets", d, bytes)
	if err != nil {
		return err
	}
	var full, sparse, same []times
	for i := range *rounds + 1 {
		if err := s.fill(100 + i); err != nil {
			return err
		}
		t, err := s.save(ctx)
		if err != nil {
			return err
		}
		if i > 0 { // the first one allocates memory
			full = append(full, t)
		}
	}
	digests, err := measureDigest(s)
	if err != nil {
		return err
	}
	for i := range *rounds + 2 {
		if err := s.touch(1000+i, 100); err != nil {
			return err
		}
		t, err := s.save(ctx)
		if err != nil {
			return err
		}
		if i > 1 { // only now it is known that little changes
			sparse = append(sparse, t)
		}
	}
	for range *rounds {
		t, err := s.save(ctx)
		if err != nil {
			return err
		}
		same = append(same, t)
	}
	peak := memory("VmHWM")
	s.close()

	of := func(list []times, f func(times) float64) float64 {
		var v []float64
		for _, t := range list {
			v = append(v, f(t))
		}
		return median(v)
	}
	pause := func(t times) float64 { return t.pause }
	host := func(t times) float64 { return t.cpu }
	drain := func(t times) float64 { return float64(t.moved) / t.drain }
	moved := func(t times) float64 { return float64(t.moved) / float64(bytes) }
	gib := float64(bytes) / (1 << 30)
	sh := newSheet(fmt.Sprintf("%g GiB on %s (medians of %d)", gib, d, *rounds))
	sh.line("copy on the device", fmt.Sprintf("%.3f ms, %.0f GB/s", 1e3*raw.copy, float64(bytes)/raw.copy/1e9), "", true)
	sh.line("copy to pinned memory", fmt.Sprintf("%.1f GB/s", raw.out/1e9), "", true)
	h := of(full, pause)
	sh.line("pause, all changed", fmt.Sprintf("%.3f ms = %.2f × the copy (host %.3f ms)", 1e3*h, h/raw.copy, 1e3*of(full, host)), "≤ 1.5", h <= 1.5*raw.copy)
	h = of(sparse, pause)
	sh.line("pause, 1 % of the blocks changed", fmt.Sprintf("%.3f ms = %.2f × the copy (host %.3f ms)", 1e3*h, h/raw.copy, 1e3*of(sparse, host)), "< 1", h < raw.copy)
	h = of(same, pause)
	sh.line("pause, no kernel since", fmt.Sprintf("%.3f ms = %.3f × the copy", 1e3*h, h/raw.copy), "", true)
	r := of(full, drain)
	sh.line("drain into memory", fmt.Sprintf("%.1f GB/s = %.2f × pinned", r/1e9, r/raw.out), "≥ 0.9", r >= 0.9*raw.out)
	m := of(sparse, moved)
	sh.line("moved, 1 % changed", fmt.Sprintf("%.2f %% of the state", 100*m), "≤ 2 %", m <= 0.02)
	sh.line("digests on the device", fmt.Sprintf("%.0f GB/s", digests/1e9), "≥ 1000", digests >= 1e12)
	sh.line("host memory at its peak", fmt.Sprintf("%s, of which %s before the first save, %s before the device was opened", mib(peak), mib(base), mib(begin)), "≤ 512 MiB", peak <= 512<<20)
	sh.flush()
	if *file && bytes <= 8<<30 {
		return onDisk(ctx, d, bytes)
	}
	return nil
}

// rawSpeeds are the device's own speeds.
type rawSpeeds struct {
	copy float64 // seconds for the whole state
	out  float64 // bytes per second into pinned memory
}

// measureRaw measures with the driver alone, without Cairn's arrays.
func measureRaw(dev *target, bytes int64) (rawSpeeds, error) {
	var r rawSpeeds
	d := dev.drv
	q, err := d.NewQueue()
	if err != nil {
		return r, err
	}
	defer q.Close()
	a, err := d.Alloc(bytes)
	if err != nil {
		return r, err
	}
	b, err := d.Alloc(bytes)
	if err != nil {
		return r, errors.Join(err, a.Free())
	}
	var copies []float64
	for range *rounds + 1 {
		t, err := seconds(func() error { return errors.Join(q.Copy(b, 0, a, 0, bytes), q.Finish()) })
		if err != nil {
			return r, err
		}
		copies = append(copies, t)
	}
	r.copy = median(copies[1:])
	staging := mem.NewStaging(32)
	if err := staging.GrowRing(32); err != nil {
		return r, err
	}
	release, err := d.Pin(staging.RingMaps()[0])
	if err != nil {
		return r, err
	}
	var outs []float64
	part := min(bytes, 1<<30)
	for range *rounds + 1 {
		t, err := seconds(func() error {
			var list []driver.Event
			for off := int64(0); off < part; off += mem.SegmentSize {
				n := min(mem.SegmentSize, part-off)
				i := int(off/mem.SegmentSize) % 32
				if err := q.CopyOut(staging.Segment(i)[:n], a, off); err != nil {
					return err
				}
				e, err := q.Record()
				if err != nil {
					return err
				}
				if list = append(list, e); len(list) > 16 {
					if err := list[0].Wait(); err != nil {
						return err
					}
					list = list[1:]
				}
			}
			return q.Finish()
		})
		if err != nil {
			return r, err
		}
		outs = append(outs, float64(part)/t)
	}
	r.out = median(outs[1:])
	err = release()
	staging.Close()
	runtime.GC()
	return r, errors.Join(err, a.Free(), b.Free())
}

// measureDigest returns bytes per second.
func measureDigest(s *saver) (float64, error) {
	at, n := graph.MemoryOf(s.x)
	r, _ := mem.FindRemote(at)
	places, err := r.Places(0, n)
	if err != nil {
		return 0, err
	}
	p := places[0]
	if p.Device == nil {
		return 0, errors.New("the array is not on the device")
	}
	x := mem.Extent{Buffer: p.Buffer, Off: p.Off, Len: p.Len, Block: s.block}
	live, err := p.Device.Live([]mem.Extent{x})
	if err != nil {
		return 0, err
	}
	defer live.Close()
	var list []float64
	for range *rounds + 1 {
		t, err := seconds(func() error {
			_, err := live.Digests(0, 0, x.Blocks())
			return err
		})
		if err != nil {
			return 0, err
		}
		list = append(list, float64(p.Len)/t)
	}
	return median(list[1:]), nil
}

// onDisk saves to a file, restores, and compares.
func onDisk(ctx context.Context, d *target, bytes int64) error {
	path := filepath.Join(*tmpDir, "sets")
	defer os.RemoveAll(path)
	s, err := newSaver(vfs.OS(), path, d, bytes)
	if err != nil {
		return err
	}
	defer s.close()
	var pauses, safe []float64
	for i := range 4 {
		if err := s.fill(i); err != nil {
			return err
		}
		t, err := s.save(ctx)
		if err != nil {
			return err
		}
		if i > 0 { // the first one allocates memory
			pauses = append(pauses, t.pause)
			safe = append(safe, t.safe)
		}
	}
	set, err := ckpt.Open(vfs.OS(), s.dir.File(s.Next()-1))
	if err != nil {
		return err
	}
	defer set.Close()
	img, err := set.Image()
	if err != nil {
		return err
	}
	if err := s.fill(77); err != nil { // overwrite the state
		return err
	}
	begin := time.Now()
	if err := set.Load(ctx, img, s.roots, nil, nil, nil); err != nil {
		return err
	}
	back := time.Since(begin).Seconds()
	took := median(safe)
	sh := newSheet(fmt.Sprintf("%g GiB through a file, all changed (medians of %d)", float64(bytes)/(1<<30), len(pauses)))
	sh.line("pause", fmt.Sprintf("%.2f ms", 1e3*median(pauses)), "", true)
	sh.line("until safe", fmt.Sprintf("%.2f s, %.2f GB/s", took, float64(bytes)/took/1e9), "", true)
	sh.line("restored to the device, every byte checked", fmt.Sprintf("%.2f s, %.2f GB/s", back, float64(bytes)/back/1e9), "", true)
	sh.flush()
	return nil
}
