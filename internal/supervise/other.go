//go:build !linux

package supervise

import (
	"context"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Supervisor runs one run.
type Supervisor struct{}

// New fails on this system.
func New(Options) (*Supervisor, error) { return nil, rundir.ErrUnsupported }

// Dir returns the run directory.
func (*Supervisor) Dir() string { return "" }

// Stop lets the run save and stop.
func (*Supervisor) Stop(string) {}

// Evacuate does nothing on this system.
func (*Supervisor) Evacuate() {}

// Run fails on this system.
func (*Supervisor) Run(context.Context) (Result, error) { return Result{}, rundir.ErrUnsupported }
