//go:build linux

package rundir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cairnrun/cairn/internal/store"
)

// NewestCheckpoint returns the newest checkpoint in a checkpoint directory that
// has a file of every rank.
func NewestCheckpoint(dir string, n int) (index uint64, at time.Time, ok bool) {
	index, at, ok, _ = newestComplete(dir, n)
	return index, at, ok
}

// newestComplete also returns the error of an unreadable directory.
func newestComplete(dir string, n int) (index uint64, at time.Time, ok bool, err error) {
	complete, err := CompleteCheckpoints(dir, n)
	if len(complete) == 0 {
		return 0, time.Time{}, false, err
	}
	return complete[0].Index, complete[0].Time, true, err
}

// CompleteCheckpoints returns the checkpoints in a checkpoint directory that
// have a file of every rank, the newest first.
func CompleteCheckpoints(dir string, n int) (out []Checkpoint, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		index, ok := store.ParseIndex(e.Name())
		if !ok || !e.IsDir() {
			continue
		}
		var at time.Time
		whole := true
		for r := 0; r < n && whole; r++ {
			st, err := os.Stat(filepath.Join(dir, e.Name(), fmt.Sprintf("rank-%04d.h5", r)))
			if whole = err == nil; whole && st.ModTime().After(at) {
				at = st.ModTime()
			}
		}
		if whole {
			out = append(out, Checkpoint{index, at})
		}
	}
	slices.SortFunc(out, func(a, b Checkpoint) int { return cmp.Compare(b.Index, a.Index) })
	return out, nil
}

// Checkpoint is a checkpoint that has a file of every rank.
type Checkpoint struct {
	Index uint64
	Time  time.Time
}
