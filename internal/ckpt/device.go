package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// What lies on devices is saved in two steps. While the program is paused, the
// device copies it (freezes it), or, where little is expected to have changed,
// computes digests first and copies only what differs (diffs it). Then the
// program continues, and the copy is drained: block by block into staging memory
// that the device writes by itself, and from there to the writer like all else.
//
//	held      device: kernels … │ freeze │ kernels of the program …
//	drained                              │ digests │ copy │ copy │ copy …
//	          host:                                │ segment → writer │ …
//
//	held      device: kernels … │ diff: digests, copy │ kernels of the program …
//	drained                                           │ copy │ copy …
//	          host:                                   │ segment → writer │ …
//
// A device without room for a copy is drained while the program is paused.

// ringSegments bounds the staging memory that a drain uses beside what the
// program's own memory needs.
const ringSegments = 24

// ring is how many segments a drain of n bytes uses.
func ring(n int64) int {
	if n == 0 {
		return 0
	}
	return int(min(n/mem.SegmentSize+2, ringSegments))
}

// Placement is consecutive blocks of a dataset in one buffer of a device, in host
// memory that stands still, or zeros that are nowhere.
type Placement struct {
	Lo, Hi int
	Place  mem.Place
}

// Resolve finds out where the bytes of a dataset are whose pieces stand for
// memory elsewhere: near has those in host memory, at their offsets; runs are
// whole blocks on devices. Blocks that are not in one place are fetched.
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
				whole bool // blocks
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

// extent is where blocks of a run are.
func (r *Placement) extent(d *Dataset, lo, hi int) mem.Extent {
	from := int64(lo-r.Lo) * d.Block
	return mem.Extent{Buffer: r.Place.Buffer, Off: r.Place.Off + from, Len: min(int64(hi-lo)*d.Block, r.Place.Len-from), Block: d.Block}
}

// diffable are the blocks of a run that can be diffed: all but a short last one.
func (r *Placement) diffable(d *Dataset) (lo, hi int) {
	if d.BlockLen(r.Hi-1) <= mem.ShortBlock {
		return r.Lo, r.Hi - 1
	}
	return r.Lo, r.Hi
}

// mostChanged is how many blocks of lo…hi may come out of a diff before all of
// them are copied: more than changed last time, and those that must move.
func mostChanged(d *Dataset, h *history, l *compaction, lo, hi int) int {
	return min(int(2*h.changed*float64(hi-lo))+len(l.blocks(d, lo, hi))+64, hi-lo)
}

// deviceExtent is blocks of a dataset on a device, with their digests if they are
// known already.
type deviceExtent struct {
	dataset, lo int
	at          mem.Extent
	digests     []xxh3.Uint128
	diff        mem.Diff      // that is looking at them; nil: none
	changed     []mem.Changed // what came out; nil: the blocks are consecutive
	unordered   bool          // see mem.Place
	frozen      mem.Frozen    // what they are in,
	index       int           // … as its extent
}

// deviceTask is what one save does on one device.
type deviceTask struct {
	c     *copying
	dev   mem.Device
	diffs []deviceExtent // diff
	take  []deviceExtent // copy: all of it, then also what was diffed
	live  bool           // some of take is what the program works with
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

// assign decides for the runs of a dataset how changes are found, and returns
// how many bytes may have to be staged.
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
		same := old != nil && unwritten(h.runs, r) // it is as it was
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

// unwritten reports whether the blocks of r are all as they were in runs.
func unwritten(runs []Placement, r Placement) bool {
	at := r.Lo
	for i := range runs {
		if v := runs[i].Place.Version; runs[i].Lo <= at && at < runs[i].Hi && v == r.Place.Version && v != 0 {
			at = runs[i].Hi
		}
	}
	return at >= r.Hi
}

// startDevices starts what devices must do before the program continues. The function
// it returns waits for that. Where there is nothing to do meanwhile, it is done
// at once: waking another thread takes longer than much of it.
func (c *copying) startDevices() (wait func() error) {
	if len(c.devices) == 1 && len(c.ranges) == 0 {
		err := c.devices[0].do((*deviceTask).start)
		return func() error { return err }
	}
	return c.eachDevice((*deviceTask).start)
}

// do says where an error comes from.
func (t *deviceTask) do(f func(*deviceTask) error) error {
	if err := f(t); err != nil {
		return fmt.Errorf("device %s: %w", t.dev.Name(), err)
	}
	return nil
}

// anyLive reports whether some device had no room for a copy.
func (c *copying) anyLive() bool {
	return slices.ContainsFunc(c.devices, func(t *deviceTask) bool { return t.live })
}

// drainLive empties those devices.
func (c *copying) drainLive() error {
	return c.eachDevice(func(t *deviceTask) error {
		if !t.live {
			return nil
		}
		return t.drain()
	})()
}

// drainAll empties all devices, and copies what stands still, which release
// then lets go.
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
		wg.Add(1)
		go func() {
			defer wg.Done()
			errs[i] = t.do(f)
		}()
	}
	return func() error {
		wg.Wait()
		return errors.Join(errs...)
	}
}

// classifier says what becomes of blocks of a dataset.
type classifier struct {
	c     *copying
	d     *Dataset
	old   []Block
	len   int // of the block whose zeros it knows
	zeros xxh3.Uint128
}

func (c *copying) classifier(i int) classifier {
	d := &c.l.Datasets[i]
	return classifier{c: c, d: d, old: c.old[i]}
}

// mark says what becomes of block k, whose digest is known.
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

// start does what must be done on the device before the program continues.
func (t *deviceTask) start() error {
	err := t.s().pin(t.dev)
	if err == nil {
		err = t.startDiffs()
	}
	if err == nil { // the device gets this while it diffs
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
		case errors.Is(none, mem.ErrNoRoom): // much more has changed than last time
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

// startDiffs lets the device find out what has changed, and copy that. What it has
// no memory to do so for is taken as a whole.
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

// expectSame tells the diff of an extent which digests its blocks have if
// they may stay where the previous checkpoint has them.
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
			want[k].Lo = ^b.Digest.Lo // comes out as if it had changed
		}
	}
}

// freezeAll freezes everything that is taken. Later kernels on the device's
// queue are ordered after the copies; for memory that others write, too, it
// waits until the copies are made. Those come first, so that the program does
// not wait for the rest.
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

// freeze copies extents, or gives access to them where there is no room.
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

// dropDiffs gives up what was begun in vain.
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

// pin makes staging memory known to a device, as far as it is not.
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

// unpin lets devices forget the staging memory.
func (s *Saver) unpin() {
	maps := s.staging.RingMaps()
	for dev, n := range s.pinned {
		for _, m := range maps[:n] {
			dev.Unpin(m)
		}
	}
	clear(s.pinned)
}
