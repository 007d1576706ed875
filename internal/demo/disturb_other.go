//go:build !linux

package main

import (
	"context"
	"errors"
)

type blow struct {
	checkpoints, rank int
	all               bool
}

type disturbed struct {
	cairn, runDir string
	args          []string
	blows         []blow
	checkpoints   int
}

// run needs Linux, as cairn run does.
func (*disturbed) run(context.Context) error { return errors.ErrUnsupported }
