//go:build !unix

package transporttest

import "time"

// waitFD waits a little: on this system, a descriptor cannot be awaited.
func waitFD(time.Duration, ...int) bool {
	time.Sleep(time.Millisecond)
	return true
}
