package migrate

import (
	"fmt"
	"slices"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/mem"
)

// maxRing bounds each half of the memory that devices write to.
const maxRing = 32 << 20

// resolve finds where the bytes of arrays are. The program is paused.
func (f *finder) resolve() error {
	f.host, f.runs = slices.Clone(f.l.Memory), make([][]ckpt.Placement, len(f.l.Memory))
	if f.precopy {
		return nil
	}
	for i := range f.l.Datasets {
		if !f.l.Remote[i] {
			continue
		}
		var err error
		if f.host[i], f.runs[i], err = ckpt.Resolve(&f.l.Datasets[i], &f.l.Memory[i]); err != nil {
			return fmt.Errorf("%s: %w", f.l.Datasets[i].Var, err)
		}
	}
	return nil
}

// prepareDevices prepares the devices of an image for digests, while the
// program continues.
func prepareDevices(l *ckpt.Layout) {
	seen := make(map[mem.Device]bool)
	for i := range l.Datasets {
		if !l.Remote[i] {
			continue
		}
		for _, p := range l.Memory[i].Pieces {
			r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(p)))
			if r == nil {
				continue
			}
			places, _ := r.Places(at, at+int64(len(p)))
			for _, pl := range places {
				if w, ok := pl.Device.(mem.Warmer); ok && !seen[pl.Device] {
					seen[pl.Device] = true
					w.Warm()
				}
			}
		}
	}
}

// deviceBlocks goes through the blocks on devices, one device after the other.
// The device digests them, and then copies into one half of a ring while the
// other half is sent.
func (f *finder) deviceBlocks() error {
	var devs []mem.Device
	extents := make(map[mem.Device][]extent)
	for i, runs := range f.runs {
		for _, r := range runs {
			dev := r.Place.Device
			if r.Place.Zero || r.Place.Host != nil {
				continue
			}
			if extents[dev] == nil {
				devs = append(devs, dev)
			}
			at := mem.Extent{Buffer: r.Place.Buffer, Off: r.Place.Off, Len: r.Place.Len, Block: f.l.Datasets[i].Block}
			extents[dev] = append(extents[dev], extent{dataset: i, lo: r.Lo, at: at})
		}
	}
	if len(devs) == 0 {
		return nil
	}
	for range cap(f.buffers) { // free the buffers: they are not needed any more
		if _, err := f.take(0); err != nil {
			return err
		}
	}
	for range cap(f.buffers) {
		f.buffers <- nil
	}
	segments := int((min(f.batchSize, maxRing) + mem.SegmentSize - 1) / mem.SegmentSize)
	staging := mem.NewStaging(2 * segments)
	defer staging.Close()
	if err := staging.GrowRing(2 * segments); err != nil {
		return err
	}
	for _, dev := range devs {
		if err := f.oneDevice(dev, extents[dev], staging.RingMaps()[0]); err != nil {
			return fmt.Errorf("device %s: %w", dev.Name(), err)
		}
	}
	return nil
}

// extent is consecutive blocks of a dataset on a device.
type extent struct {
	dataset, lo int
	at          mem.Extent
	digests     []xxh3.Uint128
}

// drain is the state of deviceBlocks for one device.
type drain struct {
	f      *finder
	dev    mem.Device
	frozen mem.FrozenReader
	halves chan []byte // the free halves of the ring
	p      batch
	room   []byte // the free part of the batch's half
}

func (f *finder) oneDevice(dev mem.Device, list []extent, ring []byte) (err error) {
	began := time.Now()
	if err := dev.Pin(ring); err != nil {
		return err
	}
	defer dev.Unpin(ring)
	at := make([]mem.Extent, len(list))
	for i := range list {
		at[i] = list[i].at
	}
	frozen, err := dev.Live(at)
	if err != nil {
		return err
	}
	defer frozen.Close()
	for i := range list { // first: a digest would wait for copies queued before it
		e := &list[i]
		digests, err := frozen.Digests(i, 0, e.at.Blocks())
		if err != nil {
			return err
		}
		e.digests = slices.Clone(digests)
	}
	f.workNS += int64(time.Since(began))
	g := &drain{f: f, dev: dev, frozen: mem.FrozenReader{Frozen: frozen}, halves: make(chan []byte, 2)}
	half := len(ring) / 2
	size := min(half, int(max(f.batchSize, ckpt.MaxBlock)))
	g.halves <- ring[:size:size]
	g.halves <- ring[half : half+size : half+size]
	err = g.all(list)
	if wait, e := frozen.Mark(); e == nil {
		e = wait() // the ring must not be freed during a copy …
		if err == nil {
			err = e
		}
	} else if err == nil {
		err = e
	}
	out := cap(g.halves)
	if g.p.buffer != nil { // after an error
		out--
	}
	for range out { // … or while it is sent
		select {
		case <-g.halves:
		case <-f.quit:
			return errCanceled
		}
	}
	return err
}

func (g *drain) all(list []extent) error {
	f := g.f
	for i := range list {
		e := &list[i]
		d := &f.l.Datasets[e.dataset]
		for n, digest := range e.digests {
			if err := g.block(i, e, d, n, digest); err != nil {
				return err
			}
		}
	}
	return g.flush()
}

// block adds the n-th block of extent i.
func (g *drain) block(i int, e *extent, d *ckpt.Dataset, n int, digest xxh3.Uint128) error {
	f := g.f
	k := e.lo + n
	size := d.BlockLen(k)
	if g.p.buffer != nil && len(g.room) < size || g.p.blocks == maxListed {
		if err := g.flush(); err != nil {
			return err
		}
	}
	if g.p.buffer == nil {
		if err := f.stop(); err != nil {
			return err
		}
		select {
		case g.p.buffer = <-g.halves:
		case <-f.quit:
			return errCanceled
		}
		g.p.back, g.room = g.halves, g.p.buffer
	}
	if !f.classify(&g.p, e.dataset, k, size, digest, digest == f.zeros.Of(size)) {
		return nil
	}
	dst := g.room[:size]
	g.room = g.room[size:]
	g.p.attach(dst)
	return g.frozen.Read(dst, i, int64(n)*d.Block)
}

// flush passes the batch on. The sender waits for its copies.
func (g *drain) flush() error {
	if g.p.buffer == nil {
		return nil
	}
	if err := g.frozen.Flush(); err != nil {
		return err
	}
	wait, err := g.frozen.Mark()
	if err != nil {
		return err
	}
	p := g.p
	p.wait = func() error {
		if err := wait(); err != nil {
			return fmt.Errorf("device %s: %w", g.dev.Name(), err)
		}
		return nil
	}
	g.p, g.room = batch{}, nil
	return g.f.pass(p)
}
