//go:build !amd64

package mem

// Copy copies src to dst, which have the same length, as the builtin does.
func Copy(dst, src []byte) { copy(dst, src) }
