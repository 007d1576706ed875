package ckpt

import (
	"maps"
	"sync"

	"github.com/cairnrun/cairn/internal/store"
)

// dirTarget publishes in a run's folder.
type dirTarget struct {
	*store.Dir
	keep    int
	several bool // ranks: sets are removed by the recovery line

	mu      sync.Mutex
	damaged map[uint64]bool
	line    uint64          // the newest set that all ranks have
	made    map[uint64]bool // sets published here that are not known to be complete
	last    uint64          // the newest of them, which the next set may need
}

// newDirTarget returns a target for one of ranks ranks. line is the set that
// was restored, 0 if none was.
func newDirTarget(dir *store.Dir, ranks, keep int, damaged map[uint64]bool, line uint64) *dirTarget {
	t := &dirTarget{Dir: dir, keep: keep, damaged: make(map[uint64]bool), several: ranks > 1, line: line, made: make(map[uint64]bool)}
	maps.Copy(t.damaged, damaged)
	return t
}

func (t *dirTarget) begin(set uint64) (pendingFile, error) {
	p, err := t.Begin(set)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (t *dirTarget) baseName(set uint64) string { return t.BaseName(set) }

func (t *dirTarget) published(set uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.several {
		t.made[set], t.last = true, set
	}
}

func (t *dirTarget) setLine(line uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line = max(t.line, line)
	delete(t.made, line)
}

func (t *dirTarget) setDamaged(set uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.damaged[set] = true
}

// prune keeps, at and below the line, the newest sets that all ranks have: a
// set that the line passed over is one that another rank has not. What can't
// be removed now will be tried again.
func (t *dirTarget) prune() {
	t.mu.Lock()
	line, gone := t.line, maps.Clone(t.damaged)
	if !t.several {
		t.mu.Unlock()
		t.Prune(t.keep, gone)
		return
	}
	for set := range t.made {
		if set < line && set != t.last {
			gone[set] = true
		}
	}
	delete(gone, t.last) // the next set may need its blocks
	t.mu.Unlock()
	removed, _ := t.PruneLine(line, t.keep, gone)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, set := range removed {
		delete(t.made, set)
	}
}

// acceptTarget replaces a set's file; nothing is removed afterwards.
type acceptTarget struct{ *dirTarget }

func (acceptTarget) prune() {}
