package resume

import (
	"slices"
	"sync/atomic"
	"time"
)

// Unwinding. A resumable function can store its frame before each call that leads
// to a point, which costs something each time. If the compiler knows all
// functions between such a call and the point, nothing is stored. At a point
// where a checkpoint is due the function returns with its frame; its caller, which
// checks for this after each such call, does the same; and the outermost of them,
// whose callers have stored their frames, takes the checkpoint and continues from
// the frames, as after a restart.
//
//	main            has stored its frame
//	 └ solve        takes the checkpoint with the three frames, and calls place again
//	    └ place     Unwinding: its frame is the second, it returns
//	       └ place  a checkpoint is due: its frame is the first, it returns
//
// Functions of one package call each other's fast paths directly. For a call of
// another package's function, or by way of an interface, the caller announces
// that it checks afterwards (CallingChecked), and the function finds that out when
// it is entered. The function may be of another kind, and call one of this kind:
// so the stack is checked before functions unwind (CanUnwind).
//
// Only functions that solve has entered with a depth unwind. So only the main
// goroutine uses these variables.
var (
	unwound     []any // frames of functions that have returned, the innermost first
	unwindBase  int   // depth of the outermost function that unwinds
	reentering  bool  // this process continues; it was not restarted
	sameUnwind  bool  // the next function to be entered is not the outermost, though it has a depth
	repeatPoint bool  // the point is where a restored program resumes; see ranks.go
)

// Checked is what Enter returns if the caller checks afterwards whether the
// function has unwound.
const Checked = -2

// CallingChecked says that a function is about to be called, and that the
// caller checks afterwards whether it has unwound.
func CallingChecked() { set(&state, checkedCall) }

// Unwound reports, after CallingChecked and the call, whether the function has
// unwound.
func Unwound() bool { return get(&state) != 0 && stillUnwinding() }

func stillUnwinding() bool {
	if get(&state) == unwinding {
		return true
	}
	set(&state, 0) // the function cannot unwind
	return false
}

// Reentering says that a function of depth d is resumed, and is about to call
// the next one that is.
func Reentering(d int) {
	depth = d
	sameUnwind = true
}

// Recovered returns v, the result of recover. The function that was about to be
// entered may not have been.
func Recovered(v any) any {
	if s := get(&state); (s == checkedCall || s == called) && mainGoroutine.Load() == currentG() {
		set(&state, 0)
	}
	return v
}

// CanUnwind reports whether the function that has the caller's point can
// unwind, with all functions up to the outermost. It cannot if a library's
// function is among them.
func CanUnwind() bool {
	mu.Lock()
	defer mu.Unlock()
	begun := time.Now()
	if stackMismatch(unwindBase) == "" {
		return true
	}
	atomic.StoreUint32(&due, 0)
	retryLater(false, time.Since(begun)) // it stays so until they have returned
	return false
}

// Unwind adds the frame of a function that is about to return.
func Unwind(f any) {
	unwound = append(unwound, f)
	set(&state, unwinding)
}

// UnwoundTo is called by a function of depth d after a call. If the call has
// unwound, and this function is the outermost, UnwoundTo takes the checkpoint
// and returns true: the function continues from its frame.
func UnwoundTo(d int) bool { return get(&state) == unwinding && d == unwindBase && takeUnwound(d) }

func takeUnwound(d int) bool {
	set(&state, 0)
	frames := slices.Clone(unwound)
	slices.Reverse(frames)
	clear(unwound)
	unwound = unwound[:0]
	again := repeatPoint
	repeatPoint = false
	point(d, frames, again)
	stack = append(stack[:d], frames...)
	reentering = true
	depth = d
	set(&state, resuming)
	return true
}

// ResumedFast is Resumed for a function that can unwind; d is its depth. It
// reports whether the function has to unwind at once.
func ResumedFast(d int) bool {
	if d < 0 { // it has not unwound
		return false
	}
	if d != len(stack)-1 {
		extraFrames(d)
	}
	set(&state, 0)
	if reentering {
		reentering = false
		clear(stack[unwindBase:])
		stack = stack[:unwindBase]
		return false
	}
	startWaiters()
	repeatPoint = severalRanks()
	stack[d] = nil
	reusable = len(stack)
	setDueIfNeeded()
	return repeatPoint
}
