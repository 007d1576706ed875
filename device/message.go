package device

import (
	"errors"
	"reflect"
	"runtime"
	"slices"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// Package mpi sends and receives arrays by this: it asks mem.PartsOf, because
// it does not know package device.

func init() {
	mem.DescribeParts(func(v any) (mem.Parts, error) {
		a, ok := v.(interface{ parts() (*parts, error) })
		if !ok {
			return nil, nil
		}
		p, err := a.parts()
		if err != nil {
			return nil, err
		}
		return p, nil
	})
}

func (a *Array[T]) parts() (*parts, error) {
	m, err := a.lock()
	if err != nil {
		return nil, err
	}
	m.mu.Unlock()
	g := a.region()
	return &parts{h: a.h, g: g, elem: reflect.TypeFor[T](), constant: a.constant, n: g.size()}, nil
}

// parts is an array or view as messages see it. It implements mem.Parts.
type parts struct {
	h        *handle
	g        region
	elem     reflect.Type
	constant bool
	// With gaps, it may be a part of the region: n bytes from off on.
	off, n int64
}

func (p *parts) Len() int           { return int(p.n) }
func (p *parts) Elem() reflect.Type { return p.elem }

// Sub returns a part.
func (p *parts) Sub(from, to int) mem.Parts {
	q := *p
	if q.n = int64(to - from); p.g.contiguous() {
		q.g.lo, q.g.width = p.g.lo+int64(from), q.n
	} else {
		q.off += int64(from)
	}
	return &q
}

// Overlaps compares the ranges from the first byte to the last one.
func (p *parts) Overlaps(other mem.Parts) bool {
	o, ok := other.(*parts)
	return ok && p.h.m == o.h.m && p.g.lo < o.g.hi() && o.g.lo < p.g.hi()
}

// lock locks the memory. It returns an error if the memory was freed.
func (p *parts) lock() (*memory, error) {
	m := p.h.m
	m.mu.Lock()
	if m.freed {
		m.mu.Unlock()
		return nil, errFreed
	}
	operations.Add(1)
	return m, nil
}

// Direct returns host memory if the newest values are there. With write, they
// must be nowhere else, and arrays for which the program prefers a device, or
// that have room on one, are received there.
func (p *parts) Direct(write bool) ([]byte, error) {
	if write && p.constant {
		return nil, errors.New("a constant array is only read: use New instead of NewConstant")
	}
	m, err := p.lock()
	if err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	lo, hi := p.g.lo, p.g.hi()
	if !p.g.contiguous() || m.raw.device() {
		return nil, nil
	}
	for i := range m.spans {
		s := &m.spans[i]
		if s.hi <= lo || hi <= s.lo {
			continue
		}
		s.dropLost()
		if write && len(s.on) > 0 || !s.host && !s.zero || s.gone != nil {
			return nil, nil
		}
		if s.zero && write && m.target(s) != nil {
			return nil, nil
		}
	}
	if m.raw != nil {
		if err := m.raw.settle(); err != nil {
			return nil, err
		}
	}
	if err := m.toHost(nil, lo, hi); err != nil {
		return nil, err
	}
	if write {
		if err := m.claimHost(lo, hi); err != nil {
			return nil, err
		}
		m.updates++ // the message may come while a checkpoint is written
	}
	return m.host[lo:hi:hi], nil
}

// Release says that n bytes came to host memory. Launches may have copied the
// old ones to devices meanwhile.
func (p *parts) Release(n int) {
	m, err := p.lock()
	if err != nil {
		return
	}
	defer m.mu.Unlock()
	if m.updates--; n > 0 {
		m.wroteHost(p.g.lo, p.g.lo+int64(n))
	}
}

// wroteHost says that the host wrote bytes lo…hi.
func (m *memory) wroteHost(lo, hi int64) {
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, host: true, hostWritten: true, version: version.Add(1)})
}

// Stored gives what was stored one version, so that its spans become one.
func (p *parts) Stored(n int) {
	m, err := p.lock()
	if err != nil || n == 0 || m.raw.device() {
		if err == nil {
			m.mu.Unlock()
		}
		return
	}
	defer m.mu.Unlock()
	v := version.Add(1)
	lo, hi := p.g.at(p.off), p.g.at(p.off+int64(n)-1)+1
	for i := range m.spans {
		if s := &m.spans[i]; lo <= s.lo && s.hi <= hi {
			s.version = v
		}
	}
	m.join()
}

// target returns the device to which a message brings bytes that are nowhere
// yet, or nil for the host: the one that the program prefers, or else one on
// which the array has room.
func (m *memory) target(s *span) *Device {
	if d := m.preferred(s.lo).d; d != nil {
		if d.wrap != nil || d.lost() {
			return nil
		}
		return d
	}
	for _, b := range m.bufs {
		if b.lo <= s.lo && s.hi <= b.hi && !b.d.lost() {
			return b.d
		}
	}
	return nil
}

// partSlot is a buffer for parts. It implements mem.Slot.
type partSlot struct {
	p *parts
	b *stagingBuffer
	d *Device // for which the buffer is pinned; nil: for none
}

func (p *parts) Slot(n int) (mem.Slot, error) {
	s, err := p.slot(n)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// slot returns a buffer for n bytes, or for as many as fit.
func (p *parts) slot(n int) (*partSlot, error) {
	m, err := p.lock()
	if err != nil {
		return nil, err
	}
	d := p.device(m)
	m.mu.Unlock()
	n = min(n, chunk/int(p.g.unit)*int(p.g.unit))
	if d == nil {
		return &partSlot{p: p, b: &stagingBuffer{p: mem.Aligned(n)}}, nil
	}
	b, err := d.takeStaging(int64(n))
	return &partSlot{p: p, b: b, d: d}, err
}

// device returns the first device that has bytes of the region.
func (p *parts) device(m *memory) *Device {
	lo, hi := p.g.lo, p.g.hi()
	for i := range m.spans {
		s := &m.spans[i]
		if s.hi <= lo || hi <= s.lo {
			continue
		}
		s.dropLost()
		if len(s.on) > 0 {
			return s.on[0].d
		}
		if s.zero {
			if d := m.target(s); d != nil {
				return d
			}
		}
	}
	return nil
}

func (s *partSlot) Bytes() []byte { return s.b.p[:len(s.b.p)/int(s.p.g.unit)*int(s.p.g.unit)] }

func (s *partSlot) Free() {
	if s.d != nil {
		s.d.returnStaging(s.b)
	}
}

func (s *partSlot) Drop() {
	if s.d != nil {
		s.d.abandonStaging(s.b)
	}
}

// pending is what was given to devices for a part.
type pending struct {
	marks []mark
	reads []mark // launches that wrote what is read
}

type mark struct {
	d     *Device
	epoch uint64
	seq   uint64
	ev    driver.Event
}

// uses notes that commands are about to be given to a device.
func (w *pending) uses(d *Device) {
	for _, x := range w.marks {
		if x.d == d {
			return
		}
	}
	w.marks = append(w.marks, mark{d: d, epoch: d.epoch.Load()})
}

// record records an event on each device.
func (w *pending) record() (err error) {
	for i := range w.marks {
		x := &w.marks[i]
		if x.ev, err = x.d.q.Record(); err != nil {
			return x.d.fail(err)
		}
	}
	return nil
}

// wait waits until the commands are done.
func (w *pending) wait() error {
	for _, x := range w.marks {
		if err := x.ev.Wait(); err != nil {
			return x.d.fail(err)
		}
		if x.d.epoch.Load() != x.epoch {
			if err := x.d.Err(); err != nil {
				return err
			}
			return errBefore
		}
	}
	for _, x := range w.reads {
		if err := x.d.suspect(x.seq); err != nil {
			return err
		}
	}
	return nil
}

// Load copies bytes off…off+n of the region to the slot.
func (s *partSlot) Load(off, n int) error {
	var w pending
	from := s.p.off + int64(off)
	err := s.load(from, from+int64(n), &w)
	if err == nil {
		err = w.wait()
	}
	runtime.KeepAlive(s.p.h)
	return err
}

func (s *partSlot) load(from, to int64, w *pending) error {
	m, err := s.p.lock()
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.raw != nil {
		if err := m.raw.settle(); err != nil {
			return err
		}
	}
	g := &s.p.g
	for i := 0; i < len(m.spans); i++ {
		x := &m.spans[i]
		a, b := max(from, g.before(x.lo)), min(to, g.before(x.hi))
		if a >= b {
			continue
		}
		if x.host {
			m.awaitLaunches(nil, x.lo, x.hi, false)
		}
		if err := x.check(); err != nil {
			return err
		}
		if len(x.on) > 0 && !x.host {
			if x.d != nil {
				w.reads = append(w.reads, mark{d: x.d, seq: x.seq})
			}
			if err := s.fromDevice(x.on[0], a, b, from, w); err != nil {
				return err
			}
			continue
		}
		if x.zero {
			clear(s.b.p[a-from : b-from])
			continue
		}
		g.each(a, b, func(p part) error {
			g.copyRows(p, m.host, 0, s.b.p, from, false)
			return nil
		})
	}
	return w.record()
}

// fromDevice copies bytes a…b of the region from a buffer. The slot begins with
// byte from.
func (s *partSlot) fromDevice(b *buffer, a, end, from int64, w *pending) error {
	w.uses(b.d)
	g := &s.p.g
	return g.each(a, end, func(p part) error {
		n := p.block.Bytes()
		to := s.b.p[p.at-from:][:n]
		b.d.out.Add(n)
		if p.contiguous() {
			return b.d.fail(b.d.q.CopyOut(to, b.b, p.off-b.lo))
		}
		tmp, err := b.d.alloc(n, n, []*memory{b.m})
		if err != nil {
			return err
		}
		p.block.Src, p.block.Dst = p.layout(g, b.lo), p.block.Packed(0)
		if err = b.d.q.CopyRect(tmp, b.b, p.block); err == nil {
			err = b.d.q.CopyOut(to, tmp, 0)
		}
		err = b.d.fail(err)
		b.d.lose(tmp.Free())
		return err
	})
}

// Store copies the slot to bytes off…off+n of the region: where their newest
// values are, on a device or on the host.
func (s *partSlot) Store(off, n int) error {
	var w pending
	from := s.p.off + int64(off)
	err := s.store(from, from+int64(n), &w)
	if err == nil {
		err = w.wait()
	}
	if err != nil {
		s.spoil(from, from+int64(n), err)
	}
	runtime.KeepAlive(s.p.h)
	return err
}

func (s *partSlot) store(from, to int64, w *pending) error {
	m, err := s.p.lock()
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	if m.raw != nil {
		if err := m.raw.settle(); err != nil {
			return err
		}
	}
	g := &s.p.g
	lo, hi := g.at(from), g.at(to-1)+1
	m.cut(lo, hi)
	for i := 0; i < len(m.spans); i++ {
		x := m.spans[i]
		a, b := max(from, g.before(x.lo)), min(to, g.before(x.hi))
		if a >= b || x.hi <= lo || hi <= x.lo {
			continue
		}
		at, err := m.storesAt(x, g, a, b)
		if err != nil {
			return err
		}
		if x = m.spans[i]; at == nil {
			if err := s.toHost(m, &x, a, b, from); err != nil {
				return err
			}
			m.spans[i] = span{lo: x.lo, hi: x.hi, host: true, hostWritten: true, version: version.Add(1)}
			continue
		}
		if err := s.toDevice(at, a, b, from, w); err != nil {
			return err
		}
		if !m.raw.device() {
			m.spans[i] = span{lo: x.lo, hi: x.hi, on: at.only(), version: version.Add(1)}
		}
	}
	return w.record()
}

// storesAt returns the buffer that gets bytes a…b of a region, which are in one
// span, or nil if the host does. All other bytes of the span are valid there.
func (m *memory) storesAt(x span, g *region, a, b int64) (*buffer, error) {
	i := m.split(x.lo)
	s := &m.spans[i]
	s.dropLost()
	if s.gone != nil && b-a < s.hi-s.lo {
		return nil, s.check() // other bytes of the span are undefined, and would not be any more
	}
	if len(s.on) > 0 {
		return s.on[0], nil
	}
	if s.host || !s.zero && s.gone == nil {
		return nil, nil
	}
	d := m.target(s)
	if d == nil {
		return nil, nil
	}
	at, err := m.cover(d, s.lo, s.hi, []*memory{m})
	if err != nil {
		return nil, err
	}
	if s = &m.spans[i]; s.zero && b-a < s.hi-s.lo {
		if err := at.clear(s.lo, s.hi); err != nil {
			return nil, err
		}
	}
	return at, nil
}

// toHost copies bytes a…b of the region to host memory.
func (s *partSlot) toHost(m *memory, x *span, a, b, from int64) error {
	if err := m.makeHost(); err != nil {
		return err
	}
	m.awaitLaunches(nil, x.lo, x.hi, true)
	return s.p.g.each(a, b, func(p part) error {
		s.p.g.copyRows(p, m.host, 0, s.b.p, from, true)
		return nil
	})
}

// toDevice copies bytes a…b of the region to a buffer.
func (s *partSlot) toDevice(b *buffer, a, end, from int64, w *pending) error {
	w.uses(b.d)
	g := &s.p.g
	return g.each(a, end, func(p part) error {
		n := p.block.Bytes()
		src := s.b.p[p.at-from:][:n]
		b.d.in.Add(n)
		if p.contiguous() {
			return b.d.fail(b.d.q.CopyIn(b.b, p.off-b.lo, src))
		}
		tmp, err := b.d.alloc(n, n, []*memory{b.m})
		if err != nil {
			return err
		}
		p.block.Src, p.block.Dst = p.block.Packed(0), p.layout(g, b.lo)
		if err = b.d.q.CopyIn(tmp, 0, src); err == nil {
			err = b.d.q.CopyRect(b.b, tmp, p.block)
		}
		err = b.d.fail(err)
		b.d.lose(tmp.Free())
		return err
	})
}

// spoil says that bytes from…to of the region are undefined, because a copy to
// them failed.
func (s *partSlot) spoil(from, to int64, err error) {
	m, e := s.p.lock()
	if e != nil {
		return
	}
	defer m.mu.Unlock()
	if m.raw != nil {
		return
	}
	lo, hi := s.p.g.at(from), s.p.g.at(to-1)+1
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, version: version.Add(1), gone: err})
}

var (
	_ mem.Parts = (*parts)(nil)
	_ mem.Slot  = (*partSlot)(nil)
)
