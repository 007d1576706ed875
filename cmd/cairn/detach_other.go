//go:build !linux

package main

import (
	"context"

	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

func detach(context.Context, *call) error { return rundir.ErrUnsupported }

func isDetached() bool { return false }

func goBackground(*call, string) error { return rundir.ErrUnsupported }

func ignoreHangup(bool) (nohup bool) { return false }

func onHangup(bool, *supervise.Supervisor) (end func()) { return func() {} }
