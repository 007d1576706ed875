package device

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// TestArray_Faults makes every call of a device fail in turn. What can be read
// is right; otherwise the error says that a device is lost.
func TestArray_Faults(t *testing.T) {
	for _, o := range []host.Options{{Workers: 1}, {Workers: 1, Discrete: true}, {Workers: 1, Discrete: true, Memory: 1450}} {
		for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late, faulty.Memory} {
			t.Run(fmt.Sprintf("%v %v %v", o.Discrete, o.Memory, kind), func(t *testing.T) {
				seed := rand.Uint64()
				for n := 1; ; n++ {
					f := &faulty.Fault{At: n, Kind: kind}
					err := survive(t, f, o, seed)
					if err != nil {
						t.Fatalf("seed %d, %v at call %d, %s: %v", seed, kind, n, f.Name(n), err)
					}
					if f.Calls() < n {
						if n < 20 && kind != faulty.Memory {
							t.Fatalf("only %d calls", n)
						}
						break
					}
				}
			})
		}
	}
}

func survive(t *testing.T, f *faulty.Fault, o host.Options, seed uint64) error {
	bad, err := newDevice(faulty.Wrap(host.New(o), f))
	if err != nil {
		if f.At == 1 && errors.Is(err, ErrLost) {
			return nil
		}
		return err
	}
	devs := []*Device{bad, bad, bad, discrete(t, 1, 0), shared(t, 2)}
	ms := models()
	r := rand.New(rand.NewPCG(seed, 2))
	steps := 60
	if o.Memory != 0 {
		steps = 20 // every failure runs the collector
	}
	for i := range steps {
		err := step(r, devs, ms)
		if err == nil || o.Memory != 0 && errors.Is(err, ErrMemory) {
			continue
		}
		if !errors.Is(err, ErrLost) || f.Kind == faulty.Memory {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if bad.Err() == nil {
			return fmt.Errorf("step %d: %w, but the device is not lost", i, err)
		}
		if err := bad.Launch(put, Size{1}, Out(New[uint32](1)), uint32(1), uint32(1)); !errors.Is(err, ErrLost) {
			return fmt.Errorf("a launch on a lost device: %v", err)
		}
		devs = devs[3:]
		break
	}
	for range 30 {
		if err := step(r, devs, ms); err != nil && !errors.Is(err, ErrLost) && !errors.Is(err, ErrMemory) {
			return fmt.Errorf("afterwards: %w", err)
		}
	}
	for _, m := range ms {
		if err := m.a.h.m.sound(); err != nil {
			return err
		}
		p, err := m.a.Read()
		if err == nil {
			if !slices.Equal(p, m.want) {
				return fmt.Errorf("at the end %v, want %v", p, m.want)
			}
		} else if !errors.Is(err, ErrLost) || f.Kind == faulty.Memory || !strings.Contains(err.Error(), "roll back to the last checkpoint") {
			return fmt.Errorf("at the end: %w", err)
		}
		// Arrays that are written again are valid.
		d := devs[len(devs)-1-r.IntN(2)]
		if err := d.Launch(put, Size{m.a.Len()}, Out(m.a), uint32(7), uint32(m.a.Len())); err != nil {
			return err
		}
		if p, err = m.a.Data(); err != nil || p[len(p)-1] != uint32(6+len(p)) {
			return fmt.Errorf("written anew: %v, %v", p, err)
		}
	}
	return nil
}

// TestFill_Faults makes every call fail while an array is restored.
func TestFill_Faults(t *testing.T) {
	want := make([]byte, 5<<20)
	for i := range want {
		want[i] = byte(i * i >> 8)
	}
	for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late, faulty.Memory} {
		for n := 1; ; n++ {
			f := &faulty.Fault{At: n, Kind: kind}
			d, err := newDevice(faulty.Wrap(host.New(host.Options{Discrete: true}), f))
			if err == nil {
				a := New[byte](len(want))
				a.Prefer(d)
				err = a.h.m.Fill(0, want)
				if err == nil {
					var p []byte
					if p, err = a.Read(); err == nil && !bytes.Equal(p, want) {
						t.Fatalf("%v at call %d, %s: wrong bytes", kind, n, f.Name(n))
					}
				}
			}
			if err != nil && (!errors.Is(err, ErrLost) || kind == faulty.Memory) {
				t.Fatalf("%v at call %d, %s: %v", kind, n, f.Name(n), err)
			}
			if f.Calls() < n {
				break
			}
		}
	}
}

var boom = NewKernel("", "boom", func(w *Work) { panic("boom") })

// TestLaunch_KernelFails shows that arrays stay undefined after a kernel has
// failed, until they are written again, whichever call got the error.
func TestLaunch_KernelFails(t *testing.T) {
	for _, d := range []*Device{shared(t, 0), discrete(t, 1, 0)} {
		a, b, c := New[uint32](10), New[uint32](10), New[uint32](10)
		if err := d.Launch(put, Size{10}, Out(b), uint32(1), uint32(10)); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Read(); err != nil {
			t.Fatal(err)
		}
		if err := d.Launch(boom, Size{10}, InOut(a)); err != nil {
			t.Fatal(err)
		}
		d.Launch(put, Size{10}, Out(c), uint32(1), uint32(10)) // may get the error
		if d.Finish() == nil {
			d.Finish()
		}
		if _, err := a.Read(); err == nil || errors.Is(err, ErrLost) || !strings.Contains(err.Error(), "boom") {
			t.Fatalf("%v: the array that the kernel wrote: %v", d, err)
		}
		if err := d.Launch(axpy, Size{10}, In(a), InOut(b), uint32(1), uint32(10)); err == nil {
			t.Fatalf("%v: a launch takes an undefined array", d)
		}
		if _, err := a.h.m.Places(0, 40); err == nil {
			t.Fatalf("%v: a checkpoint takes an undefined array", d)
		}
		if p, err := b.Read(); err != nil || p[3] != 4 {
			t.Fatalf("%v: another array: %v, %v", d, p, err)
		}
		if err := d.Launch(put, Size{10}, Out(a), uint32(1), uint32(10)); err != nil {
			t.Fatal(err)
		}
		if p, err := a.Data(); err != nil || p[9] != 10 {
			t.Fatalf("%v: written anew: %v, %v", d, p, err)
		}
		if err := errors.Join(d.Finish(), d.Err()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFinish_ReportsOnce shows that Finish returns an error that no other call
// has returned.
func TestFinish_ReportsOnce(t *testing.T) {
	d, e := shared(t, 0), shared(t, 1)
	a, b := New[uint32](10), New[uint32](10)
	if err := d.Launch(boom, Size{10}, InOut(a)); err != nil {
		t.Fatal(err)
	}
	d.q.Finish() // as if another call had returned it
	d.mu.Lock()
	d.bad = append(d.bad, badRange{from: 1, to: 1, err: errors.New("boom")})
	d.done = 1
	d.mu.Unlock()
	if err := e.Launch(put, Size{10}, Out(b), uint32(1), uint32(10)); err != nil {
		t.Fatal(err)
	}
	if err := d.Finish(); err == nil {
		t.Fatal("Finish does not tell")
	}
	if err := d.Finish(); err != nil {
		t.Fatal("Finish tells twice")
	}
}

// failAfterCopy makes another kernel fail as soon as something was copied in.
type failAfterCopy struct {
	driver.Queue
	fail func()
}

func (q *failAfterCopy) CopyIn(dst driver.Buffer, off int64, src []byte) error {
	err := q.Queue.CopyIn(dst, off, src)
	q.fail()
	return err
}

// TestLaunch_AfterFailedKernel shows that a launch is not trusted if its copies
// may have been dropped, because another kernel failed.
func TestLaunch_AfterFailedKernel(t *testing.T) {
	d := discrete(t, 0, 0)
	x, y, z := New[uint32](4), New[uint32](4), New[uint32](4)
	_, err := x.Data()
	must(t, err)
	real := d.q
	d.q = &failAfterCopy{real, func() {
		k, err := boom.on(d, variant{})
		must(t, err)
		p, err := d.drv.Alloc(4)
		must(t, err)
		if _, err = d.launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{{Buffer: p, Len: 4}}); err == nil {
			err = d.settle()
		}
		if err == nil {
			t.Error("the other kernel does not fail")
		}
	}}
	if err := d.Launch(blend, Size{4}, In(x), In(x), Out(y), n32(4)); !errors.Is(err, errBefore) {
		t.Errorf("the launch: %v", err)
	}
	d.q = real
	if _, err := y.Read(); err == nil {
		t.Error("what it wrote can be read")
	}
	must(t, d.Launch(blend, Size{4}, In(x), In(x), Out(z), n32(4)))
	if p, err := z.Read(); err != nil || p[3] != 1 {
		t.Error(p, err)
	}
	if in, _ := d.Moved(); in != 32 {
		t.Errorf("%d bytes were copied in, want 16 twice", in)
	}
}
