package resume

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// Enter returns the depth of the resumable function that calls it. It is
// Checked if the caller checks for unwinding. It is -1 if the function cannot
// be saved: a library has called it, it is on another goroutine, or there is no
// run.
func Enter() int {
	if nothingCalled() { // only this is inlined
		return -1
	}
	return enter()
}

func enter() int {
	g := current()
	if g == nil {
		return -1
	}
	switch get(&g.state) {
	case 0:
		return -1
	case checkedCall:
		set(&g.state, 0)
		return Checked
	case called:
		set(&g.state, 0)
	}
	g.depth++
	if g.sameUnwind {
		g.sameUnwind = false
	} else {
		g.unwindBase = g.depth
	}
	return g.depth
}

// Resuming reports whether a function of depth d continues from its frame.
func Resuming(d int) bool { return d >= 0 && resumingHere() }

// Frame returns the frame of a depth. It is called if Resuming.
func Frame[T any](d int) *T {
	f, ok := frame(d).(*T)
	if !ok {
		wrongFrame(d, reflect.TypeFor[T]())
	}
	return f
}

func frame(d int) any {
	if g := own(); d >= 0 && d < len(g.stack) {
		return g.stack[d]
	}
	return nil
}

func wrongFrame(d int, want reflect.Type) {
	got := "none"
	if f := frame(d); f != nil {
		got = reflect.TypeOf(f).Elem().String()
	}
	fatal("cannot restore the checkpoint: another program saved it: its frame at depth %d is %s, not %s; start with --fresh, or move the checkpoint directory away", d, got, want)
}

// Resumed says that the program is at the point where it was saved.
func Resumed() {
	g := own()
	if g.depth != len(g.stack)-1 {
		extraFrames(g, g.depth)
	}
	g.setResuming(false)
	if g == &mainRoutine {
		startWaiters()
	}
	if severalRanks() { // all ranks reach the point again
		point(g, g.depth, g.stack[g.depth:], true)
	}
	g.stack[g.depth] = nil
	g.reusable = len(g.stack)
	setDueIfNeeded()
}

// setDueIfNeeded makes the next point call Point, if it has something to do.
func setDueIfNeeded() {
	if countEach.Load() || run.Due() {
		setDue()
	}
}

func extraFrames(g *routine, d int) {
	fatal("cannot restore the checkpoint: another program saved it: it has %d frames too many; start with --fresh, or move the checkpoint directory away", len(g.stack)-1-d)
}

// BadFrame says that a function has no place that its frame names.
func BadFrame(d int) {
	fatal("cannot restore the checkpoint: another program saved it: the function at depth %d has no place for its frame (%T); start with --fresh, or move the checkpoint directory away", d, frame(d))
}

// Storing reports whether a function has to store its frame before a call of a
// resumable function. Without a run this is all that such a call costs.
func Storing(d int) bool { return d >= 0 }

// Own returns the control block of this goroutine, for a function that has a
// depth.
func Own() *routine { return own() }

// ReusableFrame returns the frame of depth d if it is not needed any more: a
// call of the same function may use its memory again.
func (g *routine) ReusableFrame(d int) any {
	if d >= g.reusable && d < len(g.stack) {
		return g.stack[d]
	}
	return nil
}

// Calling says that the frame of depth d is stored, and a resumable function is
// about to be called.
func (g *routine) Calling(d int) {
	g.depth = d
	set(&g.state, called)
}

// Returned says that a call from depth d has returned. It may not have entered
// a resumable function.
func Returned(d int) {
	if d >= 0 {
		set(&own().state, 0)
	}
}

// NewFrame stores a new frame at depth d.
func NewFrame[T any](d int) *T {
	f := new(T)
	own().put(d, f, nil)
	return f
}

// put stores a frame, whose memory belongs to s, at depth d. The frame that was
// there belongs to a call that has returned.
func (g *routine) put(d int, f any, s pooled) {
	for len(g.stack) <= d {
		g.stack = append(g.stack, nil)
	}
	for len(g.owners) <= d {
		g.owners = append(g.owners, nil)
	}
	if o := g.owners[d]; o != nil && o != s {
		o.wipe(d)
	}
	g.stack[d], g.owners[d] = f, s
	g.reusable = min(g.reusable, d) // deeper calls have returned
}

type pooled interface {
	wipe(d int)
	drop()
}

// FramePool holds the frames of a function, by depth. Functions that call each
// other in turn use their memory again.
type FramePool[T any] struct {
	list       []*T
	registered bool
}

// Get stores a frame at depth d.
func (s *FramePool[T]) Get(d int) *T {
	if several {
		return NewFrame[T](d) // the pool has one frame of a depth
	}
	g := &mainRoutine
	if d < len(s.list) && s.list[d] != nil {
		g.put(d, s.list[d], s)
		return s.list[d]
	}
	if !s.registered {
		s.registered = true
		pools = append(pools, s)
	}
	for len(s.list) <= d {
		s.list = append(s.list, nil)
	}
	s.list[d] = new(T)
	g.put(d, s.list[d], s)
	return s.list[d]
}

// pools are all pools in use.
var pools []pooled

// wipe clears the frame of a depth, so that what it refers to can be freed.
// drop frees all frames.
func (s *FramePool[T]) wipe(d int) {
	if d < len(s.list) && s.list[d] != nil {
		*s.list[d] = *new(T)
	}
}

func (s *FramePool[T]) drop() { s.list = nil }

// Due reports whether Point has something to do. Loops call it in each
// iteration, so it is an instruction that compares a variable in memory, and a
// jump. An atomic read would need a register and one more instruction. But the
// compiler merges two plain reads if it sees no write between them, and then a
// loop without writes would never find out. For the compiler, KeepAlive is such
// a write; it has no instructions.
func Due() bool {
	if raceDetector {
		return atomic.LoadUint32(&due) != 0
	}
	runtime.KeepAlive(nil)
	return due != 0
}

// Point is a place where the program can be saved. f is the frame of the
// function that has it.
func Point(d int, f any) {
	if d >= 0 {
		point(own(), d, []any{f}, false)
	}
}

// point is a point with the frames from depth d on. again says that ranks have
// just been restored: the point was counted before.
func point(g *routine, d int, frames []any, again bool) {
	if several && (g != &mainRoutine || !severalRanks()) {
		pointOfMany(g, d, d, frames)
		return
	}
	mu.Lock()
	defer mu.Unlock()
	if again {
		pointOfRanks(d, frames, false)
		return
	}
	atomic.StoreUint32(&due, 0)
	if closed {
		return
	}
	points++
	if n := d + 1; n < len(g.stack) { // calls that have returned do not need their memory any more
		clear(g.stack[n:])
		g.stack = g.stack[:n]
	}
	for _, s := range pools {
		s.drop()
	}
	clear(g.owners)
	kill := killsHere()
	if severalRanks() {
		pointOfRanks(d, frames, kill)
		return
	}
	if !kill && !run.Due() {
		run.PassPoint()
		if countEach.Load() {
			setDue()
		}
		return
	}
	take(stackMismatch(d), append(append(saved.Frames[:0], g.stack[:d]...), frames...), kill)
}

// killsHere reports whether the process kills itself at the point that was just
// counted.
func killsHere() bool {
	return killAll || slices.ContainsFunc(killAt, func(n uint64) bool { return n > since && n <= points })
}

// take takes a checkpoint with the main goroutine's frames, if it can. why says
// why it cannot, if that is known.
func take(why string, frames []any, kill bool) {
	wait := grace
	if kill {
		wait = testGrace
	}
	defer resumeEvents()
	pauseEvents()
	begun := time.Now()
	if !lockFinalizers() || !canSave(why, wait) {
		retryLater(kill, time.Since(begun)+time.Duration(len(frames))*time.Microsecond)
		return
	}
	run.StoppedSince(cuts.since(begun))
	defer run.StoppedSince(time.Time{})
	missed.looks, missed.took = 0, 0
	saved.Frames = frames
	saved.Points = points
	saved.Locks = mainRoutine.Locks
	saved.Process.note()
	saved.Contexts = waitedFor.list()
	noteRebuilders()
	saveWaiters()
	cuts.noteBackground()
	cuts.noteFrames()
	var err error
	if kill {
		err = run.Checkpoint(context.Background())
		crash(err)
	} else {
		err = runPoint()
	}
	clear(saved.Frames)
	saved.Contexts = nil
	setDueIfNeeded()
	if err != nil {
		handlePointError(err)
	}
}

// missed counts points in a row at which a checkpoint was due and could not be
// taken.
var missed struct {
	looks int
	took  time.Duration
}

// retryLater makes one of the next points try again to take the checkpoint that
// is due. That is not always the next one: an iteration may take nanoseconds,
// and a try takes much longer.
func retryLater(kill bool, took time.Duration) {
	missed.looks++
	missed.took += took
	if kill || countEach.Load() || missed.looks < 10 {
		setDue()
		return
	}
	pause := time.Millisecond + 20*missed.took
	missed.looks, missed.took = 0, 0
	time.AfterFunc(pause, onDue)
}

// failed is why a checkpoint was not saved, until the user is told.
var failed error

// runPoint calls the run's Point. It returns the error of a checkpoint in any
// case.
func runPoint() error {
	err := run.Point(context.Background())
	if err == nil {
		err = failed
	}
	failed = nil
	return err
}

// failures has the failed checkpoints that were reported to the user.
var failures control.SaveFailures

// reportUnsaved tells the user that a checkpoint was not saved, unless the
// supervisor does.
func reportUnsaved(err error) {
	var known control.Reported
	if errors.As(err, &known) {
		return
	}
	failCount++
	msg := errorText(err)
	n, tell := failures.Add(failCount, msg, time.Now())
	if !tell {
		return
	}
	if n > 1 {
		msg += fmt.Sprintf(" (%d checkpoints in a row were not saved)", n)
	}
	warn("%s", msg)
}

// failCount counts checkpoints that were not saved.
var failCount uint64

// onSaved is called when a checkpoint is committed. It tells the user if the
// one before was not saved. A supervisor reports each checkpoint itself.
func onSaved(s engine.CheckpointInfo) {
	files.Committed()
	endDivision()
	savedSinceLoss()
	if n := failures.Over(); n > 0 && !supervised {
		warn("checkpoint %d is saved, after %d that were not", s.Index, n)
	}
}

// handlePointError handles an error of Point.
func handlePointError(err error) {
	switch {
	case errors.Is(err, engine.ErrStopped):
		if !supervised || errors.Is(err, engine.ErrNotSaved) { // a supervisor says that it is saved
			warn("%s", errorText(err))
		}
		releaseRun()
		run.Close()
		if errors.Is(err, engine.ErrNotSaved) {
			exit(statusUnsaved)
		}
		exit(statusStopped)
	case errors.Is(err, engine.ErrNotSaved):
		reportUnsaved(err)
	default: // the run cannot continue
		fatal("%s", errorText(err))
	}
}

// ownPackage is the prefix of the names of this package's functions.
var ownPackage = reflect.TypeFor[program]().PkgPath() + "."

// New moves a variable to memory where it can be saved with all pointers to it.
func New[T any](v T) *T { return &v }

// Zero returns a zero value.
func Zero[T any]() (v T) { return v }

// Keys returns the keys of a map in the order of one iteration over it.
func Keys[M ~map[K]V, K comparable, V any](m M) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	return keys
}

// crash ends the process as a crash would, when the checkpoint is committed. It
// returns if the state cannot be saved: then the program continues, as it does
// without a request to crash.
func crash(err error) {
	if errors.Is(err, engine.ErrNotSaved) {
		return
	}
	if err != nil {
		fatal("%s: %s", envKillAt, errorText(err))
	}
	killSelf()
	select {} // the signal is on its way
}
