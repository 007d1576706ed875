//go:build !unix

package transporttest

import "time"

// waitFD waits a little: no descriptor can be waited for here.
func waitFD(time.Duration, ...int) bool {
	time.Sleep(time.Millisecond)
	return true
}
