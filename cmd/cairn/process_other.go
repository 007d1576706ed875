//go:build !unix

package main

import (
	"os/exec"

	"github.com/cairnrun/cairn/internal/supervise"
)

func watchEvacuate(*supervise.Supervisor) (stop func()) { return func() {} }

func ownGroup(*exec.Cmd) {}
