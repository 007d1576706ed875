//go:build linux

package rundir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/scheduler"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Intent is what a start will do with the run in the directory.
type Intent struct {
	Record *Record
	New    bool    // Record is new: until it is written, the directory belongs to an earlier run
	Finish bool    // the ranks have finished: only the end of the run must be completed
	Over   bool    // the run has finished in an earlier start of the same job: there is nothing to do
	Lost   *Record // the record of a run that was found on a tier, if no start of this directory has counted there: Record is new, and the run is looked for again
	Kept   bool    // the run is not discarded, although fresh was set: an earlier start of the same job did that
	Note   string  // text for the user
}

// Claim decides what to do with the run in the directory, for a run of command
// on n ranks, in a job. local is the directory on each host in which
// checkpointDir is, if hosts share none. Claim discards an earlier run only
// with fresh, or if its record says that it has finished, or if there is no
// trace of a run. A job that the scheduler has started again discards no run of
// its own.
func (d *Dir) Claim(command []string, n int, checkpointDir, local, output string, fresh bool, job scheduler.Job) (*Intent, error) {
	made := &Record{Job: job, ID: store.NewID(), Command: command, Ranks: n, RequestedDir: checkpointDir, CheckpointDir: checkpointDir, Local: local, Output: output}
	in := &Intent{Record: made, New: true}
	old, err := loadRecord(d.FS, d.Path)
	if err == nil {
		old.locate(d.Path, d.Cwd)
		old.relocated(d.Path, d.Cwd)
		in.Note = old.note
		if d.ChangedArgs && len(old.Command) > 0 && old.State != Finished && old.State != Finishing && old.is(old.Command[0], command[0]) && !slices.Equal(old.Command[1:], command[1:]) {
			in.Note = joined(in.Note, fmt.Sprintf("resuming with --changed-args: it was started as %s, and is now %s", control.ShellCommand(old.Command), control.ShellCommand(command)))
			old.Command = slices.Clone(command)
		}
	}
	if err == nil && d.AnyCommand {
		old.Command = slices.Clone(command)
	}
	lost := err == nil && old.Found != nil && old.State != Finished && old.State != Finishing && len(old.Clear) == 0
	again := err == nil && !lost && job.Repeats(old.Job) && old.differs(command, n, checkpointDir, local) == nil && len(old.Clear) == 0
	if fresh && again {
		in, err := d.Claim(command, n, checkpointDir, local, output, false, job)
		if err == nil {
			in.Kept = true
			in.Note = joined(in.Note, fmt.Sprintf("--fresh was obeyed at an earlier start of this job (%s); %s", job.Name, freshRemedy(job)))
		}
		return in, err
	}
	switch {
	case fresh:
		made.Clear, made.Replaces = []string{d.File("ckpt")}, []string{control.AnyRun}
		if local == "" {
			made.Clear = append(made.Clear, checkpointDir)
		}
		if err == nil && !lost { // else another run directory may have that run
			d.replace(made, old)
		}
		in.Note = ""
		return in, nil
	case errors.Is(err, errNoRecord):
		trace, terr := d.trace(output)
		if terr != nil || trace == "" {
			return in, terr
		}
		return d.rebuild(in, fmt.Errorf("%s: %s is missing, but %s is there", d.Path, RecordName, trace))
	case errors.Is(err, store.ErrDamaged):
		return d.rebuild(in, err)
	case err != nil:
		return nil, err
	case lost:
		in.Lost = old
		return in, nil
	case len(old.Clear) > 0: // it was being discarded
		made.Clear, made.Replaces = old.Clear, append(old.Replaces, old.ID)
		if local == "" {
			made.Clear = append(made.Clear, checkpointDir)
		}
		return in, nil
	case old.State == Finished && again:
		old.Output = output
		return &Intent{Record: old, Over: true, Note: joined(in.Note, fmt.Sprintf("the run has finished in an earlier start of this job (%s, %s): nothing is started; %s",
			job.Name, old.Time.Format(time.DateTime), freshRemedy(job)))}, nil
	case old.State == Finished: // a program that did not call Finish left its checkpoints
		d.replace(made, old)
		with := ""
		if old.Status != 0 {
			with = fmt.Sprintf(" with status %d", old.Status)
		}
		in.Note = joined(in.Note, fmt.Sprintf("the run before has finished%s (%s); a new one begins", with, old.Time.Format(time.DateTime)))
		return in, nil
	}
	if d.movedTo(old, checkpointDir) {
		old.RequestedDir, old.CheckpointDir = checkpointDir, checkpointDir
	}
	differs := old.differs(command, n, checkpointDir, local)
	switch {
	case differs == nil && old.State == Finishing:
		old.Output = output
		return &Intent{Record: old, Finish: true, Note: in.Note}, nil
	case differs == nil:
		old.Output = output
		return &Intent{Record: old, Note: in.Note}, d.vanished(old)
	case d.worthless(old):
		if made.Clear = []string{d.File("ckpt")}; old.Local != "" {
			d.replace(made, old)
		}
		return in, nil
	}
	remedy := "give the same command to resume"
	if len(old.Command) > 0 && old.is(old.Command[0], command[0]) && !slices.Equal(old.Command[1:], command[1:]) {
		remedy += ", --changed-args to resume a compiled program with these arguments"
	}
	if old.State == Finishing {
		remedy = "give the same command to complete its end"
	}
	return nil, fmt.Errorf("%s: %w: %s (%s); %s, --fresh to discard it, or --run for another directory",
		d.Path, ErrDiffers, strings.Join(differs, ", "), old.Settled(), remedy)
}

// freshRemedy says how to begin anew in a job that has been started again.
func freshRemedy(job scheduler.Job) string {
	if job.Restart == scheduler.Uncounted {
		return "to begin a new run, change " + scheduler.EnvJob
	}
	return "to begin a new run, submit a new job"
}

// replace records that a new run discards the files of an earlier one.
func (d *Dir) replace(made, old *Record) {
	if old.Local == "" {
		made.Clear = append(made.Clear, old.CheckpointDir)
		return
	}
	made.Clear = append(made.Clear, d.File("ckpt")) // with the output
	made.Replaces = append(made.Replaces, append(old.Replaces, old.ID)...)
	if n := len(made.Replaces); n > maxReplaced {
		made.Replaces = made.Replaces[n-maxReplaced:]
	}
}

// maxReplaced bounds how many earlier runs a record names.
const maxReplaced = 64

func joined(a, b string) string { return strings.TrimPrefix(a+"; "+b, "; ") }

// movedTo reports whether the user has moved the checkpoints of a run to the
// given directory.
func (d *Dir) movedTo(r *Record, checkpointDir string) bool {
	if r.Local != "" || r.CheckpointsID == "" || r.Last == nil || r.RequestedDir != r.CheckpointDir || r.is(r.RequestedDir, checkpointDir) {
		return false
	}
	was, err := store.Open(d.FS, r.CheckpointDir, 0).ID()
	if err != nil || was != "" {
		return false
	}
	id, err := store.Open(d.FS, checkpointDir, 0).ID()
	return err == nil && id == r.CheckpointsID
}

// differs describes how a run differs from the recorded one.
func (r *Record) differs(command []string, n int, checkpointDir, local string) (out []string) {
	if len(r.Command) != len(command) || !r.is(r.Command[0], command[0]) || !slices.Equal(r.Command[1:], command[1:]) {
		out = append(out, fmt.Sprintf("it was started as %s", control.ShellCommand(r.Command)))
	}
	if r.Ranks != n {
		out = append(out, fmt.Sprintf("it has %d ranks, not %d", r.Ranks, n))
	}
	switch {
	case r.Local != local && r.Local != "":
		out = append(out, fmt.Sprintf("its checkpoints are in %s on each host (--local %s)", r.CheckpointDir, r.Local))
	case r.Local != local:
		out = append(out, fmt.Sprintf("its checkpoints are in %s, not in %s on each host", r.RequestedDir, local))
	case local == "" && !r.is(r.RequestedDir, checkpointDir):
		out = append(out, fmt.Sprintf("its checkpoints are in %s, not in %s", r.RequestedDir, checkpointDir))
	}
	return out
}

// trace returns a file or directory of an earlier run, or "".
func (d *Dir) trace(output string) (string, error) {
	if there, err := store.Holds(d.FS, d.File("ckpt")); err != nil || there {
		return d.File("ckpt"), err
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

// rebuild makes a new record from the checkpoints if the old one is damaged or
// lost. Without checkpoints it is unknown how far the run came, and rebuild
// refuses.
func (d *Dir) rebuild(in *Intent, why error) (*Intent, error) {
	r := in.Record
	if r.Local != "" {
		return nil, fmt.Errorf("%s; the files of the run are on its hosts, in %s, and nothing is started: restore the record from a copy, or discard the run with --fresh", oneLine(why), filepath.Dir(r.CheckpointDir))
	}
	index, at, ok, err := newestComplete(r.CheckpointDir, r.Ranks)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("%s; and there is no checkpoint of %s in %s to make the record anew from, so nothing is started: if the checkpoints are elsewhere, name their directory with --dir; if the run is not needed any more, discard it with --fresh",
			oneLine(why), control.Count(r.Ranks, "rank"), r.CheckpointDir)
	}
	r.State, r.Attempt, r.Used = Running, 1, true
	r.Last = &control.CheckpointState{Index: index, Time: at}
	in.New = false
	in.Note = fmt.Sprintf("%s; the record was made anew from checkpoint %d in %s", oneLine(why), index, r.CheckpointDir)
	return in, nil
}

// vanished refuses a run whose checkpoint directory has disappeared. It would
// start from the beginning and overwrite its results.
func (d *Dir) vanished(r *Record) error {
	if r.Local != "" { // helpers look at it
		return nil
	}
	const remedy = "bring it back (is its file system mounted?), or discard the run with --fresh; nothing is started, and nothing was changed"
	there, err := store.Holds(d.FS, r.CheckpointDir)
	if err != nil {
		return fmt.Errorf("the checkpoints of this run cannot be looked at: %w", err)
	}
	if r.Last != nil && !there {
		return fmt.Errorf("%s: checkpoint %d of this run was committed in %s, but there is none now: %s", d.Path, r.Last.Index, r.CheckpointDir, remedy)
	}
	if id, err := store.Open(d.FS, r.CheckpointDir, 0).ID(); err == nil && r.Last != nil && r.CheckpointsID != "" && id != "" && id != r.CheckpointsID {
		return fmt.Errorf("%s: %s holds the checkpoints of another run (%s), not of this one (%s): %s", d.Path, r.CheckpointDir, id, r.CheckpointsID, remedy)
	}
	if _, err := d.FS.Stat(filepath.Join(r.CheckpointDir, "lock")); r.Used && errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the checkpoint directory of this run, %s, is not there, or is another one: %s", d.Path, r.CheckpointDir, remedy)
	}
	return nil
}

// worthless reports whether the recorded run can be discarded without loss: it
// never started, or failed before its first point, and there is no checkpoint.
// A helper that still runs may be saving one. In a directory that is not the
// run's own, any checkpoint counts.
func (d *Dir) worthless(r *Record) bool {
	if r.Attempt > 0 && !(r.State == Failed && r.BeforeFirstPoint) {
		return false
	}
	if r.Local != "" {
		return r.Last == nil
	}
	if _, err := os.Lstat(filepath.Join(r.CheckpointDir, "line")); !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if r.CheckpointDir == d.File("ckpt") {
		if _, _, whole, err := newestComplete(r.CheckpointDir, r.Ranks); err != nil || whole {
			return false
		}
	} else if there, err := store.Holds(d.FS, r.CheckpointDir); err != nil || there {
		return false
	}
	locks, err := filepath.Glob(filepath.Join(vfs.QuoteGlob(d.File("hosts")), "*.lock"))
	if err != nil {
		return false
	}
	for _, name := range locks {
		f, _, err := TryLock(name)
		if err != nil {
			return false
		}
		f.Close()
	}
	return true
}

// MakeCheckpointDir makes a checkpoint directory, with the file that the ranks
// lock.
func MakeCheckpointDir(fsys vfs.FS, dir string) error {
	d, err := store.Create(fsys, dir, 0)
	if errors.Is(err, store.ErrLocked) { // it exists; the ranks report errors
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(d.Close(), fsys.SyncDir(dir))
}
