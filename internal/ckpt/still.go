package ckpt

import (
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// stillRun is consecutive blocks in host memory that nobody changes unasked:
// they are digested and copied when the program has gone on.
type stillRun struct {
	dataset, lo, hi int
	data            []byte
	digest          *xxh3.Uint128 // of a single block, if it is known that it must be stored
	hold            func(yield func([]byte)) (release func())
	parts           []stillPart
	each            int // bytes of a part, but for the last one
}

// stillPart is what of a run is staged at a time.
type stillPart struct {
	lo, hi int // blocks

	mu    sync.Mutex
	data  []byte // nil: it is staged
	aside bool   // … is a copy
}

// assignStill takes a run of host memory that stands still. same: it is as it
// was in the previous set.
func (c *copying) assignStill(i int, r farRun, same bool, h *history) {
	d := &c.l.datasets[i]
	if !same {
		c.still = append(c.still, stillRun{dataset: i, lo: r.lo, hi: r.hi, data: r.at.Host, hold: r.at.Still})
		c.expect(i, r.at.Len, h)
		return
	}
	for _, k := range c.leave.of(d, r.lo, r.hi) {
		data := r.at.Host[int64(k-r.lo)*d.Block:][:d.blockLen(k)]
		c.still = append(c.still, stillRun{dataset: i, lo: k, hi: k + 1, data: data, digest: &c.old[i][k].Digest, hold: r.at.Still})
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

// holdStill keeps the memory from being changed, until release. Where staging
// memory has a bound, nothing is put aside: who wants to change it waits.
func (c *copying) holdStill() (release func()) {
	var list []func()
	for i := range c.still {
		r := &c.still[i]
		d := &c.l.datasets[r.dataset]
		step := int(max(1, mem.SegmentSize/d.Block))
		r.each = step * int(d.Block)
		r.parts = make([]stillPart, (r.hi-r.lo+step-1)/step)
		for k := range r.parts {
			p := &r.parts[k]
			p.lo, p.hi = r.lo+k*step, min(r.lo+(k+1)*step, r.hi)
			p.data = r.data[k*r.each : min((k+1)*r.each, len(r.data))]
		}
		var yield func([]byte)
		if c.s.opts.Memory == 0 {
			yield = func(want []byte) { c.s.aside.yield(r, want) }
		}
		list = append(list, r.hold(yield))
	}
	return sync.OnceFunc(func() {
		for _, f := range list {
			f()
		}
	})
}

// aside is memory for what the program wants to change before it was staged.
// It is kept for the next time.
type aside struct {
	mu   sync.Mutex
	free [][]byte
}

// yield returns when bytes of a run, as far as they are part of it, are not
// needed any more where they are.
func (a *aside) yield(r *stillRun, want []byte) {
	lo, hi := overlap(r.data, want)
	if lo == hi {
		return
	}
	parts := r.parts[lo/r.each : (hi+r.each-1)/r.each]
	var next atomic.Int64
	work := func() {
		for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
			a.put(&parts[n])
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

// put puts a part aside.
func (a *aside) put(p *stillPart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.data == nil || p.aside {
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
	p.data, p.aside = buf, true
}

// done lets go of a part.
func (a *aside) done(p *stillPart) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.aside {
		a.mu.Lock()
		a.free = append(a.free, p.data)
		a.mu.Unlock()
	}
	p.data = nil
}

// drainStill digests and stages what stands still.
func (c *copying) drainStill() {
	type task struct {
		r *stillRun
		p *stillPart
	}
	var tasks []task
	for i := range c.still {
		for k := range c.still[i].parts {
			tasks = append(tasks, task{&c.still[i], &c.still[i].parts[k]})
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(tasks), copiers(), writers) {
		wg.Go(func() {
			seg := Segment{Index: -1}
			for n := int(next.Add(1)) - 1; n < len(tasks); n = int(next.Add(1)) - 1 {
				c.stage(&seg, tasks[n].r, tasks[n].p)
				c.s.aside.done(tasks[n].p)
			}
			if seg.Index >= 0 {
				c.s.writer.Put(seg)
			}
		})
	}
	wg.Wait()
}

// stage copies the blocks that must be stored into segments.
func (c *copying) stage(seg *Segment, r *stillRun, p *stillPart) {
	d, j := &c.l.datasets[r.dataset], c.judge(r.dataset)
	// look calls f with the bytes of a block. Segments are awaited outside: the
	// program must not wait for a disk.
	look := func(k int, f func([]byte)) {
		p.mu.Lock()
		defer p.mu.Unlock()
		f(p.data[int64(k-p.lo)*d.Block:][:d.blockLen(k)])
	}
	for k := p.lo; k < p.hi; k++ {
		var dig xxh3.Uint128
		mark := MarkStaged
		if r.digest != nil {
			dig = *r.digest
		} else {
			look(k, func(src []byte) { dig = mem.Digest(src) })
			mark = j.of(k, dig)
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
