package resume

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
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
	envDir    = "CAIRN_DIR"
	envKillAt = "CAIRN_KILL_AT"
)

// Exit statuses that Cairn gives to a program.
const (
	statusFailed  = 1
	statusUnsaved = 74 // EX_IOERR: stopped, and the work since the last checkpoint is lost
	statusStopped = 75 // EX_TEMPFAIL: saved, and can be resumed
)

// program is what a checkpoint holds besides the package variables.
type program struct {
	Frames   []any // *T each
	Points   uint64
	Epoch    uint64 // of the journal
	Recorded bool   // the journal had lines
	Files    []journal.OpenFile
	Args     []string // of the program's first start
	Process  process
	Signals  subscriptions
	Timers   []savedTimer
	Waiters  []savedWaiter
	Released []string        // see early
	Rebuild  []string        // names of the functions that make values again
	Contexts []*savedContext // those whose Done was called and that have not ended

	Locks      int              // those of the main goroutine
	Goroutines []savedGoroutine // besides the main one
	Background []savedGoroutine
	Opened     *options // the program's own call of cairn.Open; nil: none
}

// AllFrames implements graph.Frames.
func (p *program) AllFrames() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, frame := range p.Frames {
			if !yield(frame) {
				return
			}
		}
		for i := range p.Goroutines {
			for _, frame := range p.Goroutines[i].Frames {
				if !yield(frame) {
					return
				}
			}
		}
	}
}

var (
	mu     sync.Mutex  // guards run; a program may end on any goroutine
	run    *engine.Run // nil: there is no run
	logger *slog.Logger
	// supervised says that a supervisor restarts the program and knows when the
	// run has finished.
	supervised bool
	saved      program
	nested     int         // how often main is running: the program may call it
	begun      atomic.Bool // Begin was called
	returning  bool        // Returning was called
	closed     bool
	ending     atomic.Bool // finish was called: no loss of a device matters any more
	killAt     []uint64
	killAll    bool
	countEach  atomic.Bool // each point has to be counted
	points     uint64      // since the run began
	since      uint64      // points of the restored checkpoint
)

// due is the result of Due: 0 or 1.
var due uint32

// setDue makes the next point call Point.
func setDue() { atomic.StoreUint32(&due, 1) }

// ballast is memory that is never touched. Cairn's own memory in the heap makes
// each garbage collection more expensive. That slows down programs that have a
// small heap and allocate much. The ballast makes collections rarer: the heap
// grows by up to 8 MiB more before one.
var ballast []byte

func init() {
	graph.SaveWholeProgram()
	logger = slog.New(slog.NewTextHandler(control.StderrFile, nil))
	dir := os.Getenv(envDir)
	if dir == "" && os.Getenv(control.EnvControl) == "" {
		return
	}
	ballast = make([]byte, 8<<20)
	supervised = os.Getenv(control.EnvControl) != ""
	opts := engine.Options{Dir: dir, Log: logger, OnDue: onDue, OnReport: onReport, OnCopy: onCopy, OnSaved: onSaved, OnError: func(err error) { failed = err }}
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
	start.full = os.Environ()
	// Programs that this one starts do not belong to this run.
	os.Unsetenv(envDir)
	start.note()
	var err error
	run, err = engine.Open(context.Background(), opts)
	os.Unsetenv(engine.EnvFresh)
	finished := new(engine.FinishedError)
	if errors.As(err, &finished) {
		again := engine.EnvFresh + "=1 in the environment"
		if supervised {
			again = "--fresh"
		}
		warn("the run in %s has finished (%s, status %d), so there is nothing to do; to start over, give %s", finished.Dir, finished.Time.Format(time.DateTime), finished.Status, again)
		exit(finished.Status)
	}
	if err == nil {
		err = run.Refuse(openJournal())
	}
	if err != nil {
		fatal("%s", errorText(err))
	}
}

// errorText is an error's message for the user of a program, who does not know
// about frames.
func errorText(err error) string {
	var u *graph.UnsupportedError
	if errors.As(err, &u) { // leave out the advice for programs that call Cairn
		path := inFrame(strings.ReplaceAll(u.Path, "∕", "/"))
		msg := (&graph.UnsupportedError{Path: path, Type: u.Type, Reason: u.Reason}).Error()
		if u.Handle() {
			msg += "; assign it to a package variable in a function with the comment //cairn:rebuild, which runs again after a restart, or do not hold it at the point"
		}
		if errors.Is(err, engine.ErrNotSaved) {
			msg = engine.ErrNotSaved.Error() + ": " + msg
		}
		return msg
	}
	return strings.TrimPrefix(err.Error(), "cairn: ")
}

// inFrame replaces the path of a variable in a frame, as package graph writes
// it, by the variable's name and its function.
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

// warn tells the user something on stderr.
func warn(format string, args ...any) {
	fmt.Fprintf(control.StderrFile, "cairn: "+format+"\n", args...)
}

// fatal ends a program that cannot continue.
func fatal(format string, args ...any) {
	warn(format, args...)
	exit(statusFailed)
}

var exit = os.Exit

// countPoints decides whether each point is counted: a checkpoint is due after
// a number of points, or the process kills itself at a later point.
func countPoints() {
	countEach.Store(run.CountsPoints() || killAll || slices.ContainsFunc(killAt, func(n uint64) bool { return n > since }))
}

// Begin begins the run. main calls it first. If there is a checkpoint, package
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
		fatal("%s", errorText(err))
	}
	countPoints()
	g := &mainRoutine
	g.depth = -1
	set(&g.state, called)
	beginMain()
	if !opensRun && !severalRanks() {
		go watchDeadlock()
	}
	if !restored {
		files.Suspend(false)
		beginEarly(false)
		setDueIfNeeded()
		return
	}
	beginEarly(true)
	changedArgs := !slices.Equal(saved.Args, start.args)
	if changedArgs && os.Getenv(control.EnvChangedArgs) == "" {
		fatal("the run in %s was started with the arguments %q, and now they are %q; give the same arguments, resume with the new ones by --changed-args (%s=1 in the environment), or move the directory away to start over",
			run.Dir(), saved.Args, start.args, control.EnvChangedArgs)
	}
	run.FilesClaimed()
	if err := files.Restored(saved.Epoch, saved.Recorded); err != nil {
		fatal("%s", errorText(err))
	}
	if err := errors.Join(run.CheckInputs(saved.Process.In), saved.Process.restore(), adoptRun()); err != nil {
		fatal("%s", errorText(err))
	}
	if changedArgs {
		warn("resuming with other arguments: they were %q, and now they are %q", saved.Args, start.args)
		if err := useArgs(saved.Args, start.args); err != nil {
			fatal("cannot use the changed arguments: %v", err)
		}
	}
	for i, f := range saved.Files { // the run may have been moved
		saved.Files[i].Name = cmp.Or(run.PathOf(f.File), f.Name)
	}
	files.Reopened(saved.Files)
	saved.Signals.restore()
	restoreTimers(saved.Timers)
	waitedFor.restore(saved.Contexts)
	saved.Contexts = nil
	restoredWaiters, saved.Timers, saved.Waiters = saved.Waiters, nil, nil
	files.Suspend(false)
	if err := rebuild(); err != nil {
		fatal("%v", err)
	}
	run.NoteLoop(currentLoop(saved.Frames))
	g.stack, saved.Frames = saved.Frames, nil
	g.Locks = saved.Locks
	g.lockAgain()
	points, since = saved.Points, saved.Points
	countPoints()
	g.setResuming(true)
	startRestored()
}

func begin() (bool, error) {
	if err := errors.Join(wrong...); err != nil {
		return false, err
	}
	protectStandard()
	for _, g := range globals {
		if err := g.protect(); err != nil {
			return false, err
		}
	}
	mainBegins()
	if err := protectParts(); err != nil {
		return false, err
	}
	if err := engine.Protect(run, framesName, &saved); err != nil {
		return false, err
	}
	engine.Register[signalError](run)
	run.RecordInputs()
	run.SetJournal(files.RestoreTo)
	if opensRun {
		run.ProtectHandles()
	}
	return run.Restore(context.Background())
}

// framesName is the variable of a checkpoint that holds the frames.
const framesName = "frames"

// Returning says that main is about to return.
func Returning() { returning = true }

// End is deferred by main before anything else. The run has finished, unless
// the program panics, or its other goroutines continue.
func End() {
	if nested--; nested > 0 || run == nil {
		return
	}
	switch by := endsBy(); {
	case returning || by == "":
		finish(true, 0)
	case by == "runtime.Goexit":
		cuts.close()
		warn("no checkpoint is taken any more: the main goroutine has ended with runtime.Goexit; let it wait for the other goroutines instead")
	default:
		finish(false, 0)
	}
}

// endsBy returns the function of the Go runtime that runs main's deferred calls
// because of a panic or Goexit, or "".
func endsBy() string {
	pcs := make([]uintptr, 64)
	for skip := 1; ; skip += len(pcs) {
		n := runtime.Callers(skip, pcs)
		frames := runtime.CallersFrames(pcs[:n])
		for more := n > 0; more; {
			var f runtime.Frame
			f, more = frames.Next()
			if f.Function == "runtime.gopanic" || f.Function == "runtime.Goexit" {
				return f.Function
			}
		}
		if n < len(pcs) {
			return ""
		}
	}
}

// finish ends the run. done says that the work is done, with an exit status:
// the checkpoints are not needed any more.
func finish(done bool, status int) {
	if run == nil {
		return
	}
	ending.Store(true)
	mu.Lock()
	defer mu.Unlock()
	if closed {
		return
	}
	closed = true
	cuts.close()
	done = releaseRun() && done
	if done && begun.Load() {
		if err := files.Sync(); err != nil {
			warn("%v; the run has not finished", err)
			done = false
		}
	}
	if done && begun.Load() {
		run.FinishWith(status)
	}
	err := run.Close()
	if failed != nil {
		reportUnsaved(failed)
	}
	if done && begun.Load() {
		endDivision()
		files.End()
		if err == nil && !supervised { // the end is recorded
			files.RemoveOverflow()
		}
	}
	if err != nil {
		warn("%s", errorText(err))
	}
}

// Exit stands for os.Exit: the run is finished with that status, unless the
// program fails because a device was lost.
func Exit(code int) {
	finish(code == 0 || lostDevices() == nil, code)
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
