//go:build amd64 || arm64

package resume

// self returns a number that no other living goroutine has.
func self() uintptr
