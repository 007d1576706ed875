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
	EnvRank    = "CAIRN_RANK"    // for programs that do not use Cairn
	EnvSize    = "CAIRN_SIZE"
	// EnvHelper is the path of the cairn command, which libcairn starts as its
	// helper, and a program with storage tiers of its own, too. Without it they
	// look in PATH.
	EnvHelper = "CAIRN_HELPER"
	// EnvChangedArgs lets a compiled program resume with other arguments than
	// those of the checkpoint.
	EnvChangedArgs = "CAIRN_CHANGED_ARGS"
	// EnvJoin is the host on which the destination of a move can join the MPI
	// world of the other ranks, or one of the words below. JoinSpawned is for a
	// destination that the MPI library of the others has started.
	EnvJoin      = "CAIRN_MPI_JOIN"
	JoinSpawned  = "spawn"
	JoinAnywhere = "any"
	JoinNever    = "no"
)

// ErrAlone says that no supervisor started this process.
var ErrAlone = errors.New("not started by a supervisor")

// Inherit takes over the sockets that a helper gave to this process: the
// control connection and the connection to the rank's writer. It returns
// ErrAlone if there are none. It removes the environment variables and sets
// close-on-exec, so that a program which this one starts does not act as the
// rank. The caller must call it once, before it starts goroutines.
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

// Join sends Hello and returns the Welcome. dir is the program's checkpoint
// directory, empty if it names none; perHost says that hosts do not share it.
// tiers is the policy that the program names, empty for none.
func Join(c *Conn, dir string, perHost bool, tiers string) (*Welcome, error) {
	if dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, err
		}
		dir = abs
	}
	if err := c.Send(&Hello{Pid: os.Getpid(), Dir: dir, PerHost: perHost, Tiers: tiers}); err != nil {
		return nil, fmt.Errorf("the helper of this host cannot be reached: %w", err)
	}
	m, err := c.Recv()
	if err != nil {
		return nil, fmt.Errorf("the helper of this host sent no welcome: %w", err)
	}
	w, ok := m.(*Welcome)
	if !ok {
		return nil, fmt.Errorf("%w: %s instead of a welcome", ErrMalformed, m.Kind())
	}
	return w, nil
}

// MayJoin reports whether the destination of a move that starts on this host
// can join the MPI world of the other ranks.
func MayJoin() bool {
	at := os.Getenv(EnvJoin)
	own, err := os.Hostname()
	return at == JoinAnywhere || at == JoinSpawned || at != "" && err == nil && at == own
}
