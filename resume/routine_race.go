//go:build !cairn_goroutines && race

package resume

// These are as in routine_norace.go, in a way that the race detector accepts.

// Unwinding is as in routine_norace.go.
func Unwinding() bool { return get(&mainRoutine.state) == unwinding }

func nothingCalled() bool { return get(&mainRoutine.state) == 0 }
