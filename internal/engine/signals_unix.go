//go:build unix

package engine

import (
	"os"
	"syscall"
)

var defaultSignals = map[os.Signal]SignalAction{syscall.SIGTERM: SaveAndStop, syscall.SIGUSR1: SaveAndContinue}
