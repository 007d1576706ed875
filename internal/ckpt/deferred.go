package ckpt

import (
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// deferredRun is consecutive blocks in host memory that nobody changes unasked:
// they are digested and copied when the program has continued.
type deferredRun struct {
	dataset, lo, hi int
	data            []byte
	digest          *xxh3.Uint128 // of a single block, if it is known that it must be stored
	guard           func(yield func([]byte)) (release func())
	parts           []deferredPart
	each            int // bytes of a part, but for the last one
}

// deferredPart is what of a run is staged at a time.
type deferredPart struct {
	lo, hi int // blocks

	mu     sync.Mutex
	data   []byte // nil: it is staged
	copied bool   // … is a copy
}

// assignDeferred takes a run of host memory that stands still. same: it is as it
// was in the previous checkpoint.
func (c *copying) assignDeferred(i int, r Placement, same bool, h *history) {
	d := &c.l.Datasets[i]
	if !same {
		c.deferred = append(c.deferred, deferredRun{dataset: i, lo: r.Lo, hi: r.Hi, data: r.Place.Host, guard: r.Place.Guard})
		c.expect(i, r.Place.Len, h)
		return
	}
	for _, k := range c.compact.blocks(d, r.Lo, r.Hi) {
		data := r.Place.Host[int64(k-r.Lo)*d.Block:][:d.BlockLen(k)]
		c.deferred = append(c.deferred, deferredRun{dataset: i, lo: k, hi: k + 1, data: data, digest: &c.old[i][k].Digest, guard: r.Place.Guard})
		c.expected += int64(len(data))
	}
}

// expect counts n bytes of a dataset that may have changed, as far as they
// probably have: a disk must not seem full that has room for that.
func (c *copying) expect(i int, n int64, h *history) {
	if c.old[i] != nil {
		n = int64(max(h.changed, 0) * float64(n))
	}
	c.expected += n
}

// guardDeferred keeps the memory from being changed, until release. Where staging
// memory has a bound, nothing is put aside: who wants to change it waits.
func (c *copying) guardDeferred() (release func()) {
	var list []func()
	for i := range c.deferred {
		r := &c.deferred[i]
		d := &c.l.Datasets[r.dataset]
		step := int(max(1, mem.SegmentSize/d.Block))
		r.each = step * int(d.Block)
		r.parts = make([]deferredPart, (r.hi-r.lo+step-1)/step)
		for k := range r.parts {
			p := &r.parts[k]
			p.lo, p.hi = r.lo+k*step, min(r.lo+(k+1)*step, r.hi)
			p.data = r.data[k*r.each : min((k+1)*r.each, len(r.data))]
		}
		var yield func([]byte)
		if c.s.opts.Memory == 0 {
			yield = func(want []byte) { c.s.buffers.yield(r, want) }
		}
		list = append(list, r.guard(yield))
	}
	return sync.OnceFunc(func() {
		for _, f := range list {
			f()
		}
	})
}

// copyBuffers is memory for what the program wants to change before it was staged.
// It is kept for the next time.
type copyBuffers struct {
	mu   sync.Mutex
	free [][]byte
}

// yield returns when bytes of a run, as far as they are part of it, are not
// needed any more where they are.
func (a *copyBuffers) yield(r *deferredRun, want []byte) {
	lo, hi := overlap(r.data, want)
	if lo == hi {
		return
	}
	parts := r.parts[lo/r.each : (hi+r.each-1)/r.each]
	var next atomic.Int64
	work := func() {
		for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
			a.copyPart(&parts[n])
		}
	}
	var wg sync.WaitGroup
	for range min(len(parts), copiers()) - 1 {
		wg.Go(work)
	}
	work()
	wg.Wait()
}

// overlap returns where in data the bytes of want are.
func overlap(data, want []byte) (lo, hi int) {
	d, w := span{addrOf(data), uintptr(len(data))}, span{addrOf(want), uintptr(len(want))}
	from, to := max(d.addr, w.addr), min(d.addr+d.size, w.addr+w.size)
	if from >= to {
		return 0, 0
	}
	return int(from - d.addr), int(to - d.addr)
}

// copyPart puts a part aside.
func (a *copyBuffers) copyPart(p *deferredPart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil || p.copied {
		return
	}
	a.mu.Lock()
	var buf []byte
	if n := len(a.free); n > 0 {
		buf, a.free = a.free[n-1], a.free[:n-1]
	}
	a.mu.Unlock()
	if cap(buf) < len(p.data) {
		buf = mem.Aligned(max(len(p.data), mem.SegmentSize))
	}
	buf = buf[:len(p.data)]
	mem.Copy(buf, p.data)
	p.data, p.copied = buf, true
}

// done lets go of a part.
func (a *copyBuffers) done(p *deferredPart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.copied {
		a.mu.Lock()
		a.free = append(a.free, p.data)
		a.mu.Unlock()
	}
	p.data = nil
}

// drainDeferred digests and stages what stands still.
func (c *copying) drainDeferred() {
	type task struct {
		r *deferredRun
		p *deferredPart
	}
	var tasks []task
	for i := range c.deferred {
		for k := range c.deferred[i].parts {
			tasks = append(tasks, task{&c.deferred[i], &c.deferred[i].parts[k]})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(tasks), copiers(), writers) {
		wg.Go(func() {
			seg := Segment{Index: -1}
			for n := int(next.Add(1)) - 1; n < len(tasks); n = int(next.Add(1)) - 1 {
				c.stage(&seg, tasks[n].r, tasks[n].p)
				c.s.buffers.done(tasks[n].p)
			}
			if seg.Index >= 0 {
				c.s.writer.Put(seg)
			}
		})
	}
	wg.Wait()
}

// stage copies the blocks that must be stored into segments.
func (c *copying) stage(seg *Segment, r *deferredRun, p *deferredPart) {
	d, j := &c.l.Datasets[r.dataset], c.classifier(r.dataset)
	// look calls f with the bytes of a block. Segments are awaited outside: the
	// program must not wait for a disk.
	look := func(k int, f func([]byte)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(p.data[int64(k-p.lo)*d.Block:][:d.BlockLen(k)])
	}
	for k := p.lo; k < p.hi; k++ {
		var dig xxh3.Uint128
		mark := MarkStaged
		if r.digest != nil {
			dig = *r.digest
		} else {
			look(k, func(src []byte) { dig = mem.Digest(src) })
			mark = j.mark(k, dig)
		}
		c.marks[d.First+k] = mark
		if mark != MarkStaged {
			continue
		}
		at, ok := seg.room(d)
		if !ok {
			if seg.Index >= 0 {
				c.s.writer.Put(*seg)
			}
			*seg = Segment{Index: <-c.s.staging.Free()}
			at = 0
		}
		look(k, func(src []byte) { mem.Copy(seg.add(c.s.staging.Segment(seg.Index), at, r.dataset, k, d), src) })
		seg.Digests = append(seg.Digests, dig)
	}
}
