package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
)

// Environment variables of a rank.
const (
	EnvControl = "CAIRN_CONTROL" // number of the control socket's descriptor
	EnvWriter  = "CAIRN_WRITER"  // number of the writer socket's descriptor
	EnvRank    = "CAIRN_RANK"    // for programs that don't use Cairn
	EnvSize    = "CAIRN_SIZE"
	// EnvJoin says on which host a process that takes the place of another one
	// can join the MPI world of the others; or "any", or "no". JoinSpawned is for
	// one that the MPI library of the others has started.
	EnvJoin     = "CAIRN_MPI_JOIN"
	JoinSpawned = "spawn"
)

// ErrAlone says that no supervisor started this process.
var ErrAlone = errors.New("not started by a supervisor")

// Inherit takes over the sockets that a helper gave to this process: the
// control connection and the connection to the rank's writer. It returns
// ErrAlone if there are none. The environment variables are removed and the
// descriptors are closed on exec, so that programs started by this one don't
// take themselves for the rank. To be called once, early, by one goroutine.
func Inherit() (*Conn, *net.UnixConn, error) {
	if os.Getenv(EnvControl) == "" {
		return nil, nil, ErrAlone
	}
	ctl, err := inherited(EnvControl)
	if err != nil {
		return nil, nil, err
	}
	os.Unsetenv(EnvControl)
	var writer *net.UnixConn
	if os.Getenv(EnvWriter) != "" {
		if writer, err = inherited(EnvWriter); err != nil {
			ctl.Close()
			return nil, nil, err
		}
		os.Unsetenv(EnvWriter)
	}
	return New(ctl), writer, nil
}

// Join says hello and waits for the welcome. dir is the program's checkpoint
// folder, empty if it names none.
func Join(c *Conn, dir string) (*Welcome, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		dir = abs
	}
	if err := c.Send(&Message{Kind: Hello, Pid: os.Getpid(), Dir: dir}); err != nil {
		return nil, fmt.Errorf("the helper of this host can't be reached: %w", err)
	}
	m, err := c.Recv()
	if err != nil {
		return nil, fmt.Errorf("the helper of this host gave no welcome: %w", err)
	}
	if m.Kind != Welcomed || m.Welcome == nil {
		return nil, fmt.Errorf("%w: %s instead of a welcome", ErrMalformed, m.Kind)
	}
	if w := m.Welcome; w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return nil, fmt.Errorf("%w: rank %d of %d", ErrMalformed, w.Rank, w.Size)
	}
	return m.Welcome, nil
}
