package resume

import (
	"runtime"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/engine"
)

// TestFinalizers_WaitForCopy shows that no finalizer or cleanup of the program
// starts while the state is copied, and that the state is not copied while one
// runs.
func TestFinalizers_WaitForCopy(t *testing.T) {
	was := run
	run = new(engine.Run)
	defer func() { run = was }()
	for name, set := range map[string]func(f func()){
		"finalizer": func(f func()) { SetFinalizer(&[64]byte{}, func(*[64]byte) { f() }) },
		"cleanup":   func(f func()) { AddCleanup(&[64]byte{}, func(int) { f() }, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			for !lockFinalizers() { // one of another test may be about to end
				runtime.Gosched()
			}
			running, end := make(chan struct{}), make(chan struct{})
			set(func() {
				close(running)
				<-end
			})
			for text := ""; !strings.Contains(text, "finalizers.go:"); { // it waits for the lock
				runtime.GC()
				buf := make([]byte, 1<<20)
				text = string(buf[:runtime.Stack(buf, true)])
				select {
				case <-running:
					t.Fatal("it runs while the state may be copied")
				default:
				}
			}
			unlockFinalizers()
			<-running
			if lockFinalizers() {
				unlockFinalizers()
				t.Error("the state could be copied while it runs")
			}
			close(end)
		})
	}
}
