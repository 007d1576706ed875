package mem

import "unsafe"

//go:noescape
func copyAVX512(dst, src *byte, n int)

// Copy copies src to dst, which have the same length, as the builtin does.
// Large copies bypass the cache: they are not read soon, so their lines need
// not be fetched before they are overwritten.
func Copy(dst, src []byte) {
	n := len(src) &^ 255
	if n < 4096 || len(dst) < len(src) || !hasAVX512 || uintptr(unsafe.Pointer(unsafe.SliceData(dst)))%64 != 0 {
		copy(dst, src)
		return
	}
	copyAVX512(&dst[0], &src[0], n)
	copy(dst[n:], src[n:])
}
