package opencl

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// A queue waits for the commands of the window before last when it has been
// given window more commands.
const window = 1024

type queue struct {
	d *device

	copying atomic.Int64 // number of the last command that copies pinned memory
	passed  atomic.Int64 // commands up to this one are known to be done

	mu    sync.Mutex // held while commands are issued, not while they run
	h     uintptr    // 0: closed
	given int64      // commands so far
	mark  uintptr    // event of the last full window, or 0
	out   uintptr    // calls store their results here
	sizes [2][3]uintptr

	waiting sync.WaitGroup // calls that wait without the lock
}

func (d *device) NewQueue() (driver.Queue, error) {
	const op = "NewQueue"
	if err := d.open(op); err != nil {
		return nil, err
	}
	var code int32
	h := dl.Call(d.a.createQueue, d.context, d.id, 0, uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return nil, d.fail(op, "clCreateCommandQueue", code, 0)
	}
	q := &queue{d: d, h: h}
	if err := d.add(op, q); err != nil {
		return nil, err
	}
	return q, nil
}

// begin locks the queue for commands. If it returns an error, the queue is not
// locked.
func (q *queue) begin(op string) error {
	if err := q.d.usable(op); err != nil {
		return err
	}
	q.mu.Lock()
	if q.h == 0 {
		q.mu.Unlock()
		return q.d.wrong(op, "the queue was closed")
	}
	return nil
}

// end flushes the commands and unlocks the queue. It waits if there are too
// many unfinished ones.
func (q *queue) end(op string) error {
	defer q.mu.Unlock()
	q.given++
	// An error from here on would make the caller believe that its command had
	// no effect. So these errors say that the device is lost.
	if q.given%window == 0 {
		mark, err := q.marker(op)
		if err != nil {
			return q.d.late(op, "clEnqueueMarkerWithWaitList", int32(err.(*driver.Error).Code))
		}
		before := q.mark
		q.mark = mark
		if before != 0 {
			code := q.d.a.wait(before)
			dl.Call(q.d.a.releaseEvent, before)
			if code != 0 {
				return q.d.late(op, "clWaitForEvents", code)
			}
			q.pass(q.given - window)
		}
	}
	if code := int32(dl.Call(q.d.a.flush, q.h)); code != 0 {
		return q.d.late(op, "clFlush", code)
	}
	return nil
}

// marker creates an event. The caller has locked the queue.
func (q *queue) marker(op string) (uintptr, error) {
	if code := int32(dl.Call(q.d.a.marker, q.h, 0, 0, uintptr(unsafe.Pointer(&q.out)))); code != 0 {
		return 0, q.d.fail(op, "clEnqueueMarkerWithWaitList", code, q.h)
	}
	return q.out, nil
}

// wait waits for an event. It returns the code of an error of the commands
// before it.
func (a *api) wait(event uintptr) int32 {
	code := int32(dl.Call(a.waitForEvents, 1, uintptr(unsafe.Pointer(&event))))
	if code == 0 || code == codeFailedInList {
		if _, status := a.status(event); status != 0 {
			return status
		}
	}
	return code
}

// status reports whether an event has passed, and the code of an error.
func (a *api) status(event uintptr) (done bool, code int32) {
	var status int32
	if code := int32(dl.Call(a.getEventInfo, event, eventStatus, 4, uintptr(unsafe.Pointer(&status)), 0)); code != 0 {
		return false, code
	}
	return status <= 0, min(status, 0)
}

func (q *queue) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	return q.transfer("CopyIn", "clEnqueueWriteBuffer", q.d.a.write, dst, off, src)
}

func (q *queue) CopyOut(dst []byte, src driver.Buffer, off int64) error {
	return q.transfer("CopyOut", "clEnqueueReadBuffer", q.d.a.read, src, off, dst)
}

// transfer copies between a buffer and host memory. The command itself does not
// block. If the memory is not pinned, transfer waits for the command, and other
// goroutines can use the queue meanwhile.
func (q *queue) transfer(name, call string, fn uintptr, v driver.Buffer, off int64, p []byte) error {
	op := func() string { return fmt.Sprintf("%s of %d bytes", name, len(p)) }
	b, err := q.d.use(name, v, region{off, int64(len(p))})
	if err != nil {
		return err
	}
	defer b.unuse()
	if len(p) == 0 {
		return q.d.usable(name)
	}
	pinned := q.d.pins.holds(p)
	if fn == q.d.a.write {
		if err := q.d.arrivals.await(p); err != nil {
			return err
		}
	}
	if err := q.begin(name); err != nil {
		return err
	}
	var event *uintptr
	if !pinned {
		event = new(uintptr)
	}
	code := int32(dl.Call(fn, q.h, b.mem, 0, uintptr(off), uintptr(len(p)), uintptr(unsafe.Pointer(&p[0])), 0, 0, uintptr(unsafe.Pointer(event))))
	if code != 0 {
		defer q.mu.Unlock()
		return q.d.fail(op(), call, code, q.h)
	}
	number := q.given + 1
	if pinned {
		q.copying.Store(number)
		if fn == q.d.a.read {
			q.d.arrivals.add(p, q, number)
		}
	}
	err = q.end(name)
	if pinned {
		return err
	}
	code = q.d.a.wait(*event)
	dl.Call(q.d.a.releaseEvent, *event)
	runtime.KeepAlive(p)
	if code != 0 {
		return q.d.late(op(), "clWaitForEvents", code)
	}
	q.pass(number)
	return err
}

// pass records that commands up to a number are done.
func (q *queue) pass(number int64) {
	for {
		old := q.passed.Load()
		if old >= number || q.passed.CompareAndSwap(old, number) {
			return
		}
	}
}

// Copy copies on the device. OpenCL cannot copy onto an overlapping part of the
// same buffer, and Copy returns an error then.
func (q *queue) Copy(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	const op = "Copy"
	to, err := q.d.use(op, dst, region{dstOff, n})
	if err != nil {
		return err
	}
	defer to.unuse()
	from, err := q.d.use(op, src, region{srcOff, n})
	if err != nil {
		return err
	}
	defer from.unuse()
	if n == 0 {
		return q.d.usable(op)
	}
	if to == from && (region{dstOff, n}).overlaps(region{srcOff, n}) {
		return q.d.wrong(op, "bytes %d to %d and %d to %d of a buffer overlap, and OpenCL cannot copy that; copy through another buffer", srcOff, srcOff+n, dstOff, dstOff+n)
	}
	if err := q.begin(op); err != nil {
		return err
	}
	if err := q.copyBuffer(op, to.mem, dstOff, from.mem, srcOff, n); err != nil {
		q.mu.Unlock()
		return err
	}
	return q.end(op)
}

// copyBuffer issues one command. The caller has locked the queue.
func (q *queue) copyBuffer(op string, dst uintptr, dstOff int64, src uintptr, srcOff, n int64) error {
	if code := int32(dl.Call(q.d.a.copy, q.h, src, dst, uintptr(srcOff), uintptr(dstOff), uintptr(n), 0, 0, 0)); code != 0 {
		return q.d.fail(fmt.Sprintf("%s of %d bytes", op, n), "clEnqueueCopyBuffer", code, q.h)
	}
	return nil
}

func (q *queue) CopyRect(dst, src driver.Buffer, r driver.Rect) error {
	const op = "CopyRect"
	if text := r.Check(); text != "" {
		return q.d.wrong(op, "%s", text)
	}
	off, n := r.Extent(r.Dst)
	to, err := q.d.use(op, dst, region{off, n})
	if err != nil {
		return err
	}
	defer to.unuse()
	off, n = r.Extent(r.Src)
	from, err := q.d.use(op, src, region{off, n})
	if err != nil {
		return err
	}
	defer from.unuse()
	if to == from {
		return q.d.wrong(op, "source and destination are in the same buffer; copy through another buffer")
	}
	if err := q.begin(op); err != nil {
		return err
	}
	// The memory must be on the heap, because C reads it.
	x := &[3][3]uintptr{{uintptr(r.Src.Off)}, {uintptr(r.Dst.Off)}, {uintptr(r.Width), uintptr(r.Rows), uintptr(r.Planes)}}
	row := func(l driver.Layout) uintptr { return uintptr(max(l.Row, r.Width)) }
	plane := func(l driver.Layout) uintptr {
		if r.Planes > 1 {
			return uintptr(l.Plane)
		}
		return row(l) * uintptr(r.Rows)
	}
	code := int32(dl.Call(q.d.a.copyRect, q.h, from.mem, to.mem, uintptr(unsafe.Pointer(&x[0])), uintptr(unsafe.Pointer(&x[1])), uintptr(unsafe.Pointer(&x[2])),
		row(r.Src), plane(r.Src), row(r.Dst), plane(r.Dst), 0, 0, 0))
	if code != 0 {
		defer q.mu.Unlock()
		return q.d.fail(fmt.Sprintf("%s of %d bytes", op, r.Bytes()), "clEnqueueCopyBufferRect", code, q.h)
	}
	return q.end(op)
}

// CopyFrom does not work: every device has a context of its own.
func (q *queue) CopyFrom(driver.Buffer, int64, driver.Buffer, int64, int64) error {
	return q.d.wrong("CopyFrom", "OpenCL devices have memory in contexts of their own; copy through host memory")
}

func (q *queue) Finish() error {
	err := q.settle("Finish")
	if err == nil {
		q.d.releaseDeferred(false)
	}
	return err
}

// settle waits for the queue's commands.
func (q *queue) settle(op string) error {
	if err := q.begin(op); err != nil {
		return err
	}
	mark, err := q.marker(op)
	h, number := q.h, q.given
	if err == nil {
		q.waiting.Add(1)
	}
	q.mu.Unlock()
	if err != nil {
		return err
	}
	defer q.waiting.Done()
	// It depends on the driver which of the two calls reports an error.
	code, call := int32(dl.Call(q.d.a.finish, h)), "clFinish"
	if code == 0 {
		code, call = q.d.a.wait(mark), "clWaitForEvents"
	}
	dl.Call(q.d.a.releaseEvent, mark)
	if code != 0 {
		return q.d.late(op, call, code)
	}
	q.pass(number)
	return nil
}

// Close waits for the queue's commands, unless the device is lost.
func (q *queue) Close() error {
	q.d.remove(q)
	q.drop()
	return nil
}

func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.h == 0 {
		return
	}
	if q.d.lost.Load() == nil { // so that pinned memory is not accessed after this
		if code := int32(dl.Call(q.d.a.finish, q.h)); code != 0 {
			q.d.late("Close", "clFinish", code)
		} else {
			q.pass(q.given)
		}
	}
	q.waiting.Wait()
	if q.mark != 0 {
		dl.Call(q.d.a.releaseEvent, q.mark)
	}
	dl.Call(q.d.a.releaseQueue, q.h)
	q.h, q.mark = 0, 0
}

// event is a marker on a queue.
type event struct {
	q       *queue
	number  int64 // number of commands before it
	cleanup runtime.Cleanup

	mu    sync.Mutex
	h     uintptr // 0: it has passed
	users int
	err   error
}

func (q *queue) Record() (driver.Event, error) {
	const op = "Record"
	if err := q.begin(op); err != nil {
		return nil, err
	}
	h, err := q.marker(op)
	if err != nil {
		q.mu.Unlock()
		return nil, err
	}
	e := &event{q: q, h: h, number: q.given}
	e.cleanup = runtime.AddCleanup(e, func(h uintptr) { dl.Call(q.d.a.releaseEvent, h) }, h)
	return e, q.end(op)
}

// get returns the handle, which is valid until put. It is 0 if the event has
// passed.
func (e *event) get() (uintptr, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.h != 0 {
		e.users++
	}
	return e.h, e.err
}

// put ends a get. After the event has passed, the last put releases the handle.
func (e *event) put(passed bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.users--
	if passed {
		e.err = err
		if err == nil {
			e.q.pass(e.number)
		}
	}
	if passed || e.err != nil || e.q.passed.Load() >= e.number {
		if e.users == 0 && e.h != 0 {
			e.cleanup.Stop()
			dl.Call(e.q.d.a.releaseEvent, e.h)
			e.h = 0
		}
	}
}

func (e *event) Wait() error {
	h, err := e.get()
	if h == 0 {
		return err
	}
	if code := e.q.d.a.wait(h); code != 0 {
		err = e.q.d.late("waiting for an event", "clWaitForEvents", code)
	}
	e.put(true, err)
	return err
}

func (e *event) Done() (bool, error) {
	h, err := e.get()
	if h == 0 {
		return true, err
	}
	done, code := e.q.d.a.status(h)
	if code != 0 {
		done, err = true, e.q.d.late("asking for an event", "clGetEventInfo", code)
	}
	e.put(done, err)
	return done, err
}

func (q *queue) After(v driver.Event) error {
	const op = "After"
	e, ok := v.(*event)
	if !ok || e.q.d != q.d {
		return q.d.wrong(op, "the event belongs to another device")
	}
	if err := q.begin(op); err != nil {
		return err
	}
	h, err := e.get()
	if h == 0 {
		q.mu.Unlock()
		return err
	}
	defer e.put(false, nil)
	q.out = h
	if code := int32(dl.Call(q.d.a.barrier, q.h, 1, uintptr(unsafe.Pointer(&q.out)), 0)); code != 0 {
		defer q.mu.Unlock()
		return q.d.fail(op, "clEnqueueBarrierWithWaitList", code, q.h)
	}
	return q.end(op)
}
