package device

import (
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
)

// A program that only launches would be many minutes ahead of its device
// before it comes to a point at which something is due. So a launch waits when
// the device is more than two batches of launches behind, and a batch is as
// many as take some 10 to 50 ms.
const (
	firstBatch   = 32
	largestBatch = 1024
	shortBatch   = 10 * time.Millisecond
	longBatch    = 50 * time.Millisecond
)

// throttle keeps a program from running ahead of its device.
type throttle struct {
	mu    sync.Mutex
	batch int // launches of a batch; 0: none was launched yet
	n     int // of the present one
	marks []driver.Event
	last  time.Time // when a batch was found to be over
}

// beforeLaunch is called before each launch.
func (p *throttle) beforeLaunch(d *Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.batch == 0 {
		p.batch = firstBatch
	}
	if p.n++; p.n <= p.batch {
		return
	}
	p.n = 1
	d.qmu.Lock()
	mark, err := d.q.Record()
	d.qmu.Unlock()
	if err != nil {
		return // the launch will say so
	}
	p.marks = append(p.marks, mark)
	if len(p.marks) < 3 {
		return
	}
	mark, p.marks = p.marks[0], append(p.marks[:0], p.marks[1:]...)
	if over, err := mark.Done(); over || err != nil {
		p.batch = min(2*p.batch, largestBatch)
		p.last = time.Now()
		return
	}
	mark.Wait() // an error comes again
	now := time.Now()
	switch took := now.Sub(p.last); {
	case took > longBatch:
		p.batch = max(p.batch/2, 1)
	case took < shortBatch:
		p.batch = min(2*p.batch, largestBatch)
	}
	p.last = now
}
