//go:build !linux

package supervise

import (
	"context"
	"errors"
)

var errUnsupported = errors.New("runs can be supervised on Linux only; start the program itself, its checkpoints work everywhere")

// Supervisor runs one run.
type Supervisor struct{}

// New fails on this system.
func New(Options) (*Supervisor, error) { return nil, errUnsupported }

// Dir returns the run directory.
func (*Supervisor) Dir() string { return "" }

// Stop lets the run save and stop.
func (*Supervisor) Stop(string) {}

// Evacuate does nothing on this system.
func (*Supervisor) Evacuate() {}

// Run fails on this system.
func (*Supervisor) Run(context.Context) (Result, error) { return Result{}, errUnsupported }

// Help fails on this system.
func Help(context.Context) error { return errUnsupported }

// HelpLaunched fails on this system.
func HelpLaunched(context.Context) error { return errUnsupported }

// Read fails on this system.
func Read(context.Context, string) (*State, error) { return nil, errUnsupported }

// Checkpoint fails on this system.
func Checkpoint(context.Context, string, string) (*CheckpointState, error) {
	return nil, errUnsupported
}

// Stop fails on this system.
func Stop(context.Context, string, string) (*State, error) { return nil, errUnsupported }

// Migrate fails on this system.
func Migrate(context.Context, string, Migration, func(*MoveState)) (*MoveState, error) {
	return nil, errUnsupported
}
