//go:build linux

package rundir

import (
	"cmp"
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

// The record of a run says what is run and how far it came. It is a small state
// machine, each step of which is durable before the next has effects:
//
//	starting ──▶ running ──▶ finishing ──▶ finished
//	   │            ├──────▶ stopped ─┐
//	   │            └──────▶ failed ──┴──▶ (the same command) running
//	   └ with "clear": an earlier run is being discarded
//
// A record of "finishing" has the exit status: all ranks have ended well, their
// output is put together and the checkpoints are removed. Whoever finds it
// completes that, and never starts the ranks again.
//
// There are two files with the same content, run.json and run-copy.json. The
// copy is written first, and only when more has changed than the last
// checkpoint and the moves. Both have a digest (store.WriteRecord) and a
// sequence number: the newer one that is sound counts. So one of them may be
// lost, damaged or replaced by an older one.
const (
	recordFormat = 3
	RecordName   = "run.json"
	CopyName     = "run-copy.json"
)

// Record is the content of run.json. In memory its paths are absolute; in the
// file they are relative to RUN or to the working directory where they can be.
type Record struct {
	Format           int                      `json:"format"`
	ID               string                   `json:"id"`  // identity of the run, chosen once
	Seq              uint64                   `json:"seq"` // number of writes
	Command          []string                 `json:"command"`
	Ranks            int                      `json:"ranks"`
	Hosts            []string                 `json:"hosts"`
	State            string                   `json:"state"`
	Status           int                      `json:"status"`
	Why              string                   `json:"why,omitempty"`
	BeforeFirstPoint bool                     `json:"beforeFirstPoint,omitempty"` // it failed before its first point
	Pid              int                      `json:"pid"`
	Host             string                   `json:"host"`
	Began            time.Time                `json:"began,omitzero"` // when the run was started first
	Attempt          int                      `json:"attempt"`
	LostNS           int64                    `json:"lostNS,omitempty"`        // computing time that later attempts had to repeat
	Job              scheduler.Job            `json:"job"`                     // of the scheduler, at the last start
	Cwd              string                   `json:"cwd"`                     // where it was started, absolute
	Up               int                      `json:"up"`                      // number of levels that Cwd is above RUN; -1: it is elsewhere
	FormerDirs       []string                 `json:"formerDirs,omitempty"`    // earlier values of Cwd, before RUN was moved or copied together with it
	RequestedDir     string                   `json:"requestedDir"`            // checkpoint directory that was requested
	CheckpointDir    string                   `json:"checkpointDir"`           // checkpoint directory that the ranks use
	Used             bool                     `json:"used,omitempty"`          // the ranks have used it
	CheckpointsID    string                   `json:"checkpointsId,omitempty"` // content of its file run-id; valid as soon as there is a checkpoint
	Local            string                   `json:"local,omitempty"`         // requested directory on each host; then CheckpointDir is below it, on each host
	Started          *control.AttemptRecord   `json:"started,omitempty"`       // with Local: the newest start or move
	Shell            []string                 `json:"shell,omitempty"`         // with Local: how other hosts are reached; none: ssh
	RemoteHelper     []string                 `json:"remoteHelper,omitempty"`  // with Local: the command that starts a helper there
	Replaces         []string                 `json:"replaces,omitempty"`      // with Local: runs whose files on hosts may be discarded
	Policy           string                   `json:"policy,omitempty"`        // with Local: on which tiers checkpoints are kept (package policy of tier)
	Name             string                   `json:"name,omitempty"`          // with Policy: the name of the run on tiers
	Quiet            bool                     `json:"quiet,omitempty"`         // with Local: no rank of the newest start runs any more
	Tiers            []control.TierState      `json:"tiers,omitempty"`         // with Policy: what tiers outside of the hosts have
	UsedTiers        []string                 `json:"usedTiers,omitempty"`     // with Policy: tiers outside of the hosts that have been used
	Placed           []string                 `json:"placed,omitempty"`        // with Replaces: tiers whose places are this run's for certain
	Found            *FoundRun                `json:"found,omitempty"`         // with Policy: where the run was found, until a start of this run directory counts there
	Scrub            *control.ScrubState      `json:"scrub,omitempty"`         // with Policy: what hosts have read again
	Output           string                   `json:"output"`                  //
	Clear            []string                 `json:"clear,omitempty"`         // checkpoint directories of an earlier run that is being discarded
	Discard          bool                     `json:"discard,omitempty"`       // finishing: the checkpoints can be removed
	Brought          bool                     `json:"brought,omitempty"`       // finishing: the end of the run was brought from a tier
	Quarantined      []uint64                 `json:"quarantined"`
	Last             *control.CheckpointState `json:"last,omitempty"`
	Unsaved          *control.Unsaved         `json:"unsaved,omitempty"`    // why checkpoints fail now
	RolledBack       *control.RollbackState   `json:"rolledBack,omitempty"` // the last rollback in running processes
	Moves            []control.MoveState      `json:"moves,omitempty"`      // the latest, the newest at the end
	Settings         []control.Setting        `json:"settings,omitempty"`   // as far as they are known
	Moved            uint64                   `json:"moved,omitempty"`      // number of the last requested move
	Time             time.Time                `json:"time"`

	places places // the places that its paths are relative to
	note   string // errors in the files, for the user
}

// FoundRun names a tier on which a new run directory has found its run, and
// Options.From, if that named it.
type FoundRun struct {
	Tier string `json:"tier"`
	From string `json:"from,omitempty"`
}

// places are the directories that paths in a record are relative to.
type places struct{ run, cwd string }

// RealPath returns a path without symbolic links, as far as it exists.
func RealPath(path string) string {
	if r, err := filepath.EvalSymlinks(path); err == nil {
		return r
	}
	dir := filepath.Dir(path)
	if dir == path {
		return path
	}
	return filepath.Join(RealPath(dir), filepath.Base(path))
}

// portable returns the form of a path in a record. It keeps a link at the end.
func (p places) portable(path string) string {
	if path == "" {
		return ""
	}
	if !strings.HasSuffix(path, "/") {
		path = filepath.Join(RealPath(filepath.Dir(path)), filepath.Base(path))
	}
	for _, base := range []struct{ name, dir string }{{"$RUN", p.run}, {"$CWD", p.cwd}} {
		if base.dir == "" {
			continue
		}
		if rel, err := filepath.Rel(RealPath(base.dir), path); err == nil && filepath.IsLocal(rel) {
			return filepath.Join(base.name, rel)
		}
	}
	return path
}

// absolute returns the path for the form in a record.
func (p places) absolute(text string) string {
	if rest, ok := strings.CutPrefix(text, "$RUN"); ok {
		return filepath.Join(p.run, rest)
	}
	if rest, ok := strings.CutPrefix(text, "$CWD"); ok {
		return filepath.Join(p.cwd, rest)
	}
	return text
}

// each calls f for every path of the record.
func (r *Record) each(f func(string) string) {
	r.Command = slices.Clone(r.Command)
	if len(r.Command) > 0 {
		r.Command[0] = f(r.Command[0])
	}
	if r.Output = f(r.Output); r.Local == "" { // on hosts, paths are absolute
		r.RequestedDir, r.CheckpointDir = f(r.RequestedDir), f(r.CheckpointDir)
	}
	r.Clear = slices.Clone(r.Clear)
	for i := range r.Clear {
		r.Clear[i] = f(r.Clear[i])
	}
}

// above returns how many levels dir is above run, or -1.
func above(run, dir string) int {
	rel, err := filepath.Rel(RealPath(dir), RealPath(run))
	if err != nil || !filepath.IsLocal(rel) {
		return -1
	}
	if rel == "." {
		return 0
	}
	return strings.Count(rel, string(filepath.Separator)) + 1
}

// relocated records where the run was started before, if its directory was
// moved or copied together with the directory in which it is started.
func (r *Record) relocated(run, cwd string) {
	if r.Cwd == cwd || r.Up < 0 || above(run, cwd) != r.Up || RealPath(r.Cwd) == RealPath(cwd) {
		return
	}
	r.FormerDirs = append(slices.DeleteFunc(r.FormerDirs, func(dir string) bool { return dir == r.Cwd || dir == cwd }), r.Cwd)
}

// locate makes the record's paths absolute. cwd is the working directory in
// which the run is started. If it is empty, the record is only read; then the
// directory is the one that the run was started in, which may have been moved
// together with RUN.
func (r *Record) locate(run, cwd string) {
	p := places{run, cwd}
	if cwd == "" {
		p.cwd = r.Cwd
		if r.Up >= 0 {
			moved := places{run, filepath.Join(run, strings.Repeat("../", r.Up))}
			mark := r.CheckpointDir
			if r.Local != "" { // it is on other hosts
				mark = r.Output
			}
			if _, err := os.Stat(moved.absolute(mark)); err == nil || moved.cwd == r.Cwd {
				p = moved
			}
		}
	}
	r.places = p
	r.each(p.absolute)
}

// errNoRecord says that both files of the record are missing.
var errNoRecord = errors.New("there is no record")

// loadRecord reads the record of a run from its two files. It returns
// errNoRecord if there is none; if both are damaged, the error wraps
// store.ErrDamaged. The paths are not absolute yet.
func loadRecord(fsys vfs.FS, run string) (*Record, error) {
	var best *Record
	var bad []error
	missing := 0
	for _, name := range []string{RecordName, CopyName} {
		r := new(Record)
		err := store.ReadRecord(fsys, filepath.Join(run, name), r)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			missing++
			bad = append(bad, fmt.Errorf("%s is missing", filepath.Join(run, name)))
			continue
		case err == nil && (r.Format != recordFormat || len(r.Command) == 0 || r.Ranks < 1):
			return nil, fmt.Errorf("%s: format %d, this cairn knows %d; use the cairn that wrote it", filepath.Join(run, name), r.Format, recordFormat)
		case errors.Is(err, store.ErrDamaged):
			bad = append(bad, err)
			continue
		case err != nil:
			return nil, err
		}
		if best == nil {
			best = r
		} else if r.ID != best.ID || r.Seq > best.Seq {
			older := RecordName
			if r.ID != best.ID && r.Time.Before(best.Time) {
				r, older = best, CopyName
			}
			bad = append(bad, fmt.Errorf("%s is an older one", filepath.Join(run, older)))
			best = r
		}
	}
	if missing == 2 {
		return nil, errNoRecord
	}
	if best == nil {
		return nil, errors.Join(bad...)
	}
	if len(bad) > 0 {
		best.note = fmt.Sprintf("%s; the other file of the record is used", oneLine(errors.Join(bad...)))
	}
	return best, nil
}

// CheckpointDir returns where the ranks of a run keep checkpoints, according to
// its record; "" if that is not known, or if each host has its own directory.
func CheckpointDir(run string) string {
	if r, err := ReadRecord(run); err == nil && r != nil && r.Local == "" {
		return r.CheckpointDir
	}
	return ""
}

// ReadRecord reads the record of a run without starting it. It returns nil if
// there is none.
func ReadRecord(run string) (*Record, error) {
	r, err := loadRecord(vfs.OS(), run)
	if errors.Is(err, errNoRecord) {
		return nil, nil
	}
	if errors.Is(err, store.ErrDamaged) {
		return nil, fmt.Errorf("%w; nothing is lost as long as the checkpoints are there: the same 'cairn run' command makes the record anew", err)
	}
	if err != nil {
		return nil, err
	}
	r.locate(run, "")
	return r, nil
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// essence returns what the copy must contain: everything except what the
// checkpoints show, too.
func (r *Record) essence() string {
	c := *r
	c.Seq, c.Last, c.Unsaved, c.RolledBack, c.Moves, c.Moved, c.Tiers, c.Scrub, c.Time = 0, nil, nil, nil, nil, 0, nil, nil, time.Time{}
	return fmt.Sprintf("%+v", c)
}

// Write makes the record durable.
func (d *Dir) Write(r *Record) error {
	r.Format, r.Time = recordFormat, time.Now()
	r.Seq++
	if r.Quarantined == nil {
		r.Quarantined = []uint64{}
	}
	r.Cwd, r.Up = d.Cwd, above(d.Path, d.Cwd)
	out := *r
	out.each(places{d.Path, d.Cwd}.portable)
	if e := out.essence(); e != d.copied {
		d.copied = ""
		if err := store.WriteRecord(d.FS, d.File(CopyName), &out); err != nil {
			return err
		}
		d.copied = e
	}
	return store.WriteRecord(d.FS, d.File(RecordName), &out)
}

// Settled returns the state of a run that is not running.
func (r *Record) Settled() string {
	switch r.State {
	case Stopped, Finishing, Finished, Failed:
		return r.State
	}
	return Interrupted
}

// is reports whether a path of the record is the one that was given now.
func (r *Record) is(path, given string) bool {
	if path == given || RealPath(path) == RealPath(given) {
		return true
	}
	was := r.places // the path may be relative to where the run was started first
	was.cwd = cmp.Or(r.Cwd, was.cwd)
	return RealPath(was.absolute(r.places.portable(path))) == RealPath(given)
}

// LostMove records that the supervisor of a move was lost before the move was
// over.
func LostMove(m *control.MoveState) {
	if !m.Over() {
		m.State, m.Why = control.MoveUnknown, "the supervisor was lost before it was over"
	}
}
