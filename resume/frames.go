package resume

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/engine"
)

// The frames. Only the main goroutine uses these.
var (
	stack []any // of the spine functions that have called another one
	fresh int   // the depth from which on this process stored them: those of the set are still read by the functions that go on from them
	depth int   // of the function that made the last call of a spine function
)

// me is the main goroutine; 0: nothing is kept.
var me atomic.Uintptr

// state is what a spine function is entered for. The main goroutine sets it,
// others only look whether it is 0.
var state uint32

const (
	asCallee    = 1 + iota // a spine function has called it
	resuming               // frames are being gone back to
	unwinding              // functions return to where a set is taken
	checkedCall            // see CallingChecked
)

// Enter returns the depth of the spine function that calls it. It is negative
// when it was entered from code that can't be resumed, such as a callback of a
// library, or on another goroutine, or nobody keeps sets; or it is Checked.
func Enter() int {
	if get(&state) == 0 { // this much is inlined
		return -1
	}
	return enter()
}

func enter() int {
	if me.Load() != self() {
		return -1
	}
	switch get(&state) {
	case checkedCall:
		set(&state, 0)
		return Checked
	case asCallee:
		set(&state, 0)
	}
	depth++
	if inside {
		inside = false
	} else {
		base = depth
	}
	return depth
}

// Resuming reports whether a function of depth d is to be gone on with from its
// frame.
func Resuming(d int) bool { return d >= 0 && get(&state) == resuming }

// Frame returns the frame of a depth, while Resuming.
func Frame[T any](d int) *T {
	f, ok := frame(d).(*T)
	if !ok {
		unfit(d, reflect.TypeFor[T]())
	}
	return f
}

func frame(d int) any {
	if d < 0 || d >= len(stack) {
		return nil
	}
	return stack[d]
}

func unfit(d int, want reflect.Type) {
	got := "none"
	if f := frame(d); f != nil {
		got = reflect.TypeOf(f).Elem().String()
	}
	fatal("the set was saved by another program: the frame at depth %d is %s there, %s here; start with --fresh, or move the checkpoint folder away", d, got, want)
}

// Resumed says that the saved point is reached.
func Resumed() {
	if depth != len(stack)-1 {
		extraFrames(depth)
	}
	set(&state, 0)
	startWaits()
	if together() { // the point comes again, as for the other ranks
		point(depth, stack[depth:], true)
	}
	stack[depth] = nil
	fresh = len(stack)
	lookAgain()
}

// lookAgain makes the next point have something to do, if it has.
func lookAgain() {
	if counts || run.Due() {
		look()
	}
}

func extraFrames(d int) {
	fatal("the set was saved by another program: %d frames are left over; start with --fresh, or move the checkpoint folder away", len(stack)-1-d)
}

// BadFrame says that the function has no such place as its frame tells of.
func BadFrame(d int) {
	fatal("the set was saved by another program: the function at depth %d has no place that its frame (%T) tells of; start with --fresh, or move the checkpoint folder away", d, frame(d))
}

// Storing says whether a function's frame is to be stored before a call of a spine
// function. It is all that such a call costs where nothing is kept.
func Storing(d int) bool { return d >= 0 }

// ReusableFrame returns the frame of depth d if nobody reads it any more: its memory can
// be used again, if it is of the same function.
func ReusableFrame(d int) any {
	if d >= fresh && d < len(stack) {
		return stack[d]
	}
	return nil
}

// Calling says that the frame of depth d is stored, and a spine function is
// about to be called.
func Calling(d int) {
	depth = d
	set(&state, asCallee)
}

// Returned says that a call from depth d has returned, which may not have entered a
// spine function.
func Returned(d int) {
	if d >= 0 {
		set(&state, 0)
	}
}

// NewFrame makes room for a frame at depth d.
func NewFrame[T any](d int) *T {
	f := new(T)
	put(d, f, nil)
	return f
}

// put puts a frame, whose memory is one of s, at depth d. What was there is of
// a call that has returned.
func put(d int, f any, s slotted) {
	for len(stack) <= d {
		stack = append(stack, nil)
	}
	for len(owners) <= d {
		owners = append(owners, nil)
	}
	if o := owners[d]; o != nil && o != s {
		o.wipe(d)
	}
	stack[d], owners[d] = f, s
	fresh = min(fresh, d) // deeper calls have returned
}

// owners are those whose memory the frames in stack are, by depth; nil: nobody's.
var owners []slotted

type slotted interface {
	wipe(d int)
	drop()
}

// FramePool is room for a function's frames, by depth. Functions that call each
// other take turns at a depth, and use their memory again.
type FramePool[T any] struct {
	list  []*T
	known bool
}

// Get makes room for a frame at depth d.
func (s *FramePool[T]) Get(d int) *T {
	if d < len(s.list) && s.list[d] != nil {
		put(d, s.list[d], s)
		return s.list[d]
	}
	if !s.known {
		s.known = true
		slots = append(slots, s)
	}
	for len(s.list) <= d {
		s.list = append(s.list, nil)
	}
	s.list[d] = new(T)
	put(d, s.list[d], s)
	return s.list[d]
}

// slots are all that are in use.
var slots []slotted

// wipe lets go of what the frame of a depth refers to, drop of all frames.
func (s *FramePool[T]) wipe(d int) {
	if d < len(s.list) && s.list[d] != nil {
		*s.list[d] = *new(T)
	}
}

func (s *FramePool[T]) drop() { s.list = nil }

// Due reports whether Point has something to do. Loops ask this in each round:
// with a call that must itself be inlined (atomic.Bool's), an instruction that does
// nothing would stand there, too. The same goes for Unwinding.
func Due() bool { return atomic.LoadUint32(&due) != 0 }

// Point is a place where the program can be saved, f the frame of the
// function that it is in.
func Point(d int, f any) {
	if d >= 0 {
		point(d, []any{f}, false)
	}
}

// point is a point at which there are frames from depth d on. One that comes
// again, when ranks have just been restored, was counted already.
func point(d int, frames []any, again bool) {
	mu.Lock()
	defer mu.Unlock()
	if again {
		pointTogether(d, frames, false)
		return
	}
	atomic.StoreUint32(&due, 0)
	if closed {
		return
	}
	points++
	if n := d + 1; n < len(stack) { // what has returned needs its memory no more
		clear(stack[n:])
		stack = stack[:n]
	}
	for _, s := range slots {
		s.drop()
	}
	clear(owners)
	kill := killAll || slices.ContainsFunc(killAt, func(n uint64) bool { return n > since && n <= points })
	if together() {
		pointTogether(d, frames, kill)
		return
	}
	if !kill && !run.Due() {
		run.PassPoint()
		if counts {
			look()
		}
		return
	}
	wait := patience
	if kill {
		wait = testPatience
	}
	defer free()
	hold()
	begun := time.Now()
	if !holdFinalizers() || !clearWay(d, wait) {
		lookLater(kill, time.Since(begun)+time.Duration(len(frames))*time.Microsecond)
		return
	}
	missed.looks, missed.took = 0, 0
	saved.Frames = append(append(saved.Frames[:0], stack[:d]...), frames...)
	saved.Points = points
	saved.Process.note()
	noteWaits()
	if kill {
		killed(run.Checkpoint(context.Background()))
	}
	err := runPoint()
	clear(saved.Frames)
	lookAgain()
	if err != nil {
		trouble(err)
	}
}

// missed counts points in a row at which a set was due and could not be taken.
var missed struct {
	looks int
	took  time.Duration
}

// lookLater makes one of the next points look again whether the set can be taken
// that is due. Not always the very next one: a round may take nanoseconds, and
// looking takes much longer.
func lookLater(kill bool, took time.Duration) {
	missed.looks++
	missed.took += took
	if kill || counts || missed.looks < 10 {
		look()
		return
	}
	pause := time.Millisecond + 20*missed.took
	missed.looks, missed.took = 0, 0
	time.AfterFunc(pause, look)
}

// failed is why a set was not saved, until the user is told.
var failed error

// runPoint is Point of the run. It returns what became of sets in any case.
func runPoint() error {
	err := run.Point(context.Background())
	if err == nil {
		err = failed
	}
	failed = nil
	return err
}

// troubles are those that the user was told of.
var troubles control.SaveFailures

// unsaved tells that a set was not saved, unless the supervisor does.
func unsaved(err error) {
	var known control.Reported
	if errors.As(err, &known) {
		return
	}
	fails++
	msg := text(err)
	sets, tell := troubles.Add(fails, msg, time.Now())
	if !tell {
		return
	}
	if sets > 1 {
		msg += fmt.Sprintf(" (%d in a row were not)", sets)
	}
	say("%s", msg)
}

// fails counts sets that were not saved.
var fails uint64

// savedAgain tells that a set was saved, if the one before was not. A supervisor
// tells of each.
func savedAgain(s engine.CheckpointInfo) {
	files.Committed()
	if n := troubles.Over(); n > 0 && !supervised {
		say("set %d is saved, after %d that were not", s.Index, n)
	}
}

// trouble deals with an error of Point.
func trouble(err error) {
	switch {
	case errors.Is(err, engine.ErrStopped):
		say("%s", text(err))
		takeBack()
		run.Close()
		if errors.Is(err, engine.ErrNotSaved) {
			exit(statusUnsaved)
		}
		exit(statusStopped)
	case errors.Is(err, engine.ErrNotSaved):
		unsaved(err)
	default: // the run can't go on
		fatal("%s", text(err))
	}
}

// ownPackage begins the names of this package's functions.
var ownPackage = reflect.TypeFor[program]().PkgPath() + "."

// New puts a variable where it can be saved with all that point to it.
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

// killed ends the process as a crash would, once the set is safe.
func killed(err error) {
	if err != nil {
		fatal("%s: %s", envKillAt, text(err))
	}
	killSelf()
	select {} // the signal is on its way
}
