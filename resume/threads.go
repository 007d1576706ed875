package resume

import "runtime"

// initLocks is how often init has called LockOSThread, less what it has undone.
// It does so again after a restart.
var initLocks int

// LockOSThread stands for runtime.LockOSThread. The calls that are not undone
// are repeated after a restart: the goroutine has a thread of its own again,
// but what it has set for the thread is not saved.
func LockOSThread() {
	runtime.LockOSThread()
	if g := current(); g != nil {
		g.Locks++
	} else if inInit() {
		initLocks++
	}
}

// UnlockOSThread stands for runtime.UnlockOSThread. It does nothing if there is
// nothing to undo.
func UnlockOSThread() {
	runtime.UnlockOSThread()
	switch g := current(); {
	case g == nil:
		if initLocks > 0 && inInit() {
			initLocks--
		}
	case g.Locks > 0 || g == &mainRoutine && g.Locks > -initLocks:
		g.Locks--
	}
}

// inInit reports whether this is the main goroutine before main begins.
func inInit() bool { return !begun.Load() && goroutineID() == "1" }

// lockAgain repeats what the goroutine did before the restart.
func (g *routine) lockAgain() {
	for range g.Locks {
		runtime.LockOSThread()
	}
	for range -g.Locks { // init has locked it
		runtime.UnlockOSThread()
	}
}
