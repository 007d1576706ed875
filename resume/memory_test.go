//go:build cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64)

package resume

import (
	"runtime"
	"testing"

	"github.com/cairnrun/cairn/internal/engine"
)

// TestRoutine_Memory measures how much memory a goroutine takes that can be
// saved, and waits, more than one that cannot be saved.
func TestRoutine_Memory(t *testing.T) {
	const n = 5000
	measure := func(start func(f func())) uint64 {
		before, after := new(runtime.MemStats), new(runtime.MemStats)
		runtime.GC()
		runtime.GC() // frees the stacks of goroutines that have ended
		runtime.ReadMemStats(before)
		over, begun, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
		for range n {
			start(func() {
				begun <- struct{}{}
				<-over
				ended <- struct{}{}
			})
		}
		for range n {
			<-begun
		}
		runtime.GC()
		runtime.ReadMemStats(after)
		close(over)
		for range n {
			<-ended
		}
		return (after.HeapAlloc + after.StackInuse - before.HeapAlloc - before.StackInuse) / n
	}
	measure(func(f func()) { go f() }) // the Go runtime keeps the memory of goroutines
	plain := measure(func(f func()) { go f() })
	run = new(engine.Run)
	begun.Store(true)
	defer func() {
		run = nil
		begun.Store(false)
	}()
	saved := measure(func(f func()) { Start("", f) })
	t.Logf("%d bytes for a goroutine, %d for one that can be saved", plain, saved)
	if saved > plain+1024 {
		t.Errorf("a goroutine that can be saved takes %d bytes more than another, not at most 1024", saved-plain)
	}
}
