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

// SendFiles fails on this system.
func SendFiles(*net.UnixConn, ...*os.File) error { return errUnsupported }

// ReceiveFiles fails on this system.
func ReceiveFiles(*net.UnixConn, int) ([]*os.File, error) { return nil, errUnsupported }

// Sockets fails on this system.
func Sockets(_, _ *os.File) (*Conn, *net.UnixConn, error) { return nil, nil, errUnsupported }
