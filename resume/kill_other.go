//go:build !unix

package resume

import (
	"os"
	"syscall"
)

func killSelf() {
	if p, err := os.FindProcess(os.Getpid()); err == nil {
		p.Kill()
	}
}

// ownSignals are those that a run listens for.
var ownSignals = []os.Signal{syscall.SIGTERM}
