package host

import (
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

// maxWaiting is the maximum number of commands that wait in a queue. A caller
// that adds another one waits.
const maxWaiting = 4096

// queue runs its commands on a goroutine, which exists while there are
// commands.
type queue struct {
	d *device

	mu      sync.Mutex
	list    []command
	running bool      // a goroutine runs commands
	idle    sync.Cond // signals that no goroutine runs commands, or that there is room again
	closed  bool
	err     error // error of a command, until Finish returns it
}

// command is one operation of a queue.
type command struct {
	run  func() error // nil: nothing
	bufs []*buffer    // buffers that it uses
	ev   *event       // the event that passes after it
}

// event is a position in a queue.
type event struct {
	d    *device
	done chan struct{} // closed when the event has passed; err is valid then
	err  error         // error of the commands before it
}

// passed is the channel of events that have passed from the start.
var passed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

func (e *event) Wait() error {
	<-e.done
	return e.err
}

func (e *event) Done() (bool, error) {
	select {
	case <-e.done:
		return true, e.err
	default:
		return false, nil
	}
}

// check returns why the queue cannot accept a command, or nil. The caller holds
// mu.
func (q *queue) check(o op) error {
	if err := q.d.open(o); err != nil {
		return err
	}
	if q.closed {
		return q.d.error(o, nil, "the queue was closed")
	}
	return q.err
}

// add appends a command and makes sure that it will run.
func (q *queue) add(o op, c command) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) >= maxWaiting {
		q.idle.Wait()
	}
	if err := q.check(o); err != nil {
		c.end(err)
		return err
	}
	q.list = append(q.list, c)
	if !q.running {
		q.running = true
		go q.work()
	}
	return nil
}

// do runs a command and waits for it. If the queue is empty, it runs the
// command itself.
func (q *queue) do(o op, c command) error {
	q.mu.Lock()
	if q.running || q.check(o) != nil {
		q.mu.Unlock()
		c.ev = &event{d: q.d, done: make(chan struct{})}
		if err := q.add(o, c); err != nil {
			return err
		}
		return c.ev.Wait()
	}
	q.running = true
	q.mu.Unlock()
	err := c.run()
	c.end(err)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	if len(q.list) > 0 {
		go q.work()
	} else {
		q.stop()
	}
	return err
}

// work runs commands until there are none.
func (q *queue) work() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.list) > 0 {
		c := q.list[0]
		q.list[0] = command{}
		q.list = q.list[1:]
		if len(q.list) == maxWaiting/2 {
			q.idle.Broadcast()
		}
		err := q.err
		q.mu.Unlock()
		if err == nil {
			err = q.d.open(op{"a command that waited", 0})
		}
		if err == nil && c.run != nil {
			err = c.run()
		}
		c.end(err)
		q.mu.Lock()
		if q.err == nil {
			q.err = err
		}
	}
	q.stop()
}

func (q *queue) stop() {
	q.list, q.running = nil, false
	q.idle.Broadcast()
}

// end must be called once for each command: when it is done, or when it will
// not run.
func (c *command) end(err error) {
	for _, b := range c.bufs {
		b.done()
	}
	if c.ev != nil {
		c.ev.err = err
		close(c.ev.done)
	}
}

// drain waits until there are no commands.
func (q *queue) drain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.running {
		q.idle.Wait()
	}
}

func (q *queue) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	return q.transfer(op{"CopyIn", int64(len(src))}, dst, off, src, true)
}

func (q *queue) CopyOut(dst []byte, src driver.Buffer, off int64) error {
	return q.transfer(op{"CopyOut", int64(len(dst))}, src, off, dst, false)
}

// transfer copies between a buffer and host memory.
func (q *queue) transfer(o op, x driver.Buffer, off int64, host []byte, in bool) error {
	b, p, err := q.d.use(o, x, off, int64(len(host)))
	if err != nil {
		return err
	}
	c := command{bufs: []*buffer{b}, run: func() error {
		if in {
			copy(p, host)
		} else {
			copy(host, p)
		}
		return nil
	}}
	if q.d.isPinned(host) {
		return q.add(o, c)
	}
	return q.do(o, c)
}

func (q *queue) Copy(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	o := op{"Copy", n}
	to, dp, err := q.d.use(o, dst, dstOff, n)
	if err != nil {
		return err
	}
	from, sp, err := q.d.use(o, src, srcOff, n)
	if err != nil {
		to.done()
		return err
	}
	c := command{bufs: []*buffer{to, from}}
	if d, s := uintptr(unsafe.Pointer(unsafe.SliceData(dp))), uintptr(unsafe.Pointer(unsafe.SliceData(sp))); d < s+uintptr(n) && s < d+uintptr(n) {
		c.end(nil)
		return q.d.error(o, nil, "the parts overlap; copy through another buffer")
	}
	c.run = func() error {
		copy(dp, sp)
		return nil
	}
	return q.add(o, c)
}

// CopyRect copies row by row.
func (q *queue) CopyRect(dst, src driver.Buffer, r driver.Rect) error {
	o := op{"CopyRect", r.Bytes()}
	if text := r.Check(); text != "" {
		return q.d.error(o, nil, "%s", text)
	}
	off, n := r.Extent(r.Dst)
	to, _, err := q.d.use(o, dst, off, n)
	if err != nil {
		return err
	}
	off, n = r.Extent(r.Src)
	from, _, err := q.d.use(o, src, off, n)
	if err != nil {
		to.done()
		return err
	}
	c := command{bufs: []*buffer{to, from}}
	if to == from {
		c.end(nil)
		return q.d.error(o, nil, "source and destination are in the same buffer; copy through another buffer")
	}
	c.run = func() error {
		r.Each(func(src, dst int64) { copy(to.data[dst:dst+r.Width], from.data[src:src+r.Width]) })
		return nil
	}
	return q.add(o, c)
}

// Reaches reports whether the other device is the host, too.
func (d *device) Reaches(other driver.Device) bool { return hostDevice(other) != nil }

// hostDevice returns a device of this package, or nil.
func hostDevice(x driver.Device) *device {
	switch d := x.(type) {
	case *device:
		return d
	case shared:
		return d.device
	}
	return nil
}

func (q *queue) CopyFrom(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	o := op{"CopyFrom", n}
	to, dp, err := q.d.use(o, dst, dstOff, n)
	if err != nil {
		return err
	}
	x, ok := src.(*buffer)
	if !ok {
		to.done()
		return q.d.error(o, nil, "the source is not a buffer of a host device")
	}
	from, sp, err := x.d.use(o, src, srcOff, n)
	if err != nil {
		to.done()
		return q.d.error(o, nil, "the source: %v", err)
	}
	return q.add(o, command{bufs: []*buffer{to, from}, run: func() error {
		copy(dp, sp)
		return nil
	}})
}

func (q *queue) Record() (driver.Event, error) {
	q.mu.Lock()
	if err := q.check(op{"Record", 0}); err != nil {
		q.mu.Unlock()
		return nil, err
	}
	if !q.running {
		q.mu.Unlock()
		return &event{d: q.d, done: passed}, nil
	}
	ev := &event{d: q.d, done: make(chan struct{})}
	q.list = append(q.list, command{ev: ev})
	q.mu.Unlock()
	return ev, nil
}

func (q *queue) After(x driver.Event) error {
	ev, ok := x.(*event)
	if !ok {
		return q.d.error(op{"After", 0}, nil, "the event is none of a host device")
	}
	if done, err := ev.Done(); done && err == nil {
		q.mu.Lock()
		defer q.mu.Unlock()
		return q.check(op{"After", 0})
	}
	return q.add(op{"After", 0}, command{run: ev.Wait})
}

func (q *queue) Finish() error {
	q.drain()
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.check(op{"Finish", 0})
	q.err = nil
	return err
}

// Close waits for the commands and returns their error.
func (q *queue) Close() error {
	err := q.Finish()
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.drain() // commands that came meanwhile
	q.d.mu.Lock()
	delete(q.d.queues, q)
	q.d.mu.Unlock()
	return err
}
