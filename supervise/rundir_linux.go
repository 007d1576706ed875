package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const recordFormat = 1

// record is run.json.
type record struct {
	Format  int         `json:"format"`
	Command []string    `json:"command"`
	Ranks   int         `json:"ranks"`
	Hosts   []string    `json:"hosts"`
	State   string      `json:"state"`
	Status  int         `json:"status"`
	Why     string      `json:"why,omitempty"`
	Pid     int         `json:"pid"`
	Host    string      `json:"host"`
	Attempt int         `json:"attempt"`
	Dir     string      `json:"dir"`  // checkpoint folder that was asked for
	Sets    string      `json:"sets"` // checkpoint folder that the ranks use
	Output  string      `json:"output"`
	Aside   []uint64    `json:"aside"`
	Last    *SetState   `json:"last,omitempty"`
	Moves   []MoveState `json:"moves,omitempty"` // the latest, the newest at the end
	Moved   uint64      `json:"moved,omitempty"` // number of the last move that was asked for
	Time    time.Time   `json:"time"`
}

// runDir is a run's folder, locked.
type runDir struct {
	path string
	lock *os.File
	log  *os.File
}

func (d *runDir) file(name ...string) string {
	return filepath.Join(append([]string{d.path}, name...)...)
}

// openRunDir makes the folder where needed and takes its lock.
func openRunDir(path string) (*runDir, error) {
	d := &runDir{path: path}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, refused(err)
	}
	lock, holder, err := tryLock(d.file("lock"))
	if errors.Is(err, ErrBusy) {
		return nil, fmt.Errorf("%s: %w: %s holds it; look with 'cairn status %s', end it with 'cairn stop %s', or choose another folder with --run", path, ErrBusy, holder, path, path)
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
	if err := os.MkdirAll(d.file("hosts"), 0o700); err != nil {
		lock.Close()
		return nil, refused(err)
	}
	d.log, err = os.OpenFile(d.file("log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		lock.Close()
		return nil, refused(err)
	}
	return d, nil
}

// refused says what to do about a folder that can't be written.
func refused(err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("%w; run cairn as the user who owns the folder, ask for access, or put the run's folder elsewhere with --run FOLDER", err)
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("%w; make room there, or put the run's folder elsewhere with --run FOLDER", err)
	}
	return err
}

// close gives the lock back.
func (d *runDir) close() {
	d.log.Close()
	d.lock.Close()
}

// note appends a line to the log. The log is a convenience: that it can't be
// written stops nothing.
func (d *runDir) note(at time.Time, text string) {
	fmt.Fprintf(d.log, "%s %s\n", at.Format("2006-01-02T15:04:05.000Z07:00"), strings.ReplaceAll(text, "\n", " | "))
}

// tryLock opens a file and locks it; ErrBusy and who has it, in words, if that
// is another process.
func tryLock(path string) (*os.File, string, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
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

// readRecord reads run.json; nil if there is none.
func readRecord(dir string) (*record, error) {
	path := filepath.Join(dir, "run.json")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it, or start with --fresh", path, err)
	}
	if r.Format != recordFormat || len(r.Command) == 0 || r.Ranks < 1 {
		return nil, fmt.Errorf("%s: format %d, this cairn knows %d; use the cairn that wrote it, or start with --fresh", path, r.Format, recordFormat)
	}
	return r, nil
}

// write replaces run.json atomically and durably.
func (d *runDir) write(r *record) error {
	r.Format, r.Time = recordFormat, time.Now()
	if r.Aside == nil {
		r.Aside = []uint64{}
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(d.file("run.json"), append(text, '\n'))
}

func replaceFile(path string, text []byte) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(path+".tmp", path)
	}
	if err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// settled is the state of a run that is not running.
func (r *record) settled() string {
	switch r.State {
	case Stopped, Finished, Failed:
		return r.State
	}
	return Interrupted
}

// adopt decides what the folder's record means for a run of command on n
// ranks: it returns the record to go on with, and what is to be done first so
// that nothing of an earlier run is in the way.
func (d *runDir) adopt(command []string, n int, sets, output string, fresh bool) (*record, func() error, error) {
	old, err := readRecord(d.path)
	if err != nil && !fresh {
		return nil, nil, err
	}
	made := &record{Command: command, Ranks: n, Dir: sets, Sets: sets, Output: output}
	clean := func(where ...string) func() error {
		return func() error {
			err := discard(where, []string{output})
			if e := os.Remove(d.file("shown")); !errors.Is(e, fs.ErrNotExist) {
				err = errors.Join(err, e)
			}
			return err
		}
	}
	switch {
	case fresh && old != nil:
		return made, clean(sets, d.file("sets"), old.Sets), nil
	case fresh:
		return made, clean(sets, d.file("sets")), nil
	case old == nil:
		return made, clean(), nil
	case old.State == Finished: // a program that did not call Finish left its sets
		return made, clean(old.Sets), nil
	}
	var differs []string
	if !slices.Equal(old.Command, command) {
		differs = append(differs, fmt.Sprintf("it was started as %s", quoted(old.Command)))
	}
	if old.Ranks != n {
		differs = append(differs, fmt.Sprintf("it has %d ranks, not %d", old.Ranks, n))
	}
	if old.Dir != sets {
		differs = append(differs, fmt.Sprintf("its sets are in %s, not in %s", old.Dir, sets))
	}
	switch {
	case differs == nil:
		old.Output = output
		return old, nil, nil
	case d.worthless(old):
		return made, clean(d.file("sets")), nil
	}
	return nil, nil, fmt.Errorf("%s: %w: %s (%s); give the same command to go on, --fresh to discard it, or --run for another folder",
		d.path, ErrDiffers, strings.Join(differs, ", "), old.settled())
}

// worthless reports whether nothing is lost with a run that is not running: it
// can't be gone on with, because no set of it is complete. A helper of it that
// still runs may be saving one. Of a folder that is not the run's own, nothing
// is known, so any set in it counts.
func (d *runDir) worthless(r *record) bool {
	if _, err := os.Lstat(filepath.Join(r.Sets, "line")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if r.Sets == d.file("sets") {
		if _, _, whole := newestSet(r.Sets, r.Ranks); whole {
			return false
		}
	} else if found, err := filepath.Glob(filepath.Join(r.Sets, "set-*")); err != nil || len(found) > 0 {
		return false
	}
	locks, err := filepath.Glob(d.file("hosts", "*.lock"))
	if err != nil {
		return false
	}
	for _, name := range locks {
		f, _, err := tryLock(name)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}

// discard removes sets and output files, and nothing else that may lie in
// those folders.
func discard(sets, outputs []string) error {
	remove := func(dir string, match func(string) bool) error {
		entries, err := os.ReadDir(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		for _, e := range entries {
			if match(e.Name()) {
				if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for _, dir := range sets {
		if err := remove(dir, func(name string) bool { return strings.HasPrefix(name, "set-") || name == "line" }); err != nil {
			return err
		}
	}
	for _, dir := range outputs {
		if err := remove(dir, func(name string) bool {
			return strings.HasPrefix(name, "rank-") && (strings.HasSuffix(name, ".out") || strings.HasSuffix(name, ".err"))
		}); err != nil {
			return err
		}
	}
	return nil
}

// quoted is a command as a shell would take it.
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

// awaitHelpers waits until no helper of an earlier supervisor is left. waiting
// is told once which one is.
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

// newestSet returns the newest set in a checkpoint folder that has a file of
// every rank.
func newestSet(dir string, n int) (index uint64, at time.Time, ok bool) {
	sets := wholeSets(dir, n)
	if len(sets) == 0 {
		return 0, time.Time{}, false
	}
	return sets[0].index, sets[0].at, true
}

// wholeSets returns the sets in a checkpoint folder that have a file of every
// rank, the newest first.
func wholeSets(dir string, n int) (out []found) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		var index uint64
		var at time.Time
		if _, err := fmt.Sscanf(e.Name(), "set-%d", &index); err != nil || !e.IsDir() {
			continue
		}
		whole := true
		for r := 0; r < n && whole; r++ {
			st, err := os.Stat(filepath.Join(dir, e.Name(), fmt.Sprintf("rank-%04d.h5", r)))
			if whole = err == nil; whole && st.ModTime().After(at) {
				at = st.ModTime()
			}
		}
		if whole {
			out = append(out, found{index, at})
		}
	}
	slices.SortFunc(out, func(a, b found) int { return cmp.Compare(b.index, a.index) })
	return out
}
