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

// A program that uses Cairn's messages opens a run by itself, and with it meets
// the other ranks. Resumed the run is open before main begins, and was restored:
// the program's own Open gives it that one. Pointers to it, and communicators,
// are part of the state.

// uses says that the program uses Cairn: see OpensRun.
var uses bool

// OpensRun says, from init, that the program opens a run by itself. ranks are the
// numbers of ranks for which no message crosses any of its points, as the
// compiler has found out: then checkpoints that are due by the number of points
// need no messages between ranks.
func OpensRun(ranks ...int) {
	uses = true
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

// options are Cairn's. What the program is told it is told without the lock: it
// may open files or exit.
func (o *options) options() engine.Options {
	out := engine.Options{Every: o.Every, EveryPoints: o.EveryPoints, Auto: o.Auto, MTBF: o.MTBF, SafePoints: o.SafePoints, OnSaved: savedAgain}
	if o.Signals != nil {
		out.Signals = make(map[os.Signal]engine.SignalAction, len(o.Signals))
		for s, a := range o.Signals {
			out.Signals[s] = engine.SignalAction(a)
		}
	}
	if f := o.OnSaved; f != nil {
		out.OnSaved = func(s engine.CheckpointInfo) {
			savedAgain(s)
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

// OpenRun stands for cairn.Open. The run is the one that the program is
// protected by; what the options say about when sets are taken and who is told
// holds for it, unless the command line of 'cairn run' says otherwise.
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
	opened := &options{Every: o.Every, EveryPoints: o.EveryPoints, Auto: o.Auto, MTBF: o.MTBF, SafePoints: o.SafePoints,
		Signals: o.Signals, OnSaved: o.OnSaved, OnError: o.OnError}
	lend := opened.options()
	lend.Dir, lend.Log = o.Dir, o.Log
	if err := run.Adopt(lend, false); err != nil {
		return nil, err
	}
	saved.Opened = opened
	counts = counts || run.CountsPoints()
	look()
	return cairn.Open(engine.WithRun(ctx, run), o)
}

// reopened makes the run what it was for the program when the set was taken.
func reopened() error {
	if saved.Opened == nil {
		return nil
	}
	err := run.Adopt(saved.Opened.options(), true)
	counts = counts || run.CountsPoints()
	return err
}

// takeBack ends what the program may do with the run. It returns whether the
// work can be done: without the other ranks it can't.
func takeBack() bool { return run.Release() }

// envKillRank names the one rank that CAIRN_KILL_AT is for; unset: all.
const envKillRank = "CAIRN_KILL_RANK"

func mayKill() bool {
	s := os.Getenv(envKillRank)
	return s == "" || s == strconv.Itoa(run.Rank())
}

// here is where the program is, while it is at a point with other ranks.
var here struct {
	depth  int
	frames []any // from that depth on
}

// together reports whether there are other ranks.
func together() bool { return run.Ranks() > 1 }

// pointTogether is a point in a run of several ranks, which agree when to save.
// What has to be done for a set is done by copying.
func pointTogether(d int, frames []any, kill bool) {
	here.depth, here.frames = d, frames
	defer free()
	if kill {
		err := run.Checkpoint(context.Background())
		if err != nil || mayKill() {
			killed(err)
		}
		since = points // another rank dies
	}
	err := runPoint()
	here.frames = nil
	clear(saved.Frames)
	saved.Frames = saved.Frames[:0]
	look()
	if err != nil {
		trouble(err)
	}
}

// copying is called when the state is about to be copied.
func copying() (err error) {
	if together() {
		hold()
		err = copyingTogether()
	}
	if err == nil {
		saved.Epoch, saved.Noted, err = files.BeginEpoch()
		saved.Files, saved.Args = files.OpenFiles(), start.args
		run.SyncAlso(files.Changed())
	}
	return err
}

// copyingTogether is for a state that is copied together with those of the other
// ranks.
func copyingTogether() error {
	if here.frames == nil {
		return errors.New("the program is not at a point")
	}
	if !holdFinalizers() {
		return errors.New("a finalizer or cleanup of the program is running")
	}
	why := crooked(here.depth)
	if why == "" {
		why = alive(runtime.NumGoroutine(), patience)
	}
	if why == "" {
		why = unsettled()
	}
	if why != "" {
		return fmt.Errorf("rank %d can't be saved at this point: %s", run.Rank(), why)
	}
	saved.Frames = append(append(saved.Frames[:0], stack[:here.depth]...), here.frames...)
	saved.Points = points
	saved.Process.note()
	noteWaits()
	return nil
}
