// Package client asks a run's supervisor on behalf of commands: for its state, a
// checkpoint, a stop or a migration. What Read needs it takes from the run
// directory if there is no supervisor.
package client

import (
	"errors"
	"time"
)

// ErrNotRunning says that no supervisor on this machine runs the run.
var ErrNotRunning = errors.New("not running on this machine")

// Migration says what is moved, and how.
type Migration struct {
	Ranks  []int  // these,
	Host   string // or all that are on this host, where none is placed any more
	To     string // host; "": those of the run that have the most free slots
	Chunk  int64  // bytes that are sent at a time; 0: 64 MiB
	Rounds int    // of sending ahead, at most; 0: none
	Files  bool   // the run's open files are copied, too

	// Program is the program's path on the host To, and Env are variables
	// (NAME=VALUE) for ranks there. They hold for that host from then on, also
	// when the run is started again. "" and nil: what held before.
	Program string
	Env     []string

	// StartLimit is how long the new processes may take to come to Restore; 0:
	// DefaultStartLimit.
	StartLimit time.Duration

	// Cancel, if not nil, calls the move off when it is closed, unless it is
	// decided by then. The answer tells what became of it.
	Cancel <-chan struct{}
}
