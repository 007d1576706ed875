//go:build amd64 || arm64

package resume

// currentG returns a number that no other living goroutine has.
func currentG() uintptr
