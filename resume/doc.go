// Package resume is the run time of programs that 'cairn run' and 'cairn
// build' have made resumable: it is called by code that they put into a
// program, not by hand.
//
// A *point* is a place where the program can be saved; a *spine* function is
// one that leads from main to a point. Each spine function has a depth (main
// has 0) and a frame, a struct of what it needs to go on: which place in it
// was reached, and the variables that are used after it.
//
//	main           *NewFrame(0) = {Get: 2, …}   stack[0]
//	 └ run         *NewFrame(1) = {Get: 1, …}   stack[1]
//	    └ sweep    Point(2, {Get: 1, …})    saves stack[0], stack[1] and this
//
// Functions that can be left when a set is due store nothing; see leave.go.
//
// On a restart Begin restores the package variables and the stack. Every spine
// function then finds its frame, jumps to the place, and calls the next one,
// until Resumed (or ResumedFast) says that the innermost has come to its point.
//
// Everything runs on the main goroutine. A set is taken only when no other
// goroutine of the program lives, and only when the calls on the goroutine's
// stack are exactly those that the frames tell of.
//
// A program that nobody supervises, with no CAIRN_DIR in its environment, runs
// as if it had not been changed.
//
// The environment:
//
//	CAIRN_DIR           where sets are kept, when nobody supervises the program
//	CAIRN_FRESH         1: start over, and discard what CAIRN_DIR holds of an earlier run
//	CAIRN_EVERY         a duration such as 10m: a set is due so long after the last
//	CAIRN_EVERY_POINTS  … so many points after the last
//	CAIRN_KILL_AT       for tests: numbers of points, 3 or 3,7,8, counted over all
//	                    starts of the run, at which the process saves, and when the
//	                    set is safe kills itself with SIGKILL; "each" for all of them.
//	                    Where nothing can be saved, the next point takes its place.
//	                    Points that the restored set has behind it do not count.
//	CAIRN_KILL_RANK     … only the rank of this number, the others find it lost. With
//	                    several ranks all of them must come to the point.
package resume
