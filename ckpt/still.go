package ckpt

import (
	"sync"
	"sync/atomic"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// stillRun is consecutive blocks in host memory that nobody changes for a
// while: they are digested and copied when the program has gone on.
type stillRun struct {
	dataset, lo, hi int
	data            []byte
	digest          *xxh3.Uint128 // of a single block, if it is known that it must be stored
	hold            func() (release func())
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

// holdStill keeps the memory from being changed, until release.
func (c *copying) holdStill() (release func()) {
	var list []func()
	for _, r := range c.still {
		list = append(list, r.hold())
	}
	return sync.OnceFunc(func() {
		for _, f := range list {
			f()
		}
	})
}

// drainStill digests and stages what stands still.
func (c *copying) drainStill() {
	var parts []stillRun
	for _, r := range c.still {
		d := &c.l.datasets[r.dataset]
		step := int(max(1, mem.SegmentSize/d.Block))
		for lo := r.lo; lo < r.hi; lo += step {
			p := r
			p.lo, p.hi = lo, min(lo+step, r.hi)
			p.data = r.data[int64(lo-r.lo)*d.Block:]
			parts = append(parts, p)
		}
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(len(parts), copiers(), writers) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			seg := Segment{Index: -1}
			for n := int(next.Add(1)) - 1; n < len(parts); n = int(next.Add(1)) - 1 {
				c.stage(&seg, &parts[n])
			}
			if seg.Index >= 0 {
				c.s.writer.Put(seg)
			}
		}()
	}
	wg.Wait()
}

// stage copies the blocks that must be stored into segments.
func (c *copying) stage(seg *Segment, r *stillRun) {
	d, j := &c.l.datasets[r.dataset], c.judge(r.dataset)
	for k := r.lo; k < r.hi; k++ {
		src := r.data[int64(k-r.lo)*d.Block:][:d.blockLen(k)]
		var dig xxh3.Uint128
		mark := MarkStaged
		if r.digest != nil {
			dig = *r.digest
		} else {
			dig = mem.Digest(src)
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
		mem.Copy(seg.add(c.s.staging.Segment(seg.Index), at, r.dataset, k, d), src)
		seg.Digests = append(seg.Digests, dig)
	}
}
