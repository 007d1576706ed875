package ckpt

import (
	"maps"
	"sync"

	"github.com/cairnrun/cairn/internal/store"
)

// dirTarget publishes in the checkpoint directory of a run.
type dirTarget struct {
	*store.Dir
	keep    int
	several bool // there are several ranks: the recovery line decides what is removed

	mu      sync.Mutex
	damaged map[uint64]bool
	line    uint64          // the newest checkpoint that all ranks have
	made    map[uint64]bool // checkpoints published here that may not be complete
	last    uint64          // the newest one; the next checkpoint may need it
}

// newDirTarget returns a target for one of several ranks. line is the restored
// checkpoint, or 0.
func newDirTarget(dir *store.Dir, ranks, keep int, damaged map[uint64]bool, line uint64) *dirTarget {
	t := &dirTarget{Dir: dir, keep: keep, damaged: make(map[uint64]bool), several: ranks > 1, line: line, made: make(map[uint64]bool)}
	maps.Copy(t.damaged, damaged)
	return t
}

func (t *dirTarget) begin(index uint64) (pendingFile, error) {
	p, err := t.Begin(index)
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (t *dirTarget) baseName(index uint64) string { return t.BaseName(index) }

func (t *dirTarget) published(index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.several {
		t.made[index], t.last = true, index
	}
}

func (t *dirTarget) setLine(line uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.line = max(t.line, line)
	delete(t.made, line)
}

func (t *dirTarget) setDamaged(index uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.damaged[index] = true
}

// prune keeps, at and below the line, the newest checkpoints that all ranks
// have. If the line skipped a checkpoint, another rank does not have it. Files
// that cannot be removed now are tried again the next time.
func (t *dirTarget) prune() {
	t.mu.Lock()
	line, gone := t.line, maps.Clone(t.damaged)
	if !t.several {
		t.mu.Unlock()
		t.Prune(t.keep, gone)
		return
	}
	for index := range t.made {
		if index < line && index != t.last {
			gone[index] = true
		}
	}
	delete(gone, t.last) // the next checkpoint may need its blocks
	t.mu.Unlock()
	removed, _ := t.PruneLine(line, t.keep, gone)
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, index := range removed {
		delete(t.made, index)
	}
}

// acceptTarget replaces a checkpoint's file, and removes nothing.
type acceptTarget struct{ *dirTarget }

func (acceptTarget) prune() {}
