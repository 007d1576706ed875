// Package drivertest holds the tests that every backend of internal/driver
// passes. Its kernels are in OpenCL C (kernels.cl, doubles.cl) and in Go.
package drivertest

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/driver"
)

// Run runs the tests on the devices that open returns, and closes them. It
// calls open several times: most tests share one device, and some close a
// device of their own at the same time. open skips the test if there is no
// device.
func Run(t *testing.T, open func(t *testing.T) driver.Device) {
	s := &suite{open: open, d: open(t)}
	t.Cleanup(func() {
		if err := s.d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	p, err := s.d.Build(source)
	if err != nil {
		t.Fatalf("the kernels of the suite: %v", err)
	}
	s.p = p
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Info", s.info},
		{"Buffers", s.buffers},
		{"Copies", s.copies},
		{"PinnedCopies", s.pinnedCopies},
		{"StagingCopies", s.stagingCopies},
		{"DeviceCopies", s.deviceCopies},
		{"Blocks", s.blocks},
		{"Wrap", s.wrap},
		{"Pointers", s.pointers},
		{"NoMemory", s.noMemory},
		{"FreeInUse", s.freeInUse},
		{"SourceKept", s.sourceKept},
		{"ManyBuffersAndQueues", s.many},
		{"QueueOrder", s.queueOrder},
		{"Events", s.events},
		{"EventsInACircle", s.circle},
		{"Goroutines", s.goroutines},
		{"GoroutinesOneQueue", s.oneQueue},
		{"Positions", s.positions},
		{"Groups", s.groupSizes},
		{"LocalMemory", s.localMemory},
		{"Scalars", s.scalarTypes},
		{"ArgumentParts", s.argumentParts},
		{"Atomics", s.atomics},
		{"Integers64", s.integers64},
		{"Vectors", s.vectorTypes},
		{"Rounding", s.rounding},
		{"Rounding64", s.rounding64},
		{"Contract", s.contract},
		{"NoArguments", s.noArguments},
		{"BuildError", s.buildError},
		{"UnknownKernel", s.unknownKernel},
		{"WrongArguments", s.wrongArguments},
		{"WrongSizes", s.wrongSizes},
		{"ClosedProgram", s.closedProgram},
		{"ClosedQueue", s.closedQueue},
		{"ClosedDevice", s.closedDevice},
	} {
		t.Run(c.name, c.run)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close of the program: %v", err)
	}
}

type suite struct {
	open func(t *testing.T) driver.Device
	d    driver.Device
	p    driver.Program
}

// must stops the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (s *suite) queue(t *testing.T) driver.Queue {
	t.Helper()
	q, err := s.d.NewQueue()
	must(t, err)
	t.Cleanup(func() {
		if err := q.Close(); err != nil {
			t.Errorf("Close of a queue: %v", err)
		}
	})
	return q
}

func (s *suite) alloc(t *testing.T, n int) driver.Buffer {
	t.Helper()
	b, err := s.d.Alloc(int64(n))
	must(t, err)
	t.Cleanup(func() {
		if err := b.Free(); err != nil {
			t.Errorf("Free: %v", err)
		}
	})
	return b
}

func (s *suite) kernel(t *testing.T, name string) driver.Kernel {
	t.Helper()
	k, err := s.p.Kernel(name)
	must(t, err)
	if k.Name() != name {
		t.Errorf("kernel %s calls itself %s", name, k.Name())
	}
	return k
}

// put returns a buffer with the elements x.
func put[T any](t *testing.T, s *suite, q driver.Queue, x []T) driver.Buffer {
	t.Helper()
	b := s.alloc(t, len(raw(x)))
	must(t, q.CopyIn(b, 0, raw(x)))
	return b
}

// get returns n elements at the beginning of a buffer.
func get[T any](t *testing.T, q driver.Queue, b driver.Buffer, n int) []T {
	t.Helper()
	x := make([]T, n)
	must(t, q.CopyOut(raw(x), b, 0))
	return x
}

// raw returns the memory of x.
func raw[T any](x []T) []byte {
	var v T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(v)))
}

// val returns a scalar argument.
func val[T any](v T) driver.Arg { return driver.Arg{Value: raw([]T{v})} }

// all returns a whole buffer as an argument.
func all(b driver.Buffer) driver.Arg { return driver.Arg{Buffer: b, Len: b.Size()} }

func dim(n int) [3]int { return [3]int{n, 1, 1} }

var auto [3]int // the device chooses the group

func same[T comparable](t *testing.T, what string, got, want []T) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", what, len(got), len(want))
	}
	bad := 0
	for i := range got {
		if got[i] != want[i] && !bytes.Equal(raw(got[i:i+1]), raw(want[i:i+1])) {
			if bad++; bad <= 3 {
				t.Errorf("%s: element %d is %v, want %v", what, i, got[i], want[i])
			}
		}
	}
	if bad > 3 {
		t.Errorf("%s: %d of %d elements are wrong", what, bad, len(got))
	}
}

// refused checks that err is an error that names the device.
func (s *suite) refused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error", what)
	} else if id := s.d.Info().ID; !strings.Contains(err.Error(), id) {
		t.Errorf("%s: the error does not name device %s: %v", what, id, err)
	}
}

// noise returns n bytes that look random. They are the same for the same seed.
func noise(n int, seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	p := make([]byte, n)
	for i := 0; i+8 <= n; i += 8 {
		*(*uint64)(unsafe.Pointer(&p[i])) = r.Uint64()
	}
	for i := n &^ 7; i < n; i++ {
		p[i] = byte(r.Uint32())
	}
	return p
}

// ramp returns n consecutive numbers from first on.
func ramp(n int, first int32) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = first + int32(i)
	}
	return x
}
