package engine

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
)

// Files that must not exist when the program makes them (O_EXCL). A program
// that resumes from a checkpoint makes the files again that it had made after
// the checkpoint. These files exist already, and the program may open them.

// MakesAgain reports whether a program that wants to make a file may open the
// one that is there, because the run has made it: the checkpoint holds it, or
// it was made after the checkpoint. Otherwise the file must not exist, and
// MakesAgain records that the run makes it. Call it after Restore, before the
// file is made.
func (p *Run) MakesAgain(path string, flag int) (bool, error) {
	if p.phase != phaseRunning {
		return false, errors.New("cairn: files are made again after Restore, and before Close")
	}
	st, err := os.Stat(path)
	for _, o := range p.files.open {
		if !o.unclaimed || o.f == nil || err != nil || o.entry.Mode != modeOf(flag) {
			continue
		}
		if own, err := o.f.Stat(); err == nil && os.SameFile(st, own) {
			return true, nil
		}
	}
	real, _ := outside(path)
	list := p.madeFiles()
	i := slices.IndexFunc(list, func(m store.MadeFile) bool { return m.Path == real })
	again := i >= 0 && list[i].After == store.ToBeMade
	if !again && !errors.Is(err, fs.ErrNotExist) {
		return false, nil // the file is somebody else's: the program cannot make it
	}
	if i < 0 {
		i, list = len(list), append(list, store.MadeFile{Path: real})
	}
	list[i].After = p.saver.Next() - 1
	if err := p.recordMade(list); err != nil {
		return false, fmt.Errorf("cairn: recording that the run makes %s: %w", path, err)
	}
	return again, nil
}

// madeFiles returns the files that the run has made.
func (p *Run) madeFiles() []store.MadeFile {
	if p.files.unrecorded != nil {
		return slices.Clone(p.files.unrecorded)
	}
	return p.dir.MadeFiles(p.files.dirInode, p.runID.Run)
}

// recordMade records the files that the run has made. If the disk of the
// checkpoints is full, the program continues, and recordUnrecorded tries again.
func (p *Run) recordMade(list []store.MadeFile) error {
	err := p.dir.SetMadeFiles(p.files.dirInode, p.runID.Run, list)
	p.files.unrecorded = nil
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		p.files.unrecorded = list
		return nil
	}
	return err
}

// recordUnrecorded records the files for which the disk had no room. It is
// called before and after every checkpoint, and by Close.
func (p *Run) recordUnrecorded() {
	if p.files.unrecorded != nil {
		p.recordMade(p.files.unrecorded)
	}
}

// remake notes which files the program will make again: those that were made
// after the restored checkpoint. It forgets files that were made before the
// oldest checkpoint.
func (p *Run) remake(restored uint64, indices []uint64) error {
	list := p.madeFiles()
	if len(list) == 0 {
		return nil
	}
	var now []store.MadeFile
	for _, m := range list {
		switch {
		case m.After >= restored:
			m.After = store.ToBeMade
		case m.After < slices.Min(indices):
			continue
		}
		now = append(now, m)
	}
	if slices.Equal(now, list) {
		return nil
	}
	return p.recordMade(now)
}

// Unclaimed returns the files of the restored checkpoint that a driven program
// has not opened again. A later helper of the program must know them.
func (p *Run) Unclaimed() []ckpt.FileEntry {
	var list []ckpt.FileEntry
	for _, o := range p.files.open {
		if _, ok := o.stream(); !ok && o.unclaimed && o.entry.Path != stdoutPath {
			list = append(list, o.entry)
		}
	}
	return list
}

// SetUnclaimed sets the files that Unclaimed has returned in an earlier helper.
// Call it before Restore, in the new helper of a program that is running.
func (p *Run) SetUnclaimed(list []ckpt.FileEntry) error {
	if d := p.opts.Driver; len(list) > 0 && (d == nil || !d.Running) {
		return errors.New("cairn: the program is not running: Restore finds its files")
	}
	for _, e := range list {
		o := &openFile{entry: e, unclaimed: true}
		err := o.reopen()
		if err == nil {
			_, err = o.f.Seek(e.Offset, io.SeekStart)
		}
		if err != nil {
			return fmt.Errorf("cairn: %w", err)
		}
		o.entry.ID = p.files.next
		p.files.next++
		p.files.open = append(p.files.open, o)
	}
	return nil
}
