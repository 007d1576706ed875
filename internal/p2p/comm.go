package p2p

// Comm is a communicator. It is the type below mpi.Comm, and here so that
// package engine can make one without a function that programs see.
type Comm struct {
	Engine  *Engine
	Context uint32
	OwnRank int
	Group   []int // ranks of the run; nil: all
	Index   []int // the inverse, -1: not a member
}

// World returns the communicator of all ranks. Convert it to *mpi.Comm.
func (e *Engine) World() *Comm { return &Comm{Engine: e, OwnRank: e.Rank()} }
