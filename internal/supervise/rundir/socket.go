//go:build linux

package rundir

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// SocketName is the name of the control socket.
const SocketName = "control.sock"

// Listen makes the control socket and listens on it.
func (d *Dir) Listen() (l *net.UnixListener, err error) {
	path := d.File(SocketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) { // we have the lock, so no supervisor listens there
		return nil, err
	}
	err = inDir(d.Path, func(short string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(short, SocketName), Net: "unix"})
		if err != nil {
			return err
		}
		l.SetUnlinkOnClose(false)
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return l, nil
}

// Dial connects to the control socket of a run.
func Dial(ctx context.Context, run string) (conn net.Conn, err error) {
	err = inDir(run, func(short string) (err error) {
		var d net.Dialer
		conn, err = d.DialContext(ctx, "unix", filepath.Join(short, SocketName))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(run, SocketName), err)
	}
	return conn, nil
}

// inDir calls f with a short path of a directory, because a socket's address
// has at most 107 bytes.
func inDir(dir string, f func(short string) error) error {
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(fd)
	return f(fmt.Sprintf("/proc/self/fd/%d", fd))
}
