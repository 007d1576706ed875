package resume

import (
	"slices"
	"sync/atomic"
	"time"
)

// Unwinding. A resumable function can store its frame before each call that
// leads to a point, which costs something each time. If the compiler knows all
// functions between such a call and the point, nothing is stored. At a point
// where a checkpoint is due the function returns with its frame; its caller,
// which checks for this after each such call, does the same; and the outermost
// of them, whose callers have stored their frames, takes the checkpoint and
// continues from the frames, as after a restart.
//
//	main            has stored its frame
//	 └ solve        takes the checkpoint with the three frames, and calls place again
//	    └ place     Unwinding: its frame is the second, it returns
//	       └ place  a checkpoint is due: its frame is the first, it returns
//
// Functions of one package call each other's fast paths directly. For a call of
// another package's function, or by way of an interface, the caller announces
// that it checks afterwards (CallingChecked), and the function finds that out
// when it is entered. The function may be of another kind, and call one of this
// kind: so the stack is checked before functions unwind (CanUnwind).

// Checked is what Enter returns if the caller checks afterwards whether the
// function has unwound.
const Checked = -2

// CallingChecked says that a function is about to be called, and that the
// caller checks afterwards whether it has unwound.
func CallingChecked() { set(&own().state, checkedCall) }

// Unwound reports, after CallingChecked and the call, whether the function has
// unwound.
func Unwound() bool { return !nothingCalled() && stillUnwinding() }

func stillUnwinding() bool {
	g := own()
	if get(&g.state) == unwinding {
		return true
	}
	set(&g.state, 0) // the function cannot unwind
	return false
}

// Reentering says that a function of depth d is resumed, and is about to call
// the next one that is.
func Reentering(d int) {
	g := own()
	g.depth = d
	g.sameUnwind = true
}

// Recovered returns v, the result of recover. The function that was about to be
// entered may not have been.
func Recovered(v any) any {
	if nothingCalled() {
		return v
	}
	if g := current(); g != nil {
		if s := get(&g.state); s == checkedCall || s == called {
			set(&g.state, 0)
		}
	}
	return v
}

// CanUnwind reports whether the function that has the caller's point can
// unwind, with all functions up to the outermost. It cannot if a library's
// function is among them.
func CanUnwind() bool {
	if several {
		return own().canUnwind()
	}
	mu.Lock()
	defer mu.Unlock()
	begun := time.Now()
	if stackMismatch(own().unwindBase) == "" {
		return true
	}
	atomic.StoreUint32(&due, 0)
	retryLater(false, time.Since(begun)) // it stays so until they have returned
	return false
}

// Unwind adds the frame of a function that is about to return.
func Unwind(f any) {
	g := own()
	g.unwound = append(g.unwound, f)
	g.setUnwinding(true)
}

// UnwoundTo is called by a function of depth d after a call. If the call has
// unwound, and this function is the outermost, UnwoundTo takes the checkpoint
// and returns true: the function continues from its frame.
func UnwoundTo(d int) bool { return mayUnwind() && takeUnwound(d) }

func takeUnwound(d int) bool {
	g := own()
	if get(&g.state) != unwinding || d != g.unwindBase {
		return false
	}
	g.setUnwinding(false)
	frames := slices.Clone(g.unwound)
	slices.Reverse(frames)
	clear(g.unwound)
	g.unwound = g.unwound[:0]
	again := g.repeatPoint
	g.repeatPoint = false
	point(g, d, frames, again)
	g.stack = append(g.stack[:d], frames...)
	g.reentering = true
	g.depth = d
	g.setResuming(true)
	return true
}

// ResumedFast is Resumed for a function that can unwind; d is its depth. It
// reports whether the function has to unwind at once.
func ResumedFast(d int) bool {
	if d < 0 { // it has not unwound
		return false
	}
	g := own()
	if d != len(g.stack)-1 {
		extraFrames(g, d)
	}
	g.setResuming(false)
	if g.reentering {
		g.reentering = false
		clear(g.stack[g.unwindBase:])
		g.stack = g.stack[:g.unwindBase]
		return false
	}
	if g == &mainRoutine {
		startWaiters()
	}
	g.repeatPoint = severalRanks() && g == &mainRoutine
	g.stack[d] = nil
	g.reusable = len(g.stack)
	setDueIfNeeded()
	return g.repeatPoint
}

// canUnwind is CanUnwind for one of several goroutines.
func (g *routine) canUnwind() bool {
	if severalRanks() && g != &mainRoutine && !cuts.wanted.Load() {
		return false
	}
	now := time.Now()
	if now.Before(g.mayTry) {
		return false
	}
	if stackMismatch(g.unwindBase) == "" {
		return true
	}
	g.mayTry = now.Add(20 * time.Since(now)) // it stays so until they have returned
	return false
}
