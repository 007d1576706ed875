//go:build !linux

package helper

import (
	"context"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Run fails on this system.
func Run(context.Context) error { return rundir.ErrUnsupported }

// RunLaunched fails on this system.
func RunLaunched(context.Context) error { return rundir.ErrUnsupported }
