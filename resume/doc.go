// Package resume is the runtime of programs that 'cairn run' and 'cairn build'
// make resumable. Generated code calls it; people do not.
//
// # Frames
//
// A point is a place where the program can be saved. A function on a resumable
// path, from main to a point, is a resumable function. Each of its calls has a
// depth (main has 0) and a frame: a struct with the place in the function that
// was reached and the variables that are used after it.
//
//	main           *NewFrame(0) = {At: 2, …}   stack[0]
//	 └ run         *NewFrame(1) = {At: 1, …}   stack[1]
//	    └ sweep    Point(2, {At: 1, …})        saves stack[0], stack[1] and this
//
// Functions that can be unwound store no frames while they run: see unwind.go.
//
// On a restart Begin restores the package variables and the stack. Each
// resumable function then finds its frame, jumps to its place and calls the
// next one, until the innermost function calls Resumed (or ResumedFast).
//
// Each goroutine that the program starts has a control block with frames of its
// own. A checkpoint is taken when all of them have arrived at a cut (cuts.go):
// at a point, in a wait (waits.go), or before they begin; if no other goroutine
// is running; and if the calls on their stacks are exactly those that the
// frames describe (blockers.go). Programs without go statements are built
// without the tag cairn_goroutines, and have the main goroutine's control block
// only.
//
// # Map
//
//	run.go, process.go      the run, from Begin to End; the process's state
//	goroutines.go, routine* control blocks of goroutines
//	cuts.go, waits.go       several goroutines: cuts, and operations that block
//	frames.go, unwind.go    frames, points, unwinding
//	blockers.go             what prevents a checkpoint at a point
//	ranks.go                programs with several ranks, or with cairn.Open
//	register.go             variables, functions and types of the program
//	files.go, random.go, signals.go, waiters.go, timers.go, contexts.go,
//	finalizers.go           functions that stand for those of the standard
//	                        library
//
// # Environment
//
// Without a supervisor, and without CAIRN_DIR, a program runs as if it had not
// been changed.
//
//	CAIRN_DIR         the checkpoint directory, without a supervisor
//	CAIRN_FRESH       1: discard an earlier run in CAIRN_DIR and start over
//	CAIRN_EVERY, …    options of the library (docs/settings.md)
//	CAIRN_KILL_AT     for tests: numbers of points, 3 or 3,7,8, counted over all
//	                  starts of the run. The process saves there and, when the
//	                  checkpoint is committed, kills itself with SIGKILL. "each"
//	                  means all points. If nothing can be saved at a point, the
//	                  next one takes its place. Points before the restored
//	                  checkpoint do not count.
//	CAIRN_KILL_RANK   only this rank kills itself. All ranks must reach the
//	                  point.
package resume
