package store

import (
	"errors"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Prune keeps the newest checkpoints, as many as keep says, and removes the
// others and the leftovers of crashes. The map damaged is as in PruneLine.
// Prune needs the lock, and no file of the rank may be pending. It returns the
// indices of the removed checkpoints.
func (d *Dir) Prune(keep int, damaged map[uint64]bool) ([]uint64, error) {
	return d.PruneLine(math.MaxUint64, keep, damaged)
}

// PruneLine is Prune for one of several ranks. line is the newest checkpoint
// that all ranks are known to have. PruneLine keeps everything above line, and
// the newest of the others, as many as keep says. The map damaged has the
// checkpoints that do not count, not all of them damaged: those with the value
// true are removed; those with false belong to another run, and stay. With a
// limit (see SetLimit), fewer are kept.
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
	kept, used, seen := 0, int64(0), make(map[uint64]bool)
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
		if !bad && d.limit > 0 {
			used += d.usage(n, seen)
		}
		fits := d.limit <= 0 || used <= d.limit || kept == 0
		if !bad && (n > line || kept < keep && fits) {
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

// SetLimit bounds the bytes that the rank's files may take in all checkpoints
// together; 0: no bound. PruneLine keeps at least one checkpoint.
func (d *Dir) SetLimit(bytes int64) { d.limit = bytes }

// usage returns the size of the rank's files of a checkpoint. Checkpoints may
// share a file by links: seen holds the files that earlier calls have counted,
// which do not count again.
func (d *Dir) usage(index uint64, seen map[uint64]bool) (sum int64) {
	d.each(index, func(name string) {
		st, err := d.fs.Stat(filepath.Join(d.checkpointDir(index), name))
		if err != nil {
			return
		}
		if inode := control.Inode(st); inode != 0 {
			if seen[inode] {
				return
			}
			seen[inode] = true
		}
		sum += st.Size()
	})
	return sum
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
