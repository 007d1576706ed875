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

// What lies on devices is saved in two steps. While the program is held, the
// device copies it (freezes it), or, where little is expected to have changed,
// computes digests first and copies only what differs (sifts it). Then the
// program goes on, and the copy is drained: block by block into staging memory
// that the device writes by itself, and from there to the writer like all else.
//
//	held      device: kernels … │ freeze │ kernels of the program …
//	drained                              │ digests │ copy │ copy │ copy …
//	          host:                                │ segment → writer │ …
//
//	held      device: kernels … │ sift: digests, copy │ kernels of the program …
//	drained                                           │ copy │ copy …
//	          host:                                   │ segment → writer │ …
//
// A device without room for a copy is drained while the program is held.

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

// farRun is consecutive blocks of a dataset in one buffer of a device, in host
// memory that stands still, or zeros that are nowhere.
type farRun struct {
	lo, hi int
	at     mem.Place
}

// resolve finds out where the bytes of a dataset are whose pieces stand for
// memory elsewhere: near has those in host memory, at their offsets; runs are
// whole blocks on devices. Blocks that are not in one place are fetched.
func resolve(d *Dataset, b *blob) (near blob, runs []farRun, err error) {
	var off int64
	add := func(p []byte, n int64) {
		near.pieces = append(near.pieces, p)
		off += n
		near.ends = append(near.ends, off)
	}
	for _, piece := range b.pieces {
		r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(piece)))
		if r == nil {
			return near, nil, errors.New("its memory is gone: it was freed")
		}
		places, err := r.Places(at, at+int64(len(piece)))
		if err != nil {
			return near, nil, err
		}
		for _, p := range places {
			if p.Host != nil && p.Still == nil {
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
				to  int64
				far bool
			}{{lo, false}, {hi, true}, {end, false}} {
				n := part.to - off
				switch {
				case n == 0:
				case part.far:
					run := farRun{lo: int(off / d.Block), hi: int((part.to + d.Block - 1) / d.Block), at: p}
					run.at.Off, run.at.Len = p.Off+off-start, n
					if p.Host != nil {
						run.at.Host = p.Host[off-start:][:n]
					}
					runs = append(runs, run)
					add(nil, n)
				case p.Host != nil:
					add(p.Host[off-start:][:n], n)
				default:
					host, err := r.Host(at+off-start, at+off-start+n)
					if err != nil {
						return near, nil, err
					}
					add(host, n)
				}
			}
			at += p.Len
		}
	}
	if off != d.Size {
		return near, nil, fmt.Errorf("it has %d bytes, not %d", off, d.Size)
	}
	if len(near.pieces) == 1 {
		near.ends = nil
	}
	return near, runs, nil
}

// extent is where blocks of a run are.
func (r *farRun) extent(d *Dataset, lo, hi int) mem.Extent {
	from := int64(lo-r.lo) * d.Block
	return mem.Extent{Buffer: r.at.Buffer, Off: r.at.Off + from, Len: min(int64(hi-lo)*d.Block, r.at.Len-from), Block: d.Block}
}

// siftable are the blocks of a run that can be sifted: all but a short last one.
func (r *farRun) siftable(d *Dataset) (lo, hi int) {
	if d.blockLen(r.hi-1) <= mem.ShortBlock {
		return r.lo, r.hi - 1
	}
	return r.lo, r.hi
}

// mostChanged is how many blocks of lo…hi may come out of a sieve before all of
// them are copied: more than changed last time, and those that must move.
func mostChanged(d *Dataset, h *history, l *leaving, lo, hi int) int {
	return min(int(2*h.changed*float64(hi-lo))+len(l.of(d, lo, hi))+64, hi-lo)
}

// farExtent is blocks of a dataset on a device, with their digests if they are
// known already.
type farExtent struct {
	dataset, lo int
	at          mem.Extent
	digests     []xxh3.Uint128
	sieve       mem.Sieve     // that is looking at them; nil: none
	changed     []mem.Changed // what came out; nil: the blocks are consecutive
	unordered   bool          // see mem.Place
	frozen      mem.Frozen    // what they are in,
	index       int           // … as its extent
}

// farTask is what one save does on one device.
type farTask struct {
	c    *copying
	dev  mem.Device
	look []farExtent // sift
	take []farExtent // copy: all of it, then also what was sifted
	live bool        // some of take is what the program works with
}

// task returns the task of a device.
func (c *copying) task(dev mem.Device) *farTask {
	for _, t := range c.far {
		if t.dev == dev {
			return t
		}
	}
	t := &farTask{c: c, dev: dev}
	c.far = append(c.far, t)
	return t
}

// assign decides for the runs of a dataset how changes are found, and returns
// how many bytes may have to be staged.
func (c *copying) assign(i int, runs []farRun, h *history) int64 {
	d, old := &c.l.datasets[i], c.old[i]
	c.runs[i] = runs
	bytes := int64(0)
	for _, r := range runs {
		if r.at.Zero {
			for k := r.lo; k < r.hi; k++ {
				c.marks[d.First+k] = MarkZero
			}
			continue
		}
		same := old != nil && unwritten(h.runs, r) // it is as it was
		if r.at.Host != nil {
			c.assignStill(i, r, same, h)
			continue
		}
		t := c.task(r.at.Device)
		extent := func(lo, hi int) farExtent {
			return farExtent{dataset: i, lo: lo, at: r.extent(d, lo, hi), unordered: r.at.Unordered}
		}
		switch {
		case same:
			for _, k := range c.leave.of(d, r.lo, r.hi) {
				e := extent(k, k+1)
				e.digests = []xxh3.Uint128{old[k].Digest}
				t.take = append(t.take, e)
				c.marks[d.First+k] = MarkStaged
				bytes += d.Block
				c.expected += d.Block
			}
		case old != nil && h.changed >= 0 && h.changed <= dense:
			lo, hi := r.siftable(d)
			if lo < hi {
				e := extent(lo, hi)
				e.sieve = c.s.anticipated(d.Path, h, r)
				t.look = append(t.look, e)
			}
			if hi < r.hi {
				t.take = append(t.take, extent(hi, r.hi))
			}
			bytes += int64(h.changed*float64(r.at.Len)) + d.Block
			c.expect(i, r.at.Len, h)
		default:
			t.take = append(t.take, extent(r.lo, r.hi))
			bytes += r.at.Len
			c.expect(i, r.at.Len, h)
		}
	}
	return bytes
}

// unwritten reports whether the blocks of r are all as they were in runs.
func unwritten(runs []farRun, r farRun) bool {
	at := r.lo
	for i := range runs {
		if v := runs[i].at.Version; runs[i].lo <= at && at < runs[i].hi && v == r.at.Version && v != 0 {
			at = runs[i].hi
		}
	}
	return at >= r.hi
}

// holdFar starts what devices must do before the program goes on. The function
// it returns waits for that. Where there is nothing to do meanwhile, it is done
// at once: waking another thread takes longer than much of it.
func (c *copying) holdFar() (wait func() error) {
	if len(c.far) == 1 && len(c.ranges) == 0 {
		err := c.far[0].do((*farTask).hold)
		return func() error { return err }
	}
	return c.eachFar((*farTask).hold)
}

// do says where an error comes from.
func (t *farTask) do(f func(*farTask) error) error {
	if err := f(t); err != nil {
		return fmt.Errorf("device %s: %w", t.dev.Name(), err)
	}
	return nil
}

// anyLive reports whether some device had no room for a copy.
func (c *copying) anyLive() bool {
	return slices.ContainsFunc(c.far, func(t *farTask) bool { return t.live })
}

// drainLive empties those devices.
func (c *copying) drainLive() error {
	return c.eachFar(func(t *farTask) error {
		if !t.live {
			return nil
		}
		return t.drain()
	})()
}

// drainBoth empties all devices, and copies what stands still, which release
// then lets go.
func (c *copying) drainBoth(release func()) error {
	wait := c.eachFar((*farTask).drain)
	c.drainStill()
	release()
	return wait()
}

func (c *copying) eachFar(f func(*farTask) error) (wait func() error) {
	var wg sync.WaitGroup
	errs := make([]error, len(c.far))
	for i, t := range c.far {
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

// judge says what becomes of blocks of a dataset.
type judge struct {
	c     *copying
	d     *Dataset
	old   []Block
	len   int // of the block whose zeros it knows
	zeros xxh3.Uint128
}

func (c *copying) judge(i int) judge {
	d := &c.l.datasets[i]
	return judge{c: c, d: d, old: c.old[i]}
}

// of says what becomes of block k, whose digest is known.
func (j *judge) of(k int, dig xxh3.Uint128) Mark {
	if j.old != nil && j.old[k].Digest == dig && j.c.mayKeep(&j.old[k]) {
		if j.old[k].Source == SourceZero {
			return MarkZero
		}
		return MarkKept
	}
	if n := j.d.blockLen(k); n != j.len {
		j.len, j.zeros = n, mem.Digest(make([]byte, n))
	}
	if dig == j.zeros {
		return MarkZero
	}
	return MarkStaged
}

// hold does what must be done on the device before the program goes on.
func (t *farTask) hold() error {
	err := t.s().pin(t.dev)
	if err == nil {
		err = t.sift()
	}
	if err == nil { // the device gets this while it sifts
		err = t.freezeAll()
	}
	for i := range t.look {
		e := &t.look[i]
		if e.sieve == nil || err != nil {
			continue
		}
		var none error
		e.changed, e.frozen, none = e.sieve.Wait()
		e.sieve = nil
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
	t.dropLook()
	return err
}

// sift lets the device find out what has changed, and copy that. What it has
// no memory to do so for is taken as a whole.
func (t *farTask) sift() error {
	for i := range t.look {
		e := &t.look[i]
		if e.sieve != nil {
			continue
		}
		d := &t.c.l.datasets[e.dataset]
		most := mostChanged(d, t.s().seen[d.Path], t.c.leave, e.lo, e.lo+e.at.Blocks())
		var err error
		if e.sieve, err = t.dev.Sift(e.at, most); errors.Is(err, mem.ErrNoRoom) {
			t.take = append(t.take, *e)
		} else if err != nil {
			return err
		}
	}
	for i := range t.look {
		e := &t.look[i]
		if e.sieve == nil {
			continue
		}
		t.c.expectSame(e)
		err := e.sieve.Start()
		if err == nil {
			continue
		}
		e.sieve = nil
		if !errors.Is(err, mem.ErrNoRoom) {
			return err
		}
		t.take = append(t.take, *e)
	}
	return nil
}

// expectSame tells the sieve of an extent which digests its blocks have if
// they may stay where the previous set has them.
func (c *copying) expectSame(e *farExtent) {
	want := e.sieve.Expect()
	old := c.old[e.dataset][e.lo:][:len(want)]
	marks := c.marks[c.l.datasets[e.dataset].First+e.lo:]
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
func (t *farTask) freezeAll() error {
	slices.SortStableFunc(t.take, func(a, b farExtent) int {
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
func (t *farTask) settled(list []farExtent) error {
	if len(list) == 0 {
		return nil
	}
	return list[0].frozen.Wait()
}

// freeze copies extents, or gives access to them where there is no room.
func (t *farTask) freeze(list []farExtent) error {
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

func (t *farTask) s() *Saver { return t.c.s }

// dropLook gives up what was begun in vain.
func (t *farTask) dropLook() {
	for i := range t.look {
		if e := &t.look[i]; e.sieve != nil {
			e.sieve.Close()
			e.sieve = nil
		}
	}
}

func (c *copying) dropLooks() {
	for _, t := range c.far {
		t.dropLook()
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
