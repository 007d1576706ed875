package ckpt

import "github.com/cairnrun/cairn/internal/mem"

// isStable reports whether the blocks of d, which are at b, need no copy: the
// writer digests and writes them where they are, because they stay as they are
// until then. They begin at pages and have whole pages, as the disk wants it.
func (s *Saver) isStable(d *Dataset, b *Memory) bool {
	return s.opts.Stable != nil && d.Block%page == 0 && len(b.Pieces) == 1 && addrOf(b.Pieces[0])%page == 0 && s.opts.Stable(b.Pieces[0])
}

// ready waits until n bytes of dataset i have the values that are to be saved.
func (c *copying) ready(i int, off, n int64) (err error) {
	if b := &c.l.Memory[i]; c.s.opts.Ready != nil && b.gather == nil && !c.l.Remote[i] {
		b.Each(off, int(n), func(p []byte) {
			if err == nil {
				err = c.s.opts.Ready(p)
			}
		})
	}
	return err
}

// putStable gives block k of dataset i to the writer without copying it. It
// returns false if it cannot.
func (c *copying) putStable(seg *Segment, i, k int) bool {
	d := &c.l.Datasets[i]
	n := d.BlockLen(k)
	if !c.stable[i] || int64(n) != d.Block { // zeros follow the last block in the file
		return false
	}
	if int64(seg.Used+n) > c.stableSegment() {
		c.s.writer.Put(*seg)
		*seg = Segment{Index: -1}
	}
	p, _ := c.host[i].View(int64(k)*d.Block, n)
	seg.Blocks = append(seg.Blocks, StagedBlock{Dataset: int32(i), Block: int32(k), Len: int32(n)})
	seg.Stable = append(seg.Stable, p)
	seg.Used += n
	c.marks[d.First+k] = MarkStaged
	return true
}

// stableSegment is how much stable memory is written at once: much, because
// disks are faster then, but not so much that some of the writers have nothing
// to do.
func (c *copying) stableSegment() int64 { return transfer(c.stableBytes) }

// transfer returns how many of so many bytes to write or read at once.
func transfer(bytes int64) int64 {
	return min(max(bytes/(4*writers), mem.SegmentSize), 4*mem.SegmentSize)
}

// writeStable writes a segment's blocks, without the dropped ones.
func (w *fileWriter) writeStable(s Segment) {
	var bufs [][]byte
	total := int64(0)
	for i, it := range s.Blocks {
		if it.Len > 0 {
			bufs = append(bufs, s.Stable[i])
			total += int64(it.Len)
		}
	}
	if total == 0 {
		return
	}
	at := w.end.Add(total) - total
	if err := w.pending.WriteV(bufs, at); err != nil {
		w.fail(err)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, it := range s.Blocks {
		if it.Len > 0 {
			w.place(it, at, int(it.Len), 0)
			at += int64(it.Len)
		}
	}
}
