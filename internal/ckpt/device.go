package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// State on devices is saved in two steps. During the pause, the device copies
// it (freezes it). If few blocks are expected to have changed, the device
// digests the blocks first and copies only those that differ. Then the program
// continues, and the copy is drained: the device writes it block by block into
// staging memory, which goes to the writer.
//
//	pause     device: kernels … │ freeze │ kernels of the program …
//	drain                                │ digests │ copy │ copy │ copy …
//	          host:                                │ segment → writer │ …
//
//	pause     device: kernels … │ diff: digests, copy │ kernels of the program …
//	drain                                             │ copy │ copy …
//	          host:                                   │ segment → writer │ …
//
// A device without room for a copy is drained during the pause.

// ringSegments bounds the staging memory of a drain. It is in addition to the
// staging of the program's own memory.
const ringSegments = 24

// ring returns how many segments a drain of n bytes uses.
func ring(n int64) int {
	if n == 0 {
		return 0
	}
	return int(min(n/mem.SegmentSize+2, ringSegments))
}

// Placement is consecutive blocks of a dataset in one place: in a buffer of a
// device, in guarded host memory, or nowhere if they are zeros.
type Placement struct {
	Lo, Hi int
	Place  mem.Place
}

// Resolve finds the bytes of a dataset whose pieces stand for memory elsewhere.
// host has the bytes in host memory, at their offsets in the dataset; runs are
// whole blocks in other places. Resolve brings a block to the host if it is not
// in one place.
func Resolve(d *Dataset, b *Memory) (host Memory, runs []Placement, err error) {
	var off int64
	add := func(p []byte, n int64) {
		host.Pieces = append(host.Pieces, p)
		off += n
		host.ends = append(host.ends, off)
	}
	for _, piece := range b.Pieces {
		r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(piece)))
		if r == nil {
			return host, nil, errors.New("its memory is gone: it was freed")
		}
		places, err := r.Places(at, at+int64(len(piece)))
		if err != nil {
			return host, nil, err
		}
		for _, p := range places {
			if p.Host != nil && p.Guard == nil {
				add(p.Host, p.Len)
				at += p.Len
				continue
			}
			end := off + p.Len
			lo := min((off+d.Block-1)/d.Block*d.Block, end)
			hi := max(end/d.Block*d.Block, lo)
			if end == d.Size {
				hi = end
			}
			start := off
			for _, part := range [3]struct {
				to    int64
				whole bool // whole blocks
			}{{lo, false}, {hi, true}, {end, false}} {
				n := part.to - off
				switch {
				case n == 0:
				case part.whole:
					run := Placement{Lo: int(off / d.Block), Hi: int((part.to + d.Block - 1) / d.Block), Place: p}
					run.Place.Off, run.Place.Len = p.Off+off-start, n
					if p.Host != nil {
						run.Place.Host = p.Host[off-start:][:n]
					}
					runs = append(runs, run)
					add(nil, n)
				case p.Host != nil:
					add(p.Host[off-start:][:n], n)
				case p.Zero: // in the checkpoint: its memory may have bytes that need not be saved
					add(make([]byte, n), n)
				default:
					fetched, err := r.Host(at+off-start, at+off-start+n)
					if err != nil {
						return host, nil, err
					}
					add(fetched, n)
				}
			}
			at += p.Len
		}
	}
	if off != d.Size {
		return host, nil, fmt.Errorf("it has %d bytes, not %d", off, d.Size)
	}
	if len(host.Pieces) == 1 {
		host.ends = nil
	}
	return host, runs, nil
}

// extent returns where blocks lo…hi of the run are.
func (r *Placement) extent(d *Dataset, lo, hi int) mem.Extent {
	from := int64(lo-r.Lo) * d.Block
	return mem.Extent{Buffer: r.Place.Buffer, Off: r.Place.Off + from, Len: min(int64(hi-lo)*d.Block, r.Place.Len-from), Block: d.Block}
}

// diffable returns which blocks of the run the device can diff: all but a short
// last one.
func (r *Placement) diffable(d *Dataset) (lo, hi int) {
	if d.BlockLen(r.Hi-1) <= mem.ShortBlock {
		return r.Lo, r.Hi - 1
	}
	return r.Lo, r.Hi
}

// mostChanged returns how many of blocks lo…hi a diff may find changed before
// all of them are copied: more than last time, plus those that compaction
// writes again.
func mostChanged(d *Dataset, h *history, l *compaction, lo, hi int) int {
	return min(int(2*h.changed*float64(hi-lo))+len(l.blocks(d, lo, hi))+64, hi-lo)
}

// deviceExtent is consecutive blocks of a dataset on a device.
type deviceExtent struct {
	dataset, lo int
	at          mem.Extent
	digests     []xxh3.Uint128
	diff        mem.Diff      // diff in progress; nil: none
	changed     []mem.Changed // the diff's result; nil: all blocks, in order
	unordered   bool          // see mem.Place
	frozen      mem.Frozen    // the frozen copy …
	index       int           // … and the extent's index in it
}

// deviceTask is the work of one save on one device.
type deviceTask struct {
	c     *copying
	dev   mem.Device
	diffs []deviceExtent // to be diffed
	take  []deviceExtent // to be copied: whole extents, and results of diffs
	live  bool           // some of take is not a copy, but the program's memory
	free  time.Time      // when the copies were made; zero: during the pause
}

// task returns the task of a device.
func (c *copying) task(dev mem.Device) *deviceTask {
	for _, t := range c.devices {
		if t.dev == dev {
			return t
		}
	}
	t := &deviceTask{c: c, dev: dev}
	c.devices = append(c.devices, t)
	return t
}

// assign decides how changes in the runs of a dataset are found. It returns how
// many bytes may have to be staged.
func (c *copying) assign(i int, runs []Placement, h *history) int64 {
	d, old := &c.l.Datasets[i], c.old[i]
	c.runs[i] = runs
	bytes := int64(0)
	for _, r := range runs {
		if r.Place.Zero {
			for k := r.Lo; k < r.Hi; k++ {
				c.marks[d.First+k] = MarkZero
			}
			continue
		}
		same := old != nil && unwritten(h.runs, r) // not written since
		if r.Place.Host != nil {
			c.assignDeferred(i, r, same, h)
			continue
		}
		t := c.task(r.Place.Device)
		extent := func(lo, hi int) deviceExtent {
			return deviceExtent{dataset: i, lo: lo, at: r.extent(d, lo, hi), unordered: r.Place.Unordered}
		}
		switch {
		case same:
			for _, k := range c.compact.blocks(d, r.Lo, r.Hi) {
				e := extent(k, k+1)
				e.digests = []xxh3.Uint128{old[k].Digest}
				t.take = append(t.take, e)
				c.marks[d.First+k] = MarkStaged
				bytes += d.Block
				c.expected += d.Block
			}
		case old != nil && h.changed >= 0 && h.changed <= dense:
			lo, hi := r.diffable(d)
			if lo < hi {
				e := extent(lo, hi)
				e.diff = c.s.prefetched(d.Path, h, r)
				t.diffs = append(t.diffs, e)
			}
			if hi < r.Hi {
				t.take = append(t.take, extent(hi, r.Hi))
			}
			bytes += int64(h.changed*float64(r.Place.Len)) + d.Block
			c.expect(i, r.Place.Len, h)
		default:
			t.take = append(t.take, extent(r.Lo, r.Hi))
			bytes += r.Place.Len
			c.expect(i, r.Place.Len, h)
		}
	}
	return bytes
}

// unwritten reports whether all blocks of r have the version that they had in
// runs.
func unwritten(runs []Placement, r Placement) bool {
	at := r.Lo
	for i := range runs {
		if v := runs[i].Place.Version; runs[i].Lo <= at && at < runs[i].Hi && v == r.Place.Version && v != 0 {
			at = runs[i].Hi
		}
	}
	return at >= r.Hi
}

// startDevices starts what devices must do during the pause. The returned
// function waits for it. If the host has nothing to do meanwhile, startDevices
// does the work itself: to wake another thread often takes longer.
func (c *copying) startDevices() (wait func() error) {
	if len(c.devices) == 1 && len(c.ranges) == 0 {
		err := c.devices[0].do((*deviceTask).start)
		return func() error { return err }
	}
	return c.eachDevice((*deviceTask).start)
}

// do adds the device's name to errors of f.
func (t *deviceTask) do(f func(*deviceTask) error) error {
	if err := f(t); err != nil {
		return fmt.Errorf("device %s: %w", t.dev.Name(), err)
	}
	return nil
}

// free returns when the devices had made their copies, after drainAll.
func (c *copying) free() map[mem.Device]time.Time {
	out := make(map[mem.Device]time.Time)
	for _, t := range c.devices {
		out[t.dev] = t.free
	}
	return out
}

// anyLive reports whether a device had no room for a copy.
func (c *copying) anyLive() bool {
	return slices.ContainsFunc(c.devices, func(t *deviceTask) bool { return t.live })
}

// drainLive drains the devices that had no room for a copy.
func (c *copying) drainLive() error {
	return c.eachDevice(func(t *deviceTask) error {
		if !t.live {
			return nil
		}
		return t.drain()
	})()
}

// drainAll drains all devices, copies the deferred memory, and then releases
// its guards.
func (c *copying) drainAll(release func()) error {
	wait := c.eachDevice((*deviceTask).drain)
	c.drainDeferred()
	release()
	return wait()
}

func (c *copying) eachDevice(f func(*deviceTask) error) (wait func() error) {
	var wg sync.WaitGroup
	errs := make([]error, len(c.devices))
	for i, t := range c.devices {
		wg.Go(func() {
			errs[i] = t.do(f)
		})
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// classifier decides what becomes of a dataset's blocks.
type classifier struct {
	c     *copying
	d     *Dataset
	old   []Block
	len   int // the block length that zeros is for
	zeros xxh3.Uint128
}

func (c *copying) classifier(i int) classifier {
	d := &c.l.Datasets[i]
	return classifier{c: c, d: d, old: c.old[i]}
}

// mark decides what becomes of block k with this digest.
func (j *classifier) mark(k int, dig xxh3.Uint128) Mark {
	if j.old != nil && j.old[k].Digest == dig && j.c.mayKeep(&j.old[k]) {
		if j.old[k].Source == SourceZero {
			return MarkZero
		}
		return MarkKept
	}
	if n := j.d.BlockLen(k); n != j.len {
		j.len, j.zeros = n, mem.Digest(make([]byte, n))
	}
	if dig == j.zeros {
		return MarkZero
	}
	return MarkStaged
}

// start does the part of the task that belongs to the pause.
func (t *deviceTask) start() error {
	err := t.s().pin(t.dev)
	if err == nil {
		err = t.startDiffs()
	}
	if err == nil { // queued behind the diffs
		err = t.freezeAll()
	}
	for i := range t.diffs {
		e := &t.diffs[i]
		if e.diff == nil || err != nil {
			continue
		}
		var none error
		e.changed, e.frozen, none = e.diff.Wait()
		e.diff = nil
		switch {
		case errors.Is(none, mem.ErrNoRoom): // many more changed than last time
			t.take = append(t.take, *e)
			err = t.freeze(t.take[len(t.take)-1:])
			if err == nil && e.unordered {
				err = t.settled(t.take[len(t.take)-1:])
			}
		case none != nil:
			err = none
		case e.frozen != nil:
			t.take = append(t.take, *e)
		}
	}
	t.dropDiffs()
	return err
}

// startDiffs lets the device find and copy the changed blocks. If there is no
// memory for that, the whole extent is copied.
func (t *deviceTask) startDiffs() error {
	for i := range t.diffs {
		e := &t.diffs[i]
		if e.diff != nil {
			continue
		}
		d := &t.c.l.Datasets[e.dataset]
		most := mostChanged(d, t.s().seen[d.Path], t.c.compact, e.lo, e.lo+e.at.Blocks())
		var err error
		if e.diff, err = t.dev.Diff(e.at, most); errors.Is(err, mem.ErrNoRoom) {
			t.take = append(t.take, *e)
		} else if err != nil {
			return err
		}
	}
	for i := range t.diffs {
		e := &t.diffs[i]
		if e.diff == nil {
			continue
		}
		t.c.expectSame(e)
		err := e.diff.Start()
		if err == nil {
			continue
		}
		e.diff = nil
		if !errors.Is(err, mem.ErrNoRoom) {
			return err
		}
		t.take = append(t.take, *e)
	}
	return nil
}

// expectSame gives a diff the digests of the blocks that may stay where the
// previous checkpoint has them.
func (c *copying) expectSame(e *deviceExtent) {
	want := e.diff.Expect()
	old := c.old[e.dataset][e.lo:][:len(want)]
	marks := c.marks[c.l.Datasets[e.dataset].First+e.lo:]
	for k := range want {
		b := &old[k]
		want[k] = b.Digest
		if b.Source == SourceZero {
			marks[k] = MarkZero
		} else if !c.mayKeep(b) {
			want[k].Lo = ^b.Digest.Lo // counts as changed
		}
	}
}

// freezeAll freezes everything in take. Later kernels on the device's queue run
// after the copies. Memory that others write, too, is frozen first, and
// freezeAll waits until it is copied.
func (t *deviceTask) freezeAll() error {
	slices.SortStableFunc(t.take, func(a, b deviceExtent) int {
		switch {
		case a.unordered == b.unordered:
			return 0
		case a.unordered:
			return -1
		}
		return 1
	})
	n := 0
	for n < len(t.take) && t.take[n].unordered {
		n++
	}
	if err := t.freeze(t.take[:n]); err != nil {
		return err
	}
	if err := t.freeze(t.take[n:]); err != nil {
		return err
	}
	return t.settled(t.take[:n])
}

// settled waits until extents that were frozen together are copied.
func (t *deviceTask) settled(list []deviceExtent) error {
	if len(list) == 0 {
		return nil
	}
	return list[0].frozen.Wait()
}

// freeze copies extents. If the device has no room, it gives access to the
// extents themselves.
func (t *deviceTask) freeze(list []deviceExtent) error {
	if len(list) == 0 {
		return nil
	}
	at := make([]mem.Extent, len(list))
	for i := range list {
		at[i] = list[i].at
	}
	frozen, err := t.dev.Freeze(at)
	if errors.Is(err, mem.ErrNoRoom) {
		frozen, err = t.dev.Live(at)
		t.live = true
	}
	if err != nil {
		return err
	}
	for i := range list {
		list[i].frozen, list[i].index = frozen, i
	}
	return nil
}

func (t *deviceTask) s() *Saver { return t.c.s }

// dropDiffs ends diffs that are not used.
func (t *deviceTask) dropDiffs() {
	for i := range t.diffs {
		if e := &t.diffs[i]; e.diff != nil {
			e.diff.Close()
			e.diff = nil
		}
	}
}

func (c *copying) dropDiffs() {
	for _, t := range c.devices {
		t.dropDiffs()
	}
}

// pin registers new staging memory with a device.
func (s *Saver) pin(dev mem.Device) error {
	maps := s.staging.RingMaps()
	s.mu.Lock()
	defer s.mu.Unlock()
	for n := s.pinned[dev]; n < len(maps); n++ {
		if err := dev.Pin(maps[n]); err != nil {
			return err
		}
		if s.pinned == nil {
			s.pinned = make(map[mem.Device]int)
		}
		s.pinned[dev] = n + 1
	}
	return nil
}

// unpin releases the staging memory on all devices.
func (s *Saver) unpin() {
	maps := s.staging.RingMaps()
	for dev, n := range s.pinned {
		for _, m := range maps[:n] {
			dev.Unpin(m)
		}
	}
	clear(s.pinned)
}
