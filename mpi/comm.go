package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
)

// AnySource and AnyTag are wildcards for receives and probes. Undefined is the
// color of a rank that takes part in no communicator of a Split.
const (
	AnySource = -1
	AnyTag    = -1
	Undefined = -1
)

// MaxTag is the largest tag of a message.
const MaxTag = 1<<31 - 1

// The errors of this package wrap one of these. Compare with errors.Is.
var (
	// ErrLost: a rank of the run died. No operation works any more.
	ErrLost = p2p.ErrLost
	// ErrEnded: the other rank has ended its run.
	ErrEnded = p2p.ErrEnded
	// ErrTruncated: the message is longer than the buffer of its receive.
	ErrTruncated = p2p.ErrTruncated
	// ErrArgument: an argument is invalid, such as a rank, a tag or a
	// length.
	ErrArgument = errors.New("invalid argument")
	// ErrMismatch: ranks called a collective with arguments that do not
	// match.
	ErrMismatch = errors.New("the ranks' arguments do not match")
)

// Comm is a communicator: a group of ranks, numbered from 0. A message sent
// through one communicator is never received through another. A Comm is small,
// and a protected one is restored with its run.
type Comm p2p.Comm

// Rank returns the number of this rank in the communicator.
func (c *Comm) Rank() int { return c.OwnRank }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int {
	if c.Group == nil {
		return c.Engine.Size()
	}
	return len(c.Group)
}

// Transport returns the name of the transport to a rank: "shm", "tcp" or "mpi",
// and "self" for the rank itself.
func (c *Comm) Transport(rank int) (string, error) {
	to, err := c.peer(rank)
	if err != nil {
		return "", err
	}
	return c.Engine.Transport(to), nil
}

// coll returns the communicator that collectives use. Its messages are separate
// from those of the program.
func (c *Comm) coll() *Comm {
	d := *c
	d.Context = c.Context | 1
	return &d
}

// peer returns the rank in the run of a rank in the communicator.
func (c *Comm) peer(rank int) (int, error) {
	if rank < 0 || rank >= c.Size() {
		return 0, fmt.Errorf("mpi: %w: rank %d in a communicator of %d", ErrArgument, rank, c.Size())
	}
	if c.Group == nil {
		return rank, nil
	}
	return c.Group[rank], nil
}

// source is peer for receives. It accepts AnySource.
func (c *Comm) source(rank int) (int, error) {
	if rank == AnySource {
		return p2p.Any, nil
	}
	return c.peer(rank)
}

// local is the inverse of peer.
func (c *Comm) local(peer int) int {
	if c.Group == nil {
		return peer
	}
	return c.Index[peer]
}

func checkTag(tag int) error {
	if tag < 0 || tag > MaxTag {
		return fmt.Errorf("mpi: %w: tag %d", ErrArgument, tag)
	}
	return nil
}

// checkWanted is checkTag for receives. It accepts AnyTag.
func checkWanted(tag int) error {
	if tag == AnyTag {
		return nil
	}
	return checkTag(tag)
}

// Dup returns a new communicator of the same ranks. All ranks of c call it.
func (c *Comm) Dup() (*Comm, error) { return c.Split(0, c.OwnRank) }

// Split divides the ranks into one new communicator per color. In each, ranks
// are ordered by key, and by their rank in c where keys are equal. A rank that
// passes Undefined gets nil. All ranks of c call Split.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		return nil, fmt.Errorf("mpi: %w: color %d is negative", ErrArgument, color)
	}
	type choice struct {
		Color, Key int64
		Next       uint64
	}
	all := make([]choice, c.Size())
	mine := []choice{{int64(color), int64(key), uint64(c.Engine.Contexts(0))}}
	if err := Allgather(c, mine, all); err != nil {
		return nil, fmt.Errorf("mpi: splitting a communicator: %w", err)
	}
	next := uint64(0)
	var members []int
	for r, ch := range all {
		next = max(next, ch.Next)
		if color != Undefined && ch.Color == int64(color) {
			members = append(members, r)
		}
	}
	if next >= 1<<32-2 {
		return nil, errors.New("mpi: no more communicators can be made")
	}
	c.Engine.Contexts(uint32(next) + 2) // the same for all colors, which share no rank
	if color == Undefined {
		return nil, nil
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].Key, all[b].Key) })
	d := &Comm{Context: uint32(next), Group: make([]int, len(members))}
	for i, r := range members {
		d.Group[i], _ = c.peer(r)
	}
	return d, d.join(c.Engine)
}

// join completes a communicator whose context and group are set.
func (c *Comm) join(e *p2p.Engine) error {
	c.Engine, c.OwnRank = e, -1
	if c.Group == nil {
		c.OwnRank = e.Rank()
		return nil
	}
	c.Index = make([]int, e.Size())
	for i := range c.Index {
		c.Index[i] = -1
	}
	for i, r := range c.Group {
		if r < 0 || r >= len(c.Index) || c.Index[r] >= 0 {
			return fmt.Errorf("mpi: a communicator of the ranks %v in a run of %d", c.Group, e.Size())
		}
		c.Index[r] = i
		if r == e.Rank() {
			c.OwnRank = i
		}
	}
	if c.OwnRank < 0 {
		return fmt.Errorf("mpi: rank %d is not in the communicator of the ranks %v", e.Rank(), c.Group)
	}
	return nil
}

// CairnState saves and restores the communicator. Programs do not call it.
func (c *Comm) CairnState(k *graph.Coder) error {
	ctx := uint64(c.Context)
	graph.Field(k, "context", &ctx)
	graph.Field(k, "group", &c.Group)
	if !k.Restoring() || k.Err() != nil {
		return k.Err()
	}
	e, ok := k.Run().(*p2p.Engine)
	if !ok {
		return errors.New("a communicator is restored only in a run of several ranks")
	}
	if ctx&1 != 0 || ctx >= 1<<32-2 {
		return fmt.Errorf("a communicator with context %d", ctx)
	}
	c.Context = uint32(ctx)
	e.Contexts(c.Context + 2)
	return c.join(e)
}
