//go:build !amd64

package mem

// Copy copies src to dst, of equal length, as the builtin does.
func Copy(dst, src []byte) { copy(dst, src) }
