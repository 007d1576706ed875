//go:build !linux

package main

import (
	"context"
	"errors"
)

type blow struct {
	sets, rank int
	all        bool
}

type disturbed struct {
	cairn, runDir string
	args          []string
	blows         []blow
	sets          int
}

// run is for Linux, as cairn run is.
func (*disturbed) run(context.Context) error { return errors.ErrUnsupported }
