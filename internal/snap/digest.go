package snap

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

// shortest is the length up to which XXH3 is another function. Such blocks,
// the last ones of some datasets, are digested on the host.
const shortest = 240

// part is a run of blocks that are digested: an extent, in its buffer.
type part struct {
	buffer          driver.Buffer
	off, len, block int64
	blocks          int
}

// Digests starts to compute digests, as mem.Device says. It runs in the
// program's queue: kernels that are launched later don't disturb it.
func (e *Engine) Digests(at []mem.Extent) (func() ([]xxh3.Uint128, error), error) {
	buffers, err := e.check(at)
	if err != nil {
		return nil, err
	}
	parts := make([]part, 0, len(at))
	for i := range at {
		if n := at[i].Blocks(); n > 0 {
			parts = append(parts, part{buffers[i], at[i].Off, at[i].Len, at[i].Block, n})
		}
	}
	d, err := e.start(e.kernels, parts)
	if err != nil {
		return nil, err
	}
	return func() ([]xxh3.Uint128, error) {
		out, err := d.wait()
		e.mu.Lock()
		last := e.last
		e.last = d.s // out lies in it
		e.mu.Unlock()
		e.put(last)
		return out, err
	}, nil
}

// digesting is digests being computed. The scratch memory holds the results,
// 16 bytes a block, then the tables of extents, which go to the device before,
// then, on the host only, the bytes of short blocks.
type digesting struct {
	e      *Engine
	q      driver.Queue
	parts  []part
	blocks int
	tail   int            // where the short blocks are
	s      *scratch       // nil: there is none, or not any more
	done   driver.Event   // when all is there; nil: it is
	out    []xxh3.Uint128 // if it is
}

// start gives the device what it takes to compute the digests of all blocks.
func (e *Engine) start(q driver.Queue, parts []part) (_ *digesting, err error) {
	d := &digesting{e: e, q: q, parts: parts}
	longs, short := false, int64(0)
	for i := range parts {
		p := &parts[i]
		d.blocks += p.blocks
		_, n := p.short()
		short += n
		longs = longs || n < p.len
	}
	if d.blocks == 0 {
		return d, nil
	}
	if d.blocks > min(math.MaxInt32/4, math.MaxInt/1024) {
		return nil, fmt.Errorf("device %s: %d blocks are too many to digest at a time", e.info.ID, d.blocks)
	}
	table := 16 * d.blocks
	d.tail = table + 32*len(parts)
	d.s, err = e.scratch(d.tail + int(short))
	if errors.Is(err, driver.ErrMemory) {
		d.out, err = e.onHost(q, parts, d.blocks)
		return d, err
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.fail()
		}
	}()
	if longs {
		if err := e.compiled(); err != nil {
			return nil, err
		}
		if err := e.launchDigests(q, d.s, parts, table); err != nil {
			return nil, err
		}
		if err := q.CopyOut(d.s.host[:table], d.s.device, 0); err != nil {
			return nil, err
		}
	}
	bytes := d.s.host[d.tail:]
	for i := range parts {
		p := &parts[i]
		if _, n := p.short(); n > 0 {
			if err := q.CopyOut(bytes[:n], p.buffer, p.off+p.len-n); err != nil {
				return nil, err
			}
			bytes = bytes[n:]
		}
	}
	d.done, err = q.Record()
	return d, err
}

// fail keeps the scratch memory from being used by others: something may still
// be using it.
func (d *digesting) fail() {
	d.e.abandon(d.s)
	d.s = nil
	if d.q != d.e.kernels {
		d.q.Finish() // begins anew; on the program's queue, the error is the program's too
	}
}

// wait returns the digests. They lie in the scratch memory, if there is some.
func (d *digesting) wait() ([]xxh3.Uint128, error) {
	if d.done == nil {
		return d.out, nil
	}
	if err := d.done.Wait(); err != nil {
		d.fail()
		return nil, err
	}
	// A digest is written as it lies in memory here, the high half first.
	out := unsafe.Slice((*xxh3.Uint128)(unsafe.Pointer(unsafe.SliceData(d.s.host))), d.blocks)
	bytes := d.s.host[d.tail:]
	i := 0
	for k := range d.parts {
		p := &d.parts[k]
		count, n := p.short()
		for j := i + p.blocks - count; n > 0; j++ {
			m := min(n, p.block)
			out[j] = mem.Digest(bytes[:m])
			bytes, n = bytes[m:], n-m
		}
		i += p.blocks
	}
	return out, nil
}

// onHost reads all blocks and digests them here: slow, but it needs no memory
// of a device that has none left.
func (e *Engine) onHost(q driver.Queue, parts []part, blocks int) ([]xxh3.Uint128, error) {
	out := make([]xxh3.Uint128, 0, blocks)
	var buf []byte
	for i := range parts {
		p := &parts[i]
		step := max(1, mem.SegmentSize/p.block) * p.block
		for at := int64(0); at < p.len; at += step {
			n := min(step, p.len-at)
			if int64(len(buf)) < n {
				buf = make([]byte, n)
			}
			if err := q.CopyOut(buf[:n], p.buffer, p.off+at); err != nil {
				return nil, err
			}
			for rest := buf[:n]; len(rest) > 0; {
				m := min(int64(len(rest)), p.block)
				out = append(out, mem.Digest(rest[:m]))
				rest = rest[m:]
			}
		}
	}
	return out, nil
}

// short tells how many blocks at the part's end are short, and their bytes.
func (p *part) short() (blocks int, bytes int64) {
	if p.block <= shortest {
		return p.blocks, p.len
	}
	if last := p.len - int64(p.blocks-1)*p.block; last <= shortest {
		return 1, last
	}
	return 0, 0
}

// launchDigests launches the kernel once for each run of parts in one buffer.
// A run of several parts has a table; all tables go to the device in one copy.
func (e *Engine) launchDigests(q driver.Queue, s *scratch, parts []part, table int) error {
	type launch struct{ lo, hi, first, blocks, table int }
	var launches []launch
	w, used, block := words(s.host[table:]), 0, 0
	for lo := 0; lo < len(parts); {
		l := launch{lo: lo, hi: lo, first: block, table: table + 8*used}
		for ; l.hi < len(parts) && parts[l.hi].buffer == parts[lo].buffer; l.hi++ {
			p := &parts[l.hi]
			copy(w[used:], []uint64{uint64(p.off), uint64(p.len), uint64(p.block), uint64(l.blocks)})
			used += 4
			l.blocks += p.blocks
		}
		block += l.blocks
		if l.hi-l.lo == 1 {
			used -= 4 // it goes as arguments
		}
		launches = append(launches, l)
		lo = l.hi
	}
	if used > 0 {
		if err := q.CopyIn(s.device, int64(table), s.host[table:table+8*used]); err != nil {
			return err
		}
	}
	for _, l := range launches {
		p := &parts[l.lo]
		items := e.shape.items()
		groups := (l.blocks + e.shape.Blocks - 1) / e.shape.Blocks
		err := q.Launch(e.digest, [3]int{groups * items, 1, 1}, [3]int{items, 1, 1}, []driver.Arg{
			whole(p.buffer), whole(s.device), value(uint32(l.table / 8)), value(uint32(2 * l.first)),
			value(uint64(p.off)), value(uint64(p.len)), value(uint64(p.block)), value(uint32(l.hi - l.lo)), value(uint32(l.blocks)),
		})
		if err != nil {
			return err
		}
	}
	return nil
}
