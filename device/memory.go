package device

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
	"weak"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// memory holds the bytes behind an array and its views. Its unexported methods
// are called with mu held, unless they say otherwise.
type memory struct {
	size int64
	addr unsafe.Pointer // a reserved range of addresses that represents it, never touched
	raw  *rawMemory     // nil: Cairn has allocated the memory

	mu      sync.Mutex
	shape   []uint64
	view    func(Arg) any             // makes an *Array of a part
	inState bool                      // see mem.Shown
	exposed bool                      // the program may have slices of the host copy that it writes to
	updates int                       // calls of Update that have not returned
	host    []byte                    // the host copy, nil until it is needed; zero where a span is
	wraps   map[*Device]driver.Buffer // the host copy, for devices that work in it
	bufs    []*buffer                 // on devices with memory of their own
	spans   []span                    // sorted, without gaps
	uses    []use                     // of the host copy, by launches that may not be over
	prefs   []pref
	handle  weak.Pointer[handle]
	gen     int // of the handle
	freed   bool
	full    []*Device // had no room for restored bytes

	readLocks struct { // parts of the host copy that a checkpoint reads
		sync.Mutex
		list []*readLock
	}
}

// readLock is bytes lo…hi of a host copy that must not change, because a
// checkpoint reads them.
type readLock struct {
	lo, hi int64
	yield  func([]byte)  // see mem.Place
	over   chan struct{} // closed when they may
}

// handle is shared by all views of a memory. When it is unreachable, so are
// they.
type handle struct{ m *memory }

// buffer is bytes lo…hi of a memory on a device.
type buffer struct {
	d      *Device
	m      *memory
	lo, hi int64
	b      driver.Buffer
	fills  int // fills under way, which no span shows yet
}

// span is bytes lo…hi that are all in the same state.
type span struct {
	lo, hi      int64
	zero        bool      // all zero, and nowhere yet
	host        bool      // valid in the host copy
	hostWritten bool      // … and was not written by a kernel: Update changes it, or who was given it
	on          []*buffer // valid there; never changed in place
	version     uint64
	d           *Device // that wrote it last, by launch seq; nil: over
	seq         uint64
	gone        error // why it is valid nowhere
}

// use is a launch that reads or writes the host copy.
type use struct {
	d      *Device
	seq    uint64
	lo, hi int64
	write  bool
}

// pref is the device on which the program wants bytes lo…hi after a restart.
type pref struct {
	lo, hi int64
	d      *Device
}

// version counts the writes of kernels to all memories.
var version atomic.Uint64

var (
	errFreed  = errors.New("the array was freed")
	errBefore = errors.New("another command on the device failed before it")
)

// newMemory returns a memory of n zeros.
func newMemory(n int64) (*memory, error) {
	m := &memory{size: n}
	p, err := mem.Reserve(m, n)
	if err != nil {
		return nil, err
	}
	m.addr = p
	m.spans = []span{{hi: n, zero: true, version: version.Add(1)}}
	return m, nil
}

// newHandle returns a handle of the memory. mu is not held.
func (m *memory) newHandle() (*handle, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.freed {
		return nil, errFreed
	}
	if h := m.handle.Value(); h != nil {
		return h, nil
	}
	m.gen++
	gen := m.gen
	h := &handle{m}
	m.handle = weak.Make(h)
	runtime.AddCleanup(h, func(m *memory) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.gen == gen {
			m.free()
		}
	}, m)
	return h, nil
}

// free releases everything.
func (m *memory) free() {
	if m.freed {
		return
	}
	m.freed = true
	for _, b := range m.bufs {
		b.free()
	}
	if len(m.uses) > 0 {
		// Kernels may still work in the host copy.
		go func(host []byte, uses []use) {
			for _, u := range uses {
				u.d.wait(u.seq)
			}
			runtime.KeepAlive(host)
		}(m.host, m.uses)
	}
	m.bufs, m.wraps, m.host, m.spans, m.uses = nil, nil, nil, nil, nil
	mem.Unreserve(m.addr)
}

// free releases a buffer. The caller removes it from its memory.
func (b *buffer) free() {
	b.d.mu.Lock()
	delete(b.d.buffers, b)
	b.d.mu.Unlock()
	// A device that cannot free memory is lost, or the next call finds so.
	b.d.lose(b.b.Free())
}

// cut splits spans at lo and hi, and returns the indices of those between.
func (m *memory) cut(lo, hi int64) (int, int) {
	return m.split(lo), m.split(hi)
}

// split returns the index of the span that begins at off. It splits a span if
// necessary.
func (m *memory) split(off int64) int {
	i := sort.Search(len(m.spans), func(i int) bool { return m.spans[i].hi > off })
	if i == len(m.spans) || m.spans[i].lo == off {
		return i
	}
	s := m.spans[i]
	m.spans = slices.Insert(m.spans, i, s)
	m.spans[i].hi, m.spans[i+1].lo = off, off
	return i + 1
}

// join merges neighbouring spans that are in the same state.
func (m *memory) join() {
	if len(m.spans) == 1 {
		return
	}
	out := m.spans[:1]
	for _, s := range m.spans[1:] {
		last := &out[len(out)-1]
		if last.zero == s.zero && last.host == s.host && last.version == s.version && last.d == s.d && last.seq == s.seq &&
			last.gone == s.gone && slices.Equal(last.on, s.on) {
			last.hi = s.hi
		} else {
			out = append(out, s)
		}
	}
	clear(m.spans[len(out):])
	m.spans = out
}

// dropLost drops copies of a span that were lost with their device.
func (s *span) dropLost() {
	for i := 0; i < len(s.on); i++ {
		if b := s.on[i]; b.d.lost() {
			s.drop(b, b.d.Err())
			i = -1
		}
	}
	if s.d != nil && s.host {
		// Written by a kernel in the host copy.
		if err := s.d.suspect(s.seq); err != nil {
			s.host, s.on, s.gone = false, nil, err
		}
	}
}

// drop removes a copy. If it was the only one, err is the reason why the bytes
// are gone.
func (s *span) drop(b *buffer, err error) {
	i := slices.Index(s.on, b)
	if i < 0 {
		return
	}
	s.on = slices.Delete(slices.Clone(s.on), i, i+1)
	if len(s.on) == 0 && !s.host && !s.zero {
		s.gone = err
	}
}

// check returns an error if the span's bytes are gone.
func (s *span) check() error {
	s.dropLost()
	err := s.gone
	if err == nil && s.d != nil {
		err = s.d.suspect(s.seq)
	}
	if err == nil {
		return nil
	}
	if err == errUnwritten {
		read := fmt.Errorf("bytes %d to %d of an array were read before they were written", s.lo, s.hi)
		if division.anew && division.failed != nil {
			division.failed(read)
		} else if division.leftOut != nil {
			division.leftOut(read)
		}
	}
	if errors.Is(err, ErrLost) {
		return fmt.Errorf("bytes %d to %d of an array were only on a device that is lost: %w; roll back to the last checkpoint", s.lo, s.hi, err)
	}
	return fmt.Errorf("bytes %d to %d of an array are undefined: %w; roll back to the last checkpoint, or overwrite them", s.lo, s.hi, err)
}

// noteWrite marks bytes lo…hi as written by launch seq of d. The only copy is
// in b, or in host memory if b is nil.
func (m *memory) noteWrite(d *Device, b *buffer, lo, hi int64, seq uint64) {
	i, j := m.cut(lo, hi)
	s := span{lo: lo, hi: hi, host: b == nil, version: version.Add(1), d: d, seq: seq}
	if b != nil {
		s.on = b.only()
	} else {
		m.noteUse(use{d, seq, lo, hi, true})
	}
	m.spans = slices.Replace(m.spans, i, j, s)
	m.full = nil
}

func (b *buffer) only() []*buffer { return []*buffer{b} }

// noteUse notes a launch that works in the host copy.
func (m *memory) noteUse(u use) {
	for i := range m.uses {
		if v := &m.uses[i]; v.d == u.d && v.lo == u.lo && v.hi == u.hi && v.write == u.write {
			v.seq = u.seq
			return
		}
	}
	if len(m.uses) >= 16 {
		m.uses = slices.DeleteFunc(m.uses, func(v use) bool { return v.d.over(v.seq) })
	}
	m.uses = append(m.uses, u)
}

func (d *Device) over(seq uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return seq <= d.done || d.err != nil
}

// awaitLaunches waits until no launch of a device other than d writes bytes
// lo…hi of the host copy, nor reads them if write is set. If a launch has
// failed, span.check reports it.
func (m *memory) awaitLaunches(d *Device, lo, hi int64, write bool) {
	if write {
		m.awaitReaders(lo, hi)
	}
	kept := m.uses[:0]
	for _, u := range m.uses {
		if u.d != d && u.lo < hi && lo < u.hi && (write || u.write) {
			u.d.wait(u.seq)
			continue
		}
		kept = append(kept, u)
	}
	m.uses = kept
}

// awaitReaders waits until no checkpoint needs bytes lo…hi of the host copy. No
// checkpoint begins to read meanwhile, because the program is not at a point.
func (m *memory) awaitReaders(lo, hi int64) {
	m.readLocks.Lock()
	list := slices.Clone(m.readLocks.list)
	m.readLocks.Unlock()
	for _, s := range list {
		switch from, to := max(lo, s.lo), min(hi, s.hi); {
		case from >= to:
		case s.yield != nil:
			s.yield(m.host[from:to])
		default:
			<-s.over
		}
	}
}

// protect keeps bytes lo…hi of the host copy unchanged until release is called.
func (m *memory) protect(lo, hi int64, yield func([]byte)) (release func()) {
	s := &readLock{lo, hi, yield, make(chan struct{})}
	m.readLocks.Lock()
	defer m.readLocks.Unlock()
	m.readLocks.list = append(m.readLocks.list, s)
	return func() {
		m.readLocks.Lock()
		defer m.readLocks.Unlock()
		m.readLocks.list = slices.DeleteFunc(m.readLocks.list, func(t *readLock) bool { return t == s })
		close(s.over)
	}
}

// makeHost allocates the host copy. The system provides memory only for the
// parts that are used.
func (m *memory) makeHost() error {
	if m.host == nil {
		// Go kills a program that allocates too much.
		if m.size > mem.Total() {
			return fmt.Errorf("an array of %s does not fit in the host's %s of memory; copy parts of it into smaller arrays with a kernel", size(m.size), size(mem.Total()))
		}
		m.host = mem.Aligned(int(m.size))
	}
	return nil
}

// wrapped returns the host copy as a buffer of a device that works in host
// memory.
func (m *memory) wrapped(d *Device) (driver.Buffer, error) {
	if err := m.makeHost(); err != nil {
		return nil, err
	}
	b := m.wraps[d]
	if b == nil {
		if m.wraps == nil {
			m.wraps = make(map[*Device]driver.Buffer)
		}
		b = d.wrap.Wrap(m.host)
		m.wraps[d] = b
	}
	return b, nil
}

// cover returns a buffer on d that covers bytes lo…hi. It replaces buffers that
// overlap them by one that covers all.
func (m *memory) cover(d *Device, lo, hi int64, locked []*memory) (*buffer, error) {
	from, to := lo, hi
	var old []*buffer
	for grown := true; grown; {
		grown = false
		for _, b := range m.bufs {
			if b.d != d || b.hi <= from || to <= b.lo || slices.Contains(old, b) {
				continue
			}
			if b.lo <= lo && hi <= b.hi {
				return b, nil
			}
			old = append(old, b)
			from, to = min(from, b.lo), max(to, b.hi)
			grown = true
		}
	}
	if m.raw != nil && m.raw.d != nil {
		return nil, fmt.Errorf("the memory at %#x belongs to %v: launch on that device, or copy the values into an array made with New", m.raw.addr, m.raw.d)
	}
	p, err := d.alloc(to-from, m.size, locked)
	if errors.Is(err, ErrMemory) && len(old) > 0 && to-from <= d.info.Memory {
		// There is no room for both old and new buffers: copy through
		// the host.
		if err := m.spill(old); err != nil {
			return nil, err
		}
		old = nil
		p, err = d.alloc(to-from, m.size, locked)
	}
	if err != nil {
		return nil, err
	}
	n := &buffer{d: d, m: m, lo: from, hi: to, b: p}
	for i := range m.spans {
		s := &m.spans[i]
		s.dropLost()
		for _, b := range s.on {
			if !slices.Contains(old, b) {
				continue
			}
			if err := d.q.Copy(p, s.lo-from, b.b, s.lo-b.lo, s.hi-s.lo); err != nil {
				err = d.fail(err)
				d.lose(p.Free())
				return nil, err
			}
		}
	}
	if len(old) > 0 {
		// Free the old ones only when the new one is known to hold
		// their bytes.
		epoch := d.epoch.Load()
		err := d.settle()
		if err == nil && d.epoch.Load() != epoch {
			err = errBefore
		}
		if err != nil {
			d.lose(p.Free())
			return nil, err
		}
	}
	for i := range m.spans {
		s := &m.spans[i]
		for _, b := range old {
			if k := slices.Index(s.on, b); k >= 0 {
				s.on = slices.Clone(s.on)
				s.on[k] = n
			}
		}
	}
	for _, b := range old {
		m.bufs = slices.DeleteFunc(m.bufs, func(x *buffer) bool { return x == b })
		b.free()
	}
	m.bufs = append(m.bufs, n)
	d.mu.Lock()
	d.buffers[n] = struct{}{}
	d.mu.Unlock()
	return n, nil
}

// spill copies bytes that are only in some buffers to the host copy, and frees
// the buffers.
func (m *memory) spill(list []*buffer) error {
	if err := m.makeHost(); err != nil {
		return err
	}
	for _, b := range list {
		for i := range m.spans {
			s := &m.spans[i]
			for s.gone == nil && !s.host && len(s.on) == 1 && s.on[0] == b {
				if err := m.spanToHost(s); err != nil {
					return err
				}
			}
		}
		m.forget(b)
	}
	return nil
}

// evict frees buffers whose bytes are valid elsewhere, too. With collect, it
// also frees those of unreachable arrays. It skips memories that are locked.
func (d *Device) evict(locked []*memory, collect bool) {
	if collect {
		runtime.GC()
	}
	d.mu.Lock()
	list := slices.Collect(maps.Keys(d.buffers))
	engine := d.ckptSide
	d.mu.Unlock()
	if engine != nil {
		engine.release()
	}
	for _, b := range list {
		m := b.m
		if slices.Contains(locked, m) {
			continue
		}
		locked := m.mu.TryLock()
		for try := 0; collect && !locked && try < 10; try++ {
			time.Sleep(time.Millisecond) // a cleanup of the garbage collector may hold it
			locked = m.mu.TryLock()
		}
		if !locked {
			continue
		}
		if collect && m.gen > 0 && m.handle.Value() == nil {
			m.free()
		} else if slices.Contains(m.bufs, b) && m.dispensable(b) {
			m.forget(b)
		}
		m.mu.Unlock()
	}
}

// dispensable reports whether all bytes of b are valid elsewhere, too.
func (m *memory) dispensable(b *buffer) bool {
	if b.fills > 0 {
		return false
	}
	for i := range m.spans {
		if s := &m.spans[i]; slices.Contains(s.on, b) {
			s.dropLost()
			if !s.host && len(s.on) == 1 {
				return false
			}
		}
	}
	return m.raw == nil
}

// forget frees a buffer.
func (m *memory) forget(b *buffer) {
	for i := range m.spans {
		m.spans[i].drop(b, errFreed)
	}
	m.bufs = slices.DeleteFunc(m.bufs, func(x *buffer) bool { return x == b })
	b.free()
}
