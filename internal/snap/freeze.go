package snap

import (
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

const (
	// Smaller extents are copied by the gather kernel, if a buffer has several:
	// a copy command costs a few microseconds.
	gatherBelow = 1 << 20
	gatherFrom  = 3
	gatherPiece = 32 << 10 // bytes per work group
	gatherItems = 256
)

// frozen implements mem.Frozen.
type frozen struct {
	e       *Engine
	extents []mem.Extent // the original extents
	parts   []part       // where the bytes are now
	ready   driver.Event // on the program's queue
	room    *room        // nil: the extents themselves
	size    int64        // the bytes of room in use
	table   *scratch     // scratch memory of the gather or the diff; nil: none

	reading, summing bool         // the queue already waits for ready
	unwaited         bool         // a command was issued on reads after marked
	marked           driver.Event // after the commands on reads; nil: none
	failed           bool
}

var _ mem.Frozen = (*frozen)(nil)

// Live gives access to the extents themselves, as mem.Device says.
func (e *Engine) Live(at []mem.Extent) (mem.Frozen, error) {
	buffers, err := e.check(at)
	if err != nil {
		return nil, err
	}
	f := &frozen{e: e, extents: at, parts: make([]part, len(at))}
	for i := range at {
		f.parts[i] = part{buffers[i], at[i].Off, at[i].Len, at[i].Block, at[i].Blocks()}
	}
	if f.ready, err = e.kernels.Record(); err != nil {
		return nil, err
	}
	return f, nil
}

// Freeze copies the extents, as mem.Device says. It returns when the copies are
// in the queue.
func (e *Engine) Freeze(at []mem.Extent) (mem.Frozen, error) {
	buffers, err := e.check(at)
	if err != nil {
		return nil, err
	}
	f := &frozen{e: e, extents: at, parts: make([]part, len(at))}
	size := int64(0)
	for i := range at {
		// Long extents begin at cache lines of the device, others where 16
		// bytes can be accessed at once.
		align := int64(16)
		if at[i].Len >= 4096 {
			align = 256
		}
		size = (size + align - 1) &^ (align - 1)
		f.parts[i] = part{off: size, len: at[i].Len, block: at[i].Block, blocks: at[i].Blocks()}
		size += at[i].Len
	}
	if size > 0 {
		var from int64
		if f.room, from, err = e.take(size); err != nil {
			return nil, err
		}
		f.size = size
		for i := range f.parts {
			f.parts[i].buffer = f.room.buffer
			f.parts[i].off += from
		}
		err = f.copy(buffers)
	}
	if err == nil {
		f.ready, err = e.kernels.Record()
	}
	if err != nil {
		e.abandon(f.table)
		f.table = nil
		f.letGo()
		return nil, err
	}
	return f, nil
}

// copy puts the copies of all extents on the program's queue.
func (f *frozen) copy(from []driver.Buffer) error {
	q := f.e.kernels
	small := make(map[driver.Buffer][]int)
	var order []driver.Buffer
	for i := range f.extents {
		if n := f.extents[i].Len; n > 0 && n < gatherBelow {
			if small[from[i]] == nil {
				order = append(order, from[i])
			}
			small[from[i]] = append(small[from[i]], i)
		}
	}
	for i := range f.extents {
		x := &f.extents[i]
		if x.Len >= gatherBelow || x.Len > 0 && len(small[from[i]]) < gatherFrom {
			if err := q.Copy(f.room.buffer, f.parts[i].off, from[i], x.Off, x.Len); err != nil {
				return err
			}
		}
	}
	var gathered []driver.Buffer // with several small extents
	pieces := 0
	for _, b := range order {
		if len(small[b]) < gatherFrom {
			continue
		}
		gathered = append(gathered, b)
		for _, i := range small[b] {
			pieces += int((f.extents[i].Len + gatherPiece - 1) / gatherPiece)
		}
	}
	if pieces == 0 {
		return nil
	}
	var err error
	f.table, err = f.e.scratch(24*pieces, 0)
	if errors.Is(err, driver.ErrMemory) {
		// Single copies need no table.
		for _, b := range gathered {
			for _, i := range small[b] {
				if err := q.Copy(f.room.buffer, f.parts[i].off, b, f.extents[i].Off, f.extents[i].Len); err != nil {
					return err
				}
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	return f.gather(gathered, small, pieces)
}

// gather copies small extents, with one launch per buffer. One copy sends the
// table for all of them.
func (f *frozen) gather(from []driver.Buffer, small map[driver.Buffer][]int, pieces int) error {
	e, q := f.e, f.e.kernels
	if err := e.compiled(); err != nil {
		return err
	}
	w := words(f.table.host)[:0]
	ends := make([]int, len(from))
	for k, b := range from {
		for _, i := range small[b] {
			x, to := &f.extents[i], f.parts[i].off
			for at := int64(0); at < x.Len; at += gatherPiece {
				w = append(w, uint64(x.Off+at), uint64(to+at), uint64(min(gatherPiece, x.Len-at)))
			}
		}
		ends[k] = len(w) / 3
	}
	if err := q.CopyIn(f.table.device, 0, f.table.host[:24*pieces]); err != nil {
		return err
	}
	for k, first := 0, 0; k < len(from); k++ {
		n := ends[k] - first
		err := q.Launch(e.gather, [3]int{n * e.items, 1, 1}, [3]int{e.items, 1, 1}, []driver.Arg{
			whole(from[k]), whole(f.room.buffer), whole(f.table.device), value(uint32(first)), value(uint32(n)),
		})
		if err != nil {
			return err
		}
		first = ends[k]
	}
	return nil
}

// Digests implements mem.Frozen.
func (f *frozen) Digests(i, lo, hi int) ([]xxh3.Uint128, error) {
	if i < 0 || i >= len(f.parts) || lo < 0 || lo > hi || hi > f.parts[i].blocks {
		return nil, fmt.Errorf("device %s: there are no blocks %d to %d of extent %d", f.e.info.ID, lo, hi, i)
	}
	if lo == hi {
		return nil, nil
	}
	if err := f.wait(f.e.sums, &f.summing); err != nil {
		return nil, err
	}
	p := f.parts[i]
	from := int64(lo) * p.block
	p.off += from
	p.len = min(p.len-from, int64(hi-lo)*p.block)
	p.blocks = hi - lo
	return f.e.digests(f.e.sums, p)
}

// Read implements mem.Frozen.
func (f *frozen) Read(dst []byte, i int, off int64) error {
	if i < 0 || i >= len(f.parts) || off < 0 || off > f.parts[i].len || int64(len(dst)) > f.parts[i].len-off {
		return fmt.Errorf("device %s: there are no %d bytes at %d of extent %d", f.e.info.ID, len(dst), off, i)
	}
	if len(dst) == 0 {
		return nil
	}
	if err := f.wait(f.e.reads, &f.reading); err != nil {
		return err
	}
	f.unwaited, f.marked = true, nil
	if err := f.e.reads.CopyOut(dst, f.parts[i].buffer, f.parts[i].off+off); err != nil {
		f.failed = true
		return err
	}
	return nil
}

// wait lets a queue of the engine wait for the data, once.
func (f *frozen) wait(q driver.Queue, done *bool) error {
	if *done {
		return nil
	}
	if err := q.After(f.ready); err != nil {
		q.Finish()
		return err
	}
	*done = true
	return nil
}

// Wait implements mem.Frozen.
func (f *frozen) Wait() error { return f.ready.Wait() }

// Mark implements mem.Frozen.
func (f *frozen) Mark() (wait func() error, err error) {
	if !f.unwaited {
		return func() error { return nil }, nil
	}
	ev, err := f.e.reads.Record()
	if err != nil {
		f.failed = true
		return nil, err
	}
	f.marked = ev
	return ev.Wait, nil
}

// Close implements mem.Frozen. It waits for the program's kernels before the
// copy, if they are not done.
func (f *frozen) Close() {
	if f.e == nil {
		return
	}
	if f.failed {
		// The caller gets the error. The queue starts over.
		f.e.reads.Finish()
	} else if f.room != nil && f.unwaited {
		// The next copy must not overwrite what is still being read.
		var err error
		if f.marked == nil {
			f.marked, err = f.e.reads.Record()
		}
		if err == nil {
			err = f.marked.Wait()
		}
		if err != nil {
			f.e.reads.Finish()
		}
	}
	if f.table != nil {
		// A table may still be copied from or to its memory.
		if err := f.ready.Wait(); err != nil {
			f.e.abandon(f.table)
			f.table = nil
		}
	}
	f.letGo()
	f.e = nil
}

func (f *frozen) letGo() {
	f.e.put(f.table)
	if f.room != nil {
		f.e.give(f.room, f.size)
	}
}
