//go:build !linux

package rundir

import "errors"

// CheckpointDir returns "": there are no run directories on this system.
func CheckpointDir(run string) string { return "" }

// ErrUnsupported says that runs cannot be supervised on this system.
var ErrUnsupported = errors.New("runs can be supervised on Linux only; start the program itself, its checkpoints work everywhere")
