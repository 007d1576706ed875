//go:build linux

package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// intent is what a start does with the run in the directory.
type intent struct {
	rec    *record
	made   bool   // rec is new: until it is written, the directory is that of an earlier run
	finish bool   // the ranks have finished: only their end is to be completed
	say    string // what the user is to know
}

// claim decides what to do with the run in the directory, for a run of command
// on n ranks. It discards an earlier run only with fresh, or if its record says
// that it has finished, or if there is no trace of a run.
func (d *runDir) claim(command []string, n int, checkpointDir, output string, fresh bool) (*intent, error) {
	made := &record{ID: store.NewID(), Command: command, Ranks: n, RequestedDir: checkpointDir, CheckpointDir: checkpointDir, Output: output}
	in := &intent{rec: made, made: true}
	old, err := loadRecord(d.fs, d.path)
	if err == nil {
		old.locate(d.path, d.cwd)
		old.relocated(d.path, d.cwd)
		in.say = old.note
	}
	switch {
	case fresh:
		made.Clear = []string{checkpointDir, d.file("ckpt")}
		if err == nil {
			made.Clear = append(made.Clear, old.CheckpointDir)
		}
		in.say = ""
		return in, nil
	case errors.Is(err, errNoRecord):
		trace, terr := d.trace(output)
		if terr != nil || trace == "" {
			return in, terr
		}
		return d.rebuild(in, fmt.Errorf("%s: %s is missing, but %s is there", d.path, recordName, trace))
	case errors.Is(err, store.ErrDamaged):
		return d.rebuild(in, err)
	case err != nil:
		return nil, err
	case len(old.Clear) > 0: // it was being discarded
		made.Clear = append(old.Clear, checkpointDir)
		return in, nil
	case old.State == Finished: // a program that did not call Finish left its checkpoints
		made.Clear = []string{old.CheckpointDir}
		with := ""
		if old.Status != 0 {
			with = fmt.Sprintf(" with status %d", old.Status)
		}
		in.say = joined(in.say, fmt.Sprintf("the run before has finished%s (%s); a new one begins", with, old.Time.Format(time.DateTime)))
		return in, nil
	}
	if d.movedTo(old, checkpointDir) {
		old.RequestedDir, old.CheckpointDir = checkpointDir, checkpointDir
	}
	differs := old.differs(command, n, checkpointDir)
	switch {
	case differs == nil && old.State == Finishing:
		old.Output = output
		return &intent{rec: old, finish: true, say: in.say}, nil
	case differs == nil:
		old.Output = output
		return &intent{rec: old, say: in.say}, d.vanished(old)
	case d.worthless(old):
		made.Clear = []string{d.file("ckpt")}
		return in, nil
	}
	again := "give the same command to resume"
	if old.State == Finishing {
		again = "give the same command to complete its end"
	}
	return nil, fmt.Errorf("%s: %w: %s (%s); %s, --fresh to discard it, or --run for another directory",
		d.path, ErrDiffers, strings.Join(differs, ", "), old.settled(), again)
}

func joined(a, b string) string { return strings.TrimPrefix(a+"; "+b, "; ") }

// movedTo reports whether the user has moved the checkpoints of a run to the
// directory that is given now.
func (d *runDir) movedTo(r *record, checkpointDir string) bool {
	if r.CheckpointsID == "" || r.Last == nil || r.RequestedDir != r.CheckpointDir || r.is(r.RequestedDir, checkpointDir) {
		return false
	}
	was, err := store.Open(d.fs, r.CheckpointDir, 0).ID()
	if err != nil || was != "" {
		return false
	}
	id, err := store.Open(d.fs, checkpointDir, 0).ID()
	return err == nil && id == r.CheckpointsID
}

// differs returns how a run differs from the recorded one.
func (r *record) differs(command []string, n int, checkpointDir string) (out []string) {
	if len(r.Command) != len(command) || !r.is(r.Command[0], command[0]) || !slices.Equal(r.Command[1:], command[1:]) {
		out = append(out, fmt.Sprintf("it was started as %s", quoted(r.Command)))
	}
	if r.Ranks != n {
		out = append(out, fmt.Sprintf("it has %d ranks, not %d", r.Ranks, n))
	}
	if !r.is(r.RequestedDir, checkpointDir) {
		out = append(out, fmt.Sprintf("its checkpoints are in %s, not in %s", r.RequestedDir, checkpointDir))
	}
	return out
}

// trace returns a file or directory of an earlier run; empty: there is none.
func (d *runDir) trace(output string) (string, error) {
	if there, err := store.Holds(d.fs, d.file("ckpt")); err != nil || there {
		return d.file("ckpt"), err
	}
	names, err := rankFiles(output)
	if err != nil {
		return "", err
	}
	for _, name := range names {
		if st, err := os.Stat(name); err == nil && st.Size() > 0 {
			return name, nil
		}
	}
	return "", nil
}

// rebuild makes a new record from the checkpoints, if the old one is damaged or
// lost. Without checkpoints nobody knows how far the run came: it refuses.
func (d *runDir) rebuild(in *intent, why error) (*intent, error) {
	r := in.rec
	index, at, ok, err := newestComplete(r.CheckpointDir, r.Ranks)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s; and there is no checkpoint of %s in %s to make the record anew from, so nothing is started: if the checkpoints are elsewhere, name their directory with --dir; if the run is not needed any more, discard it with --fresh",
			oneLine(why), ranksCount(r.Ranks), r.CheckpointDir)
	}
	r.State, r.Attempt, r.Used = Running, 1, true
	r.Last = &CheckpointState{Index: index, Time: at}
	in.made = false
	in.say = fmt.Sprintf("%s; the record was made anew from checkpoint %d in %s", oneLine(why), index, r.CheckpointDir)
	return in, nil
}

func ranksCount(n int) string {
	if n == 1 {
		return "1 rank"
	}
	return fmt.Sprintf("%d ranks", n)
}

// vanished refuses a run whose checkpoint directory has disappeared. It would
// start from the beginning and overwrite its results.
func (d *runDir) vanished(r *record) error {
	const remedy = "bring it back (is its file system mounted?), or discard the run with --fresh; nothing is started, and nothing was changed"
	there, err := store.Holds(d.fs, r.CheckpointDir)
	if err != nil {
		return fmt.Errorf("the checkpoints of this run can't be looked at: %w", err)
	}
	if r.Last != nil && !there {
		return fmt.Errorf("%s: checkpoint %d of this run was committed in %s, but there is none now: %s", d.path, r.Last.Index, r.CheckpointDir, remedy)
	}
	if id, err := store.Open(d.fs, r.CheckpointDir, 0).ID(); err == nil && r.Last != nil && r.CheckpointsID != "" && id != "" && id != r.CheckpointsID {
		return fmt.Errorf("%s: %s holds the checkpoints of another run (%s), not of this one (%s): %s", d.path, r.CheckpointDir, id, r.CheckpointsID, remedy)
	}
	if _, err := d.fs.Stat(filepath.Join(r.CheckpointDir, "lock")); r.Used && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the checkpoint directory of this run, %s, is not there, or is another one: %s", d.path, r.CheckpointDir, remedy)
	}
	return nil
}

// worthless reports whether the recorded run can be discarded without loss: it
// never started, or failed before its first point, and there is no checkpoint.
// A helper that still runs may be saving one. In a directory that is not the
// run's own, any checkpoint counts.
func (d *runDir) worthless(r *record) bool {
	if r.Attempt > 0 && !(r.State == Failed && r.BeforeFirstPoint) {
		return false
	}
	if _, err := os.Lstat(filepath.Join(r.CheckpointDir, "line")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if r.CheckpointDir == d.file("ckpt") {
		if _, _, whole, err := newestComplete(r.CheckpointDir, r.Ranks); err != nil || whole {
			return false
		}
	} else if there, err := store.Holds(d.fs, r.CheckpointDir); err != nil || there {
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

// take makes the directory that of this run. The caller does this after the last
// helper of the earlier run has ended, and before the first attempt. take first
// records what it discards, so that the next start completes it after a crash.
func (s *Supervisor) take() error {
	if len(s.rec.Clear) > 0 {
		if err := s.record(); err != nil {
			return err
		}
		step.At("start.clearing")
		for _, dir := range s.rec.Clear {
			if err := errors.Join(store.Clear(s.dir.fs, dir), store.Open(s.dir.fs, dir, 0).RemoveEnd()); err != nil {
				return err
			}
		}
		if err := s.dir.discardOutput(s.rec.Output); err != nil {
			return err
		}
		step.At("start.cleared")
		s.rec.Clear = nil
	}
	if s.rec.RequestedDir != s.dir.file("ckpt") { // from now on it can be told whether it is there
		if err := makeChecked(s.dir.fs, s.rec.RequestedDir); err != nil {
			return err
		}
		s.rec.Used = s.rec.Used || s.rec.CheckpointDir == s.rec.RequestedDir
	}
	s.owned = true
	err := s.record()
	step.At("start.recorded")
	return err
}

// makeChecked makes a checkpoint directory, with the file that the ranks lock.
func makeChecked(fsys vfs.FS, dir string) error {
	d, err := store.Create(fsys, dir, 0)
	if errors.Is(err, store.ErrLocked) { // it is there; the ranks say more
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Close(), fsys.SyncDir(dir))
}

// discardOutput removes the ranks' output files and the output offsets, and no
// other file.
func (d *runDir) discardOutput(output string) error {
	names, err := rankFiles(output)
	if err != nil {
		return err
	}
	for _, name := range append(names, d.file("output-offsets")) {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// rankFiles returns the ranks' output files in a directory, which need not exist.
func rankFiles(dir string) (out []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, e := range entries {
		if name := e.Name(); strings.HasPrefix(name, "rank-") && (strings.HasSuffix(name, ".out") || strings.HasSuffix(name, ".err")) {
			out = append(out, filepath.Join(dir, name))
		}
	}
	return out, nil
}
