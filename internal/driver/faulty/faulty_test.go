package faulty

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/drivertest"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/mem"
)

func discrete() driver.Device {
	return host.New(host.Options{Workers: 2, Discrete: true, Memory: 64 << 20})
}

// TestDriver_NoFault runs the tests of all drivers: without a fault, a wrapped
// device works as the device does.
func TestDriver_NoFault(t *testing.T) {
	f := &Fault{}
	drivertest.Run(t, func(t *testing.T) driver.Device { return Wrap(discrete(), f) })
	if f.Fired() || f.Calls() < 1000 {
		t.Errorf("fired: %v after %d calls", f.Fired(), f.Calls())
	}
}

// TestDriver_NoFaultShared does the same for a device that works in host
// memory.
func TestDriver_NoFaultShared(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Device { return Wrap(host.New(host.Options{Workers: 2}), &Fault{}) })
}

// TestPeers_NoFault does the same for copies between two devices.
func TestPeers_NoFault(t *testing.T) {
	drivertest.RunPeers(t, func(t *testing.T) (a, b driver.Device) { return Wrap(discrete(), &Fault{}), Wrap(discrete(), &Fault{}) })
}

var source = driver.Source{Go: map[string]func(*driver.Work){"double": func(w *driver.Work) {
	x := driver.Slice[byte](w, 0)
	for i, hi := w.Range(0); i < hi; i++ {
		x[i] *= 2
	}
}}}

// run doubles four bytes on a device, with pinned memory or without. It
// continues as far as possible, and returns all errors in order.
func run(d driver.Device, pin bool) (out []byte, errs []error) {
	note := func(err error) bool {
		if err != nil {
			errs = append(errs, err)
		}
		return err == nil
	}
	defer func() { note(d.Close()) }()
	_, err := d.FreeMemory()
	note(err)
	out = mem.Aligned(4)
	if pin {
		release, err := d.Pin(out)
		if !note(err) {
			return
		}
		defer func() { note(release()) }()
	}
	p, err := d.Build(source)
	if !note(err) {
		return
	}
	defer func() { note(p.Close()) }()
	k, err := p.Kernel("double")
	if !note(err) {
		return
	}
	var q [2]driver.Queue
	for i := range q {
		if q[i], err = d.NewQueue(); !note(err) {
			return
		}
		defer func() { note(q[i].Close()) }()
	}
	var b [2]driver.Buffer
	for i := range b {
		if b[i], err = d.Alloc(4); !note(err) {
			return
		}
		defer func() { note(b[i].Free()) }()
	}
	if !note(q[0].CopyIn(b[0], 0, []byte{1, 2, 3, 4})) ||
		!note(q[0].Launch(k, [3]int{4, 1, 1}, [3]int{}, []driver.Arg{{Buffer: b[0], Len: 4}})) {
		return
	}
	e, err := q[0].Record()
	if !note(err) || !note(q[1].After(e)) || !note(q[1].Copy(b[1], 0, b[0], 0, 4)) || !note(q[1].CopyOut(out, b[1], 0)) {
		return
	}
	_, err = e.Done()
	note(err)
	note(e.Wait())
	note(q[1].Finish())
	return
}

var right = []byte{2, 4, 6, 8}

// TestFault_EveryCall fails each call in turn.
func TestFault_EveryCall(t *testing.T) {
	for _, kind := range []Kind{Lost, Late} {
		for _, pin := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/pinned=%v", kind, pin), func(t *testing.T) {
				f := &Fault{}
				out, errs := run(Wrap(discrete(), f), pin)
				if len(errs) > 0 || !bytes.Equal(out, right) || f.Fired() {
					t.Fatalf("without a fault: %v, %v", out, errs)
				}
				calls, seen := f.Calls(), make(map[string]bool)
				for n := 1; n <= calls; n++ {
					name := f.Name(n)
					seen[name] = true
					f := &Fault{At: n, Kind: kind}
					inner := discrete()
					out, errs := run(Wrap(inner, f), pin)
					if !f.Fired() || f.Name(n) != name {
						t.Fatalf("call %d is %q, without a fault %q", n, f.Name(n), name)
					}
					for _, err := range errs {
						if !errors.Is(err, driver.ErrLost) || !strings.Contains(err.Error(), "host:0") {
							t.Errorf("call %d, %s: %v", n, name, err)
						}
					}
					if len(errs) == 0 && (kind == Lost || n < calls && !strings.HasPrefix(name, "Buffer") && !strings.HasSuffix(name, "Close") && !strings.HasPrefix(name, "release")) {
						t.Errorf("call %d, %s: no error", n, name)
					}
					if len(errs) == 0 && !bytes.Equal(out, right) {
						t.Errorf("call %d, %s: wrong bytes without an error: %v", n, name, out)
					}
					if kind == Lost && n < calls && len(errs) != f.Calls()-n+1 {
						t.Errorf("call %d, %s: %d errors in the %d calls from it on", n, name, len(errs), f.Calls()-n+1)
					}
					if _, err := inner.Alloc(1); err == nil {
						t.Errorf("call %d, %s: the device below was not closed", n, name)
					}
				}
				for _, name := range strings.Fields("Device.FreeMemory Device.Alloc Device.NewQueue Device.Build Device.Close Buffer.Free " +
					"Queue.CopyIn Queue.CopyOut Queue.Copy Queue.Launch Queue.Record Queue.After Queue.Finish Queue.Close " +
					"Event.Wait Event.Done Program.Kernel Program.Close") {
					if !seen[name] {
						t.Errorf("%s was never tried", name)
					}
				}
			})
		}
	}
}

// TestFault_Late checks which call returns the error, and that the bytes are
// junk.
func TestFault_Late(t *testing.T) {
	f := &Fault{At: 4, Kind: Late}
	d := Wrap(discrete(), f)
	defer d.Close()
	p := mem.Aligned(8)
	release, err := d.Pin(p) // 1
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	q, _ := d.NewQueue()   // 2
	b, err := d.Alloc(8)   // 3
	e := q.CopyIn(b, 0, p) // 4: has no effect
	if err != nil || e != nil {
		t.Fatal(err, e)
	}
	if err := q.CopyOut(p, b, 0); err != nil {
		t.Fatalf("a copy that is under way fails at once: %v", err)
	}
	if binary.NativeEndian.Uint64(p) == 0 {
		t.Error("bytes came from a device that does nothing")
	}
	if _, err := d.Alloc(8); err != nil {
		t.Errorf("Alloc before the loss is known: %v", err)
	}
	if err := q.Finish(); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Finish: %v", err)
	}
	if _, err := d.Alloc(8); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Alloc afterwards: %v", err)
	}
	if err := q.CopyIn(b, 0, p); !errors.Is(err, driver.ErrLost) {
		t.Errorf("CopyIn afterwards: %v", err)
	}
}

// TestFault_NoMemory shows that a fault of kind Memory makes one Alloc fail,
// and no other call.
func TestFault_NoMemory(t *testing.T) {
	f := &Fault{At: 2, Kind: Memory}
	d := Wrap(discrete(), f)
	defer d.Close()
	for i := 1; i <= 3; i++ {
		if _, err := d.Alloc(10); errors.Is(err, driver.ErrMemory) != (i == 2) || err != nil && i != 2 {
			t.Errorf("Alloc %d: %v", i, err)
		}
	}
	f = &Fault{At: 1, Kind: Memory}
	d = Wrap(discrete(), f)
	defer d.Close()
	if _, err := d.NewQueue(); err != nil || f.Fired() {
		t.Errorf("no memory for a queue: %v, fired %v", err, f.Fired())
	}
}

// TestFault_TwoDevices loses one of two devices that share a fault.
func TestFault_TwoDevices(t *testing.T) {
	f := &Fault{At: 2, Kind: Lost}
	a, b := Wrap(discrete(), f), Wrap(discrete(), f)
	defer a.Close()
	defer b.Close()
	_, err1 := a.Alloc(1)
	_, err2 := b.Alloc(1)
	_, err3 := a.Alloc(1)
	_, err4 := b.Alloc(1)
	if err1 != nil || !errors.Is(err2, driver.ErrLost) || err3 != nil || !errors.Is(err4, driver.ErrLost) {
		t.Errorf("%v, %v, %v, %v", err1, err2, err3, err4)
	}
	if f.Calls() != 4 || f.Name(2) != "Device.Alloc" || f.Name(5) != "" || f.Name(0) != "" {
		t.Errorf("%d calls, the second %q", f.Calls(), f.Name(2))
	}
}

// pointed is a device whose memory has addresses.
type pointed struct{ driver.Device }

func (p pointed) Attributes(addr uintptr) (driver.Attributes, bool, error) {
	return driver.Attributes{Device: 3}, addr == 17, nil
}

func (p pointed) At(addr uintptr, n int64) driver.Buffer {
	b, err := p.Alloc(n)
	if err != nil {
		panic(err)
	}
	return b
}

func (p pointed) Synchronize() error { return nil }

// TestWrap_Interfaces checks that the wrapped device has the optional
// interfaces that the device has.
func TestWrap_Interfaces(t *testing.T) {
	both := struct {
		pointed
		driver.Wrapper
	}{pointed{discrete()}, host.New(host.Options{}).(driver.Wrapper)}
	for i, d := range []driver.Device{discrete(), host.New(host.Options{}), pointed{discrete()}, both} {
		f := &Fault{}
		w := Wrap(d, f)
		_, wraps := w.(driver.Wrapper)
		p, points := w.(driver.Pointers)
		if wraps != (i&1 != 0) || points != (i&2 != 0) {
			t.Errorf("device %d wraps: %v, has addresses: %v", i, wraps, points)
		}
		if points {
			b := p.At(17, 8)
			attr, ok, err := p.Attributes(17)
			if attr.Device != 3 || !ok || err != nil || f.Calls() != 1 {
				t.Errorf("%v %v %v after %d calls", attr, ok, err, f.Calls())
			}
			q, _ := w.NewQueue()
			if err := q.CopyIn(b, 0, make([]byte, 8)); err != nil {
				t.Error(err)
			}
		}
		w.Close()
	}
}
