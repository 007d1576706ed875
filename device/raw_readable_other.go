//go:build !linux

package device

// readable can't tell here.
func readable(addr uintptr, n int64, except string) error { return nil }
