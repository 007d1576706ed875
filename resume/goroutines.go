package resume

import (
	"sync"
	"time"
	"unsafe"
)

// routine is the control block of a goroutine that can be saved.
type routine struct {
	// state says why a resumable function is entered. Other goroutines only
	// check whether it is 0.
	state uint32

	stack    []any    // frames of the resumable functions that have called another one
	owners   []pooled // the pools that they belong to, by depth; nil: none
	reusable int      // frames of smaller depths are those of the restored checkpoint, and are still read
	depth    int      // of the function that made the last call of a resumable function

	// These are for unwinding: see unwind.go.
	unwound     []any // frames of functions that have returned, the innermost first
	unwindBase  int   // depth of the outermost function that unwinds
	reentering  bool  // this process continues; it was not restarted
	sameUnwind  bool  // the next function to be entered is not the outermost, though it has a depth
	repeatPoint bool  // the point is where a restored program resumes; see ranks.go

	// These are for programs with several goroutines that are saved.
	savedGoroutine
	number  uint64        // 1, 2, … in the order in which they were started
	wake    chan struct{} // wakes it from a wait, for a cut
	arrived bool          // it stands still, and Frames are its frames; guarded by cuts
	begins  bool          // it has not begun, and waits for the end of a cut
	joining *joining      // what it waits for on another goroutine
	mayTry  time.Time     // it does not try to unwind before this

	// These are for bare waits: see bare.go.
	operands any  // the frame of the one that was interrupted
	cutShort bool // the last one was interrupted
	woken    bool // its operation has not taken place: see runtime_known.go

	// What it waits for, for the search for deadlocks and for cuts: see
	// setPointer.
	channel   unsafe.Pointer    // the channel that it receives from, or sends to
	cond      unsafe.Pointer    // the list of the sync.Cond that it waits in: see awaitTicket
	unsaved   unsafe.Pointer    // the channel that recvUnsaved receives from
	selects   unsafe.Pointer    // the *selectFrame of awaitCases
	selecting unsafe.Pointer    // a channel of the bare select that it is in
	cases     uint32            // how many cases it has
	receives  [8]unsafe.Pointer // the channels that they receive from; nil: none
}

// savedGoroutine is a goroutine in a checkpoint.
type savedGoroutine struct {
	At     string // the place of the go statement
	F      func()
	Whole  bool  // F has no points: it can be saved only before it begins
	Frames []any // nil: it has not begun
	Locks  int   // calls of LockOSThread that were not undone
}

// Values of a routine's state.
const (
	called      = 1 + iota // by a resumable function that has stored its frame
	resuming               // from its frame
	unwinding              // (not entered) functions return to where the checkpoint is taken
	checkedCall            // see CallingChecked
)

// mainRoutine is the main goroutine's.
var mainRoutine routine

// StartBackground is Start for a goroutine that does not matter for the state.
// It keeps running while a checkpoint is taken, and a restart starts it again.
func StartBackground(at string, f func()) {
	if run == nil || f == nil {
		go f()
		return
	}
	b := &background{savedGoroutine{At: at, F: f}, begun.Load()}
	if b.again {
		cuts.addBackground(b)
	}
	b.launch()
}

// StartRebuilt is StartBackground for a goroutine that a function with a
// comment //cairn:rebuild starts. After a restart, that function starts it
// again.
func StartRebuilt(at string, f func()) {
	if run == nil || f == nil {
		go f()
		return
	}
	b := &background{savedGoroutine{At: at, F: f}, false}
	b.launch()
}

// background is a goroutine that StartBackground or StartRebuilt has started.
type background struct {
	savedGoroutine
	again bool // a restart starts it; otherwise init or a rebuilding function does
}

// launch starts the goroutine. A cut does not wait for goroutines whose creator
// is launch, and for those that they start.
//
//go:noinline
func (b *background) launch() { go b.main() }

func (b *background) main() {
	if b.again {
		defer cuts.removeBackground(b)
	}
	b.F()
}

// startUnknown starts a goroutine of init that cannot be saved: init would
// start it again.
//
//go:noinline
func startUnknown(at string, f func()) {
	go func() {
		id := goroutineID()
		startedByInit.Store(id, at)
		defer startedByInit.Delete(id)
		f()
	}()
}

// startedByInit has the places of the go statements of goroutines that init has
// started, by their numbers.
var startedByInit sync.Map

//go:noinline
func (g *routine) launch() { go g.main() }

// The names of functions in stack traces.
var (
	initCreator    = ownPackage + "startUnknown"
	routineCreator = ownPackage + "(*routine).launch"
	routineMain    = ownPackage + "(*routine).main"

	backgroundCreator = ownPackage + "(*background).launch"
)

// main is the outermost function of the goroutine.
//
//go:noinline
func (g *routine) main() {
	g.register()
	g.lockAgain()
	defer func() {
		g.unregister()
		cuts.remove(g)
	}()
	g.depth = -1
	switch {
	case len(g.stack) > 0:
		g.setResuming(true)
	default:
		g.arrive(nil)
		if !g.Whole {
			set(&g.state, called)
		}
	}
	g.F()
}
