//go:build unix

package resume

import (
	"os"
	"syscall"
)

func killSelf() { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }

// ownSignals are those that a run listens for.
var ownSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1}
