// Package supervise starts the ranks of a run, watches them and brings the
// run back after failures.
//
//	Supervisor                  owns the run's folder, decides, restarts
//	  └─ helper, one per host   forks that host's ranks, holds their writers
//	        └─ ranks
//
// The run's folder:
//
//	RUN/
//	  lock              held by the supervisor (flock)
//	  run.json          what is run and how far it came; replaced atomically
//	  run-copy.json     the same, in case that it is damaged
//	  log               one line per event
//	  control.sock      for cairn status, checkpoint, stop, migrate
//	  leave             written by people: hosts to be left at SIGUSR2
//	  hosts/NAME.lock   held by the helper of that host; lists its ranks
//	  output/           rank-0000.out, rank-0000.err, …
//	  shown             up to where these have been shown
//	  ckpt/             checkpoint folder of programs that name none
//
// Who outlives whom: ranks die with their helper (PDEATHSIG). A helper that
// loses its supervisor asks its ranks to save and stop, ends what is left
// after the grace time, waits for the writers and ends; the next supervisor
// of the run waits for that. A supervisor that loses a helper starts the run
// again, on the hosts that are left if they have room for all ranks.
//
// A failure ends all ranks. The run is started again after a pause that
// doubles from 0.1 s to 30 s as long as there is no progress: a new set, and
// after a failure by the program's own doing one from well behind the place
// where that was. It is not when
// ranks end with an exit status before their first point twice in a row: that
// is a mistake, not a failure.
package supervise

import (
	"errors"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// StoppedStatus is the exit status of a run that was stopped and can be gone
// on with (EX_TEMPFAIL).
const StoppedStatus = 75

// UnsavedStatus is the exit status of a run that was stopped, or has finished,
// and something of it could not be written (EX_IOERR): the work since the last
// checkpoint, or the output that the ranks left. The same command goes on.
const UnsavedStatus = 74

// Errors of New and of the commands' requests.
var (
	ErrBusy       = errors.New("another supervisor runs this run")
	ErrDiffers    = errors.New("the run directory belongs to another command")
	ErrNotRunning = errors.New("not running on this machine")
	ErrNoRun      = errors.New("not a run directory")
	ErrOptions    = errors.New("the run can't be started like this")
)

// States of a run.
const (
	Starting    = "starting"
	Running     = "running"
	Waiting     = "waiting" // for the end of the pause after a failure
	Stopping    = "stopping"
	Stopped     = "stopped"
	Finishing   = "finishing" // the ranks have finished; their output is put together
	Finished    = "finished"
	Failed      = "failed"
	Interrupted = "interrupted" // its supervisor is gone
	Silent      = "silent"      // its supervisor does not answer
)

// State is what is known of a run at a moment.
type State = control.RunState

// CheckpointState is a committed set.
type CheckpointState = control.CheckpointState

// Unsaved tells of checkpoints that could not be saved.
type Unsaved = control.Unsaved

// Host is a machine and how many ranks it takes.
type Host struct {
	Name  string
	Slots int // 0: an even share
}

// Options say what is run and how. Only Command and Helper are needed.
type Options struct {
	Command []string // program and arguments
	Ranks   int      // 0: 1, or all slots of Hosts

	// Helper is the command that starts a helper: this machine's, and
	// RemoteHelper on other hosts (default: the same).
	Helper, RemoteHelper []string
	Hosts                []Host   // none: this machine
	RemoteShell          []string // {host} is replaced, or the host is appended; default ssh
	Launcher             string   // "fork" (default), "mpirun" or "srun": who starts the ranks
	LauncherArgs         []string

	Transports  []string      // for the ranks; none: they choose
	Every       time.Duration // when checkpoints are due; 0: as the program says
	EveryPoints uint64

	Run        string // the run's folder; default ./PROGRAM.cairn
	Dir        string // checkpoint folder; default RUN/ckpt
	Fresh      bool   // discard what RUN holds of an earlier run
	Group      bool   // the group of RUN may read what is in it
	AnyOwner   bool   // RUN and RequestedDir may be another user's
	Out        string // file for the ranks' stdout; with %r one per rank
	RankOutput string // folder for the ranks' output files; default RUN/output
	// Input is a file that rank 0 reads as its stdin, from the beginning whenever
	// it is started. Empty: there is nothing to read.
	Input string

	Retries    int           // failures in a row without progress; 0: 10; below 0: none
	Quarantine int           // failures of one set until it is put aside; 0: 3; below 0: never
	Stall      time.Duration // without progress for this long a run has failed; 0: never
	Grace      time.Duration // for ranks to save and stop in; 0: 60 s

	// EvacuateWhen is a command for /bin/sh that each host runs every EvacuatePoll
	// (0: 30 s). When it ends with status 0, ranks leave that host.
	EvacuateWhen string
	EvacuatePoll time.Duration

	// Line is given each line of output that is to be shown, without its
	// newline; nil: output is only kept. One goroutine calls it; it may block.
	// The line is valid until it returns. shown is to be called for each line, in
	// their order, now or later, when it was written or could not be: what was
	// not written is shown by the next start.
	Line func(rank, stream int, line []byte, shown func(written bool))
	// Event is told what happens. One goroutine calls it; it must not block.
	Event func(Event)
}

// Event is something that happened.
type Event struct {
	Time  time.Time
	Text  string // a line for people; empty if only State is new
	State State
}

// Result is how a run ended.
type Result struct {
	State            string // Stopped, Finished or Failed; Finishing, if its output could not be put together
	Status           int    // 0, StoppedStatus, UnsavedStatus, or that of the rank that failed, or that finished with one
	Why              string
	BeforeFirstPoint bool // it failed by an exit status before its first point
}

const (
	defaultRetries    = 10
	defaultQuarantine = 3
	defaultGrace      = 60 * time.Second

	defaultEvacuatePoll = 30 * time.Second

	firstPause = 100 * time.Millisecond
	longPause  = 30 * time.Second
	youngTime  = 10 * time.Second       // a program that tells nothing is young this long
	lostMoment = 500 * time.Millisecond // ranks that hear of a loss get this long

	pingEvery     = 5 * time.Second
	hostSilence   = 30 * time.Second               // then a host is lost
	helperSilence = 60 * time.Second               // then the supervisor is lost
	joinTime      = 60 * time.Second               // for a helper to appear
	helperEndTime = helperSilence + 10*time.Second // besides the grace time, for an earlier helper to end
	busyEvery     = 100 * time.Millisecond         // whether it has is looked at

	maxRanks = 1 << 16
)

// pause returns how long to wait before the next start after that many
// failures in a row.
func pause(failures int) time.Duration {
	d := firstPause
	for range failures - 1 {
		if d *= 2; d >= longPause {
			return longPause
		}
	}
	return d
}

// place gives the ranks 0 … n-1 to hosts by block: how many each takes, nil
// if there is no room.
func place(n int, slots []int) []int {
	out := make([]int, len(slots))
	for i, k := range slots {
		out[i] = min(n, k)
		n -= out[i]
	}
	if n > 0 {
		return nil
	}
	return out
}
