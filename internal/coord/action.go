package coord

import "errors"

// Sentinel errors; the errors in actions wrap one of them.
var (
	ErrNotSaved = errors.New("set not saved")         // in Failed and Stop: a rank could not write its part
	ErrNoCut    = errors.New("no common point")       // in CalledOff and MoveOff: the ranks can't all be held at once
	ErrFinished = errors.New("a rank has finished")   // in CalledOff and MoveOff: its program has ended
	ErrLost     = errors.New("a rank was lost")       // in CalledOff and MoveOff: a rank died
	ErrCounts   = errors.New("message counts differ") // in CalledOff and MoveOff, and in Failed for a spatial set that a message crosses
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

	// Pause: the program stays in its point until Continue or Stop. The engine
	// pulls in every message that was announced to this rank.
	Pause struct{}

	// Continue: the program may leave its point.
	Continue struct{}

	// Save: copy the rank's state now, then call Copied, and Saved when the
	// copy is durable. The program stays in its point until Continue or Stop.
	//
	// The rank's part of the set holds every message from peer p that is
	// numbered up to Cut[p], has arrived and was not yet received by the
	// program. Messages above Cut[p] come from peers that went on already and
	// do not belong to the set. Cut is the driver's to keep. It is nil where
	// Alone is set.
	Save struct {
		Index  uint64
		Point  uint64 // the point that the program is in, for Counts.Point after a restart
		Due    uint64 // for Config.Due after a restart
		Cut    []uint64
		Reason string
		Stop   bool // the program stays held until the outcome is known, then Stop comes
		Alone  bool // a spatial set: no message was exchanged about it
	}

	// Committed: every rank has the set. It is the recovery line; older sets
	// are garbage as far as Garbage says.
	Committed struct{ Index uint64 }

	// Failed: at least one rank could not save its part; nobody may restore
	// the set. Err wraps ErrNotSaved and names the rank.
	Failed struct {
		Index uint64
		Err   error
	}

	// CalledOff: the round, or what was asked for, is given up. A program
	// that was held gets Continue as well. A move is not what was asked for here: see
	// MoveOff. A set whose outcome has not been told
	// stays undecided: its files must be kept. Stop is set if someone had
	// asked to save and stop.
	CalledOff struct {
		Err  error
		Stop bool
	}

	// Stop: the set's outcome is known (Committed or Failed came before) and
	// the program must end. Err is nil if the set is committed.
	Stop struct {
		Index uint64
		Err   error
	}

	// Move: all ranks are held, all channels are drained, every rank knows the
	// outcome of every set that has one, and no set is being written. Links may be
	// changed now, and ranks may change places (Export, Import). The program
	// stays in its point until the driver has called Moved.
	Move struct {
		ID    uint64 // of AskMove
		Point uint64 // the point that the program is in
	}

	// MoveOff: there will be no Move for this AskMove. It comes once on rank
	// 0, or on the rank that asked if that knows it already. When a rank was
	// lost, it comes on those that are between Move and Moved too, and Moved is
	// called all the same.
	MoveOff struct {
		ID  uint64
		Err error
	}

	// AllFinished: every rank has called Finished, or this one has and a rank
	// was lost: the driver need not hand in control messages any more.
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
