package resume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"time"

	cairn "github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/engine"
)

// A program that uses Cairn's messages opens a run itself, and so meets the
// other ranks. In a compiled program the run is open, and restored, before main
// begins; the program's own Open returns that run. Pointers to it, and
// communicators, are part of the state.

// opensRun says that the program uses Cairn: see OpensRun.
var opensRun bool

// OpensRun says, from init, that the program opens a run itself. The compiler
// has found that for these numbers of ranks no message crosses any of its
// points: then checkpoints that are due by the number of points need no
// messages between ranks.
func OpensRun(ranks ...int) {
	opensRun = true
	if run != nil && slices.Contains(ranks, run.Ranks()) {
		run.SetSafePoints()
	}
}

// options are what the program has said in its own call of Open, for a restart.
type options struct {
	Every, MTBF time.Duration
	EveryPoints int
	Auto        bool
	SafePoints  bool
	Signals     map[os.Signal]cairn.SignalAction
	OnSaved     func(cairn.CheckpointInfo)
	OnError     func(error)
}

// options returns Cairn's options. The program's functions are called without
// the lock: they may open files or exit.
func (o *options) options() engine.Options {
	out := engine.Options{Every: o.Every, EveryPoints: o.EveryPoints, Auto: o.Auto, MTBF: o.MTBF, SafePoints: o.SafePoints, OnSaved: onSaved}
	if o.Signals != nil {
		out.Signals = make(map[os.Signal]engine.SignalAction, len(o.Signals))
		for s, a := range o.Signals {
			out.Signals[s] = engine.SignalAction(a)
		}
	}
	if f := o.OnSaved; f != nil {
		out.OnSaved = func(s engine.CheckpointInfo) {
			onSaved(s)
			mu.Unlock()
			defer mu.Lock()
			f(cairn.CheckpointInfo(s))
		}
	}
	if f := o.OnError; f != nil {
		out.OnError = func(err error) {
			mu.Unlock()
			defer mu.Lock()
			f(err)
		}
	}
	return out
}

// OpenRun stands for cairn.Open. It returns the run that protects the program.
// Its options say when checkpoints are taken and what is called then, unless
// the command line of 'cairn run' says otherwise.
func OpenRun(ctx context.Context, o cairn.Options) (*cairn.Run, error) {
	if run == nil {
		return cairn.Open(ctx, o)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case closed:
		return nil, errors.New("cairn: the run is closed")
	case saved.Opened != nil:
		return nil, errors.New("cairn: the program has opened its run already; under 'cairn run' there is one")
	}
	opts := &options{Every: o.Every, EveryPoints: o.EveryPoints, Auto: o.Auto, MTBF: o.MTBF, SafePoints: o.SafePoints,
		Signals: o.Signals, OnSaved: o.OnSaved, OnError: o.OnError}
	adopt := opts.options()
	adopt.Dir, adopt.Log = o.Dir, o.Log
	if err := run.Adopt(adopt, false); err != nil {
		return nil, err
	}
	saved.Opened = opts
	if run.CountsPoints() {
		countEach.Store(true)
	}
	setDue()
	return cairn.Open(engine.WithRun(ctx, run), o)
}

// adoptRun gives the run to the program as it had it when the checkpoint was
// taken.
func adoptRun() error {
	if saved.Opened == nil {
		return nil
	}
	err := run.Adopt(saved.Opened.options(), true)
	if run.CountsPoints() {
		countEach.Store(true)
	}
	return err
}

// releaseRun takes the run back from the program. It reports whether the work
// can be finished: without the other ranks it cannot.
func releaseRun() bool { return run.Release() }

// envKillRank names the only rank that CAIRN_KILL_AT is for; unset: all.
const envKillRank = "CAIRN_KILL_RANK"

func mayKill() bool {
	s := os.Getenv(envKillRank)
	return s == "" || s == strconv.Itoa(run.Rank())
}

// pausedAt is where the program is while it is at a point with other ranks.
var pausedAt struct {
	depth  int
	frames []any // from that depth on
}

// severalRanks reports whether there are other ranks.
func severalRanks() bool { return run != nil && run.Ranks() > 1 }

// pointOfRanks is a point in a run of several ranks, which agree when to save.
// What has to be done for a checkpoint is done by onCopy.
func pointOfRanks(d int, frames []any, kill bool) {
	pausedAt.depth, pausedAt.frames = d, frames
	defer resumeEvents()
	if kill {
		err := run.Checkpoint(context.Background())
		if err != nil || mayKill() {
			crash(err)
		}
		since = points // another rank dies
	}
	err := runPoint()
	cuts.releaseOthers()
	pausedAt.frames, saved.Goroutines = nil, nil
	clear(saved.Frames)
	saved.Frames = saved.Frames[:0]
	setDue()
	if err != nil {
		handlePointError(err)
	}
}

// onCopy is called when the state is about to be copied.
func onCopy() (err error) {
	if severalRanks() {
		pauseEvents()
		err = copyOfRanks()
	}
	run.NoteLoop(currentLoop(saved.Frames))
	if err == nil {
		saved.Epoch, saved.Recorded, err = files.BeginEpoch(run.Committed())
		saved.Files, saved.Args = files.OpenFiles(), start.args
		run.SyncAlso(files.Changed())
	}
	return err
}

// copyOfRanks prepares a state that is copied together with those of the other
// ranks.
func copyOfRanks() error {
	if pausedAt.frames == nil {
		return errors.New("the program is not at a point")
	}
	if !lockFinalizers() {
		return errors.New("a finalizer or cleanup of the program is running")
	}
	why := stackMismatch(pausedAt.depth)
	if why == "" {
		why = cuts.stopOthers()
	}
	if why == "" {
		why = liveGoroutine(runtime.NumGoroutine(), grace)
	}
	if why == "" {
		why = unrestorable()
	}
	if why != "" {
		return fmt.Errorf("rank %d cannot be saved at this point: %s", run.Rank(), why)
	}
	saved.Frames = append(append(saved.Frames[:0], mainRoutine.stack[:pausedAt.depth]...), pausedAt.frames...)
	saved.Points = points
	saved.Locks = mainRoutine.Locks
	saved.Process.note()
	saved.Contexts = waitedFor.list()
	noteRebuilders()
	saveWaiters()
	cuts.noteGoroutines()
	cuts.noteBackground()
	cuts.noteFrames()
	return nil
}
