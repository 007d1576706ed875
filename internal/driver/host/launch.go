package host

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
)

const (
	manyItems = 4096                  // so many items justify several goroutines
	longWork  = 20 * time.Microsecond // so does other work if one part of it takes this long
)

// program is a collection of Go functions.
type program struct {
	d      *device
	funcs  map[string]func(*driver.Work)
	closed atomic.Bool
}

type kernel struct {
	p    *program
	name string
	op   op // describes a launch, for errors
	fn   func(*driver.Work)
}

func (k *kernel) Name() string { return k.name }

// Build takes the source's Go functions. It ignores the OpenCL text.
func (d *device) Build(s driver.Source) (driver.Program, error) {
	if err := d.open(op{"Build", 0}); err != nil {
		return nil, err
	}
	return &program{d: d, funcs: s.Go}, nil
}

func (p *program) Kernel(name string) (driver.Kernel, error) {
	o := op{"Kernel " + name, 0}
	if err := p.d.open(o); err != nil {
		return nil, err
	}
	if p.closed.Load() {
		return nil, p.d.error(o, nil, "the program was closed")
	}
	fn := p.funcs[name]
	if fn == nil {
		return nil, p.d.error(o, nil, "the kernel has no Go function, which is what the host runs; add one to Source.Go")
	}
	return &kernel{p, name, op{"Launch of " + name, 0}, fn}, nil
}

func (p *program) Close() error {
	p.closed.Store(true)
	return p.d.open(op{"Close of a program", 0})
}

// launch is a launch in progress.
type launch struct {
	d     *device
	k     *kernel
	work  driver.Work // the whole launch, without local memory
	local []int       // size of local memory, for each argument
	dim   int         // the dimension that is divided into parts
	units int         // number of groups, or of items, along dim
	unit  int         // items of one unit
	parts int

	next atomic.Int64 // the next part that no worker has taken
	mu   sync.Mutex
	err  error
}

func (q *queue) Launch(x driver.Kernel, global, local [3]int, args []driver.Arg) error {
	k, ok := x.(*kernel)
	if !ok || k.p.d != q.d {
		return q.d.error(op{"Launch", 0}, nil, "the kernel is none of this device")
	}
	if k.p.closed.Load() {
		return q.d.error(k.op, nil, "its program was closed")
	}
	if local[0] == 0 {
		local = [3]int{1, 1, 1}
	}
	items, group := 1, 1
	for i := range global {
		if global[i] <= 0 || local[i] <= 0 {
			return q.d.error(k.op, nil, "sizes %v in groups of %v; all must be positive", global, local)
		}
		items *= global[i]
		group *= local[i]
	}
	if group > maxGroup {
		return q.d.error(k.op, nil, "groups of %v have %d items, at most %d can be", local, group, maxGroup)
	}
	l := &launch{d: q.d, k: k, work: driver.Work{Global: global, Local: local, Hi: global}}
	c := command{}
	if err := l.arguments(args, &c); err != nil {
		c.end(nil)
		return err
	}
	l.cut(items)
	c.run = func() error { return l.run(items >= manyItems) }
	return q.add(k.op, c)
}

// arguments fills in work.Args and local, and records the buffers in c.
func (l *launch) arguments(args []driver.Arg, c *command) error {
	l.work.Args = make([][]byte, len(args))
	shared := 0
	for i, a := range args {
		switch {
		case a.Buffer != nil && a.Value == nil && a.Local == 0:
			n := a.Len
			if n == 0 {
				n = a.Buffer.Size() - a.Off
			}
			b, p, err := l.d.use(l.k.op, a.Buffer, a.Off, n)
			if err != nil {
				if e := (*driver.Error)(nil); errors.As(err, &e) {
					e.Op += fmt.Sprintf(", argument %d", i)
				}
				return err
			}
			c.bufs = append(c.bufs, b)
			l.work.Args[i] = p
		case a.Buffer == nil && len(a.Value) > 0 && a.Local == 0:
			l.work.Args[i] = append(make([]byte, 0, max(len(a.Value), 16)), a.Value...)
		case a.Buffer == nil && a.Value == nil && a.Local > 0:
			if l.local == nil {
				l.local = make([]int, len(args))
			}
			l.local[i] = a.Local
			shared += a.Local
		default:
			return l.d.error(l.k.op, nil, "argument %d must be a buffer, a value, or a size of local memory", i)
		}
	}
	if shared > localMemory {
		return l.d.error(l.k.op, nil, "%d bytes of local memory, at most %d can be", shared, localMemory)
	}
	return nil
}

// cut chooses the parts. They depend only on the sizes and the number of
// workers, so that a kernel that sums by parts gives the same result every
// time.
func (l *launch) cut(items int) {
	for i, n := range l.work.Global {
		if n > 1 {
			l.dim = i
		}
	}
	l.unit = l.work.Local[l.dim]
	l.units = (l.work.Global[l.dim] + l.unit - 1) / l.unit
	l.parts = l.d.opts.Workers
	if l.parts > 1 && items >= manyItems {
		l.parts *= 4 // because some parts may be slower than others
	}
	l.parts = min(l.parts, l.units)
}

// run executes all parts, without other goroutines as long as that is fast.
func (l *launch) run(many bool) error {
	var helpers sync.WaitGroup
	helped := l.parts == 1
	help := func() {
		helped = true
		for range min(l.d.opts.Workers, l.parts) - 1 {
			helpers.Go(func() { l.some(nil) })
		}
	}
	if many && !helped {
		help()
	}
	if helped {
		l.some(nil)
	} else {
		start := time.Now()
		l.some(func() {
			if !helped && time.Since(start) > longWork {
				help()
			}
		})
	}
	helpers.Wait()
	return l.err
}

// some executes parts until none is left. If after is not nil, it is called
// after each.
func (l *launch) some(after func()) {
	w := l.work
	if l.local != nil {
		w.Args = append([][]byte(nil), w.Args...)
		for i, n := range l.local {
			if n > 0 {
				w.Args[i] = make([]byte, n)
			}
		}
	}
	for {
		i := int(l.next.Add(1)) - 1
		if i >= l.parts {
			return
		}
		part := w // a copy: the function may change it
		part.Lo[l.dim] = i * l.units / l.parts * l.unit
		part.Hi[l.dim] = min((i+1)*l.units/l.parts*l.unit, w.Global[l.dim])
		if err := l.call(&part); err != nil {
			l.mu.Lock()
			if l.err == nil {
				l.err = err
			}
			l.mu.Unlock()
			l.next.Store(int64(l.parts)) // stop all workers
			return
		}
		if after != nil {
			after()
		}
	}
}

// call runs the function. A panic becomes an error.
func (l *launch) call(w *driver.Work) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil { // runtime.Goexit: it cannot be stopped, and a panic is better than a hang
			panic("the Go function of kernel " + l.k.name + " called runtime.Goexit, perhaps by FailNow of a test")
		}
		err = l.d.error(l.k.op, nil, "its Go function panicked: %v%s", p, where())
	}()
	l.k.fn(w)
	returned = true
	return nil
}

// where returns the line that panicked, without frames of the runtime and of
// package driver.
func where() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs)])
	for {
		f, more := frames.Next()
		if f.Function != "" && !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, driverPath) &&
			!strings.HasPrefix(f.Function, slicePath) && !strings.HasPrefix(f.Function, valuePath) {
			return fmt.Sprintf(", at %s:%d (%s)", f.File, f.Line, f.Function)
		}
		if !more {
			return ""
		}
	}
}

const (
	driverPath = "github.com/cairnrun/cairn/internal/driver."
	slicePath  = "github.com/cairnrun/cairn/device.Slice["
	valuePath  = "github.com/cairnrun/cairn/device.Value["
)
