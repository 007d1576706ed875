package engine

import (
	"errors"
	"fmt"

	"github.com/cairnrun/cairn/mpi"
)

// What package resume needs for programs whose changes of files it undoes itself.

// Journaled says that somebody else brings the files of a run of several ranks
// back to what they were: Restore opens and positions them, and does not change
// them. choose is called by Restore with the checkpoint that it is about to load,
// on all ranks. It is for package resume, and called before Restore.
func (p *Run) Journaled(choose func(set uint64) error) {
	p.choose = choose
	p.files.kept = p.seat.Size > 1
}

// chosen calls choose.
func (p *Run) chosen(set uint64) error {
	if p.choose == nil {
		return nil
	}
	return p.choose(set)
}

// gathered is how many bytes a rank can tell the others by Gather.
const gathered = 2 << 10

// Gather tells all ranks something, and returns what each of them tells. It is for
// package resume, and called before Restore on all ranks.
func (p *Run) Gather(mine []byte) ([][]byte, error) {
	type slot struct {
		Len  int32
		Text [gathered]byte
	}
	if len(mine) > gathered {
		return nil, fmt.Errorf("cairn: %d bytes are too many to tell all ranks", len(mine))
	}
	if p.team == nil {
		return nil, errors.New("cairn: there are no other ranks")
	}
	s := slot{Len: int32(len(mine))}
	copy(s.Text[:], mine)
	all := make([]slot, p.seat.Size)
	if err := mpi.Allgather(p.team.world, []slot{s}, all); err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	out := make([][]byte, len(all))
	for r := range all {
		out[r] = all[r].Text[:max(0, min(int(all[r].Len), gathered))]
	}
	return out, nil
}

// Host tells hosts apart: ranks that have the same one see the same files.
func (p *Run) Host() string { return p.seat.Host }
