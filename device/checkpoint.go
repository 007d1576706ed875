package device

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
	"github.com/cairnrun/cairn/internal/snap"
)

func init() {
	mem.FindRunning(running)
	mem.MakeRemotes(func(n int64) (unsafe.Pointer, error) {
		m, err := newMemory(n)
		if err != nil {
			return nil, err
		}
		return m.addr, nil
	})
}

// Drop frees restored memory that no array uses.
func (m *memory) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gen == 0 {
		m.free()
	}
}

// Shape returns the dimensions of the elements.
func (m *memory) Shape() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.shape)
}

// Places returns where bytes lo…hi are. It waits for kernels that write them in
// host memory.
func (m *memory) Places(lo, hi int64) ([]mem.Place, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.within(lo, hi); err != nil {
		return nil, err
	}
	if m.raw.device() {
		return m.raw.places(m, lo, hi)
	}
	m.awaitLaunches(nil, lo, hi, false)
	if m.raw != nil {
		if err := m.raw.settle(); err != nil {
			return nil, err
		}
	}
	var out []mem.Place
	zeros := func(n int64) { // together, because a checkpoint saves whole blocks
		if k := len(out) - 1; k >= 0 && out[k].Zero {
			out[k].Len += n
		} else {
			out = append(out, mem.Place{Len: n, Zero: true})
		}
	}
	add := func(s *span, from, to int64, leftOut bool) error {
		if s.gone == errUnwritten || leftOut { // as zeros; see unwritten
			zeros(to - from)
			return nil
		}
		if err := s.check(); err != nil {
			return err
		}
		switch {
		case s.zero:
			zeros(to - from)
		case s.host:
			p := mem.Place{Len: to - from, Host: m.host[from:to:to]}
			if m.raw == nil && m.updates == 0 && (len(s.on) > 0 || s.hostWritten && !m.exposed) { // nobody writes there unasked
				p.Guard, p.Version = func(yield func([]byte)) func() { return m.protect(from, to, yield) }, s.version
			}
			out = append(out, p)
		default:
			b := s.on[0]
			out = append(out, mem.Place{Len: to - from, Device: b.d.checkpointSide(), Buffer: b.b, Off: from - b.lo, Version: s.version})
		}
		return nil
	}
	left := m.leftOut()
	for i := range m.spans {
		s := &m.spans[i]
		from, to := max(lo, s.lo), min(hi, s.hi)
		if from >= to {
			continue
		}
		err := left.pieces(from, to, func(from, to int64, in bool) error { return add(s, from, to, in) })
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// within returns an error unless lo…hi is a range of the memory.
func (m *memory) within(lo, hi int64) error {
	if m.freed {
		return errFreed
	}
	if lo < 0 || hi < lo || hi > m.size {
		return fmt.Errorf("bytes %d to %d of an array of %d bytes", lo, hi, m.size)
	}
	return nil
}

// Host makes bytes lo…hi valid in host memory, for reading.
func (m *memory) Host(lo, hi int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.within(lo, hi); err != nil {
		return nil, err
	}
	if m.raw.device() {
		return m.raw.read(m, lo, hi)
	}
	if err := m.makeHost(); err != nil {
		return nil, err
	}
	for _, r := range m.written(lo, hi) {
		if err := m.toHost(nil, r[0], r[1]); err != nil {
			return nil, err
		}
	}
	return m.host[lo:hi:hi], nil
}

// written returns the parts of bytes lo…hi whose values count. The others are
// zero in the host copy.
func (m *memory) written(lo, hi int64) (parts rangeSet) {
	for _, s := range m.spans {
		if from, to := max(lo, s.lo), min(hi, s.hi); from < to && s.gone != errUnwritten {
			parts = parts.with(from, to)
		}
	}
	return parts
}

// Target returns host memory for bytes lo…hi, which the caller overwrites.
func (m *memory) Target(lo, hi int64) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.within(lo, hi); err != nil {
		return nil, err
	}
	if m.raw.device() {
		return nil, fmt.Errorf("the memory at %#x is on %v, not on the host", m.raw.addr, m.raw.d)
	}
	if err := m.claimHost(lo, hi); err != nil {
		return nil, err
	}
	return m.host[lo:hi:hi], nil
}

// prefer notes the device on which the program wants bytes lo…hi.
func (m *memory) prefer(lo, hi int64, d *Device) {
	var kept []pref
	for _, p := range m.prefs {
		if p.lo < lo {
			kept = append(kept, pref{p.lo, min(p.hi, lo), p.d})
		}
		if p.hi > hi {
			kept = append(kept, pref{max(p.lo, hi), p.hi, p.d})
		}
	}
	if d != nil {
		kept = append(kept, pref{lo, hi, d})
	}
	slices.SortFunc(kept, func(a, b pref) int { return int(max(-1, min(1, a.lo-b.lo))) })
	m.prefs = kept
}

// preferred returns the range around off that belongs in one place, and the
// device there, or nil if there is no preference.
func (m *memory) preferred(off int64) pref {
	gap := pref{0, m.size, nil}
	for _, p := range m.prefs {
		switch {
		case p.hi <= off:
			gap.lo = max(gap.lo, p.hi)
		case p.lo <= off:
			return p
		default:
			gap.hi = min(gap.hi, p.lo)
		}
	}
	return gap
}

// Fill stores restored bytes where the program wants them.
func (m *memory) Fill(off int64, p []byte) error {
	for len(p) > 0 {
		m.mu.Lock()
		if err := m.within(off, off+int64(len(p))); err != nil {
			m.mu.Unlock()
			return err
		}
		b, hi, err := m.destination(off)
		n := min(int64(len(p)), hi-off)
		if err == nil && m.raw != nil && (b == nil || b.fills == 0) {
			err = m.raw.settle() // earlier work of the program must not overwrite them
		}
		if err == nil && b == nil {
			err = m.claimHost(off, off+n)
		}
		if err == nil && b != nil {
			b.fills++
		}
		host := m.host
		m.mu.Unlock()
		if err != nil {
			return err
		}
		if b == nil {
			copy(host[off:off+n], p)
		} else if err := m.filled(b, off, off+n, b.fill(off, p[:n])); err != nil {
			return err
		}
		off, p = off+n, p[n:]
	}
	return nil
}

// filled ends a fill. If err is nil, bytes lo…hi are valid in b and nowhere
// else.
func (m *memory) filled(b *buffer, lo, hi int64, err error) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b.fills--
	if err != nil {
		return err
	}
	if err := m.within(lo, hi); err != nil {
		return err
	}
	if !slices.Contains(m.bufs, b) {
		return errors.New("the program used an array during its restore")
	}
	if m.raw.device() {
		return nil
	}
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, on: b.only(), version: version.Add(1)})
	return nil
}

// destination returns the buffer for the byte at off, or nil for host memory,
// and the end of the range for which this holds.
func (m *memory) destination(off int64) (*buffer, int64, error) {
	if m.raw != nil {
		if m.raw.d == nil {
			return nil, m.size, nil
		}
		return m.bufs[0], m.size, nil
	}
	w := m.preferred(off)
	devs := []*Device{w.d}
	if w.d == nil || w.d.lost() {
		devs, _ = present() // if there is none, use host memory
	}
	for _, d := range devs {
		if d.wrap != nil {
			if d == w.d {
				break // the host copy is the right place
			}
			continue
		}
		b, err := m.place(d, w.lo, w.hi)
		if err == nil {
			return b, w.hi, nil
		}
		if !errors.Is(err, ErrMemory) && !errors.Is(err, ErrLost) {
			return nil, 0, err
		}
	}
	return nil, w.hi, nil
}

// place is cover for restored bytes. It asks a device that had no room only
// once, so that the pieces of an array that does not fit cost little.
func (m *memory) place(d *Device, lo, hi int64) (*buffer, error) {
	for _, b := range m.bufs {
		if b.d == d && b.lo <= lo && hi <= b.hi {
			return b, d.Err()
		}
	}
	if slices.Contains(m.full, d) {
		return nil, ErrMemory
	}
	b, err := m.cover(d, lo, hi, []*memory{m})
	if errors.Is(err, ErrMemory) {
		m.full = append(m.full, d)
	}
	return b, err
}

// fill copies p to byte off of the memory, through pinned memory. The memory is
// not locked.
func (b *buffer) fill(off int64, p []byte) error {
	if err := b.d.stage(b.b, off-b.lo, p, true, 1); err != nil {
		return err
	}
	b.d.in.Add(int64(len(p)))
	return nil
}

// checkpointSide implements mem.Device: what a checkpoint does with a device's
// memory.
type checkpointSide struct {
	d   *Device
	mu  sync.Mutex
	e   *snap.Engine
	err error
}

// checkpointSide returns the same value each time.
func (d *Device) checkpointSide() *checkpointSide {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ckptSide == nil {
		d.ckptSide = &checkpointSide{d: d}
	}
	return d.ckptSide
}

func (s *checkpointSide) engine() (*snap.Engine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.e == nil && s.err == nil {
		s.e, s.err = snap.New(s.d.drv, s.d.q)
	}
	return s.e, s.err
}

// check marks the device as lost if err is ErrLost.
func (s *checkpointSide) check(err error) error {
	if err != nil {
		s.d.lose(err)
	}
	return err
}

func (s *checkpointSide) Name() string { return s.d.info.ID }

func (s *checkpointSide) Pin(p []byte) error {
	e, err := s.engine()
	if err == nil {
		err = e.Pin(p)
	}
	return s.check(err)
}

func (s *checkpointSide) Unpin(p []byte) {
	if e, err := s.engine(); err == nil {
		e.Unpin(p)
	}
}

func (s *checkpointSide) Diff(at mem.Extent, most int) (mem.Diff, error) {
	e, err := s.engine()
	if err != nil {
		return nil, s.check(err)
	}
	v, err := e.Diff(at, most)
	if err != nil {
		return nil, s.check(err)
	}
	return diff{v, s}, nil
}

// diff is the engine's, and notes when the device is lost.
type diff struct {
	mem.Diff
	s *checkpointSide
}

func (v diff) Start() error { return v.s.check(v.Diff.Start()) }

func (v diff) Wait() ([]mem.Changed, mem.Frozen, error) {
	list, f, err := v.Diff.Wait()
	return list, f, v.s.check(err)
}

func (s *checkpointSide) Freeze(at []mem.Extent) (mem.Frozen, error) {
	return s.frozen(at, (*snap.Engine).Freeze)
}

func (s *checkpointSide) Live(at []mem.Extent) (mem.Frozen, error) {
	return s.frozen(at, (*snap.Engine).Live)
}

func (s *checkpointSide) frozen(at []mem.Extent, freeze func(*snap.Engine, []mem.Extent) (mem.Frozen, error)) (mem.Frozen, error) {
	e, err := s.engine()
	if err != nil {
		return nil, s.check(err)
	}
	f, err := freeze(e, at)
	if err != nil {
		return nil, s.check(err)
	}
	return f, nil
}

func (s *checkpointSide) Reserve(n int64) {
	if e, err := s.engine(); err == nil {
		e.Reserve(n)
	}
}

// Warm implements mem.Warmer.
func (s *checkpointSide) Warm() {
	if e, err := s.engine(); err == nil {
		s.check(e.Warm())
	}
}

// release frees unused memory for snapshots.
func (s *checkpointSide) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.e != nil {
		s.e.Release()
	}
}

var (
	_ mem.Device = (*checkpointSide)(nil)
	_ mem.Warmer = (*checkpointSide)(nil)
)
