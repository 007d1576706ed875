package device

import (
	"slices"
	"sync"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// chunk is the size of the pieces that pass through pinned memory. small is the
// size for small arrays.
const (
	chunk = 4 << 20
	small = 64 << 10
)

// zeros is the source for clearing memory.
var zeros = sync.OnceValue(func() []byte { return mem.Aligned(chunk) })

// bring makes bytes lo…hi valid in b, a buffer that covers them.
func (m *memory) bring(b *buffer, lo, hi int64) error {
	i, j := m.cut(lo, hi)
	for ; i < j; i++ {
		s := &m.spans[i]
		for !slices.Contains(s.on, b) {
			if err := m.bringSpan(b, s); err != nil {
				return err
			}
		}
		if err := s.check(); err != nil {
			return err
		}
	}
	m.join()
	return nil
}

// bringSpan copies a span to b from a place where it is valid. It returns nil
// without a copy if it found that one source is lost; the caller then calls it
// again.
func (m *memory) bringSpan(b *buffer, s *span) error {
	if s.host {
		m.awaitLaunches(nil, s.lo, s.hi, false)
	}
	if err := s.check(); err != nil {
		return err
	}
	switch {
	case s.zero:
		if err := b.clear(s.lo, s.hi); err != nil {
			return err
		}
		s.zero = false
	case s.host:
		if err := b.d.copyIn(b.b, s.lo-b.lo, m.host[s.lo:s.hi]); err != nil {
			return err
		}
		b.d.in.Add(s.hi - s.lo)
		s.d = nil
	default:
		from := s.on[0]
		if err := transfer(b, from, s.lo, s.hi); err != nil {
			if from.d.lost() && !b.d.lost() {
				return nil // there may be another copy
			}
			return err
		}
		if err := s.check(); err != nil {
			return err
		}
		s.d = nil
	}
	s.on = append(slices.Clone(s.on), b)
	return nil
}

// clear fills bytes lo…hi with zeros.
func (b *buffer) clear(lo, hi int64) error {
	n := min(hi-lo, chunk)
	if err := b.d.q.CopyIn(b.b, lo-b.lo, zeros()[:n]); err != nil {
		return b.d.fail(err)
	}
	for at := lo + n; at < hi; {
		n := min(at-lo, hi-at)
		if err := b.d.q.Copy(b.b, at-b.lo, b.b, lo-b.lo, n); err != nil {
			return b.d.fail(err)
		}
		at += n
	}
	return nil
}

// toHost makes bytes lo…hi valid in the host copy: for d, a device that works
// there, or for the program if d is nil.
func (m *memory) toHost(d *Device, lo, hi int64) error {
	if err := m.makeHost(); err != nil {
		return err
	}
	m.awaitLaunches(d, lo, hi, false)
	i, j := m.cut(lo, hi)
	for ; i < j; i++ {
		s := &m.spans[i]
		for !s.host {
			if err := m.spanToHost(s); err != nil {
				return err
			}
		}
		if err := s.check(); err != nil {
			return err
		}
		if s.d != d {
			s.d = nil // awaitLaunches has waited for it
		}
	}
	m.join()
	return nil
}

// spanToHost is bringSpan for the host copy.
func (m *memory) spanToHost(s *span) error {
	if err := s.check(); err != nil {
		return err
	}
	if s.zero {
		s.zero, s.host = false, true
		return nil
	}
	m.awaitLaunches(nil, s.lo, s.hi, true) // launches that read the old bytes
	from := s.on[0]
	if err := from.d.copyOut(m.host[s.lo:s.hi], from.b, s.lo-from.lo); err != nil {
		if from.d.lost() {
			return nil
		}
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	from.d.out.Add(s.hi - s.lo)
	s.host, s.d = true, nil
	return nil
}

// stagingPool holds a device's pinned host memory, in chunks.
type stagingPool struct {
	mu   sync.Mutex
	free [2][]*stagingBuffer // by class
	dead []*stagingBuffer    // copies that failed may still use them: they are kept for ever
}

// stagingBuffer is a chunk. It may be used again when last has passed.
type stagingBuffer struct {
	p    []byte
	last driver.Event
}

// class returns 0 for small chunks, else 1.
func class(n int64) int {
	if n <= small {
		return 0
	}
	return 1
}

// takeStaging returns a free chunk for n bytes, or for as many as it holds.
func (d *Device) takeStaging(n int64) (*stagingBuffer, error) {
	free := &d.staging.free[class(n)]
	for {
		d.staging.mu.Lock()
		if len(*free) == 0 {
			d.staging.mu.Unlock()
			break
		}
		b := (*free)[0]
		*free = slices.Delete(*free, 0, 1)
		d.staging.mu.Unlock()
		if b.wait() == nil {
			return b, nil
		}
		d.abandonStaging(b) // the device that it was copied to reports the error
	}
	b := &stagingBuffer{p: mem.Aligned([2]int{small, chunk}[class(n)])}
	if _, err := d.drv.Pin(b.p); err != nil {
		d.lose(err)
		return nil, err
	}
	return b, nil
}

func (b *stagingBuffer) wait() error {
	if b.last == nil {
		return nil
	}
	err := b.last.Wait()
	b.last = nil
	return err
}

// returnStaging makes chunks available again.
func (d *Device) returnStaging(list ...*stagingBuffer) {
	d.staging.mu.Lock()
	defer d.staging.mu.Unlock()
	for _, b := range list {
		free := &d.staging.free[class(int64(len(b.p)))]
		*free = append(*free, b)
	}
}

// abandonStaging keeps chunks from being used again, because a failed copy may
// still use them.
func (d *Device) abandonStaging(list ...*stagingBuffer) {
	d.staging.mu.Lock()
	defer d.staging.mu.Unlock()
	d.staging.dead = append(d.staging.dead, list...)
}

// piece is a chunk on its way between two devices.
type piece struct {
	*stagingBuffer
	at, n int64
	read  driver.Event // the first device has copied it
}

// copyFrom is transfer between devices that can copy from each other. It waits
// twice, so that an error is that of the device that caused it.
func (to *buffer) copyFrom(from *buffer, lo, hi int64) error {
	ready, err := from.d.q.Record()
	if err == nil {
		err = ready.Wait()
	}
	if err != nil {
		return from.d.fail(err)
	}
	err = to.d.q.CopyFrom(to.b, lo-to.lo, from.b, lo-from.lo, hi-lo)
	var read driver.Event
	if err == nil {
		read, err = to.d.q.Record()
	}
	if err == nil {
		err = read.Wait()
	}
	if err != nil {
		return to.d.fail(err)
	}
	from.d.out.Add(hi - lo)
	to.d.in.Add(hi - lo)
	return nil
}

// transfer copies bytes lo…hi of a memory from one device to another: directly,
// or through pinned memory. When it returns, the bytes have been read, and
// kernels launched on the other device from now on see them.
func transfer(to, from *buffer, lo, hi int64) (err error) {
	if p, ok := to.d.drv.(driver.Peer); ok && p.Reaches(from.d.drv) {
		return to.copyFrom(from, lo, hi)
	}
	size := hi - lo
	var chunks []*stagingBuffer // at most three
	var under []*piece          // under way, at most two
	defer func() {
		if err != nil {
			from.d.abandonStaging(chunks...)
		} else {
			from.d.returnStaging(chunks...)
		}
	}()
	for i := 0; lo < hi || len(under) > 0; i++ {
		if lo < hi {
			if i < 3 {
				c, err := from.d.takeStaging(size)
				if err != nil {
					return err
				}
				chunks = append(chunks, c)
			}
			p := &piece{stagingBuffer: chunks[i%3], at: lo, n: min(chunk, hi-lo)}
			if err := p.wait(); err != nil {
				return to.d.fail(err)
			}
			if err := p.fetch(from); err != nil {
				return from.d.fail(err)
			}
			under = append(under, p)
			lo += p.n
		}
		if len(under) == 2 || lo >= hi {
			p := under[0]
			under = under[1:]
			if err := p.read.Wait(); err != nil {
				return from.d.fail(err)
			}
			if err := p.send(to); err != nil {
				return to.d.fail(err)
			}
			from.d.out.Add(p.n)
			to.d.in.Add(p.n)
		}
	}
	return nil
}

func (p *piece) fetch(from *buffer) (err error) {
	if err := from.d.q.CopyOut(p.p[:p.n], from.b, p.at-from.lo); err != nil {
		return err
	}
	p.read, err = from.d.q.Record()
	return err
}

func (p *piece) send(to *buffer) (err error) {
	if err := to.d.q.CopyIn(to.b, p.at-to.lo, p.p[:p.n]); err != nil {
		return err
	}
	p.last, err = to.d.q.Record()
	return err
}
