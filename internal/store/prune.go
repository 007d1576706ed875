package store

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/vfs"
)

// Prune keeps the newest keep checkpoints that are not in damaged, and removes
// the others and the leftovers of crashes. PruneLine explains damaged. Prune
// needs the lock, and no file of the rank may be pending. It returns the
// indices of the removed checkpoints.
func (d *Dir) Prune(keep int, damaged map[uint64]bool) ([]uint64, error) {
	return d.PruneLine(math.MaxUint64, keep, damaged)
}

// PruneLine is Prune for one of several ranks. line is the newest checkpoint
// that all ranks are known to have. PruneLine keeps everything above line, and
// the newest keep checkpoints of the others. Checkpoints in damaged do not
// count. Those with the value true are removed; those with false belong to
// another run, and stay.
func (d *Dir) PruneLine(line uint64, keep int, damaged map[uint64]bool) ([]uint64, error) {
	all, err := d.all()
	if err != nil {
		return nil, err
	}
	committed, err := d.Committed()
	if err != nil {
		return nil, err
	}
	var removed []uint64
	kept := 0
	for _, n := range all {
		if !slices.Contains(committed, n) {
			if n <= line || d.has(n) { // otherwise another rank may have just begun it
				err = errors.Join(err, d.removeRest(n))
			}
			continue
		}
		remove, bad := damaged[n]
		if bad && !remove {
			continue
		}
		if !bad && (n > line || kept < keep) {
			if n <= line {
				kept++
			}
			d.tidy(n, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
			continue
		}
		if rerr := d.Remove(n); rerr != nil {
			err = errors.Join(err, rerr)
		} else {
			removed = append(removed, n)
		}
	}
	return removed, err
}

// has reports whether the rank has any file in a checkpoint's directory.
func (d *Dir) has(index uint64) bool {
	found := false
	d.each(index, func(string) { found = true })
	return found
}

// Members returns, for every checkpoint in a run's directory, the ranks that
// committed their file, in ascending order. A checkpoint that no rank has
// committed has none. The directory need not exist.
func Members(fsys vfs.FS, path string) (map[uint64][]int, error) {
	d := Open(fsys, path, 0)
	all, err := d.all()
	if err != nil {
		return nil, err
	}
	out := make(map[uint64][]int, len(all))
	for _, n := range all {
		entries, err := fsys.ReadDir(d.checkpointDir(n))
		if errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			continue
		}
		if err != nil {
			return nil, err
		}
		out[n] = nil
		for _, e := range entries {
			if r, ok := ParseRank(e.Name()); ok {
				out[n] = append(out[n], r)
			}
		}
		slices.Sort(out[n])
	}
	return out, nil
}
