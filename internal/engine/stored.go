package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
)

// Resume is Restore for a program that loads its variables with Read: which of
// them, and when. The checkpoint that Restore takes is verified, and nothing is
// loaded from it.
func (p *Run) Resume(ctx context.Context) (bool, error) {
	p.loadsItself = true
	return p.Restore(ctx)
}

// Checkpoints returns the checkpoints that Read may take, newest first: those
// that this rank has, and none that the ranks have not committed.
func (p *Run) Checkpoints() ([]uint64, error) {
	if !p.restored {
		return nil, errors.New("cairn: Checkpoints is called after Restore or Resume")
	}
	list, err := p.dir.Committed()
	if err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	return slices.DeleteFunc(list, func(n uint64) bool { return n > p.lastCommitted || p.damaged[n] }), nil
}

// Read loads one variable of a checkpoint into the value that v points to, and
// checks every byte of it. index 0 is the newest checkpoint.
func (p *Run) Read(ctx context.Context, index uint64, name string, v any) error {
	if !p.restored {
		return errors.New("cairn: Read is called after Restore or Resume")
	}
	s, img, err := p.openStored(index)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.Header.CheckRun(p.runID.Run); err != nil {
		return fmt.Errorf("cairn: %s: %w: %w", s.Path, errOtherRun, err)
	}
	var others []string
	for _, o := range img.Vars {
		if o.Name != name {
			others = append(others, o.Name)
		}
	}
	if len(others) == len(img.Vars) {
		return fmt.Errorf("cairn: %w: checkpoint %d holds no variable %q", ErrMismatch, s.Header.Index, name)
	}
	err = p.loadRoots(ctx, s, img, []graph.Root{{Name: name, Ptr: v}}, others, nil)
	if m := (*graph.MismatchError)(nil); errors.As(err, &m) {
		err = fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err != nil {
		err = fmt.Errorf("cairn: %s: %w", s.Path, err)
	}
	return err
}

// openStored opens a checkpoint of this rank; 0: the one that a restart takes.
func (p *Run) openStored(index uint64) (*ckpt.File, *graph.Image, error) {
	if index == 0 {
		var err error
		if index, err = p.toRestore(); err != nil {
			return nil, nil, fmt.Errorf("cairn: %w", err)
		}
		if index == 0 {
			return nil, nil, fmt.Errorf("cairn: %w: there is no checkpoint in %s", ErrMismatch, p.dir.Path())
		}
	}
	s, err := ckpt.Open(p.dir.FS(), p.dir.File(index))
	if err != nil {
		return nil, nil, fmt.Errorf("cairn: %w", err)
	}
	img, err := s.Image()
	if err != nil {
		s.Close()
		return nil, nil, fmt.Errorf("cairn: %w", err)
	}
	return s, img, nil
}

// Stored tells what a checkpoint holds under a name: the type of the elements,
// and the dimensions. index 0 is the newest checkpoint.
func (p *Run) Stored(index uint64, name string) (elem string, dims []uint64, err error) {
	s, img, err := p.openStored(index)
	if err != nil {
		return "", nil, err
	}
	defer s.Close()
	for i, v := range img.Vars {
		if v.Name != name {
			continue
		}
		dims, _ = dimensions(img, i)
		elem = v.Type
		for range dims {
			_, elem, _ = strings.Cut(elem, "]")
		}
		return elem, dims, nil
	}
	return "", nil, fmt.Errorf("%w: checkpoint %d holds no variable %q", ErrMismatch, s.Header.Index, name)
}

// toRestore returns the checkpoint that a restart takes, if nothing is damaged;
// 0: none. With several ranks, all call it together the first time before
// Restore.
func (p *Run) toRestore() (uint64, error) {
	if p.restored {
		return p.lastCommitted, nil
	}
	if p.willRestore != nil {
		return *p.willRestore, nil
	}
	list, err := p.dir.Committed()
	if err != nil {
		return 0, err
	}
	index := uint64(0)
	if p.identity.Size > 1 {
		all, err := gather(p.peers, list)
		if err != nil {
			return 0, err
		}
		index, _ = coord.Line(all)
	} else if len(list) > 0 {
		index = list[0]
	}
	p.willRestore = &index
	return index, nil
}
