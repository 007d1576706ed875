package faulty

import "github.com/cairnrun/cairn/internal/driver"

type buffer struct {
	w *device
	b driver.Buffer
}

func (b *buffer) Size() int64 { return b.b.Size() }

func (b *buffer) Free() error {
	_, lost := b.w.call("Buffer.Free", frees)
	return either(lost, b.b.Free())
}

// inner returns the device's own buffer. An unknown buffer is returned
// unchanged, so that the device refuses it.
func (w *device) inner(x driver.Buffer) driver.Buffer {
	if b, ok := x.(*buffer); ok && b.w == w {
		return b.b
	}
	return x
}

type queue struct {
	w *device
	q driver.Queue
}

func (q *queue) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	if do, err := q.w.call("Queue.CopyIn", command); !do {
		return err
	}
	return q.q.CopyIn(q.w.inner(dst), off, src)
}

func (q *queue) CopyOut(dst []byte, src driver.Buffer, off int64) error {
	c := waits
	if q.w.isPinned(dst) {
		c = command
	}
	if do, err := q.w.call("Queue.CopyOut", c); !do {
		for i := range dst {
			dst[i] = 0xee
		}
		return err
	}
	return q.q.CopyOut(dst, q.w.inner(src), off)
}

func (q *queue) Copy(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	if do, err := q.w.call("Queue.Copy", command); !do {
		return err
	}
	return q.q.Copy(q.w.inner(dst), dstOff, q.w.inner(src), srcOff, n)
}

func (q *queue) CopyRect(dst, src driver.Buffer, r driver.Rect) error {
	if do, err := q.w.call("Queue.CopyRect", command); !do {
		return err
	}
	return q.q.CopyRect(q.w.inner(dst), q.w.inner(src), r)
}

func (q *queue) CopyFrom(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	if do, err := q.w.call("Queue.CopyFrom", command); !do {
		return err
	}
	if b, ok := src.(*buffer); ok { // of another device
		src = b.b
	}
	return q.q.CopyFrom(q.w.inner(dst), dstOff, src, srcOff, n)
}

func (q *queue) Launch(k driver.Kernel, global, local [3]int, args []driver.Arg) error {
	if do, err := q.w.call("Queue.Launch", command); !do {
		return err
	}
	if x, ok := k.(*kernel); ok && x.w == q.w {
		k = x.Kernel
	}
	inner := make([]driver.Arg, len(args))
	for i, a := range args {
		if a.Buffer != nil {
			a.Buffer = q.w.inner(a.Buffer)
		}
		inner[i] = a
	}
	return q.q.Launch(k, global, local, inner)
}

func (q *queue) Record() (driver.Event, error) {
	if do, err := q.w.call("Queue.Record", waits); !do {
		return nil, err
	}
	e, err := q.q.Record()
	if err != nil {
		return nil, err
	}
	return &event{q.w, e}, nil
}

func (q *queue) After(x driver.Event) error {
	if do, err := q.w.call("Queue.After", command); !do {
		return err
	}
	if e, ok := x.(*event); ok {
		x = e.e
	}
	return q.q.After(x)
}

func (q *queue) Finish() error {
	if do, err := q.w.call("Queue.Finish", waits); !do {
		return err
	}
	return q.q.Finish()
}

func (q *queue) Close() error {
	_, lost := q.w.call("Queue.Close", frees|waits)
	q.w.mu.Lock()
	delete(q.w.queues, q.q)
	q.w.mu.Unlock()
	return either(lost, q.q.Close())
}

type event struct {
	w *device
	e driver.Event
}

func (e *event) Wait() error {
	if do, err := e.w.call("Event.Wait", waits); !do {
		return err
	}
	return e.e.Wait()
}

func (e *event) Done() (bool, error) {
	if do, err := e.w.call("Event.Done", waits); !do {
		return false, err
	}
	return e.e.Done()
}

type program struct {
	w *device
	p driver.Program
}

func (p *program) Kernel(name string) (driver.Kernel, error) {
	if do, err := p.w.call("Program.Kernel", plain); !do {
		return nil, err
	}
	k, err := p.p.Kernel(name)
	if err != nil {
		return nil, err
	}
	return &kernel{k, p.w}, nil
}

func (p *program) Close() error {
	_, lost := p.w.call("Program.Close", frees)
	return either(lost, p.p.Close())
}

type kernel struct {
	driver.Kernel
	w *device
}
