//go:build !unix

package control

import (
	"errors"
	"io"
	"net"
	"os"
)

var errUnsupported = errors.New("descriptors can't be passed on this system")

func sendFiles(io.Writer, []byte, []*os.File) (int, error) { return 0, errUnsupported }

func recvFiles(u *net.UnixConn, p []byte) (int, []*os.File, error) {
	n, err := u.Read(p)
	return n, nil, err
}

// Pair makes two connected sockets, where the system can.
func Pair() (*net.UnixConn, *os.File, error) { return nil, nil, errUnsupported }

func inherited(string) (*net.UnixConn, error) { return nil, errUnsupported }
