package resume

import (
	"slices"
	"sync/atomic"
	"time"
)

// Functions that are left when a set is due. Other spine functions store their
// frame before each call that leads to a point, which costs something each time.
// Where all that can be between such a call and the point is known to the
// compiler, nothing is stored: at a point where a set is due the function returns,
// with its frame; its caller, which asks after each such call, does the same; and
// the outermost of them, whose callers have stored their frames, takes the set and
// goes on from the frames, as after a restart.
//
//	main            stored
//	 └ solve        takes the set with the frames of the three, and calls it again
//	    └ place     Unwinding: its frame is the second, it returns
//	       └ place  a set is due: its frame is the first, it returns
//
// Those of one package call each other by the names of the parts that do so. For a
// call of another package's, or of one that only the run knows, the caller says
// that it asks afterwards (CallingChecked), and what is called finds that when it is
// entered. It may be no such function, and what it calls may be one: the stack is
// looked at before a function is left (CanUnwind).
//
// Only functions that were entered by solve with a depth do so, and so all that
// is here is used by the main goroutine alone.
var (
	unwound    []any // the frames of those that have returned, the innermost first
	base       int   // the depth of the outermost
	reentering bool  // it is this process that goes on, not one that was restarted
	inside     bool  // what is entered next is not the outermost, though it has a depth
	comesAgain bool  // the point is one that a restored program is at; see spmd.go
)

// Checked is what Enter returns to a function whose caller asks afterwards whether it
// was left.
const Checked = -2

// CallingChecked says that a function is about to be called, and that its caller asks
// afterwards whether it was left.
func CallingChecked() { set(&state, checkedCall) }

// Unwound reports, after CallingChecked and the call, whether the function was left.
func Unwound() bool { return get(&state) != 0 && stillUnwinding() }

func stillUnwinding() bool {
	if get(&state) == unwinding {
		return true
	}
	set(&state, 0) // it was another kind of function
	return false
}

// Reentering is CallingChecked for a function of depth d that is gone on with, as is what it is
// about to call.
func Reentering(d int) {
	depth = d
	inside = true
}

// Recovered returns v, what recover has returned. What was about to be entered
// may not have been.
func Recovered(v any) any {
	if s := get(&state); (s == checkedCall || s == asCallee) && me.Load() == self() {
		set(&state, 0)
	}
	return v
}

// CanUnwind reports whether the function with the point that its caller is of can be
// left, and so can all that have called it, up to the outermost. It can't be if a
// function of a library is among them.
func CanUnwind() bool {
	mu.Lock()
	defer mu.Unlock()
	begun := time.Now()
	if crooked(base) == "" {
		return true
	}
	atomic.StoreUint32(&due, 0)
	lookLater(false, time.Since(begun)) // it stays so until those have returned
	return false
}

// Unwind gives the frame of a function that is about to return.
func Unwind(f any) {
	unwound = append(unwound, f)
	set(&state, unwinding)
}

// UnwoundTo is for a function of depth d, when what it has called returned. If that was
// left, and it is the outermost, the set is taken, and it goes on from its frame.
func UnwoundTo(d int) bool { return get(&state) == unwinding && d == base && takeUnwound(d) }

func takeUnwound(d int) bool {
	set(&state, 0)
	frames := slices.Clone(unwound)
	slices.Reverse(frames)
	clear(unwound)
	unwound = unwound[:0]
	again := comesAgain
	comesAgain = false
	point(d, frames, again)
	stack = append(stack[:d], frames...)
	reentering = true
	depth = d
	set(&state, resuming)
	return true
}

// ResumedFast is Resumed for a function that is left when a set is due; d is its depth.
// It reports whether it is to be left at once.
func ResumedFast(d int) bool {
	if d < 0 { // it was not left
		return false
	}
	if d != len(stack)-1 {
		extraFrames(d)
	}
	set(&state, 0)
	if reentering {
		reentering = false
		clear(stack[base:])
		stack = stack[:base]
		return false
	}
	startWaits()
	comesAgain = together()
	stack[d] = nil
	fresh = len(stack)
	lookAgain()
	return comesAgain
}
