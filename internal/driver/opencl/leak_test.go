//go:build !race

package opencl

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
)

// resident returns the resident memory of this process in bytes, including C's.
func resident(t *testing.T) int {
	p, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skip(err)
	}
	n, err := strconv.Atoi(strings.Fields(string(p))[1])
	check(t, err)
	return n * os.Getpagesize()
}

// TestClose_NoLeak shows that launches, parts, copies and events leave nothing
// behind, whether they were waited for or not. CAIRN_LAUNCHES=1000000 makes the
// test long. It is skipped under the race detector, which uses memory itself.
func TestClose_NoLeak(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("CAIRN_LAUNCHES"))
	n = max(n, 20000)
	b := newBench(t, false)
	a := b.ints(make([]int32, 4096)...)
	k := must(b.p.Kernel("add"))(t)
	pinned := make([]byte, 4)
	release := must(b.d.Pin(pinned))(t)
	run := func(n int) {
		for i := range n {
			args := []driver.Arg{part(a, int64(i%2*128), 128), value(int32(1)), value(int32(1))}
			if i%20 == 0 {
				args[0] = part(a, int64(4+i%1000*4), 4096)
			}
			check(t, b.q.Launch(k, [3]int{1, 1, 1}, group(1), args))
			if e := must(b.q.Record())(t); i%100 == 0 {
				check(t, e.Wait())
			}
			if i%7 == 0 {
				check(t, b.q.CopyOut(pinned, a, 0))
			}
			if i%100 == 0 {
				c := must(b.d.Alloc(1000))(t)
				check(t, b.q.CopyIn(c, 0, pinned))
				check(t, c.Free())
			}
		}
		check(t, b.q.Finish())
		runtime.GC()
	}
	// A leak grows in every iteration: a command takes some 300 bytes, a buffer
	// more. Caches and heaps grow only a few times, most of all in NVIDIA's
	// driver.
	var grown []int
	for range 20 {
		before := resident(t)
		run(n)
		last := resident(t) - before
		grown = append(grown, last>>10)
		if last < 2<<20 {
			t.Log("KiB:", grown)
			check(t, release())
			return
		}
	}
	t.Errorf("%d launches leave memory behind every time; KiB: %v", n, grown)
	check(t, release())
}
