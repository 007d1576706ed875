package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/coord"
	"github.com/cairnrun/cairn/internal/graph"
)

// Resume is Restore for a program that loads its variables itself, with Read.
// Resume verifies the checkpoint that Restore would load, and loads nothing.
func (p *Run) Resume(ctx context.Context) (bool, error) {
	p.stored.only = true
	return p.Restore(ctx)
}

// Checkpoints returns the checkpoints that Read may take, newest first: those
// that this rank has, and none that the ranks have not committed.
func (p *Run) Checkpoints() ([]uint64, error) {
	if p.phase != phaseRunning {
		return nil, errors.New("cairn: Checkpoints is called after Restore or Resume, and before Close")
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
	if p.phase != phaseRunning {
		return errors.New("cairn: Read is called after Restore or Resume, and before Close")
	}
	o, err := p.openStored(index)
	if err != nil {
		return err
	}
	s := o.file
	if err := s.Header.CheckRun(p.runID.Run); err != nil {
		return fmt.Errorf("cairn: %s: %w: %w", s.Path, errOtherRun, err)
	}
	i, err := o.find(name)
	if err != nil {
		return fmt.Errorf("cairn: %w", err)
	}
	roots := []graph.Root{{Name: name, Ptr: v}}
	one := o.img.Only(i, o.pools[i]) // so the time to read one does not depend on their number
	if one != nil {
		err = p.loadRoots(ctx, s, one, roots, nil, nil)
	}
	if one == nil || err != nil && ctx.Err() == nil { // it may refer to others
		others := make([]string, 0, len(o.img.Vars)-1)
		for k, v := range o.img.Vars {
			if k != i {
				others = append(others, v.Name)
			}
		}
		err = p.loadRoots(ctx, s, o.img, roots, others, nil)
	}
	if m := (*graph.MismatchError)(nil); errors.As(err, &m) {
		err = fmt.Errorf("%w: %w", ErrMismatch, err)
	}
	if err != nil {
		err = fmt.Errorf("cairn: %s: %w", s.Path, err)
	}
	return err
}

// stored is what a run reads of checkpoints besides Restore.
type stored struct {
	only bool    // Restore loads nothing: see Resume
	next *uint64 // see toRestore
	open *opened // see openStored
}

// opened is a checkpoint that variables are read from, one after the other.
type opened struct {
	file  *ckpt.File
	img   *graph.Image
	vars  map[string]int // by name
	pools [][]int        // of each variable
	empty map[string]ckpt.EmptyArray
}

// find returns the index of a variable.
func (o *opened) find(name string) (int, error) {
	i, ok := o.vars[name]
	if !ok {
		return 0, fmt.Errorf("%w: checkpoint %d holds no variable %q", ErrMismatch, o.file.Header.Index, name)
	}
	return i, nil
}

// openStored opens a checkpoint of this rank; 0: the one that a restart takes.
// It stays open until another one is opened, or the next one is saved.
func (p *Run) openStored(index uint64) (*opened, error) {
	newest := index == 0
	if newest {
		var err error
		if index, err = p.toRestore(); err != nil {
			return nil, fmt.Errorf("cairn: %w", err)
		}
		if index == 0 {
			return nil, fmt.Errorf("cairn: %w: there is no checkpoint in %s", ErrMismatch, p.dir.Path())
		}
	}
	if p.stored.open != nil && p.stored.open.file.Header.Index == index {
		return p.stored.open, nil
	}
	p.closeStored()
	o, err := p.openIndex(index)
	for errors.Is(err, fs.ErrNotExist) {
		list, lerr := p.dir.Committed()
		if lerr != nil {
			return nil, fmt.Errorf("cairn: %w", lerr)
		}
		slices.Sort(list)
		i, there := slices.BinarySearch(list, index)
		if there {
			if o != nil { // what is not in the base can be read
				err = nil
			}
			break
		}
		if o != nil {
			o.file.Close()
		}
		if !newest || i == len(list) {
			return nil, fmt.Errorf("cairn: %w: there is no checkpoint %d in %s", ErrMismatch, index, p.dir.Path())
		}
		index = list[i] // it has just been committed, and the one before is removed
		o, err = p.openIndex(index)
	}
	if err != nil {
		return nil, fmt.Errorf("cairn: %w", err)
	}
	p.stored.open = o
	return o, nil
}

// openIndex opens a checkpoint of this rank. If a base of it does not exist,
// that is an error, too.
func (p *Run) openIndex(index uint64) (*opened, error) {
	s, err := ckpt.Open(p.dir.FS(), p.dir.File(index))
	if err != nil {
		return nil, err
	}
	missing := s.OpenBases()
	img, err := s.Image()
	if err != nil {
		s.Close()
		return nil, err
	}
	o := &opened{s, img, make(map[string]int, len(img.Vars)), poolsOf(img), make(map[string]ckpt.EmptyArray)}
	for _, e := range s.Header.Empty {
		o.empty[e.Name] = e
	}
	for i, v := range img.Vars {
		o.vars[v.Name] = i
	}
	if errors.Is(missing, fs.ErrNotExist) {
		return o, missing
	}
	return o, nil
}

// closeStored closes what openStored has opened.
func (p *Run) closeStored() {
	if p.stored.open != nil {
		p.stored.open.file.Close()
		p.stored.open = nil
	}
}

// Stored describes a variable of a checkpoint: the type of its elements, and
// its dimensions. index 0 is the newest checkpoint.
func (p *Run) Stored(index uint64, name string) (elem string, dims []uint64, err error) {
	o, err := p.openStored(index)
	if err != nil {
		return "", nil, err
	}
	i, err := o.find(name)
	if err != nil {
		return "", nil, err
	}
	v := o.variable(i)
	return v.Elem, v.Dims, nil
}

// StoredVariable is a variable in a checkpoint.
type StoredVariable struct {
	Name string
	Elem string // type of the elements
	Dims []uint64
}

// variable describes the variable with an index.
func (o *opened) variable(i int) StoredVariable {
	v := StoredVariable{Name: o.img.Vars[i].Name, Elem: o.img.Vars[i].Type}
	v.Dims, _ = dimensions(o.img, i, o.pools[i])
	for range v.Dims {
		_, v.Elem, _ = strings.Cut(v.Elem, "]")
	}
	if e, ok := o.empty[v.Name]; ok && v.Elem == "empty" {
		v.Elem, v.Dims = e.Go, e.Dims
	}
	return v
}

// StoredVariables lists the variables of a checkpoint, in the order in which
// the program protected them. index 0 is the newest one; if there is none, the
// list is empty.
func (p *Run) StoredVariables(index uint64) ([]StoredVariable, error) {
	if index == 0 {
		if n, err := p.toRestore(); err != nil || n == 0 {
			return nil, err
		}
	}
	o, err := p.openStored(index)
	if err != nil {
		return nil, err
	}
	var list []StoredVariable
	for i, v := range o.img.Vars {
		if !graph.IsStdVar(v.Name) && !strings.HasPrefix(v.Name, reserved) {
			list = append(list, o.variable(i))
		}
	}
	return list, nil
}

// toRestore returns the checkpoint that a restart takes, if nothing is damaged;
// 0: none. With several ranks, all call it together the first time before
// Restore.
func (p *Run) toRestore() (uint64, error) {
	if p.phase == phaseRunning {
		return p.lastCommitted, nil
	}
	if p.stored.next != nil {
		return *p.stored.next, nil
	}
	list, err := p.dir.Committed()
	if err != nil {
		return 0, err
	}
	index := uint64(0)
	if p.told() {
		index = p.identity.Only
	} else if p.identity.Size > 1 {
		all, err := gather(p.peers, list)
		if err != nil {
			return 0, err
		}
		index, _ = coord.Line(all)
	} else if len(list) > 0 {
		index = list[0]
	}
	p.stored.next = &index
	return index, nil
}
