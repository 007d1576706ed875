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
	// ErrRollback: another rank rolls back. No operation works before this
	// rank calls cairn.Run.Rollback, too.
	ErrRollback = p2p.ErrRollback
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

func init() { graph.Describe(described.state) }

// described is implemented by the types of this package that a checkpoint can
// hold.
type described interface{ state(*graph.Coder) error }

// in returns the communicator as package p2p knows it.
func (c *Comm) in() *p2p.Comm { return (*p2p.Comm)(c) }

// Rank returns the number of this rank in the communicator.
func (c *Comm) Rank() int { return c.in().Rank() }

// Size returns the number of ranks in the communicator.
func (c *Comm) Size() int { return c.in().Size() }

// Transport returns the name of the transport to a rank: "shm", "tcp" or "mpi",
// and "self" for the rank itself.
func (c *Comm) Transport(rank int) (string, error) {
	to, err := c.peer(rank)
	if err != nil {
		return "", err
	}
	return c.in().Engine().Transport(to), nil
}

// coll returns the communicator that collectives use.
func (c *Comm) coll() *Comm { return (*Comm)(c.in().Collective()) }

// peer returns the rank in the run of a rank in the communicator.
func (c *Comm) peer(rank int) (int, error) {
	if rank < 0 || rank >= c.Size() {
		return 0, fmt.Errorf("mpi: %w: rank %d in a communicator of %d", ErrArgument, rank, c.Size())
	}
	return c.in().Peer(rank), nil
}

// source is peer for receives. It accepts AnySource.
func (c *Comm) source(rank int) (int, error) {
	if rank == AnySource {
		return p2p.Any, nil
	}
	return c.peer(rank)
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
func (c *Comm) Dup() (*Comm, error) { return c.Split(0, c.Rank()) }

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
	mine := []choice{{int64(color), int64(key), uint64(c.in().Engine().Contexts(0))}}
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
	e := c.in().Engine()
	e.Contexts(uint32(next) + 2) // the same for all colors, which share no rank
	if color == Undefined {
		return nil, nil
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].Key, all[b].Key) })
	for i, r := range members {
		members[i] = c.in().Peer(r)
	}
	d, err := p2p.NewComm(e, uint32(next), members)
	return (*Comm)(d), err
}

// state saves and restores the communicator.
func (c *Comm) state(k *graph.Coder) error {
	ctx, group := uint64(c.in().Context()), c.in().Group()
	graph.Field(k, "context", &ctx)
	graph.Field(k, "group", &group)
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
	e.Contexts(uint32(ctx) + 2)
	d, err := p2p.NewComm(e, uint32(ctx), group)
	if err != nil {
		return err
	}
	*c = Comm(*d)
	return nil
}
