package snap

import (
	"fmt"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
	"github.com/zeebo/xxh3"
)

// diff implements mem.Diff. Its scratch memory is
//
//	on the device   list of changed blocks │ their number │ expected digests │ digests
//	                          │                   │  ▲             ▲
//	                          ▼                   ▼  │             │
//	on the host     list                   │ number │ 0   expected digests │
//
// So only changed blocks cross the bus, and the host need not look at anything
// before the program continues.
type diff struct {
	e                      *Engine
	q                      driver.Queue
	p                      part
	most                   int
	s                      *scratch
	count, expect, digests int // offsets in the device's part of s; on the host, expect is 16 bytes later
	room                   *room
	at                     int64 // offset in room
	ready                  driver.Event
}

var _ mem.Diff = (*diff)(nil)

// Diff begins to diff an extent, as mem.Device says. It runs in the program's
// queue, so that kernels launched later do not affect it.
func (e *Engine) Diff(at mem.Extent, most int) (mem.Diff, error) {
	buffers, err := e.check([]mem.Extent{at})
	if err != nil {
		return nil, err
	}
	p := part{buffers[0], at.Off, at.Len, at.Block, at.Blocks()}
	if short, _ := p.short(); short > 0 || p.blocks == 0 || p.blocks > mostBlocks {
		return nil, fmt.Errorf("device %s: %d bytes in blocks of %d cannot be diffed", e.info.ID, at.Len, at.Block)
	}
	v, err := e.diffOn(e.kernels, p, most)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (e *Engine) diffOn(q driver.Queue, p part, most int) (v *diff, err error) {
	v = &diff{e: e, q: q, p: p, most: max(1, min(most, p.blocks))}
	v.count = (24*v.most + 15) &^ 15
	v.expect = v.count + 16
	v.digests = v.expect + 16*v.p.blocks
	if v.s, err = e.scratch(v.digests+16, 16*v.p.blocks); err != nil {
		return nil, noRoom(err, int64(v.digests))
	}
	if err = e.compiled(); err != nil {
		v.letGo()
		return nil, err
	}
	if err = e.launchDigest(q, v.s, v.digests, p); err != nil {
		v.fail()
		return nil, err
	}
	return v, nil
}

// Expect implements mem.Diff.
func (v *diff) Expect() []xxh3.Uint128 {
	return unsafe.Slice((*xxh3.Uint128)(unsafe.Pointer(&v.s.host[v.expect+16])), v.p.blocks)
}

// Start implements mem.Diff.
func (v *diff) Start() (err error) {
	e, q, items := v.e, v.q, v.e.items
	if v.room, v.at, err = e.take(v.size()); err != nil {
		v.Close()
		return err
	}
	defer func() {
		if err != nil {
			v.fail()
		}
	}()
	clear(v.s.host[v.expect : v.expect+16])
	if err := q.CopyIn(v.s.device, int64(v.count), v.s.host[v.expect:v.digests+16]); err != nil {
		return err
	}
	pieces := v.most * int((v.p.block+gatherPiece-1)/gatherPiece)
	count := value(uint32(v.count / 8))
	err = q.Launch(e.compare, [3]int{(v.p.blocks + items - 1) / items * items, 1, 1}, [3]int{items, 1, 1}, []driver.Arg{
		whole(v.s.device), count, value(uint32(v.expect / 8)), value(uint32(v.digests / 8)), value(uint32(v.p.blocks)), value(uint32(v.most)),
	})
	if err != nil {
		return err
	}
	err = q.Launch(e.copyChanged, [3]int{min(pieces, copyGroups) * items, 1, 1}, [3]int{items, 1, 1}, []driver.Arg{
		whole(v.p.buffer), whole(v.room.buffer), whole(v.s.device), count, value(uint32(v.most)),
		value(uint64(v.p.off)), value(uint64(v.p.len)), value(uint64(v.p.block)), value(uint64(v.at)),
	})
	if err != nil {
		return err
	}
	if err := q.CopyOut(v.s.host[:v.expect], v.s.device, 0); err != nil {
		return err
	}
	v.ready, err = q.Record()
	return err
}

// size returns the bytes of room that it uses.
func (v *diff) size() int64 { return int64(v.most) * v.p.block }

// copyGroups is the most work groups that copy: enough for any device.
const copyGroups = 2048

// Wait implements mem.Diff.
func (v *diff) Wait() ([]mem.Changed, mem.Frozen, error) {
	if err := v.ready.Wait(); err != nil {
		v.fail()
		return nil, nil, err
	}
	n := int(*(*uint32)(unsafe.Pointer(&v.s.host[v.count])))
	if n == 0 || n > v.most {
		v.letGo()
		if n == 0 {
			return nil, nil, nil
		}
		return nil, nil, fmt.Errorf("%w: %d blocks changed, not %d", mem.ErrNoRoom, n, v.most)
	}
	list := unsafe.Slice((*mem.Changed)(unsafe.Pointer(unsafe.SliceData(v.s.host))), n)
	f := &frozen{e: v.e, ready: v.ready, room: v.room, size: v.size(), table: v.s,
		parts: []part{{v.room.buffer, v.at, int64(n) * v.p.block, v.p.block, n}}}
	v.s, v.room = nil, nil
	return list, f, nil
}

// Close implements mem.Diff.
func (v *diff) Close() {
	if v.s == nil {
		return
	}
	// The digests are being computed. Wait, since other queues use the memory
	// next.
	ev, err := v.q.Record()
	if err == nil {
		err = ev.Wait()
	}
	if err != nil {
		v.fail()
		return
	}
	v.letGo()
}

// fail abandons the scratch memory, which may still be in use. On the program's
// queue, the error is also the program's.
func (v *diff) fail() {
	v.e.abandon(v.s)
	v.s = nil
	v.letGo()
}

func (v *diff) letGo() {
	v.e.put(v.s)
	if v.room != nil {
		v.e.give(v.room, v.size())
	}
	v.s, v.room = nil, nil
}
