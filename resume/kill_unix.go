//go:build unix

package resume

import (
	"os"
	"syscall"
	"time"
)

func killSelf() { syscall.Kill(syscall.Getpid(), syscall.SIGKILL) }

// ownSignals are those that a run listens for.
var ownSignals = []os.Signal{syscall.SIGTERM, syscall.SIGUSR1}

// processTime returns the processor time that the process has used.
func processTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
