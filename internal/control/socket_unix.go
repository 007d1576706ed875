//go:build unix

package control

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
)

// Pair returns the two ends of a Unix stream socket: one for this process,
// one to be inherited by another. Both are closed on exec.
func Pair() (*net.UnixConn, *os.File, error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, os.NewSyscallError("socketpair", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "socketpair")
	mine, err := unixConn(os.NewFile(uintptr(fds[0]), "socketpair"))
	if err != nil {
		theirs.Close()
		return nil, nil, err
	}
	return mine, theirs, nil
}

// unixConn makes a connection of a file, which it closes.
func unixConn(f *os.File) (*net.UnixConn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, fmt.Errorf("%s: no Unix socket", f.Name())
	}
	return u, nil
}

// inherited takes over the descriptor that an environment variable names.
func inherited(name string) (*net.UnixConn, error) {
	value := os.Getenv(name)
	fd, err := strconv.Atoi(value)
	if err != nil || fd < 3 {
		return nil, fmt.Errorf("%s=%s names no descriptor; unset it, or start the program by 'cairn run'", name, value)
	}
	// The type is asked first: what is no socket is none of ours to close.
	if kind, err := syscall.GetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_TYPE); err != nil || kind != syscall.SOCK_STREAM {
		return nil, fmt.Errorf("%s=%s, but descriptor %d is not the supervisor's socket: something between 'cairn run' and the program closed it; keep descriptors open there, or unset %s", name, value, fd, name)
	}
	syscall.CloseOnExec(fd)
	c, err := unixConn(os.NewFile(uintptr(fd), name))
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", name, value, err)
	}
	return c, nil
}

// SendFiles passes descriptors to the process at the other end of a socket.
func SendFiles(c *net.UnixConn, files ...*os.File) error {
	fds := make([]int, len(files))
	for i, f := range files {
		fds[i] = int(f.Fd())
	}
	_, _, err := c.WriteMsgUnix([]byte{1}, syscall.UnixRights(fds...), nil)
	return err
}

// ReceiveFiles returns n descriptors that the other end has passed.
func ReceiveFiles(c *net.UnixConn, n int) (files []*os.File, err error) {
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
		}
	}()
	rights := make([]byte, syscall.CmsgSpace(4*n))
	k, nr, _, _, err := c.ReadMsgUnix(make([]byte, 1), rights)
	if err == nil && k == 0 {
		err = io.EOF
	}
	if err != nil {
		return nil, err
	}
	list, err := syscall.ParseSocketControlMessage(rights[:nr])
	if err != nil {
		return nil, err
	}
	for i := range list {
		fds, err := syscall.ParseUnixRights(&list[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			syscall.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "socket"))
		}
	}
	if len(files) != n {
		return files, fmt.Errorf("%w: %d descriptors, not %d", ErrMalformed, len(files), n)
	}
	return files, nil
}

// Sockets makes connections of what Inherit finds in the environment: the
// control connection and the connection to the writer. It closes the files.
func Sockets(ctl, writer *os.File) (*Conn, *net.UnixConn, error) {
	c, err := unixConn(ctl)
	if err != nil {
		writer.Close()
		return nil, nil, err
	}
	w, err := unixConn(writer)
	if err != nil {
		c.Close()
		return nil, nil, err
	}
	return New(c), w, nil
}
