package cuda

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

type queue struct {
	d      *device
	stream uintptr
	closed atomic.Bool
}

// NewQueue creates a stream that does not synchronize with the program's
// default stream.
func (d *device) NewQueue() (driver.Queue, error) {
	const op = "NewQueue"
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.leave()
	q := &queue{d: d}
	if code := int32(dl.Call(d.cu.StreamCreate, uintptr(unsafe.Pointer(&q.stream)), streamNonBlocking)); code != success {
		return nil, d.fail(op, "cuStreamCreate", code)
	}
	d.mu.Lock()
	d.queues = append(d.queues, q)
	d.mu.Unlock()
	return q, nil
}

func (q *queue) enter(op string) error {
	if q.closed.Load() {
		if err := q.d.usable(op); err != nil {
			return err
		}
		return q.d.wrong(op, "the queue was closed")
	}
	return q.d.enter(op)
}

func (q *queue) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	return q.transfer(fmt.Sprintf("CopyIn of %d bytes", len(src)), dst, off, src, true)
}

func (q *queue) CopyOut(dst []byte, src driver.Buffer, off int64) error {
	return q.transfer(fmt.Sprintf("CopyOut of %d bytes", len(dst)), src, off, dst, false)
}

// transfer copies between p and the device, and waits unless p is pinned.
func (q *queue) transfer(op string, at driver.Buffer, off int64, p []byte, in bool) error {
	b, addr, err := q.d.use(op, at, off, int64(len(p)))
	if err != nil {
		return err
	}
	defer q.d.unuse(b)
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	defer runtime.KeepAlive(p) // the driver has only its address
	wait := false
	for len(p) > 0 {
		first, rest, isPinned := q.d.piece(p)
		var code int32
		call := "cuMemcpyHtoDAsync"
		if in {
			code = int32(dl.Call(q.d.cu.HtoDAsync, addr, uintptr(unsafe.Pointer(unsafe.SliceData(first))), uintptr(len(first)), q.stream))
		} else {
			call = "cuMemcpyDtoHAsync"
			code = int32(dl.Call(q.d.cu.DtoHAsync, uintptr(unsafe.Pointer(unsafe.SliceData(first))), addr, uintptr(len(first)), q.stream))
		}
		if code != success {
			return q.d.fail(op, call, code)
		}
		wait = wait || !isPinned
		addr += uintptr(len(first))
		p = rest
	}
	if wait {
		return q.finish(op)
	}
	return nil
}

func (q *queue) Copy(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	op := fmt.Sprintf("Copy of %d bytes", n)
	b, to, err := q.d.use(op, dst, dstOff, n)
	if err != nil {
		return err
	}
	defer q.d.unuse(b)
	c, from, err := q.d.use(op, src, srcOff, n)
	if err != nil {
		return err
	}
	defer q.d.unuse(c)
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	if n == 0 || to == from {
		return nil
	}
	if to < from+uintptr(n) && from < to+uintptr(n) {
		return q.d.wrong(op, "the two parts overlap")
	}
	if code := int32(dl.Call(q.d.cu.DtoDAsync, to, from, uintptr(n), q.stream)); code != success {
		return q.d.fail(op, "cuMemcpyDtoDAsync", code)
	}
	return nil
}

// Record takes an event from the device's pool. It goes back to the pool when
// it has passed, or when the program has dropped it.
func (q *queue) Record() (driver.Event, error) {
	const op = "Record"
	if err := q.enter(op); err != nil {
		return nil, err
	}
	defer q.d.leave()
	h, err := q.record(op)
	if err != nil {
		return nil, err
	}
	s := &eventState{d: q.d, handle: h}
	e := &event{s}
	runtime.AddCleanup(e, (*eventState).drop, s)
	return e, nil
}

func (q *queue) record(op string) (uintptr, error) {
	q.d.mu.Lock()
	h, err := q.d.event(op)
	q.d.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if code := int32(dl.Call(q.d.cu.EventRecord, h, q.stream)); code != success {
		return 0, q.d.fail(op, "cuEventRecord", code)
	}
	return h, nil
}

func (q *queue) After(e driver.Event) error {
	const op = "After"
	x, ok := e.(*event)
	switch {
	case !ok || x == nil:
		return q.d.wrong(op, "the event (%T) is not one of a CUDA device", e)
	case x.s.d.system != q.d.system:
		return q.d.wrong(op, "the event is one of device %s, which was opened separately; wait for it on the host", x.s.d.info.ID)
	}
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	h, err := x.s.use()
	if h == 0 {
		return err // it has passed
	}
	defer runtime.KeepAlive(x)
	defer x.s.unuse(false, nil)
	if code := int32(dl.Call(q.d.cu.StreamWaitEvent, q.stream, h, 0)); code != success {
		return q.d.fail(op, "cuStreamWaitEvent", code)
	}
	return nil
}

func (q *queue) Finish() error {
	const op = "Finish"
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	if err := q.finish(op); err != nil {
		return err
	}
	q.d.mu.Lock()
	defer q.d.mu.Unlock()
	return q.d.reclaim(op, false)
}

// finish waits for the queue by an event: waiting for a stream would keep a
// processor busy.
func (q *queue) finish(op string) error {
	h, err := q.record(op)
	if err != nil {
		return err
	}
	if err := q.d.await(op, h); err != nil {
		return err
	}
	q.d.recycle(h)
	return nil
}

// wait does the same for a caller that holds the device's mu.
func (q *queue) wait(op string) error {
	h, err := q.d.event(op)
	if err != nil {
		return err
	}
	if code := int32(dl.Call(q.d.cu.EventRecord, h, q.stream)); code != success {
		return q.d.fail(op, "cuEventRecord", code)
	}
	if err := q.d.await(op, h); err != nil {
		return err
	}
	q.d.events = append(q.d.events, h)
	return nil
}

// Close waits for the queue's commands.
func (q *queue) Close() error {
	const op = "closing a queue"
	if q.closed.Swap(true) {
		return nil
	}
	d := q.d
	if d.closed.Load() || d.lost.Load() != nil {
		return nil // the device's Close has destroyed it, or nothing can be done
	}
	if err := d.enter(op); err != nil {
		return err
	}
	defer d.leave()
	err := q.finish(op)
	d.mu.Lock()
	defer d.mu.Unlock()
	at := slices.Index(d.queues, q)
	if at < 0 {
		return err
	}
	d.queues = slices.Delete(d.queues, at, at+1)
	if code := int32(dl.Call(d.cu.StreamDestroy, q.stream)); code != success && err == nil {
		err = d.fail(op, "cuStreamDestroy", code)
	}
	return err
}

// await waits until a recorded event has passed. It polls for a short time
// first, because waking up takes long compared with a small kernel.
func (d *device) await(op string, h uintptr) error {
	for begin := time.Now(); time.Since(begin) < time.Millisecond; {
		switch code := int32(dl.Call(d.cu.EventQuery, h)); code {
		case success:
			return nil
		case errNotReady:
		default:
			return d.fail(op, "cuEventQuery", code)
		}
	}
	if code := int32(dl.Call(d.cu.EventSync, h)); code != success {
		return d.fail(op, "cuEventSynchronize", code)
	}
	return nil
}

// recycle returns an event to the pool.
func (d *device) recycle(h uintptr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed.Load() {
		d.events = append(d.events, h)
	} // otherwise Close has destroyed it
}

// event is the program's reference. When it is garbage, the handle is reused.
type event struct{ s *eventState }

type eventState struct {
	d      *device
	mu     sync.Mutex
	handle uintptr // 0 when the event has passed
	users  int
	passed bool
	err    error
}

// use returns the handle for a call, which must end with unuse. If the event
// has passed, use returns 0 and the event's error.
func (s *eventState) use() (uintptr, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.passed {
		return 0, s.err
	}
	s.users++
	return s.handle, nil
}

func (s *eventState) unuse(passed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	if passed && !s.passed {
		s.passed, s.err = true, err
	}
	if s.passed && s.users == 0 && s.handle != 0 {
		s.d.recycle(s.handle)
		s.handle = 0
	}
}

// drop runs when the program has dropped the event. If another queue waits for
// the event, that wait is not affected.
func (s *eventState) drop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.handle != 0 {
		s.d.recycle(s.handle)
		s.handle = 0
	}
}

func (e *event) Wait() error {
	const op = "waiting for an event"
	defer runtime.KeepAlive(e)
	s := e.s
	h, err := s.use()
	if h == 0 {
		return err
	}
	if err := s.d.enter(op); err != nil {
		s.unuse(true, err)
		return err
	}
	defer s.d.leave()
	err = s.d.await(op, h)
	s.unuse(true, err)
	return err
}

func (e *event) Done() (bool, error) {
	const op = "asking for an event"
	defer runtime.KeepAlive(e)
	s := e.s
	h, err := s.use()
	if h == 0 {
		return true, err
	}
	if err := s.d.enter(op); err != nil {
		s.unuse(true, err)
		return true, err
	}
	defer s.d.leave()
	switch code := int32(dl.Call(s.d.cu.EventQuery, h)); code {
	case success:
		s.unuse(true, nil)
		return true, nil
	case errNotReady:
		s.unuse(false, nil)
		return false, nil
	default:
		err := s.d.fail(op, "cuEventQuery", code)
		s.unuse(true, err)
		return true, err
	}
}
