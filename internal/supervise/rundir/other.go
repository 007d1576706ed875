//go:build !linux

package rundir

import "errors"

// ErrUnsupported says that runs cannot be supervised on this system.
var ErrUnsupported = errors.New("runs can be supervised on Linux only; start the program itself, its checkpoints work everywhere")
