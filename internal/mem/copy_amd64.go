package mem

import "unsafe"

//go:noescape
func copyPages(dst, src *byte, n int)

// Copy copies src to dst, which have the same length, as the builtin does.
// Large copies bypass the cache: they are not read soon, so their lines need
// not be fetched before they are overwritten.
func Copy(dst, src []byte) {
	n := len(src) &^ (16<<10 - 1)
	if n == 0 || len(dst) < len(src) || uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%16 != 0 {
		copy(dst, src)
		return
	}
	copyPages(&dst[0], &src[0], n)
	copy(dst[n:], src[n:])
}
