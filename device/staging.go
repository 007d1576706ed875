package device

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/cairnrun/cairn/internal/driver"
)

// Copies of at least stagingThreshold bytes of unpinned host memory go through
// pinned memory, where that is faster. stagingWorkers goroutines do this.
const (
	stagingThreshold = 8 << 20
	stagingWorkers   = 4
)

// copyIn copies host memory to byte off of a buffer, and waits.
func (d *Device) copyIn(b driver.Buffer, off int64, p []byte) error {
	if d.staged && len(p) >= stagingThreshold {
		return d.stage(b, off, p, true, stagingWorkers)
	}
	return d.fail(d.q.CopyIn(b, off, p))
}

// copyOut copies from byte off of a buffer to host memory, and waits.
func (d *Device) copyOut(p []byte, b driver.Buffer, off int64) error {
	if d.staged && len(p) >= stagingThreshold {
		return d.stage(b, off, p, false, stagingWorkers)
	}
	return d.fail(d.q.CopyOut(p, b, off))
}

// stage copies p to byte off of a buffer, or from there, through pinned memory.
// Each worker has two chunks: the device copies one of them while the worker
// copies the other.
func (d *Device) stage(b driver.Buffer, off int64, p []byte, in bool, workers int) error {
	s := &stage{d: d, b: b, off: off, p: p, in: in}
	workers = min(workers, runtime.GOMAXPROCS(0), (len(p)+chunk-1)/chunk)
	errs := make([]error, max(workers, 1))
	var wg sync.WaitGroup
	for i := range errs[1:] {
		wg.Go(func() { errs[i+1] = s.work() })
	}
	errs[0] = s.work()
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return d.fail(err)
		}
	}
	return nil
}

type stage struct {
	d    *Device
	b    driver.Buffer
	off  int64
	p    []byte
	in   bool
	next atomic.Int64 // first byte of p that no worker has taken
	bad  atomic.Bool  // a worker failed
}

// slot is a chunk, and the bytes of p that pass through it.
type slot struct {
	c  *stagingBuffer
	at int64
	n  int
}

// work copies pieces until there are none left.
func (s *stage) work() (err error) {
	var slots [2]slot
	defer func() {
		for i := range slots {
			switch c := slots[i].c; {
			case c == nil:
			case err != nil:
				s.bad.Store(true)
				s.d.abandonStaging(c)
			default:
				s.d.returnStaging(c)
			}
		}
	}()
	for turn := 0; ; turn++ {
		x := &slots[turn%2]
		if err := s.end(x); err != nil {
			return err
		}
		at := s.next.Add(chunk) - chunk
		if at >= int64(len(s.p)) || s.bad.Load() {
			return s.end(&slots[(turn+1)%2])
		}
		if err := s.begin(x, at); err != nil {
			return err
		}
	}
}

// begin starts the device's part of a piece.
func (s *stage) begin(x *slot, at int64) (err error) {
	if x.c == nil {
		if x.c, err = s.d.takeStaging(int64(len(s.p))); err != nil {
			return err
		}
	}
	x.at, x.n = at, min(len(x.c.p), len(s.p)-int(at))
	if s.in {
		copy(x.c.p, s.p[at:])
		err = s.d.q.CopyIn(s.b, s.off+at, x.c.p[:x.n])
	} else {
		err = s.d.q.CopyOut(x.c.p[:x.n], s.b, s.off+at)
	}
	if err == nil {
		x.c.last, err = s.d.q.Record()
	}
	return err
}

// end waits for the device, and copies to p what came from it.
func (s *stage) end(x *slot) error {
	if x.n == 0 {
		return nil
	}
	if err := x.c.wait(); err != nil {
		return err
	}
	if !s.in {
		copy(s.p[x.at:], x.c.p[:x.n])
	}
	x.n = 0
	return nil
}
