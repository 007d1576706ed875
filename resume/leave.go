package resume

import "slices"

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
//	    └ place     Leaving: its frame is the second, it returns
//	       └ place  a set is due: its frame is the first, it returns
//
// Only functions that were entered by solve with a depth do so, and so all that
// is here is used by the main goroutine alone.
var (
	left  []any // the frames of those that have returned, the innermost first
	going struct {
		on   bool // it is this process that goes on, not one that was restarted
		base int  // the depth of the outermost
	}
	comesAgain bool // the point is one that a restored program is at; see spmd.go
)

// Leave gives the frame of a function that is about to return.
func Leave(f any) {
	left = append(left, f)
	set(&state, leaving)
}

// Left is for the outermost of such functions, of depth d, when what it has
// called returned. If that was left, the set is taken, and it goes on from its
// frame.
func Left(d int) bool { return get(&state) == leaving && goBack(d) }

func goBack(d int) bool {
	set(&state, 0)
	frames := slices.Clone(left)
	slices.Reverse(frames)
	clear(left)
	left = left[:0]
	again := comesAgain
	comesAgain = false
	point(d, frames, again)
	stack = append(stack[:d], frames...)
	going.on, going.base = true, d
	depth = d
	set(&state, goingOn)
	return true
}

// Arrived is Here for a function that is left when a set is due; d is its depth.
// It reports whether it is to be left at once.
func Arrived(d int) bool {
	if d != len(stack)-1 {
		leftOver(d)
	}
	set(&state, 0)
	if going.on {
		going.on = false
		clear(stack[going.base:])
		stack = stack[:going.base]
		return false
	}
	startWaits()
	comesAgain = together()
	stack[d] = nil
	fresh = len(stack)
	lookAgain()
	return comesAgain
}
