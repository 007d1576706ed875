package drivertest

import (
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

func (s *suite) buildError(t *testing.T) {
	if s.d.Info().Backend == "host" {
		t.Skip("the host compiles nothing")
	}
	p, err := s.d.Build(driver.Source{OpenCL: `// one
/* two
   three */
__kernel void wrong(__global int *x) {
	int i = get_global_id(0);
	x[i] = 1;
	x[i] = undeclared + 1;
	x[i] = 2;
}
`})
	if err == nil {
		p.Close()
		t.Fatal("a source with an error compiles")
	}
	if !errors.Is(err, driver.ErrBuild) || errors.Is(err, driver.ErrLost) {
		t.Errorf("not ErrBuild: %v", err)
	}
	s.refused(t, "Build", err)
	if text := err.Error(); !strings.Contains(text, "undeclared") || !regexp.MustCompile(`[:(]7[:),]`).MatchString(text) {
		t.Errorf("the log does not show the error in line 7: %v", err)
	}
	// The device still compiles correct sources.
	p, err = s.d.Build(source)
	must(t, err)
	must(t, p.Close())
}

func (s *suite) unknownKernel(t *testing.T) {
	for _, name := range []string{"adds", "", "spun"} {
		_, err := s.p.Kernel(name)
		s.refused(t, "an unknown kernel", err)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %q: %v", name, err)
		}
	}
}

// attempt launches something that must be refused, at once or late. The device
// must stay usable.
func (s *suite) attempt(t *testing.T, q driver.Queue, what string, k driver.Kernel, global, local [3]int, args []driver.Arg) {
	t.Helper()
	err := q.Launch(k, global, local, args)
	if late := q.Finish(); err == nil {
		err = late
	}
	s.refused(t, what, err)
	if errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrMemory) {
		t.Errorf("%s: %v", what, err)
	}
	must(t, q.Finish())
}

func (s *suite) wrongArguments(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "add")
	b := put(t, s, q, ramp(100, 0))
	n, one := val(int32(100)), val(int32(1))
	good := []driver.Arg{all(b), n, one}
	must(t, q.Launch(k, dim(100), auto, good)) // so that arguments left over from it would be noticed
	foreign := s.open(t)
	defer foreign.Close()
	other, err := foreign.Alloc(400)
	must(t, err)
	freed, err := s.d.Alloc(400)
	must(t, err)
	must(t, freed.Free())
	for _, c := range []struct {
		what string
		args []driver.Arg
	}{
		{"no arguments", nil},
		{"two of three arguments", []driver.Arg{all(b), n}},
		{"four of three arguments", []driver.Arg{all(b), n, one, one}},
		{"an empty argument", []driver.Arg{all(b), n, {}}},
		{"an empty argument for a buffer", []driver.Arg{{}, n, one}},
		{"a scalar of 8 bytes for one of 4", []driver.Arg{all(b), n, val(int64(1))}},
		{"a scalar of 2 bytes for one of 4", []driver.Arg{all(b), val(int16(100)), one}},
		{"a scalar for a buffer", []driver.Arg{n, n, one}},
		{"a buffer for a scalar", []driver.Arg{all(b), all(b), one}},
		{"local memory for a scalar", []driver.Arg{all(b), {Local: 64}, one}},
		{"a buffer and a value in one", []driver.Arg{{Buffer: b, Len: 400, Value: n.Value}, n, one}},
		{"a part beyond the end", []driver.Arg{{Buffer: b, Off: 4, Len: 400}, n, one}},
		{"a part before the beginning", []driver.Arg{{Buffer: b, Off: -4, Len: 40}, n, one}},
		{"a part of negative length", []driver.Arg{{Buffer: b, Off: 4, Len: -4}, n, one}},
		{"a buffer that was freed", []driver.Arg{{Buffer: freed, Len: 400}, n, one}},
		{"a buffer of another device", []driver.Arg{all(other), n, one}},
	} {
		s.attempt(t, q, c.what, k, dim(100), auto, c.args)
	}
	s.refused(t, "CopyIn into a buffer of another device", q.CopyIn(other, 0, make([]byte, 4)))
	s.refused(t, "Copy to a buffer of another device", q.Copy(other, 0, b, 0, 4))
	must(t, q.Launch(k, dim(100), auto, good))
	same(t, "after refused launches", get[int32](t, q, b, 100), ramp(100, 2))
	if t.Failed() {
		return
	}
	l := s.kernel(t, "reduce")
	f := s.alloc(t, 400)
	s.attempt(t, q, "a scalar for local memory", l, dim(64), dim(64), []driver.Arg{all(f), all(f), n, n})
}

func (s *suite) wrongSizes(t *testing.T) {
	q, k := s.queue(t), s.kernel(t, "add")
	b := put(t, s, q, ramp(100, 0))
	args := []driver.Arg{all(b), val(int32(100)), val(int32(1))}
	for _, c := range []struct {
		what          string
		global, local [3]int
	}{
		{"no items", [3]int{0, 1, 1}, auto},
		{"no items in the second dimension", [3]int{100, 0, 1}, auto},
		{"a negative number of items", [3]int{-5, 1, 1}, auto},
		{"a negative group", dim(100), [3]int{-5, 1, 1}},
		{"a group of 0 in the second dimension", dim(100), [3]int{10, 0, 1}},
		{"a group that is too large", dim(1 << 20), [3]int{1 << 20, 1, 1}},
	} {
		s.attempt(t, q, c.what, k, c.global, c.local, args)
	}
	s.attempt(t, q, "too much local memory", s.kernel(t, "turn"), dim(32), dim(32),
		[]driver.Arg{all(b), {Local: 1 << 26}, {Local: 256}})
	must(t, q.Launch(k, dim(100), auto, args))
	same(t, "after refused launches", get[int32](t, q, b, 100), ramp(100, 1))
}

func (s *suite) closedProgram(t *testing.T) {
	p, err := s.d.Build(source)
	must(t, err)
	k, err := p.Kernel("spin")
	must(t, err)
	q := s.queue(t)
	x := make([]uint32, 1000)
	a, b := put(t, s, q, x), s.alloc(t, 4000)
	must(t, q.Launch(k, dim(1000), auto, []driver.Arg{all(a), all(b), val(int32(1000)), val(int32(10000))}))
	must(t, p.Close()) // while its kernel runs
	if got := get[uint32](t, q, b, 1000); got[999] != spun(0, 10000) {
		t.Error("Close of a program spoilt a launch before it")
	}
	_, err = p.Kernel("add")
	s.refused(t, "a kernel of a closed program", err)
}

func (s *suite) closedQueue(t *testing.T) {
	q, err := s.d.NewQueue()
	must(t, err)
	x := make([]uint32, 1000)
	a, b := put(t, s, q, x), s.alloc(t, 4000)
	k := s.kernel(t, "spin")
	args := []driver.Arg{all(a), all(b), val(int32(1000)), val(int32(1000))}
	must(t, q.Launch(k, dim(1000), auto, args))
	must(t, q.Close()) // after commands were issued
	s.dead(t, "a closed queue", q, k, args)
	q.Close() // may return an error, but must do no harm
	if got := get[uint32](t, s.queue(t), b, 1000); got[999] != spun(0, 1000) {
		t.Error("Close of a queue did not wait for a launch")
	}
}

// dead checks that a queue accepts nothing any more. The first two arguments
// are buffers.
func (s *suite) dead(t *testing.T, what string, q driver.Queue, k driver.Kernel, args []driver.Arg) {
	t.Helper()
	a, b := args[0].Buffer, args[1].Buffer
	s.refused(t, "CopyIn on "+what, q.CopyIn(a, 0, make([]byte, 8)))
	s.refused(t, "CopyOut on "+what, q.CopyOut(make([]byte, 8), a, 0))
	s.refused(t, "Copy on "+what, q.Copy(a, 0, b, 0, 8))
	s.refused(t, "Launch on "+what, q.Launch(k, dim(10), auto, args))
	_, err := q.Record()
	s.refused(t, "Record on "+what, err)
	s.refused(t, "Finish on "+what, q.Finish())
}

func (s *suite) closedDevice(t *testing.T) {
	d := s.open(t)
	two := &suite{open: s.open, d: d}
	p, err := d.Build(source)
	must(t, err)
	k, err := p.Kernel("spin")
	must(t, err)
	q, err := d.NewQueue()
	must(t, err)
	a, err := d.Alloc(1 << 16)
	must(t, err)
	b, err := d.Alloc(1 << 16)
	must(t, err)
	must(t, q.CopyIn(a, 0, noise(1<<16, 1)))
	args := []driver.Arg{all(a), all(b), val(int32(1 << 14)), val(int32(1000))}
	must(t, q.Launch(k, dim(1<<14), auto, args))
	e, err := q.Record()
	must(t, err)
	must(t, d.Close()) // while it computes

	two.dead(t, "a closed device", q, k, args)
	two.refused(t, "After on a closed device", q.After(e))
	_, err = d.Alloc(100)
	two.refused(t, "Alloc on a closed device", err)
	_, err = d.NewQueue()
	two.refused(t, "NewQueue on a closed device", err)
	_, err = d.Build(source)
	two.refused(t, "Build on a closed device", err)
	_, err = p.Kernel("add")
	two.refused(t, "Kernel on a closed device", err)
	e.Wait() // all these may return any error, but must return
	e.Done()
	a.Free()
	q.Close()
	p.Close()
	d.Close()

	// Other devices of the same kind continue to work.
	q = s.queue(t)
	c := put(t, s, q, ramp(10, 0))
	must(t, q.Launch(s.kernel(t, "add"), dim(10), auto, []driver.Arg{all(c), val(int32(10)), val(int32(1))}))
	same(t, "the other device", get[int32](t, q, c, 10), ramp(10, 1))
}
