package resume

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
