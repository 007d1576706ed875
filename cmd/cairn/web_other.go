//go:build !linux

package main

import (
	"net"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

func serveWeb(net.Listener, string, func(string)) (stop func()) { return func() {} }

func listenHTTP(string, string) (net.Listener, error) { return nil, rundir.ErrUnsupported }
