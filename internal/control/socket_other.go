//go:build !unix

package control

import (
	"errors"
	"net"
	"os"
)

var errUnsupported = errors.New("runs are not supervised on this system")

// Pair fails on this system.
func Pair() (*net.UnixConn, *os.File, error) { return nil, nil, errUnsupported }

func inherited(string) (*net.UnixConn, error) { return nil, errUnsupported }
