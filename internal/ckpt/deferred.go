package ckpt

import (
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// deferredRun is consecutive blocks in guarded host memory. The memory does not
// change without notice, so it is digested and copied after the pause.
type deferredRun struct {
	dataset, lo, hi int
	data            []byte
	digest          *xxh3.Uint128 // digest of a single block that must be stored; nil: unknown
	guard           func(yield func([]byte)) (release func())
	parts           []deferredPart
	each            int // size of a part in bytes; the last one may be shorter
}

// deferredPart is a part of a run that is staged at once.
type deferredPart struct {
	lo, hi int // blocks

	mu     sync.Mutex
	data   []byte // nil: it is staged
	copied bool   // data is a copy
}

// copiedBefore is where a dataset is whose bytes nothing changes: they need no
// guard.
func copiedBefore(d *Dataset, p []byte) Placement {
	guard := func(func([]byte)) func() { return func() {} }
	return Placement{Lo: 0, Hi: d.NumBlocks(), Place: mem.Place{Len: d.Size, Host: p, Guard: guard}}
}

// assignDeferred takes a run of guarded host memory. same says that it is
// unchanged since the previous checkpoint.
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

// expect adds the bytes of n that have probably changed to the estimate. An
// estimate that is too high would make a disk seem full.
func (c *copying) expect(i int, n int64, h *history) {
	if c.old[i] != nil {
		n = int64(max(h.changed, 0) * float64(n))
	}
	c.expected += n
}

// guardDeferred guards the deferred memory until release is called. If staging
// memory is unbounded, the program may write to guarded memory: the old bytes
// are copied first. Otherwise the program waits for release.
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

// copyBuffers are buffers for guarded bytes that the program wants to write to
// before they are staged. They are reused.
type copyBuffers struct {
	mu   sync.Mutex
	free [][]byte
}

// yield returns when the program may write to want, as far as it is part of the
// run.
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

// overlap returns which part of data want covers.
func overlap(data, want []byte) (lo, hi int) {
	d, w := span{addrOf(data), uintptr(len(data))}, span{addrOf(want), uintptr(len(want))}
	from, to := max(d.addr, w.addr), min(d.addr+d.size, w.addr+w.size)
	if from >= to {
		return 0, 0
	}
	return int(from - d.addr), int(to - d.addr)
}

// copyPart copies a part, unless it is staged or copied already.
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

// done releases a part that is staged.
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

// drainDeferred digests and stages the deferred memory.
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

// stage copies the blocks of a part that must be stored into segments.
func (c *copying) stage(seg *Segment, r *deferredRun, p *deferredPart) {
	d, j := &c.l.Datasets[r.dataset], c.classifier(r.dataset)
	// look calls f with the bytes of a block. The lock is not held while stage
	// waits for a segment: the program must not wait for a disk.
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
