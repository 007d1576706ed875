//go:build !linux

package device

// readable accepts all memory: this system does not tell more.
func readable(addr uintptr, n int64, except string) error { return nil }
