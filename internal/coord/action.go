package coord

import "errors"

// Sentinel errors; the errors in actions wrap one of them.
var (
	ErrNotSaved = errors.New("checkpoint not saved")  // in Failed and Stop: a rank could not write its part
	ErrNoCut    = errors.New("no common point")       // in CalledOff and MoveOff: the ranks cannot all pause at the same time
	ErrFinished = errors.New("a rank has finished")   // in CalledOff and MoveOff: its program has ended
	ErrLost     = errors.New("a rank was lost")       // in CalledOff and MoveOff: a rank died
	ErrCounts   = errors.New("message counts differ") // in CalledOff and MoveOff, and in Failed for a spatial checkpoint that a message crosses
	ErrStops    = errors.New("the run stops")         // in MoveOff: someone asked to save and stop
)

// Action is what a Node wants its driver to do. It is one of Send, Pause,
// Continue, Save, Committed, Failed, CalledOff, Stop, Move, MoveOff and
// AllFinished.
type Action interface{ action() }

type (
	// Send: give Msg to rank To. Messages to one rank must arrive in the
	// order of their Sends.
	Send struct {
		To  int
		Msg Message
	}

	// Pause: the program stays in its point until Continue or Stop. The
	// engine fetches every message that was announced to this rank.
	Pause struct{}

	// Continue: the program may leave its point.
	Continue struct{}

	// Save: copy the rank's state now, then call Copied, and Saved when the
	// copy is durable. The program stays in its point until Continue or
	// Stop.
	//
	// The rank's part of the checkpoint holds every message from peer p that is
	// numbered up to Cut[p], has arrived and was not yet received by the
	// program. Messages above Cut[p] come from peers that have already
	// continued, and do not belong to the checkpoint. The driver may keep Cut.
	// Cut is nil if Alone is set.
	Save struct {
		Index  uint64
		Point  uint64 // the point that the program is in, for Counts.Point after a restart
		Due    uint64 // for Config.Due after a restart
		Cut    []uint64
		Reason string
		Stop   bool // the program stays paused until the outcome is known; then Stop follows
		Alone  bool // a spatial checkpoint: no message was exchanged about it
	}

	// Committed: every rank has the checkpoint. It is the recovery line;
	// older checkpoints may be removed.
	Committed struct{ Index uint64 }

	// Failed: at least one rank could not save its part. No rank may
	// restore the checkpoint. Err wraps ErrNotSaved and names the rank.
	Failed struct {
		Index uint64
		Err   error
	}

	// CalledOff: the round, or the request, is given up. If the program was
	// paused, Continue follows. For moves, see MoveOff. If the outcome of an
	// earlier checkpoint is not known yet, it stays undecided, and the files of
	// that checkpoint must be kept. Stop is set if a rank had asked to save and
	// stop.
	CalledOff struct {
		Err  error
		Stop bool
	}

	// Stop: the checkpoint's outcome is known (Committed or Failed came
	// before), and the program must end. Err is nil if the checkpoint is
	// committed.
	Stop struct {
		Index uint64
		Err   error
	}

	// Move: all ranks are paused, all channels are drained, every rank
	// knows the outcome of every checkpoint that has one, and no checkpoint
	// is being written. Links may change now, and ranks may move to other
	// processes (Export, Import). The program stays in its point until the
	// driver has called Moved.
	Move struct {
		ID    uint64 // of AskMove
		Point uint64 // the point that the program is in
	}

	// MoveOff: there will be no Move for this AskMove. Only one Node returns
	// it: that of rank 0, or that of the rank that asked, if it already knows.
	// When a rank was lost, the Nodes between Move and Moved return it, too;
	// their drivers call Moved nevertheless.
	MoveOff struct {
		ID  uint64
		Err error
	}

	// AllFinished: every rank has called Finished; or this rank has, and a
	// rank was lost. The driver need not pass on control messages any more.
	AllFinished struct{}
)

func (Send) action()        {}
func (Pause) action()       {}
func (Continue) action()    {}
func (Save) action()        {}
func (Committed) action()   {}
func (Failed) action()      {}
func (CalledOff) action()   {}
func (Stop) action()        {}
func (Move) action()        {}
func (MoveOff) action()     {}
func (AllFinished) action() {}
