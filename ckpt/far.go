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
// computes digests first and copies only what differs. Then the program goes
// on, and the copy is drained: block by block into staging memory that the
// device writes by itself, and from there to the writer like all else.
//
//	held      device: kernels … │ freeze │ kernels of the program …
//	drained                              │ digests │ copy │ copy │ copy …
//	          host:                                │ segment → writer │ …
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

// farExtent is blocks of a dataset on a device, with their digests if they are
// known already.
type farExtent struct {
	dataset, lo int
	at          mem.Extent
	digests     []xxh3.Uint128
	windows     []window // digests that are being computed
}

// farTask is what one save does on one device.
type farTask struct {
	c      *copying
	dev    mem.Device
	look   []farExtent // digest first
	take   []farExtent // freeze
	frozen mem.Frozen  // take, in order; nil: nothing, or drained already
	live   bool        // … it is what the program works with
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
			from := int64(lo-r.lo) * d.Block
			return farExtent{dataset: i, lo: lo, at: mem.Extent{
				Buffer: r.at.Buffer, Off: r.at.Off + from, Len: min(int64(hi-lo)*d.Block, r.at.Len-from), Block: d.Block,
			}}
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
			e := extent(r.lo, r.hi)
			e.windows = c.s.anticipated(d.Path, h, r)
			t.look = append(t.look, e)
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
	if err := t.s().pin(t.dev); err != nil {
		t.dropLook()
		return err
	}
	if len(t.look) > 0 {
		if err := t.inspect(); err != nil {
			return err
		}
	}
	if len(t.take) == 0 {
		return nil
	}
	at := make([]mem.Extent, len(t.take))
	for i := range t.take {
		at[i] = t.take[i].at
	}
	var err error
	if t.frozen, err = t.dev.Freeze(at); err == nil || !errors.Is(err, mem.ErrNoRoom) {
		return err
	}
	t.frozen, err = t.dev.Live(at)
	t.live = true
	return err
}

func (t *farTask) s() *Saver { return t.c.s }

// dropLook gives up what was anticipated.
func (t *farTask) dropLook() {
	for i := range t.look {
		dropWindows(t.look[i].windows)
	}
}

func (c *copying) dropLooks() {
	for _, t := range c.far {
		t.dropLook()
	}
}

// inspect digests what may have changed, and takes the blocks that did. What
// comes first is looked at while the device goes on with the rest.
func (t *farTask) inspect() error {
	var first error
	for i := range t.look {
		if e := &t.look[i]; e.windows == nil && first == nil {
			e.windows, first = digestWindows(t.dev, e.at)
		}
	}
	for i := range t.look {
		e := &t.look[i]
		for _, w := range e.windows {
			digests, err := w.wait()
			if err != nil && first == nil {
				first = err
			}
			if first == nil {
				t.pick(e, w.lo, digests)
			}
		}
	}
	return first
}

// pick appends the blocks of e from one on that must be stored to take, runs of them as
// one extent, and marks the others. There may be millions, and the program
// waits: processors share them.
func (t *farTask) pick(e *farExtent, from int, digests []xxh3.Uint128) {
	const least = 32 << 10
	parts := max(1, min(copiers(), len(digests)/least))
	taken := make([][]farExtent, parts)
	var wg sync.WaitGroup
	for p := range parts {
		lo, hi := len(digests)*p/parts, len(digests)*(p+1)/parts
		work := func() { taken[p] = t.pickPart(e, from+lo, digests[lo:hi]) }
		if p == parts-1 {
			work()
		} else {
			wg.Go(work)
		}
	}
	wg.Wait()
	for _, list := range taken {
		t.take = append(t.take, list...)
	}
}

func (t *farTask) pickPart(e *farExtent, from int, digests []xxh3.Uint128) (take []farExtent) {
	d := &t.c.l.datasets[e.dataset]
	j := t.c.judge(e.dataset)
	force := t.c.leave.force
	open := false // the last of take ends at the block before
	for n, dig := range digests {
		k := e.lo + from + n
		if b := &j.old[k]; b.Digest == dig && (b.Source == SourceHere || b.Source >= SourceBase && !force[b.Source-SourceBase]) {
			open = false // most are as they were
			continue
		}
		mark := j.of(k, dig)
		if mark != MarkKept {
			t.c.marks[d.First+k] = mark
		}
		if mark != MarkStaged {
			open = false
			continue
		}
		size := int64(d.blockLen(k))
		if open {
			last := &take[len(take)-1]
			last.at.Len += size
			last.digests = append(last.digests, dig)
			continue
		}
		at := e.at
		at.Off, at.Len = e.at.Off+int64(from+n)*d.Block, size
		take = append(take, farExtent{dataset: e.dataset, lo: k, at: at, digests: []xxh3.Uint128{dig}})
		open = true
	}
	return take
}

// drain copies what was frozen into segments and hands them to the writer.
func (t *farTask) drain() error {
	if t.frozen == nil {
		return nil
	}
	f := newFeeder(t)
	err := f.run()
	if e := f.finish(); err == nil {
		err = e
	}
	t.close()
	return err
}

func (t *farTask) close() {
	if t.frozen != nil {
		t.frozen.Close()
		t.frozen = nil
	}
}

// feeder fills segments from a device. Copies run by themselves; a goroutine
// waits for them and gives finished segments to the writer.
type feeder struct {
	t      *farTask
	seg    Segment
	read   pendingRead
	flight chan flying
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error
}

// pendingRead is a copy that may still grow.
type pendingRead struct {
	extent int
	off    int64
	dst    []byte
}

type flying struct {
	seg  Segment
	wait func() error
}

func newFeeder(t *farTask) *feeder {
	f := &feeder{t: t, seg: Segment{Index: -1}, flight: make(chan flying, ringSegments)}
	f.wg.Add(1)
	go func() {
		defer f.wg.Done()
		for s := range f.flight {
			if err := s.wait(); err != nil {
				f.fail(err)
				t.s().staging.Release(s.seg.Index)
				continue
			}
			t.s().writer.Put(s.seg)
		}
	}()
	return f
}

func (f *feeder) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		f.err = err
	}
}

func (f *feeder) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// run takes all blocks in order.
func (f *feeder) run() error {
	c, take := f.t.c, f.t.take
	for i := range take { // before any copy: a digest would have to wait for it
		e := &take[i]
		if e.digests != nil {
			continue
		}
		var err error
		if e.digests, err = f.t.frozen.Digests(i, 0, e.at.Blocks()); err != nil {
			return err
		}
		d, j := &c.l.datasets[e.dataset], c.judge(e.dataset)
		for n, dig := range e.digests {
			c.marks[d.First+e.lo+n] = j.of(e.lo+n, dig)
		}
	}
	for i := range take {
		e := &take[i]
		d := &c.l.datasets[e.dataset]
		for n, dig := range e.digests {
			if c.marks[d.First+e.lo+n] != MarkStaged {
				continue
			}
			if err := f.block(i, n, dig); err != nil {
				return err
			}
		}
	}
	return f.send()
}

// block starts the copy of a block into a segment.
func (f *feeder) block(i, n int, dig xxh3.Uint128) error {
	e := &f.t.take[i]
	d := &f.t.c.l.datasets[e.dataset]
	staging := f.t.s().staging
	at, ok := f.seg.room(d)
	if !ok {
		if err := f.send(); err != nil {
			return err
		}
		f.seg = Segment{Index: <-staging.Ring()}
		at = 0
	}
	dst := f.seg.add(staging.Segment(f.seg.Index), at, e.dataset, e.lo+n, d)
	f.seg.Digests = append(f.seg.Digests, dig)
	return f.copy(i, int64(n)*d.Block, dst)
}

// copy starts a copy, or makes the last one longer.
func (f *feeder) copy(i int, off int64, dst []byte) error {
	r := &f.read
	if r.dst != nil && r.extent == i && r.off+int64(len(r.dst)) == off && cap(r.dst)-len(r.dst) >= len(dst) && &r.dst[:len(r.dst)+1][len(r.dst)] == &dst[0] {
		r.dst = r.dst[:len(r.dst)+len(dst)]
		return nil
	}
	err := f.flush()
	*r = pendingRead{i, off, dst}
	return err
}

func (f *feeder) flush() error {
	r := f.read
	f.read = pendingRead{}
	if r.dst == nil {
		return nil
	}
	return f.t.frozen.Read(r.dst, r.extent, r.off)
}

// send lets the segment go to the writer when its copies are done.
func (f *feeder) send() error {
	if err := f.flush(); err != nil || f.seg.Index < 0 {
		return err
	}
	wait, err := f.t.frozen.Mark()
	if err != nil {
		return err
	}
	f.flight <- flying{f.seg, wait}
	f.seg = Segment{Index: -1}
	return f.failed()
}

// finish waits for all copies.
func (f *feeder) finish() error {
	f.read = pendingRead{}
	if f.seg.Index >= 0 { // after an error; copies into it may be under way
		if wait, err := f.t.frozen.Mark(); err == nil {
			wait()
		}
		f.t.s().staging.Release(f.seg.Index)
		f.seg.Index = -1
	}
	close(f.flight)
	f.wg.Wait()
	return f.failed()
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
