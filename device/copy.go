package device

import (
	"cmp"
	"errors"
	"slices"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// copyRegion copies bytes: on dst's device, or on src's if dst has none, or
// else through host memory.
func copyRegion(to *memory, tg region, from *memory, fg region) error {
	dst, src := &parts{h: &handle{to}, g: tg, n: tg.size()}, &parts{h: &handle{from}, g: fg, n: fg.size()}
	err := copyOnDevice(dst, src)
	if errors.Is(err, errNoDevice) || errors.Is(err, ErrMemory) {
		err = relay(dst, src)
	}
	return err
}

var errNoDevice = errors.New("no device has the values")

// relay copies through host memory.
func relay(dst, src *parts) error {
	n := src.Len()
	var in *partSlot
	if dst.h.m == src.h.m { // they may overlap
		in = &partSlot{p: src, b: &stagingBuffer{p: mem.Aligned(n)}}
	} else {
		var err error
		if in, err = src.slot(n); err != nil {
			return err
		}
	}
	out := &partSlot{p: dst, b: in.b, d: in.d}
	for off := 0; off < n; off += len(in.Bytes()) {
		k := min(len(in.Bytes()), n-off)
		err := in.Load(off, k)
		if err == nil {
			err = out.Store(off, k)
		}
		if err != nil {
			in.Drop()
			return err
		}
	}
	in.Free()
	dst.Stored(n)
	return nil
}

// copyOnDevice copies on a device. It returns errNoDevice if none is to be
// used.
func copyOnDevice(dst, src *parts) error {
	locked := []*memory{src.h.m}
	if dst.h.m != src.h.m {
		locked = append(locked, dst.h.m)
	}
	slices.SortFunc(locked, func(a, b *memory) int { return cmp.Compare(uintptr(a.addr), uintptr(b.addr)) })
	for _, m := range locked {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.freed {
			return errFreed
		}
	}
	operations.Add(1)
	tm, fm := dst.h.m, src.h.m
	if tm.raw != nil || fm.raw != nil {
		return errNoDevice
	}
	d := dst.device(tm)
	if d == nil {
		d = src.device(fm)
	}
	if d == nil || d.wrap != nil {
		return errNoDevice
	}
	tg, fg := &dst.g, &src.g
	w := &pending{}
	w.uses(d)
	to, err := tm.cover(d, tg.lo, tg.hi(), locked)
	if err != nil {
		return err
	}
	from, err := fm.cover(d, fg.lo, fg.hi(), locked)
	if err == nil && tm == fm {
		to, err = tm.cover(d, tg.lo, tg.hi(), locked) // again: the other one may have replaced it
	}
	if err == nil {
		err = fm.bring(from, fg.lo, fg.hi())
	}
	if err == nil && !tg.contiguous() {
		err = tm.bring(to, tg.lo, tg.hi()) // what is between the rows stays
	}
	if err != nil {
		return err
	}
	packed, at := to.b, tg.lo-to.lo
	if !tg.contiguous() || tm == fm {
		tmp, err := d.alloc(fg.size(), fg.size(), locked)
		if err != nil {
			return err
		}
		defer func() { d.lose(tmp.Free()) }()
		packed, at = tmp, 0
	}
	if err := d.copyParts(fg, from, packed, at, false); err != nil {
		return err
	}
	if packed != to.b {
		if err := d.copyParts(tg, to, packed, at, true); err != nil {
			return err
		}
	}
	d.qmu.Lock()
	seq := d.seq
	d.qmu.Unlock()
	if d.epoch.Load() != w.marks[0].epoch { // a command failed meanwhile
		tm.invalidate(d, tg.lo, tg.hi())
		return errBefore
	}
	tm.noteWrite(d, to, tg.lo, tg.hi(), seq)
	tm.join()
	return nil
}

// copyParts copies a region between a buffer and packed memory.
func (d *Device) copyParts(g *region, b *buffer, packed driver.Buffer, at int64, in bool) error {
	return g.each(0, g.size(), func(p part) error {
		n := p.block.Bytes()
		lay, pack := p.layout(g, b.lo), p.block.Packed(at+p.at)
		var err error
		switch {
		case p.contiguous() && in:
			err = d.q.Copy(b.b, lay.Off, packed, pack.Off, n)
		case p.contiguous():
			err = d.q.Copy(packed, pack.Off, b.b, lay.Off, n)
		case in:
			p.block.Src, p.block.Dst = pack, lay
			err = d.q.CopyRect(b.b, packed, p.block)
		default:
			p.block.Src, p.block.Dst = lay, pack
			err = d.q.CopyRect(packed, b.b, p.block)
		}
		return d.fail(err)
	})
}
