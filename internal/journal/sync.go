package journal

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/vfs"
)

// envSync set to "off" leaves it to the operating system when the log is
// durable.
const envSync = "CAIRN_SYNC"

// syncing says that the log is made durable before each change.
var syncing = os.Getenv(envSync) != "off"

// markChanged notes that a file or directory changes.
func (j *Journal) markChanged(path string) {
	if j.changedNow == nil {
		j.changedNow = make(map[string]bool)
	}
	j.changedNow[path] = true
}

// Changed returns what was changed since the last committed checkpoint.
func (j *Journal) Changed() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.uncommitted == nil {
		j.uncommitted = make(map[string]bool)
	}
	maps.Copy(j.uncommitted, j.changedNow)
	clear(j.changedNow)
	j.markOpen()
	return slices.Sorted(maps.Keys(j.uncommitted))
}

// markOpen marks the open files: bytes that are appended are not in the log,
// and the files may be closed when the next checkpoint is taken.
func (j *Journal) markOpen() {
	j.open.RLock()
	defer j.open.RUnlock()
	for _, w := range j.open.files {
		if w.flag&(os.O_WRONLY|os.O_RDWR) != 0 {
			j.markChanged(w.path)
		}
	}
}

// Committed says that a checkpoint is committed, and so what Changed returned
// is durable.
func (j *Journal) Committed() {
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.uncommitted)
}

// Sync makes all changes durable.
func (j *Journal) Sync() error { return ckpt.SyncChanged(j.Changed()) }

// syncKept makes a kept file and its name durable.
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
