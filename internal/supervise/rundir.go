//go:build linux

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// runDir is a locked run directory.
type runDir struct {
	fs   vfs.FS // for the record and the checkpoints
	path string
	cwd  string // the program's working directory
	lock *os.File
	log  *os.File

	copied string // what the record's copy has, as far as it matters
}

func (d *runDir) file(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// openRunDir makes the directory if necessary, and locks it.
func openRunDir(path, cwd string, a vfs.Access) (*runDir, error) {
	d := &runDir{fs: vfs.OS(), path: path, cwd: cwd}
	if err := vfs.MakeDir(path, a); err != nil {
		return nil, refused(err)
	}
	for _, name := range []string{"bin", "hosts", "output", "ckpt", "output-offsets", evacuateName, recordName, copyName} {
		if err := vfs.NoLink(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	lock, holder, err := tryLock(d.file("lock"))
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
	if err := vfs.SubDir(d.file("hosts")); err != nil {
		lock.Close()
		return nil, refused(err)
	}
	d.log, err = vfs.OpenPrivate(d.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY)
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

// close gives the lock back.
func (d *runDir) close() {
	d.log.Close()
	d.lock.Close()
}

// note appends a line to the log. It ignores errors.
func (d *runDir) note(at time.Time, text string) {
	fmt.Fprintf(d.log, "%s %s\n", at.Format("2006-01-02T15:04:05.000Z07:00"), strings.ReplaceAll(text, "\n", " | "))
}

// tryLock opens and locks a file. If another process has locked it, tryLock
// returns ErrBusy and who that is.
func tryLock(path string) (*os.File, string, error) {
	f, err := vfs.OpenLock(path)
	if err != nil {
		return nil, "", err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err == nil {
		return f, "", nil
	}
	defer f.Close()
	if err != syscall.EWOULDBLOCK {
		return nil, "", &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	buf := make([]byte, 64<<10)
	n, _ := f.ReadAt(buf, 0)
	return nil, whoHas(buf[:n]), ErrBusy
}

// rewrite replaces a small file's content in place.
func rewrite(f *os.File, text string) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(text+"\n"), 0)
	return err
}

// quoted returns a command as one writes it in a shell.
func quoted(command []string) string {
	var out []string
	for _, s := range command {
		out = append(out, quote(s))
	}
	return strings.Join(out, " ")
}

func quote(s string) string {
	const safe = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,"
	if s != "" && strings.Trim(s, safe) == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// awaitHelpers waits until all helpers of an earlier supervisor have ended. It
// calls waiting once for each that it waits for.
func (d *runDir) awaitHelpers(ctx context.Context, waiting func(host, holder string)) error {
	names, err := filepath.Glob(d.file("hosts", "*.lock"))
	if err != nil {
		return err
	}
	for _, name := range names {
		told := false
		for {
			f, holder, err := tryLock(name)
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

// newestCheckpoint returns the newest checkpoint in a checkpoint directory that has a file of
// every rank.
func newestCheckpoint(dir string, n int) (index uint64, at time.Time, ok bool) {
	index, at, ok, _ = newestComplete(dir, n)
	return index, at, ok
}

// newestComplete is newestCheckpoint with the error of an unreadable directory.
func newestComplete(dir string, n int) (index uint64, at time.Time, ok bool, err error) {
	complete, err := completeCheckpoints(dir, n)
	if len(complete) == 0 {
		return 0, time.Time{}, false, err
	}
	return complete[0].index, complete[0].at, true, err
}

// completeCheckpoints returns the checkpoints in a checkpoint directory that have a file of every
// rank, the newest first.
func completeCheckpoints(dir string, n int) (out []completeCheckpoint, err error) {
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
			out = append(out, completeCheckpoint{index, at})
		}
	}
	slices.SortFunc(out, func(a, b completeCheckpoint) int { return cmp.Compare(b.index, a.index) })
	return out, nil
}
