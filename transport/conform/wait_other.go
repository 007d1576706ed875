//go:build !unix

package conform

import "time"

// waitFD waits a little: no descriptor can be waited for here.
func waitFD(int, time.Duration) bool {
	time.Sleep(time.Millisecond)
	return true
}
