package p2p

import (
	"fmt"
	"slices"
)

// Comm is a communicator. It is the type below mpi.Comm, and here so that
// package engine can make one without a function that programs see.
type Comm struct {
	engine  *Engine
	context uint32
	rank    int   // of this process
	group   []int // ranks of the run; nil: all
	index   []int // the inverse, -1: not a member
}

// World returns the communicator of all ranks. Convert it to *mpi.Comm.
func (e *Engine) World() *Comm { return &Comm{engine: e, rank: e.Rank()} }

// NewComm returns the communicator of some ranks of the run. A nil group means
// all of them. This rank must be one of them.
func NewComm(e *Engine, context uint32, group []int) (*Comm, error) {
	c := e.World()
	c.context, c.group = context, group
	if group == nil {
		return c, nil
	}
	c.index = slices.Repeat([]int{-1}, e.Size())
	for i, r := range group {
		if r < 0 || r >= len(c.index) || c.index[r] >= 0 {
			return nil, fmt.Errorf("mpi: a communicator of the ranks %v in a run of %d", group, e.Size())
		}
		c.index[r] = i
	}
	if c.rank = c.index[e.Rank()]; c.rank < 0 {
		return nil, fmt.Errorf("mpi: rank %d is not in the communicator of the ranks %v", e.Rank(), group)
	}
	return c, nil
}

// Engine returns the engine that moves the messages.
func (c *Comm) Engine() *Engine { return c.engine }

// Context returns the number that tells the communicator's messages from those
// of others.
func (c *Comm) Context() uint32 { return c.context }

// Group returns the members as ranks of the run, or nil for all of them.
func (c *Comm) Group() []int { return c.group }

// Rank returns the number of this rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int {
	if c.group == nil {
		return c.engine.Size()
	}
	return len(c.group)
}

// Peer returns the rank in the run of a rank in the communicator.
func (c *Comm) Peer(rank int) int {
	if c.group == nil {
		return rank
	}
	return c.group[rank]
}

// Local is the inverse of Peer.
func (c *Comm) Local(peer int) int {
	if c.group == nil {
		return peer
	}
	return c.index[peer]
}

// Collective returns the communicator that collectives use. Its messages are
// separate from those of the program.
func (c *Comm) Collective() *Comm {
	d := *c
	d.context |= 1
	return &d
}
