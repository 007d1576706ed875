//go:build !race

package resume

// Words that one goroutine writes, and others read at times. On all processors
// that Go knows these are read and written whole; in order they need not be.
func get(p *uint32) uint32    { return *p }
func set(p *uint32, v uint32) { *p = v }

// Unwinding reports whether the function that was called has returned to be left:
// then its caller does too.
func Unwinding() bool { return state == unwinding }
