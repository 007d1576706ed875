package opencl

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
)

// TestParts shows that a kernel sees and changes exactly the parts that it is
// given, at any offset.
func TestParts(t *testing.T) {
	b := newBench(t, false)
	const n = 512
	rnd := rand.New(rand.NewPCG(1, 2))
	want := make([]int32, n)
	a := b.ints(want...)
	parts := func() int { return len(a.(*buffer).parts) }
	for round := range 300 {
		lo := rnd.IntN(n)
		if round%2 == 0 {
			lo = lo / 128 * 128
		}
		hi := lo + 1 + rnd.IntN(n-lo)
		v := rnd.Int32N(1000)
		b.launch("add", hi-lo, 0, part(a, int64(4*lo), int64(4*(hi-lo))), value(v), value(int32(hi-lo)))
		for i := lo; i < hi; i++ {
			want[i] += v
		}
		if parts() > maxParts+1 {
			t.Fatal(parts(), "parts are kept")
		}
	}
	// Len 0 means the rest.
	b.launch("add", n-3, 0, part(a, 12, 0), value(int32(5)), value(int32(n-3)))
	for i := 3; i < n; i++ {
		want[i] += 5
	}
	// The same part twice.
	b.launch("both", 8, 0, part(a, 20, 32), part(a, 20, 32), value(int32(0)))
	b.launch("both", 1, 0, part(a, 20, 4), part(a, 24, 4), value(int32(1)))
	want[5]++
	want[6] += 2
	for i, v := range read[int32](b, a) {
		if v != want[i] {
			t.Fatalf("%d: %d, not %d", i, v, want[i])
		}
	}
}

// TestParts_Overlap shows that overlapping parts can be read, and that kernels
// which write to them are refused.
func TestParts_Overlap(t *testing.T) {
	b := newBench(t, false)
	a := b.ints(1, 2, 3, 4, 5, 6, 7, 8)
	c := b.ints(0, 0, 0, 0)
	// Read only.
	b.launch("sum", 4, 0, part(a, 4, 16), part(a, 8, 16), whole(c), value(int32(4)))
	if v := read[int32](b, c); v[0] != 5 || v[3] != 11 {
		t.Error(v)
	}
	k := must(b.p.Kernel("sum"))(t)
	for _, args := range [][]driver.Arg{
		{part(a, 4, 16), whole(c), part(a, 8, 16), value(int32(4))},
		{part(a, 0, 32), whole(c), part(a, 8, 16), value(int32(4))},
		{whole(c), part(a, 8, 16), part(a, 0, 16), value(int32(4))},
	} {
		err := b.q.Launch(k, [3]int{4, 1, 1}, [3]int{}, args)
		if err == nil || !strings.Contains(err.Error(), "overlap") || errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
	}
	// Parts that do not overlap are allowed, and the same part is copied once.
	b.launch("sum", 2, 0, part(a, 4, 8), part(a, 20, 8), part(a, 12, 8), value(int32(2)))
	b.launch("sum", 2, 0, part(a, 4, 8), part(a, 4, 8), part(a, 4, 8), value(int32(2)))
	if v := read[int32](b, a); v[0] != 1 || v[1] != 4 || v[2] != 6 || v[3] != 8 || v[4] != 10 || v[5] != 6 {
		t.Error(v)
	}
}

// TestParts_Freed releases overlapping parts while kernels that use them run or
// wait: because there are too many, or with their buffer. The kernels must give
// the right results.
func TestParts_Freed(t *testing.T) {
	b := newBench(t, false)
	other := must(b.d.NewQueue())(t)
	add := must(b.p.Kernel("add"))(t)
	slow := b.ints(1)
	rnd := rand.New(rand.NewPCG(5, 6))
	step := int(b.d.align / 4) // elements between two possible starts of parts
	used := b.d.used.Load()
	went, all := 0, 0 // how often there were many, and too many
	for round := range 60 {
		n := step * (2 + rnd.IntN(9))
		times := 5 + rnd.IntN(3*fewParts)
		switch round % 10 {
		case 1:
			n, times = 12*step, 6*maxParts
		case 2:
			n, times = 12*step, 4*maxParts
		}
		var bufs, kept [2]driver.Buffer
		var want [2][]int32
		for i := range bufs {
			want[i] = make([]int32, n)
			bufs[i], kept[i] = b.ints(want[i]...), b.ints(want[i]...)
		}
		pass, holding := func() {}, round%3 == 0 && times < maxParts
		switch {
		case holding:
			pass = held(t, b)
		case round%3 == 1:
			b.launch("spin", 1, 1, whole(slow), value(int32(1_000_000)))
		}
		for range times {
			i := rnd.IntN(2)
			lo := rnd.IntN(n)
			if rnd.IntN(8) > 0 {
				lo = lo / step * step
			}
			hi := lo + 1 + rnd.IntN(n-lo)
			q, x := []driver.Queue{b.q, other}[i], bufs[i].(*buffer)
			before := len(x.made)
			if round%10 == 2 && rnd.IntN(20) == 0 {
				check(t, q.Finish())
			}
			check(t, q.Launch(add, [3]int{hi - lo, 1, 1}, [3]int{}, []driver.Arg{part(x, int64(4*lo), int64(4*(hi-lo))), value(int32(round)), value(int32(hi - lo))}))
			for j := lo; j < hi; j++ {
				want[i][j] += int32(round)
			}
			if len(x.parts) > maxParts || len(x.parts) != len(x.made) {
				t.Fatal(len(x.parts), "parts are kept,", len(x.made), "were made")
			}
			if len(x.made) < before {
				went++
				if before == maxParts {
					all++
				}
			}
		}
		check(t, b.q.Copy(kept[0], 0, bufs[0], 0, int64(4*n)))
		check(t, other.Copy(kept[1], 0, bufs[1], 0, int64(4*n)))
		if round%4 != 3 {
			waits := len(bufs[0].(*buffer).made) > 0
			check(t, bufs[0].Free())
			check(t, bufs[1].Free())
			check(t, bufs[1].Free())
			if left := len(b.d.deferred); holding && waits && left == 0 {
				t.Error("a buffer whose parts are in use went")
			}
		}
		pass()
		if round%2 == 0 {
			check(t, other.Finish())
		}
		for i, q := range []driver.Queue{b.q, other} {
			got := make([]int32, n)
			check(t, q.CopyOut(raw(got), kept[i], 0))
			for j, v := range got {
				if v != want[i][j] {
					t.Fatalf("round %d, buffer %d: element %d is %d, not %d", round, i, j, v, want[i][j])
				}
			}
			check(t, kept[i].Free())
			check(t, bufs[i].Free())
		}
		if got, left := b.d.used.Load(), len(b.d.deferred); got != used || left != 0 {
			t.Fatalf("round %d: %d bytes are in use, not %d; %d buffers stay", round, got, used, left)
		}
	}
	t.Log("parts went", went, "times, because there were too many", all, "times")
	if all < 3 || went < all+3 {
		t.Error("that is not often enough")
	}
}

// TestFree_Deferred shows that the number of buffers that are released later is
// bounded, and that their memory can be reused.
func TestFree_Deferred(t *testing.T) {
	b := newBench(t, false)
	add := must(b.p.Kernel("add"))(t)
	used := b.d.used.Load()
	leave := func(n int64) {
		t.Helper()
		x := must(b.d.Alloc(n))(t)
		check(t, b.q.Launch(add, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{part(x, b.d.align, 4), value(int32(1)), value(int32(1))}))
		check(t, x.Free())
	}
	pass := held(t, b)
	for range maxDeferred {
		leave(2 * b.d.align)
	}
	if got := len(b.d.deferred); got != maxDeferred || b.d.used.Load() != used+maxDeferred*2*b.d.align {
		t.Error(got, b.d.used.Load())
	}
	done := make(chan bool)
	go func() {
		defer close(done)
		leave(2 * b.d.align) // waits for the held commands
	}()
	select {
	case <-done:
		t.Error("there are more and more")
	case <-time.After(20 * time.Millisecond):
	}
	pass()
	<-done
	check(t, b.q.Finish())
	if got := len(b.d.deferred); got != 0 || b.d.used.Load() != used {
		t.Error(got, b.d.used.Load())
	}

	// Only their memory is left: the allocation waits for it.
	real := b.d.info.Memory
	defer func() { b.d.info.Memory = real }()
	b.d.info.Memory = used + 4*b.d.align
	for range 50 {
		leave(3 * b.d.align)
	}
	// The same with a closed queue, and with a closed device.
	leave(3 * b.d.align)
	check(t, b.q.Close())
	if got := must(b.d.FreeMemory())(t); got != 4*b.d.align {
		t.Error(got)
	}
	b.q = must(b.d.NewQueue())(t)
	leave(3 * b.d.align)
	check(t, b.d.Close())
	if got := len(b.d.deferred); got != 0 || b.d.used.Load() != 0 {
		t.Error(got, b.d.used.Load())
	}
}
