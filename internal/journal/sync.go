package journal

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

// What a program changes survives a power cut, as it does a kill:
//
//	a line of the journal, and what it keeps    durable before the change is made
//	files that were changed before a checkpoint durable before it is published
//	files of a run that has finished            durable before that is recorded
//
// So whatever of the program's later changes has reached the disk by then can be
// undone. A program that changes very many files, or files in very many places,
// is slower for that; CAIRN_SYNC=off leaves it to the system when the journal is
// written, which a killed program can't tell from this.

// envSync turns the first of these off.
const envSync = "CAIRN_SYNC"

// syncing says that the journal is durable before a change is made.
var syncing = os.Getenv(envSync) != "off"

// touch notes that a file or directory is changed.
func (j *Journal) touch(path string) {
	if j.touched == nil {
		j.touched = make(map[string]bool)
	}
	j.touched[path] = true
}

// Changed returns what was changed since the last checkpoint that is safe.
func (j *Journal) Changed() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.unsafe == nil {
		j.unsafe = make(map[string]bool)
	}
	maps.Copy(j.unsafe, j.touched)
	clear(j.touched)
	j.touchOpen()
	return slices.Sorted(maps.Keys(j.unsafe))
}

// touchOpen notes the open files: what is written behind their end is not in the
// journal, and they may be closed when the next checkpoint is taken.
func (j *Journal) touchOpen() {
	j.open.RLock()
	defer j.open.RUnlock()
	for _, w := range j.open.files {
		if w.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			j.touch(w.path)
		}
	}
}

// Committed says that a checkpoint is committed: what Changed returned is durable.
func (j *Journal) Committed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.unsafe)
}

// Sync makes all that was changed durable.
func (j *Journal) Sync() error { return ckpt.SyncChanged(j.Changed()) }

// syncKept makes a file that is kept durable, and its name.
func syncKept(f *os.File) error {
	if !syncing {
		return nil
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return syncDir(filepath.Dir(f.Name()))
}

func syncDir(dir string) error {
	if !syncing {
		return nil
	}
	return vfs.OS().SyncDir(dir)
}
