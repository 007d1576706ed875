// Package supervise starts the ranks of a run, watches them, and restarts the
// run after failures. It works on Linux only: on other systems every function
// fails (other.go).
//
//	Supervisor                  owns the run directory, decides, restarts
//	  └─ helper, one per host   starts that host's ranks, has their writers
//	        └─ ranks
//
// Where to look:
//
//	rundir                 the run directory: record, locks, socket, files
//	helper                 the helper process, which starts ranks
//	output                 showing and gathering the ranks' output
//	client                 the requests of cairn status, stop, migrate, …
//	scheduler              Slurm, systemd and Kubernetes: job and grace time
//
// and in this package:
//
//	the run                options, supervisor, state, stop, finish,
//	                       control_socket
//	one start of all ranks attempt, checkpoints, progress, quarantine,
//	                       instrumentation
//	hosts and helpers      hosts, host_overrides, placement; with mpirun or
//	                       srun launcher, launcher_args, helper_launch,
//	                       ompi_server, spawn
//	a directory per host   local, local_inventory, local_output
//	other storage tiers    tiers, tier_attempts
//	a program that names
//	tiers by itself        tier_helper
//	migration              migration, migration_queue, evacuate
//
// Who outlives whom: ranks die with their helper (PDEATHSIG). A helper that
// loses its supervisor asks its ranks to save and stop, kills those that have
// not stopped after the grace time, waits for the writers and ends. The next
// supervisor of the run waits for that. A supervisor that loses a helper
// restarts the run on the remaining hosts, if they have room for all ranks.
//
// A failure ends all ranks. The supervisor restarts the run after a pause. The
// pause doubles from 0.1 s to 30 s as long as the run makes no progress.
// Progress is a new checkpoint; after a failure that the program caused itself
// it is a checkpoint from well beyond the place of that failure. If ranks end
// with an exit status before their first point, twice in a row, the supervisor
// gives up: that is a mistake in the program or its arguments.
package supervise

import (
	"errors"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/helper"
)

// StoppedStatus is the exit status of a run that was stopped and can be
// resumed (EX_TEMPFAIL).
const StoppedStatus = 75

// UnsavedStatus is the exit status of a run that was stopped, or has finished,
// if something could not be written (EX_IOERR): the work since the last
// checkpoint, or the ranks' output. The same command resumes the run.
const UnsavedStatus = 74

// ErrOptions is an error of New that other options avoid.
var ErrOptions = errors.New("the run cannot be started like this")

// ErrStillRuns is an error of New: the scheduler has started this job again,
// and the supervisor of its earlier start still holds the run directory. It may
// be on a host that the scheduler has lost. Try again.
var ErrStillRuns = errors.New("an earlier start of this job still runs")

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
	Launcher             string   // who starts the ranks: "fork" (default), or mpirun, mpiexec or srun, see kindOf
	LauncherArgs         []string

	// Proxy is started in place of Command, which runs already
	// (tier_helper.go).
	Proxy []string

	Transports []string // for the ranks; none: they choose
	// Settings are the options of the command that were given. Those of the
	// library are passed on to the ranks.
	Settings []control.Setting

	Run         string // the run directory; default ./PROGRAM.cairn
	Dir         string // checkpoint directory; default RUN/ckpt
	Local       string // directory on each host for all files of the run, in place of Dir; then hosts share nothing
	From        string // with a new run directory: resume the run at this place, a tier, perhaps with @INDEX
	Tiers       string // on which tiers checkpoints are kept besides (package policy of tier); its local tier is Local
	Fresh       bool   // discard what RUN holds of an earlier run
	ChangedArgs bool   // resume with other arguments of the program
	Group       bool   // the group of RUN may read what is in it
	AnyOwner    bool   // RUN and Dir may be another user's
	Out         string // file for the ranks' stdout; with %r one per rank
	RankOutput  string // directory for the ranks' output files; default RUN/output
	// Input is a file that rank 0 reads as its stdin, from the beginning at
	// every start. Empty: stdin is empty.
	Input string

	Retries    int           // failures in a row without progress; 0: 10; below 0: none
	Quarantine int           // failures of one checkpoint until it is quarantined; 0: 3; below 0: never
	Stall      time.Duration // without progress for this long a run has failed; 0: never
	Grace      time.Duration // for ranks to save and stop in; 0: as the scheduler gives, or 60 s

	// EvacuateWhen is a command for /bin/sh that each host runs every
	// EvacuatePoll (0: 30 s). When it ends with status 0, that host is
	// evacuated.
	EvacuateWhen string
	EvacuatePoll time.Duration

	// Line shows a line of output, without its newline; nil: output is only
	// kept. One goroutine calls Line; it may block. The line is valid until
	// Line returns. Line, or a later call in the same order, calls done for
	// each line and says whether it was written. The next start shows what was
	// not.
	Line func(rank, stream int, line []byte, done func(written bool))
	// Part, if not nil, shows a line that is not complete yet. It is called
	// after each piece of it, with all of it, until Line gets the line. It must
	// not block.
	Part func(rank, stream int, text []byte)
	// Delay says that what Line shows of stdout cannot be taken back: it gets
	// what was printed before a secure checkpoint, and the rest when the run
	// ends. So does a pipe that Out names.
	Delay bool
	// Event reports what happens. One goroutine calls it; it must not block.
	Event func(Event)
}

// Event is something that happened. It has no Kind if only the state is new.
type Event struct {
	events.Event
	Run control.RunState // the state after it
}

// Result is how a run ended.
type Result struct {
	State            string // Stopped, Finished or Failed; Finishing, if its output could not be written
	Status           int    // 0, StoppedStatus, UnsavedStatus, or the status of a rank that failed or finished with one
	Why              string
	BeforeFirstPoint bool // a rank ended with an exit status before its first point
}

const (
	defaultRetries    = 10
	defaultQuarantine = 3
	defaultGrace      = 60 * time.Second

	defaultEvacuatePoll = 30 * time.Second

	firstPause = 100 * time.Millisecond
	longPause  = 30 * time.Second
	youngTime  = 10 * time.Second       // a program that does not use Cairn counts as just started this long
	lostMoment = 500 * time.Millisecond // ranks get this long to end after another one was lost

	hostSilence   = 30 * time.Second                // after that, a host is lost
	joinTime      = 60 * time.Second                // how long a helper may take to connect
	helperEndTime = helper.Silence + 10*time.Second // how long an earlier helper may take to end, in addition to the grace time
	busyEvery     = 100 * time.Millisecond          // time between two checks whether it has ended

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

// place distributes ranks 0 … n-1 over hosts by block. It returns how many each
// host gets, or nil if there is no room.
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
