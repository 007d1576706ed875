//go:build !cairn_goroutines && !race

package resume

// Unwinding reports whether the function that was called unwinds: then its
// caller does, too.
func Unwinding() bool { return mainRoutine.state == unwinding }

// nothingCalled reports that no resumable function is about to be called. It
// may report false nevertheless.
func nothingCalled() bool { return mainRoutine.state == 0 }
