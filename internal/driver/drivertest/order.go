package drivertest

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/mem"
)

// queueOrder issues commands of all kinds. Each one needs the result of the one
// before.
func (s *suite) queueOrder(t *testing.T) {
	q := s.queue(t)
	k := s.kernel(t, "affine")
	const n = 5000
	host := mem.Aligned(4 * n)
	s.pinned(t, host)
	a, b := s.alloc(t, 4*n), s.alloc(t, 4*n)
	want := ramp(n, 1)
	copy(host, raw(want))
	must(t, q.CopyIn(a, 0, host))
	for i := range 100 {
		args := []driver.Arg{all(a), all(b), val(int32(n)), val(int32(3)), val(int32(i))}
		must(t, q.Launch(k, dim(n), auto, args))
		for _, v := range args[2:] { // the launch has copied its arguments
			clear(v.Value)
		}
		clear(args)
		must(t, q.Copy(a, 4, b, 0, 4*(n-1)))
		must(t, q.Copy(a, 0, b, 4*(n-1), 4))
		next := make([]int32, n)
		for j := range want {
			next[(j+1)%n] = 3*want[j] + int32(i)
		}
		want = next
		if i%10 == 0 { // through the host and back
			must(t, q.CopyOut(host, a, 0))
			must(t, q.CopyIn(b, 0, host))
			must(t, q.Copy(a, 0, b, 0, 4*n))
		}
	}
	same(t, "after 100 rounds", get[int32](t, q, a, n), want)
}

// events orders a producer and a consumer on two queues.
func (s *suite) events(t *testing.T) {
	q1, q2 := s.queue(t), s.queue(t)
	k := s.kernel(t, "spin")
	const n, rounds = 1 << 13, 300
	x := make([]uint32, n)
	for i := range x {
		x[i] = uint32(i)
	}
	a, b, c := put(t, s, q1, x), s.alloc(t, 4*n), s.alloc(t, 4*n)
	none, err := q2.Record() // it has no commands before it
	must(t, err)
	must(t, none.Wait())
	for range 5 {
		must(t, q1.CopyIn(b, 0, make([]byte, 4*n)))
		must(t, q1.Launch(k, dim(n), auto, []driver.Arg{all(a), all(b), val(int32(n)), val(int32(rounds))}))
		ready, err := q1.Record()
		must(t, err)
		must(t, q2.After(ready))
		must(t, q2.After(ready)) // a second time has no effect
		must(t, q2.After(none))
		must(t, q2.Copy(c, 0, b, 0, 4*n))
		taken, err := q2.Record()
		must(t, err)
		must(t, q1.After(taken)) // b is free again
		must(t, q1.After(ready)) // an event of the queue itself
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				if err := taken.Wait(); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if done, err := ready.Done(); !done || err != nil {
			t.Fatalf("an earlier event has not passed: %v, %v", done, err)
		}
		for i, v := range get[uint32](t, q2, c, n) {
			if want := spun(uint32(i), rounds); v != want {
				t.Fatalf("element %d is %d, want %d", i, v, want)
			}
		}
	}
	must(t, q1.Finish())
	must(t, none.Wait())
}

// circle passes one buffer around four queues.
func (s *suite) circle(t *testing.T) {
	k := s.kernel(t, "affine")
	const n, steps = 3000, 200
	var qs []driver.Queue
	for range 4 {
		qs = append(qs, s.queue(t))
	}
	bufs := []driver.Buffer{put(t, s, qs[0], ramp(n, 5)), s.alloc(t, 4*n)}
	must(t, qs[0].Finish())
	for i := range steps {
		q := qs[i%len(qs)]
		must(t, q.Launch(k, dim(n), auto, []driver.Arg{all(bufs[i%2]), all(bufs[1-i%2]), val(int32(n)), val(int32(5)), val(int32(i))}))
		e, err := q.Record()
		must(t, err)
		must(t, qs[(i+1)%len(qs)].After(e))
	}
	want := ramp(n, 5)
	for i := range steps {
		for j := range want {
			want[j] = 5*want[j] + int32(i)
		}
	}
	same(t, "after the circle", get[int32](t, qs[steps%len(qs)], bufs[steps%2], n), want)
}

// goroutines uses one kernel with different arguments in several goroutines,
// each with its own queue and buffers.
func (s *suite) goroutines(t *testing.T) {
	s.chains(t, 8, nil)
}

// oneQueue does the same with one queue for all.
func (s *suite) oneQueue(t *testing.T) { s.chains(t, 6, s.queue(t)) }

func (s *suite) chains(t *testing.T, n int, q driver.Queue) {
	k := s.kernel(t, "affine")
	var all sync.WaitGroup
	for g := range n {
		all.Go(func() {
			if err := s.chain(k, q, g); err != nil {
				t.Errorf("goroutine %d: %v", g, err)
			}
		})
	}
	all.Wait()
}

// chain computes a result that depends on g. If q is nil, it creates a queue.
func (s *suite) chain(k driver.Kernel, q driver.Queue, g int) (err error) {
	if q == nil {
		if q, err = s.d.NewQueue(); err != nil {
			return err
		}
		defer q.Close()
	}
	n := 1000 + 37*g
	for round := range 10 {
		a, err := s.d.Alloc(int64(4 * n))
		if err != nil {
			return err
		}
		b, err := s.d.Alloc(int64(4 * n))
		if err != nil {
			return err
		}
		x := ramp(n, int32(g))
		if err := q.CopyIn(a, 0, raw(x)); err != nil {
			return err
		}
		for i := range 10 {
			if err := q.Launch(k, dim(n), dim(1+g), []driver.Arg{all(a), all(b), val(int32(n)), val(int32(g)), val(int32(i))}); err != nil {
				return err
			}
			a, b = b, a
			for j := range x {
				x[j] = int32(g)*x[j] + int32(i)
			}
		}
		e, err := q.Record()
		if err != nil {
			return err
		}
		if err := e.Wait(); err != nil {
			return err
		}
		got := make([]byte, 4*n)
		if err := q.CopyOut(got, a, 0); err != nil {
			return err
		}
		if !bytes.Equal(got, raw(x)) {
			return fmt.Errorf("round %d: the values are wrong", round)
		}
		if err := a.Free(); err != nil {
			return err
		}
		if err := b.Free(); err != nil {
			return err
		}
	}
	return q.Finish()
}
