package resume

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	cairn "github.com/cairnrun/cairn"
)

// The frames. Only the main goroutine uses these.
var (
	depth   int  // of the function that made the last Call
	calling bool // a spine function is about to be entered by one
	stack   []any
)

// me is the main goroutine; 0: nothing is kept.
var me atomic.Uintptr

var resuming atomic.Bool

// What Enter returns for calls that no frame tells of.
const (
	foreign   = -1 // by way of code that can't be resumed
	elsewhere = -2 // on another goroutine, or nobody keeps sets
)

// Enter returns the depth of the spine function that calls it. It is negative
// when it was entered from code that can't be resumed, such as a callback of a
// library: then Call and Point do nothing.
func Enter() int {
	if me.Load() == 0 { // this much is inlined
		return elsewhere
	}
	return enter()
}

func enter() int {
	if me.Load() != self() {
		return elsewhere
	}
	if !calling && !resuming.Load() {
		return foreign
	}
	calling = false
	depth++
	return depth
}

// Resuming reports whether frames are being gone back to.
func Resuming() bool { return resuming.Load() }

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

// Here says that the saved point is reached.
func Here() {
	if depth != len(stack)-1 {
		fatal("the set was saved by another program: %d frames are left over; start with --fresh, or move the checkpoint folder away", len(stack)-1-depth)
	}
	calling = false
	resuming.Store(false)
	startWaits()
	if together() { // the point comes again, as for the other ranks
		mu.Lock()
		pointTogether(depth, stack[depth], false)
		mu.Unlock()
	}
	stack[depth] = nil
	fresh = len(stack)
	due.Store(true)
}

// Lost says that the function has no such place as its frame tells of.
func Lost(d int) {
	fatal("the set was saved by another program: the function at depth %d has no place that its frame (%T) tells of; start with --fresh, or move the checkpoint folder away", d, frame(d))
}

// Call stores the frame of a function that is about to call a spine function.
// It returns where, for the next Call of the same function.
func Call[T any](d int, f *T, v T) *T {
	if !Kept(d) {
		return f
	}
	f = Slot(d, f)
	*f = v
	Calling(d)
	return f
}

// What Call does, in parts that are inlined: Kept says whether a function's frame
// is to be stored, Slot where, and Calling that it is.

// Kept reports whether there are frames of a depth that Enter returned.
func Kept(d int) bool {
	if d == foreign {
		calling = false
	}
	return d >= 0
}

// Calling says that a spine function is about to be called from depth d.
func Calling(d int) { depth, calling = d, true }

// Slot returns where the frames of depth d are stored: f, if it is known already.
func Slot[T any](d int, f *T) *T {
	if f != nil {
		return f
	}
	return slot[T](d)
}

// slot is in the memory of a call that has returned, if that was one of the same
// function.
func slot[T any](d int) *T {
	if d < len(stack) && d >= fresh {
		if f, ok := stack[d].(*T); ok && f != nil {
			return f
		}
	}
	f := new(T)
	put(d, f)
	return f
}

// fresh is the depth from which on frames were stored by this process. Those of
// the set are still read by the functions that go on from them.
var fresh int

func put(d int, f any) {
	for len(stack) <= d {
		stack = append(stack, nil)
	}
	stack[d] = f
	fresh = min(fresh, d) // deeper calls have returned
}

// Due reports whether Point has something to do.
func Due() bool { return due.Load() }

// Point is a place where the program can be saved, f the frame of the
// function that it is in.
func Point[T any](d int, f T) {
	if d < 0 {
		return
	}
	point(d, &f)
}

func point(d int, f any) {
	mu.Lock()
	defer mu.Unlock()
	if closed {
		return
	}
	points++
	due.Store(false)
	if n := d + 1; n < len(stack) { // what has returned needs its memory no more
		clear(stack[n:])
		stack = stack[:n]
	}
	kill := killAll || slices.ContainsFunc(killAt, func(n uint64) bool { return n > since && n <= points })
	if together() {
		pointTogether(d, f, kill)
		return
	}
	if !kill && !run.Due() {
		run.Passed()
		if counts {
			due.Store(true)
		}
		return
	}
	wait := patience
	if kill {
		wait = testPatience
	}
	defer free()
	hold()
	if !clearWay(d, wait) {
		due.Store(true)
		return
	}
	saved.Frames = append(append(saved.Frames[:0], stack[:d]...), f)
	saved.Points = points
	saved.Process.note()
	noteWaits()
	if kill {
		killed(run.Checkpoint(context.Background()))
	}
	err := run.Point(context.Background())
	clear(saved.Frames)
	if counts || run.Due() {
		due.Store(true)
	}
	if err != nil {
		trouble(err)
	}
}

// told is the last trouble that the user was told of. The same is told again
// after a while.
var told struct {
	text string
	at   time.Time
}

const toldAgain = 10 * time.Minute

// trouble deals with an error of Point.
func trouble(err error) {
	switch {
	case errors.Is(err, cairn.ErrStopped):
		say("%s", text(err))
		takeBack()
		run.Close()
		exit(statusStopped)
	case errors.Is(err, cairn.ErrNotSaved):
		if msg := text(err); msg != told.text || time.Since(told.at) > toldAgain {
			told.text, told.at = msg, time.Now()
			say("%s", msg)
		}
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
