package device

import (
	"cmp"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
)

// A program that only launches kernels could be minutes ahead of its device
// when a checkpoint becomes due. So a launch waits if the device is more than
// two batches of launches behind. A batch takes about 10 to 50 ms.
const (
	firstBatch   = 32
	largestBatch = 1024
	shortBatch   = 10 * time.Millisecond
	longBatch    = 50 * time.Millisecond
)

// throttle keeps a program from running far ahead of its device.
type throttle struct {
	mu    sync.Mutex
	batch int // launches in a batch; 0: none was launched yet
	n     int // launches in the current batch
	marks []driver.Event
	last  time.Time // when a batch was last found to have ended
}

// beforeLaunch is called before each launch.
func (p *throttle) beforeLaunch(d *Device) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.batch = cmp.Or(p.batch, firstBatch)
	if p.n++; p.n <= p.batch {
		return
	}
	p.n = 1
	d.qmu.Lock()
	mark, err := d.q.Record()
	d.qmu.Unlock()
	if err != nil {
		return // the launch reports it
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
	mark.Wait() // a later call reports an error
	now := time.Now()
	switch took := now.Sub(p.last); {
	case took > longBatch:
		p.batch = max(p.batch/2, 1)
	case took < shortBatch:
		p.batch = min(2*p.batch, largestBatch)
	}
	p.last = now
}
