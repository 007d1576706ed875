package engine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Which files Restore may change.
//
// A checkpoint names the files that were written, and Restore truncates them.
// Somebody else may have made the checkpoint. Restore therefore changes a file
// only if the program has opened it itself, or it is in the working directory,
// or the run has recorded it in this checkpoint directory, or the user allows
// it.

// EnvOutside is an environment variable. If it is set, Restore changes files
// outside the working directory that a checkpoint from elsewhere names; see
// cairn.Options.
const EnvOutside = "CAIRN_OUTSIDE_FILES"

// realFiles reports whether the checkpoints are files of the system.
func (p *Run) realFiles() bool { return p.opts.fs == vfs.OS() }

// outside returns the real path of a file, and whether it is outside the
// working directory.
func outside(name string) (string, bool) {
	dir, err := os.Getwd()
	if err != nil {
		return name, true
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	path, err := filepath.Abs(filepath.FromSlash(name))
	if err != nil {
		return name, true
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	} else if up, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(up, filepath.Base(path))
	}
	rel, err := filepath.Rel(dir, path)
	return path, err != nil || rel == ".." || strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// recordedPaths returns the files in the record.
func (p *Run) recordedPaths() []string {
	st, err := os.Stat(p.opts.Dir)
	if err != nil {
		return nil
	}
	return p.dir.WrittenFiles(control.Inode(st))
}

// recordFiles records files that are written before a checkpoint names them.
func (p *Run) recordFiles(files []ckpt.FileEntry) error {
	if !p.realFiles() {
		return nil
	}
	var paths []string
	for _, e := range files {
		if e.Mode == "r" || e.Closed || e.Abs == "" || p.recordedFiles[e.Abs] {
			continue
		}
		path, _ := outside(e.Abs)
		paths = append(paths, path)
		if p.recordedFiles == nil {
			p.recordedFiles = make(map[string]bool)
		}
		p.recordedFiles[e.Abs] = true
	}
	known := p.recordedPaths()
	paths = slices.DeleteFunc(paths, func(path string) bool { return slices.Contains(known, path) })
	if len(paths) == 0 {
		return nil
	}
	st, err := os.Stat(p.opts.Dir)
	if err == nil {
		err = p.dir.SetWrittenFiles(control.Inode(st), append(known, paths...))
	}
	if err != nil {
		clear(p.recordedFiles)
		return fmt.Errorf("recording the files of the run: %w", err)
	}
	return nil
}

// checkOutsideFiles returns an error if a checkpoint names a file that Restore
// may not change. Call it before any file is opened.
func (p *Run) checkOutsideFiles() error {
	if p.phase == phaseRunning || p.files.migrated || !p.realFiles() || p.opts.OutsideFiles || os.Getenv(EnvOutside) != "" {
		return nil
	}
	var errs []error
	for _, o := range p.files.saved {
		if _, ok := o.stream(); ok || o.entry.Mode == "r" || !o.unclaimed || o.entry.Path == stdoutPath {
			continue
		}
		path, ok := outside(o.entry.Path)
		if !ok || slices.Contains(p.recordedPaths(), path) {
			continue
		}
		errs = append(errs, fileMismatch(fmt.Sprintf("the checkpoint comes from elsewhere and names %s as a file to truncate and write, which is outside the working directory and not opened by the program. If you trust the checkpoint, set %s=1 in the environment", path, EnvOutside)))
	}
	return errors.Join(errs...)
}
