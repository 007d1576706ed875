//go:build !amd64 && !arm64

package resume

import (
	"bytes"
	"runtime"
	"strconv"
)

// currentG returns a number that no other goroutine has.
func currentG() uintptr {
	var buf [64]byte
	s := buf[:runtime.Stack(buf[:], false)] // goroutine 12 [running]:
	s = bytes.TrimPrefix(s, []byte("goroutine "))
	s, _, _ = bytes.Cut(s, []byte(" "))
	n, _ := strconv.ParseUint(string(s), 10, 63)
	return uintptr(n) + 1
}
