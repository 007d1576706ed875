package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// freeHeap is how large the heap of a compiling command may grow before garbage
// is collected.
const freeHeap = 512 << 20

// collectLess makes garbage collections rare while the heap is small: nearly
// all that the compiler allocates first is a program's syntax and types, which
// stay. end makes collections as usual.
func collectLess() (end func()) {
	usual := debug.SetGCPercent(-1)
	if usual < 0 { // the user has turned collections off
		return func() {}
	}
	var mu sync.Mutex
	ended := false
	var adjust func(*[16]byte)
	adjust = func(*[16]byte) { // after each collection
		mu.Lock()
		defer mu.Unlock()
		if ended {
			return
		}
		live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		metrics.Read(live)
		debug.SetGCPercent(max(usual, collectPercent(live[0])))
		runtime.SetFinalizer(new([16]byte), adjust)
	}
	adjust(nil)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		debug.SetGCPercent(usual)
	}
}

// collectPercent returns by how much a live heap may grow to freeHeap.
func collectPercent(live metrics.Sample) int {
	if live.Value.Kind() != metrics.KindUint64 {
		return 0
	}
	n := max(int(live.Value.Uint64()), 1<<20)
	return (freeHeap - n) * 100 / n
}
