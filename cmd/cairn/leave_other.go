//go:build !unix

package main

import "github.com/cairnrun/cairn/internal/supervise"

func watchLeave(*supervise.Supervisor) (stop func()) { return func() {} }
