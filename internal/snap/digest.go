package snap

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

// part is a range of blocks in a buffer.
type part struct {
	buffer          driver.Buffer
	off, len, block int64
	blocks          int
}

// digests returns the digests of a part's blocks. The scratch memory has the
// results, 16 bytes per block, and, on the host only, the bytes of short
// blocks. XXH3 treats these differently, so the host digests them.
func (e *Engine) digests(q driver.Queue, p part) (out []xxh3.Uint128, err error) {
	if p.blocks == 0 {
		return nil, nil
	}
	if p.blocks > mostBlocks {
		return nil, fmt.Errorf("device %s: %d blocks are too many to digest at a time", e.info.ID, p.blocks)
	}
	short, bytes := p.short()
	sums := 16 * p.blocks
	s, err := e.scratch(sums+int(bytes), 0)
	if errors.Is(err, driver.ErrMemory) {
		return e.onHost(q, p)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil { // it may still be in use
			e.abandon(s)
			q.Finish() // so that the queue is usable again
			return
		}
		e.put(s)
	}()
	if bytes < p.len {
		if err := e.compiled(); err != nil {
			return nil, err
		}
		if err := e.launchDigest(q, s, 0, p); err != nil {
			return nil, err
		}
		if err := q.CopyOut(s.host[:sums], s.device, 0); err != nil {
			return nil, err
		}
	}
	tail := s.host[sums:][:bytes]
	if bytes > 0 {
		if err := q.CopyOut(tail, p.buffer, p.off+p.len-bytes); err != nil {
			return nil, err
		}
	}
	done, err := q.Record()
	if err == nil {
		err = done.Wait()
	}
	if err != nil {
		return nil, err
	}
	// A digest is stored in the layout that it has in memory here: the high
	// half first.
	out = slices.Clone(unsafe.Slice((*xxh3.Uint128)(unsafe.Pointer(unsafe.SliceData(s.host))), p.blocks))
	for i := p.blocks - short; i < p.blocks; i++ {
		n := min(int64(len(tail)), p.block)
		out[i] = mem.Digest(tail[:n])
		tail = tail[n:]
	}
	return out, nil
}

// mostBlocks is the maximum number of blocks that the kernels can count.
const mostBlocks = min(math.MaxInt32/4, math.MaxInt/1024)

// launchDigest launches the digest kernel. The results go to the device's
// scratch memory, from byte to on.
func (e *Engine) launchDigest(q driver.Queue, s *scratch, to int, p part) error {
	items := e.shape.items()
	groups := (p.blocks + e.shape.Blocks - 1) / e.shape.Blocks
	return q.Launch(e.digest, [3]int{groups * items, 1, 1}, [3]int{items, 1, 1}, []driver.Arg{
		whole(p.buffer), whole(s.device), value(uint32(to / 8)),
		value(uint64(p.off)), value(uint64(p.len)), value(uint64(p.block)), value(uint32(p.blocks)),
	})
}

// onHost reads all blocks and digests them on the host. It is slow, but needs
// no device memory.
func (e *Engine) onHost(q driver.Queue, p part) ([]xxh3.Uint128, error) {
	out := make([]xxh3.Uint128, 0, p.blocks)
	step := max(1, mem.SegmentSize/p.block) * p.block
	buf := make([]byte, min(step, p.len))
	for at := int64(0); at < p.len; at += step {
		n := min(step, p.len-at)
		if err := q.CopyOut(buf[:n], p.buffer, p.off+at); err != nil {
			return nil, err
		}
		for rest := buf[:n]; len(rest) > 0; {
			m := min(int64(len(rest)), p.block)
			out = append(out, mem.Digest(rest[:m]))
			rest = rest[m:]
		}
	}
	return out, nil
}

// short returns how many blocks at the end of the part are short, and their
// bytes.
func (p *part) short() (blocks int, bytes int64) {
	if p.block <= mem.ShortBlock {
		return p.blocks, p.len
	}
	if last := p.len - int64(p.blocks-1)*p.block; last <= mem.ShortBlock {
		return 1, last
	}
	return 0, 0
}
