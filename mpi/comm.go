package mpi

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/p2p"
)

// Wildcards of receives and probes, and the color of a rank that Split leaves
// out.
const (
	AnySource = -1
	AnyTag    = -1
	Undefined = -1
)

// MaxTag is the largest tag.
const MaxTag = 1<<31 - 1

// Errors that programs tell apart with errors.Is.
var (
	ErrLost      = p2p.ErrLost      // a rank of the run died
	ErrEnded     = p2p.ErrEnded     // the other rank has ended its run
	ErrTruncated = p2p.ErrTruncated // the message is longer than the buffer
	ErrArgument  = errors.New("wrong argument")
)

// Comm is a communicator: a group of ranks, numbered from 0, whose messages
// are apart from those of every other communicator. It is a light handle; a
// protected one is restored.
type Comm struct {
	e     *p2p.Engine
	ctx   uint32
	rank  int
	group []int // ranks of the run; nil: all
	index []int // the inverse, -1: not a member
}

// World returns the communicator of all ranks that an engine connects. It is
// for the package cairn, and for tests.
func World(e *p2p.Engine) *Comm { return &Comm{e: e, rank: e.Rank()} }

// Rank is the number of this rank in the communicator.
func (c *Comm) Rank() int { return c.rank }

// Size is the number of ranks in the communicator.
func (c *Comm) Size() int {
	if c.group == nil {
		return c.e.Size()
	}
	return len(c.group)
}

// Transport names the transport that leads to a rank: "shm", "tcp", "mpi";
// "self" for the rank itself.
func (c *Comm) Transport(rank int) (string, error) {
	to, err := c.peer(rank)
	if err != nil {
		return "", err
	}
	return c.e.Transport(to), nil
}

// coll is the communicator as collectives see it: no message of theirs meets
// one of the program.
func (c *Comm) coll() *Comm {
	d := *c
	d.ctx = c.ctx | 1
	return &d
}

// peer turns a rank of the communicator into one of the run.
func (c *Comm) peer(rank int) (int, error) {
	if rank < 0 || rank >= c.Size() {
		return 0, fmt.Errorf("mpi: %w: rank %d in a communicator of %d", ErrArgument, rank, c.Size())
	}
	if c.group == nil {
		return rank, nil
	}
	return c.group[rank], nil
}

// source is peer for receives.
func (c *Comm) source(rank int) (int, error) {
	if rank == AnySource {
		return p2p.Any, nil
	}
	return c.peer(rank)
}

// local is the inverse of peer.
func (c *Comm) local(peer int) int {
	if c.group == nil {
		return peer
	}
	return c.index[peer]
}

func checkTag(tag int) error {
	if tag < 0 || tag > MaxTag {
		return fmt.Errorf("mpi: %w: tag %d", ErrArgument, tag)
	}
	return nil
}

// checkWanted is checkTag for receives.
func checkWanted(tag int) error {
	if tag == AnyTag {
		return nil
	}
	return checkTag(tag)
}

// Dup returns a communicator of the same ranks. All of them call it.
func (c *Comm) Dup() (*Comm, error) { return c.Split(0, c.rank) }

// Split divides the ranks into one communicator per color, ordered by key and
// then by rank. A rank that gives Undefined gets nil. All ranks call it.
func (c *Comm) Split(color, key int) (*Comm, error) {
	if color < 0 && color != Undefined {
		return nil, fmt.Errorf("mpi: %w: color %d is negative", ErrArgument, color)
	}
	type choice struct {
		Color, Key int64
		Next       uint64
	}
	all := make([]choice, c.Size())
	mine := []choice{{int64(color), int64(key), uint64(c.e.Contexts(0))}}
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
	c.e.Contexts(uint32(next) + 2) // for all colors alike: they share no rank
	if color == Undefined {
		return nil, nil
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(all[a].Key, all[b].Key) })
	d := &Comm{ctx: uint32(next), group: make([]int, len(members))}
	for i, r := range members {
		d.group[i], _ = c.peer(r)
	}
	return d, d.join(c.e)
}

// join completes a communicator whose context and group are set.
func (c *Comm) join(e *p2p.Engine) error {
	c.e, c.rank = e, -1
	if c.group == nil {
		c.rank = e.Rank()
		return nil
	}
	c.index = make([]int, e.Size())
	for i := range c.index {
		c.index[i] = -1
	}
	for i, r := range c.group {
		if r < 0 || r >= len(c.index) || c.index[r] >= 0 {
			return fmt.Errorf("mpi: a communicator of the ranks %v in a run of %d", c.group, e.Size())
		}
		c.index[r] = i
		if r == e.Rank() {
			c.rank = i
		}
	}
	if c.rank < 0 {
		return fmt.Errorf("mpi: rank %d is not in the communicator of the ranks %v", e.Rank(), c.group)
	}
	return nil
}

// CairnState saves and restores a communicator.
func (c *Comm) CairnState(k *graph.Coder) error {
	ctx := uint64(c.ctx)
	graph.Field(k, "context", &ctx)
	graph.Field(k, "group", &c.group)
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
	c.ctx = uint32(ctx)
	e.Contexts(c.ctx + 2)
	return c.join(e)
}
