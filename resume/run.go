package resume

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/journal"
)

// Environment variables.
const (
	envDir         = "CAIRN_DIR"
	envEvery       = "CAIRN_EVERY"
	envEveryPoints = "CAIRN_EVERY_POINTS"
	envKillAt      = "CAIRN_KILL_AT"
)

// Exit statuses of a program that does not end by itself.
const (
	statusFailed  = 1
	statusUnsaved = 74 // EX_IOERR: stopped, and the work since the last set is lost
	statusStopped = 75 // EX_TEMPFAIL: saved, and can be gone on with
)

// program is what a set holds besides the package variables.
type program struct {
	Frames  []any // *T each
	Points  uint64
	Epoch   uint64 // of the journal
	Noted   bool   // … there was a journal
	Files   []journal.OpenFile
	Args    []string // that the program was first started with
	Process process
	Signals listening
	Timers  []after
	Waits   []wait
	Opened  *options // by the program itself; nil: it has not
}

var (
	mu     sync.Mutex  // held by whoever uses run; a program may end from any goroutine
	run    *engine.Run // nil: nobody keeps sets
	logger *slog.Logger
	// supervised says that somebody else starts the program again, and knows when
	// the run is finished.
	supervised bool
	saved      program
	nested     int  // calls of main by the program
	begun      bool // Begin was called
	over       bool // Returning was called
	closed     bool
	killAt     []uint64
	killAll    bool
	counts     bool   // Point has to be called at every point
	points     uint64 // since the run began
	since      uint64 // … of the set that was restored
)

// due is looked at by Due: 0 or 1.
var due uint32

// look makes the next point look closer.
func look() { atomic.StoreUint32(&due, 1) }

// ballast is memory that nobody touches. What Cairn keeps in the heap makes each
// collection dearer, which is felt by programs that have next to nothing there
// and allocate much. With the ballast the collector comes less often: the heap of
// a program grows by up to 8 MiB more before it does.
var ballast []byte

func init() {
	graph.Whole()
	logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	dir := os.Getenv(envDir)
	if dir == "" && os.Getenv(control.EnvControl) == "" {
		return
	}
	ballast = make([]byte, 8<<20)
	supervised = os.Getenv(control.EnvControl) != ""
	opts := engine.Options{Dir: dir, Log: logger, OnDue: look, OnCopy: copying, OnSaved: savedAgain, OnError: func(err error) { failed = err }}
	var err error
	if s := os.Getenv(envEvery); s != "" {
		if opts.Every, err = time.ParseDuration(s); err != nil || opts.Every <= 0 {
			fatal("%s=%q: not a duration such as 10m", envEvery, s)
		}
	}
	if s := os.Getenv(envEveryPoints); s != "" {
		if opts.EveryPoints, err = strconv.Atoi(s); err != nil || opts.EveryPoints < 1 {
			fatal("%s=%q: not a number of points", envEveryPoints, s)
		}
	}
	switch s := os.Getenv(envKillAt); s {
	case "":
	case "each":
		killAll = true
	default:
		for _, f := range strings.Split(s, ",") {
			n, err := strconv.ParseUint(f, 10, 64)
			if err != nil || n == 0 {
				fatal("%s=%q: neither numbers of points nor \"each\"", envKillAt, s)
			}
			killAt = append(killAt, n)
		}
	}
	// Programs that this one starts are none of this run.
	os.Unsetenv(envDir)
	start.note()
	run, err = engine.Open(context.Background(), opts)
	os.Unsetenv(engine.EnvFresh)
	finished := new(engine.FinishedError)
	if errors.As(err, &finished) {
		again := engine.EnvFresh + "=1 in the environment"
		if supervised {
			again = "--fresh"
		}
		say("the run in %s has finished (%s, status %d); nothing is done; to start over, give %s", finished.Dir, finished.Time.Format(time.DateTime), finished.Status, again)
		exit(finished.Status)
	}
	if err == nil {
		err = run.Refuse(openJournal())
	}
	if err != nil {
		fatal("%s", text(err))
	}
}

// text is an error's message for the user of a program, who knows nothing of
// frames.
func text(err error) string {
	var u *graph.UnsupportedError
	if errors.As(err, &u) { // what to do about it in a program that calls Cairn is of no use here
		path := inFrame(strings.ReplaceAll(u.Path, "∕", "/"))
		msg := (&graph.UnsupportedError{Path: path, Type: u.Type, Reason: u.Reason}).Error()
		if errors.Is(err, engine.ErrNotSaved) {
			msg = engine.ErrNotSaved.Error() + ": " + msg
		}
		return msg
	}
	return strings.TrimPrefix(err.Error(), "cairn: ")
}

// inFrame takes the way to a variable in a frame, as package graph writes it,
// for the variable's name and the function that it is in.
func inFrame(path string) string {
	before, rest, ok1 := strings.Cut(path, "frames.Frames[")
	_, rest, ok2 := strings.Cut(rest, "].(*")
	frame, name, ok3 := strings.Cut(rest, ").")
	pkg, function, ok4 := strings.Cut(frame, "cairn_frame_")
	if !ok1 || !ok2 || !ok3 || !ok4 {
		return path
	}
	return before + name + " in " + pkg + function
}

// say tells the user something that the program's own output has no place for.
func say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "cairn: "+format+"\n", args...)
}

// fatal ends a program that can't be gone on with.
func fatal(format string, args ...any) {
	say(format, args...)
	exit(statusFailed)
}

var exit = os.Exit

// countPoints decides whether each point is counted: a set is due after so many,
// or the process kills itself at one that is still to come.
func countPoints() {
	counts = run.CountsPoints() || killAll || slices.ContainsFunc(killAt, func(n uint64) bool { return n > since })
}

// Begin opens the run. It comes first in main. If there is a set, package
// variables and frames are restored, and Resuming is true.
func Begin() {
	if nested++; nested > 1 || run == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if why := checkRand(); why != "" {
		fatal("%s", why)
	}
	files.Suspend(true)
	restored, err := begin()
	if err != nil {
		fatal("%s", text(err))
	}
	countPoints()
	depth = -1
	me.Store(self())
	set(&state, asCallee)
	if !restored {
		files.Suspend(false)
		lookAgain()
		return
	}
	if !slices.Equal(saved.Args, start.args) {
		fatal("the run in %s was started with the arguments %q and goes on with them, but now they are %q; give the same again, or move the folder away to start afresh", run.Dir(), saved.Args, start.args)
	}
	run.FilesClaimed()
	if err := files.Restored(saved.Epoch, saved.Noted); err != nil {
		fatal("%s", text(err))
	}
	if err := errors.Join(run.CheckInputs(saved.Process.In), saved.Process.restore(), reopened()); err != nil {
		fatal("%s", text(err))
	}
	files.Reopened(saved.Files)
	saved.Signals.restore()
	restoreAfters(saved.Timers)
	again, saved.Timers, saved.Waits = saved.Waits, nil, nil
	files.Suspend(false)
	stack, saved.Frames = saved.Frames, nil
	points, since = saved.Points, saved.Points
	countPoints()
	set(&state, resuming)
}

func begin() (bool, error) {
	if err := errors.Join(wrong...); err != nil {
		return false, err
	}
	standard()
	for _, g := range globals {
		if err := g.protect(); err != nil {
			return false, err
		}
	}
	begun = true
	if err := parts(); err != nil {
		return false, err
	}
	if err := engine.Protect(run, framesName, &saved); err != nil {
		return false, err
	}
	engine.Register[signalError](run)
	run.RecordInputs()
	run.SetJournal(files.RestoreTo)
	if uses {
		run.ProtectHandles()
	}
	return run.Restore(context.Background())
}

// framesName is the variable of a set that holds the frames.
const framesName = "frames"

// Returning says that main is about to return.
func Returning() { over = true }

// End is deferred by main before anything else. The run is finished, unless
// the program panics.
func End() {
	if nested--; nested > 0 || run == nil {
		return
	}
	if !over && panicking() {
		finish(false, 0)
		return
	}
	finish(true, 0)
}

// panicking reports whether a panic, or Goexit, is running main's defers.
func panicking() bool {
	pcs := make([]uintptr, 64)
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function == "runtime.gopanic" || f.Function == "runtime.Goexit" {
				return true
			}
		}
		if n < len(pcs) {
			return false
		}
	}
}

// finish ends the run; done says that the work is, with an exit status, and
// the sets can go.
func finish(done bool, status int) {
	if run == nil {
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if closed {
		return
	}
	closed = true
	done = takeBack() && done
	if done && begun {
		if err := files.Sync(); err != nil {
			say("%v; the run has not finished", err)
			done = false
		}
	}
	if done && begun {
		run.FinishWith(status)
	}
	err := run.Close()
	if failed != nil {
		unsaved(failed)
	}
	if done && begun {
		files.End()
		if err == nil && !supervised { // that is recorded
			files.RemoveOverflow()
		}
	}
	if err != nil {
		say("%s", text(err))
	}
}

// Exit stands for os.Exit: the run is finished with that status, unless the
// program fails because a device was lost.
func Exit(code int) {
	finish(code == 0 || lost() == nil, code)
	exit(code)
}

// Fatal stands for log.Fatal.
func Fatal(v ...any) {
	log.Output(2, fmt.Sprint(v...))
	Exit(1)
}

// Fatalf stands for log.Fatalf.
func Fatalf(format string, v ...any) {
	log.Output(2, fmt.Sprintf(format, v...))
	Exit(1)
}

// Fatalln stands for log.Fatalln.
func Fatalln(v ...any) {
	log.Output(2, fmt.Sprintln(v...))
	Exit(1)
}
