//go:build !cairn_goroutines

package resume

import "sync/atomic"

// In a program that starts no goroutines, only the main one is saved. What
// follows is inlined, and costs what access to a variable costs.

// several says that more goroutines than the main one may be saved.
const several = false

// mainGoroutine is the main goroutine; 0: there is no run.
var mainGoroutine atomic.Uintptr

func beginMain() { mainGoroutine.Store(currentG()) }

// current returns the control block of this goroutine, or nil.
func current() *routine {
	if mainGoroutine.Load() != currentG() {
		return nil
	}
	return &mainRoutine
}

// own is current for functions that only goroutines with a control block call.
func own() *routine { return &mainRoutine }

// setUnwinding begins or ends the unwinding of functions.
func (g *routine) setUnwinding(on bool) {
	if on {
		set(&g.state, unwinding)
	} else {
		set(&g.state, 0)
	}
}

// mayUnwind reports whether the goroutine unwinds, resumingHere whether it
// resumes from its frames.
func mayUnwind() bool    { return Unwinding() }
func resumingHere() bool { return get(&mainRoutine.state) == resuming }

// setResuming begins or ends the return of functions to where they were saved.
func (g *routine) setResuming(on bool) {
	if on {
		set(&g.state, resuming)
	} else {
		set(&g.state, 0)
	}
}

// register and unregister have nothing to do here.
func (g *routine) register()   {}
func (g *routine) unregister() {}
