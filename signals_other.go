//go:build !unix

package cairn

import (
	"os"
	"syscall"
)

var defaultSignals = map[os.Signal]Action{syscall.SIGTERM: SaveAndStop}
