//go:build !linux

package client

import (
	"context"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Read fails on this system.
func Read(context.Context, string) (*control.RunState, error) { return nil, rundir.ErrUnsupported }

// Checkpoint fails on this system.
func Checkpoint(context.Context, string, string) (*control.CheckpointState, error) {
	return nil, rundir.ErrUnsupported
}

// Stop fails on this system.
func Stop(context.Context, string, string) (*control.RunState, error) {
	return nil, rundir.ErrUnsupported
}

// Migrate fails on this system.
func Migrate(context.Context, string, Migration, func(*control.MoveState)) (*control.MoveState, error) {
	return nil, rundir.ErrUnsupported
}
