//go:build linux

package rundir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/vfs"
)

// EvacuateFile is the file in the run directory that lists hosts to evacuate.
const EvacuateFile = "evacuate"

// Dir is a locked run directory.
type Dir struct {
	FS   vfs.FS // file system of the record and the checkpoints
	Path string
	Cwd  string // the program's working directory

	// ChangedArgs says that Claim may resume a run with other arguments of its
	// program.
	ChangedArgs bool
	// AnyCommand says that Claim resumes a run whatever command started it.
	AnyCommand bool

	lock *os.File
	log  *os.File

	copied string // the essence of the record's copy
}

func (d *Dir) File(name ...string) string {
	return filepath.Join(append([]string{d.Path}, name...)...)
}

// Open makes the directory if necessary, and locks it.
func Open(path, cwd string, a vfs.Access) (*Dir, error) {
	d := &Dir{FS: vfs.OS(), Path: path, Cwd: cwd}
	if err := vfs.MakeDir(path, a); err != nil {
		return nil, refused(err)
	}
	for _, name := range []string{"bin", "hosts", "output", "ckpt", "output-offsets", "events.jsonl", EvacuateFile, RecordName, CopyName} {
		if err := vfs.NoLink(d.File(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	lock, holder, err := TryLock(d.File("lock"))
	if errors.Is(err, ErrBusy) {
		return nil, fmt.Errorf("%s: %w: %s holds it; look with 'cairn status %s', end it with 'cairn stop %s', or choose another directory with --run", path, ErrBusy, holder, path, path)
	}
	if err != nil {
		return nil, refused(err)
	}
	d.lock = lock
	name, _ := os.Hostname()
	if err := rewrite(lock, fmt.Sprintf("process %d on %s since %s", os.Getpid(), name, time.Now().Format(time.DateTime))); err != nil {
		lock.Close()
		return nil, refused(err)
	}
	if err := vfs.SubDir(d.File("hosts")); err != nil {
		lock.Close()
		return nil, refused(err)
	}
	d.log, err = vfs.OpenPrivate(d.File("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY)
	if err != nil {
		lock.Close()
		return nil, refused(err)
	}
	return d, nil
}

// refused adds the remedy to an error about a directory that cannot be written.
func refused(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; run cairn as the user who owns the directory, ask for access, or put the run directory elsewhere with --run DIR", err)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w; make room there, or put the run directory elsewhere with --run DIR", err)
	}
	if errors.Is(err, syscall.EIO) {
		return fmt.Errorf("%w; the disk fails: when it is in order again, the same command continues the run", err)
	}
	return err
}

// Close releases the lock.
func (d *Dir) Close() {
	d.log.Close()
	d.lock.Close()
}

// Log appends a line to the log. It ignores errors.
func (d *Dir) Log(at time.Time, text string) {
	fmt.Fprintf(d.log, "%s %s\n", at.Format("2006-01-02T15:04:05.000Z07:00"), strings.ReplaceAll(text, "\n", " | "))
}

// AwaitHelpers waits until all helpers of an earlier supervisor have ended. It
// calls waiting once for each that it waits for.
func (d *Dir) AwaitHelpers(ctx context.Context, waiting func(host, holder string)) error {
	names, err := filepath.Glob(filepath.Join(vfs.QuoteGlob(d.File("hosts")), "*.lock"))
	if err != nil {
		return err
	}
	for _, name := range names {
		told := false
		for {
			f, holder, err := TryLock(name)
			if err == nil {
				f.Close()
				break
			}
			if !errors.Is(err, ErrBusy) {
				return err
			}
			if !told {
				waiting(strings.TrimSuffix(filepath.Base(name), ".lock"), holder)
				told = true
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return nil
}
