// Package client sends requests of commands to a run's supervisor: for its
// state, a checkpoint, a stop or a migration. If there is no supervisor, Read
// reads the run directory.
package client

import (
	"errors"
	"time"
)

// ErrNotRunning says that no supervisor on this machine runs the run.
var ErrNotRunning = errors.New("not running on this machine")

// Migration says what to move, and how.
type Migration struct {
	Ranks  []int  // ranks to move
	Host   string // or all ranks on this host, which gets no ranks any more
	To     string // destination host; "": hosts of the run with the most free slots
	Chunk  int64  // bytes that are sent at a time; 0: 64 MiB
	Rounds int    // maximum number of precopy rounds; 0: none
	Files  bool   // copy the run's open files, too

	// Program is the program's path on the host To, and Env are variables
	// (NAME=VALUE) for ranks there. They hold for that host from then on, also
	// when the run is started again. "" and nil keep the earlier values.
	Program string
	Env     []string

	// StartLimit is how long the destinations may take to call Restore; 0:
	// DefaultStartLimit.
	StartLimit time.Duration

	// Cancel, if not nil, cancels the move when it is closed, unless the move
	// is decided by then. The result says what happened.
	Cancel <-chan struct{}
}
