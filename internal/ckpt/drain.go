package ckpt

import (
	"sync"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// drain copies frozen blocks into segments and passes them to the writer.
func (t *deviceTask) drain() error {
	if len(t.take) == 0 {
		return nil
	}
	for i := range t.take {
		if e := &t.take[i]; e.index == 0 {
			e.frozen.Wait() // Digests and Read return errors
		}
	}
	t.free = time.Now()
	f := newDrainer(t)
	err := f.run()
	if e := f.finish(); err == nil {
		err = e
	}
	t.close()
	return err
}

func (t *deviceTask) close() {
	for i := range t.take {
		if e := &t.take[i]; e.frozen != nil && e.index == 0 {
			e.frozen.Close()
		}
	}
	t.take = nil
}

// drainer fills segments from a device. The copies are asynchronous; a
// goroutine waits for them and passes complete segments to the writer.
type drainer struct {
	t        *deviceTask
	seg      Segment
	frozen   mem.FrozenReader // copies the segment's blocks from the device
	inflight chan copiedSegment
	wg       sync.WaitGroup
	firstError
}

type copiedSegment struct {
	seg  Segment
	wait func() error
}

func newDrainer(t *deviceTask) *drainer {
	f := &drainer{t: t, seg: Segment{Index: -1}, inflight: make(chan copiedSegment, ringSegments)}
	f.wg.Go(func() {
		for s := range f.inflight {
			if err := s.wait(); err != nil {
				f.fail(err)
				t.s().staging.Release(s.seg.Index)
				continue
			}
			t.s().writer.Put(s.seg)
		}
	})
	return f
}

// run drains all blocks, in order.
func (f *drainer) run() error {
	c, take := f.t.c, f.t.take
	for i := range take { // all digests first: a digest would wait for copies queued before it
		e := &take[i]
		d, j := &c.l.Datasets[e.dataset], c.classifier(e.dataset)
		for _, b := range e.changed {
			k := e.lo + int(b.Block)
			c.marks[d.First+k] = j.mark(k, b.Digest)
		}
		if e.digests != nil || e.changed != nil {
			continue
		}
		var err error
		if e.digests, err = e.frozen.Digests(e.index, 0, e.at.Blocks()); err != nil {
			return err
		}
		for n, dig := range e.digests {
			c.marks[d.First+e.lo+n] = j.mark(e.lo+n, dig)
		}
	}
	for i := range take {
		e := &take[i]
		for n, dig := range e.digests {
			if err := f.block(e, n, e.lo+n, dig); err != nil {
				return err
			}
		}
		for n, b := range e.changed {
			if err := f.block(e, n, e.lo+int(b.Block), b.Digest); err != nil {
				return err
			}
		}
	}
	return f.send()
}

// block starts the copy of block k, the n-th of the extent, into a segment, if
// the block must be stored.
func (f *drainer) block(e *deviceExtent, n, k int, dig xxh3.Uint128) error {
	d := &f.t.c.l.Datasets[e.dataset]
	if f.t.c.marks[d.First+k] != MarkStaged {
		return nil
	}
	staging := f.t.s().staging
	at, ok := f.seg.room(d)
	if !ok || f.frozen.Frozen != e.frozen {
		if err := f.send(); err != nil {
			return err
		}
		f.seg = Segment{Index: <-staging.Ring()}
		f.frozen.Frozen = e.frozen
		at = 0
	}
	dst := f.seg.add(staging.Segment(f.seg.Index), at, e.dataset, k, d)
	f.seg.Digests = append(f.seg.Digests, dig)
	return f.frozen.Read(dst, e.index, int64(n)*d.Block)
}

// send passes the segment on. The writer gets it when its copies are complete.
func (f *drainer) send() error {
	if err := f.frozen.Flush(); err != nil || f.seg.Index < 0 {
		return err
	}
	wait, err := f.frozen.Mark()
	if err != nil {
		return err
	}
	f.inflight <- copiedSegment{f.seg, wait}
	f.seg = Segment{Index: -1}
	return f.failed()
}

// finish waits for all copies.
func (f *drainer) finish() error {
	f.frozen.Discard()
	if f.seg.Index >= 0 { // after an error; copies into it may be in progress
		if wait, err := f.frozen.Mark(); err == nil {
			wait()
		}
		f.t.s().staging.Release(f.seg.Index)
		f.seg.Index = -1
	}
	close(f.inflight)
	f.wg.Wait()
	return f.failed()
}
