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
	"strconv"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A run is found on its tiers outside of the hosts if the run directory is new:
// it was lost, or the run continues in another cluster. Everything else is as
// after a loss of all hosts.

// origin is what Options.From names.
type origin struct {
	index  uint64 // of the checkpoint; 0: the newest
	pin    string // its name, if it is pinned
	name   string // of the run on a shared directory
	copied string // a run directory or a checkpoint directory, which is copied there first
}

// parseFrom reads Options.From, and adds the place to Options.Tiers.
func (s *Supervisor) parseFrom() error {
	o := &s.o
	if o.From == "" {
		return nil
	}
	if o.Fresh {
		return optionError("--from and --fresh exclude each other")
	}
	place, copied := o.From, ""
	if dir, _, _ := splitCheckpoint(place); isRunOrCheckpoints(dir) {
		if rundir.RealPath(dir) == rundir.RealPath(o.Run) {
			if err := nothingToResume(place); err != nil {
				return optionError("--from %v", err)
			}
			return optionError("--from %s is the run directory itself: without --from, the run there is resumed", o.From)
		}
		place, copied = filepath.Join(o.Run, "from"), place
	}
	x, name, index, pin, err := placeOf(place)
	if err != nil {
		return optionError("--from %v", err)
	}
	s.from = origin{index, pin, name, copied}
	p := &policy.Policy{Scrub: policy.DefaultScrub}
	if o.Tiers != "" {
		if p, err = policy.Parse(o.Tiers); err != nil {
			return optionError("--%v", err)
		}
	}
	switch t := p.Of(x.Kind); {
	case t == nil:
		p.Tiers = append(p.Tiers, x)
		o.Tiers = p.String()
	case strings.TrimRight(t.RunDir(name), "/") != strings.TrimRight(x.RunDir(name), "/"):
		return optionError("--from %s is not the place of this run on the tier %s: name the same place, or leave the tier out", o.From, t.Name())
	}
	if p.Of(policy.Local) == nil && o.Local == "" {
		if len(o.Hosts) > 0 {
			return optionError("--from needs a directory on each host: add --local DIR")
		}
		o.Local = filepath.Join(o.Run, "local")
	}
	return nil
}

// isRunOrCheckpoints reports whether a directory is a run directory or a
// checkpoint directory, and no place of a run on a tier.
func isRunOrCheckpoints(dir string) bool {
	if _, err := os.Stat(filepath.Join(dir, rundir.RecordName)); err == nil {
		return true
	}
	here, err := store.Holds(vfs.OS(), dir)
	return err == nil && here
}

// splitCheckpoint takes what names a checkpoint off a place: PLACE@12, or
// PLACE@best if it is pinned.
func splitCheckpoint(place string) (dir string, index uint64, pin string) {
	at := strings.LastIndexByte(place, '@')
	if at <= 0 {
		return place, 0, ""
	}
	name := place[at+1:]
	if n, err := strconv.ParseUint(name, 10, 64); err == nil && n > 0 {
		return place[:at], n, ""
	}
	if _, err := os.Stat(place); err == nil || tier.CheckPinName(name) != nil { // a directory's name may have an @
		return place, 0, ""
	}
	return place[:at], 0, name
}

// placeOf returns the tier that a place of a run is on, and the name of the run
// there: s3://BUCKET/PREFIX, or its directory on a shared tier. At the end
// there may be @ and the index of a checkpoint, or the name of a pinned one.
func placeOf(place string) (t policy.Tier, name string, index uint64, pin string, err error) {
	place, index, pin = splitCheckpoint(place)
	if strings.HasPrefix(place, "s3://") {
		if err := policy.CheckURL(place); err != nil {
			return t, "", 0, "", err
		}
		t = policy.Defaults(policy.S3)
		t.Place = place
		return t, "", index, pin, nil
	}
	abs, err := filepath.Abs(place)
	if err != nil {
		return t, "", 0, "", err
	}
	if _, err := os.Stat(filepath.Join(abs, rundir.RecordName)); err == nil {
		return t, "", 0, "", fmt.Errorf("%s is a run directory, and no place on a tier: 'cairn run --from %s' makes a run of its own of it", place, place)
	}
	t = policy.Defaults(policy.Shared)
	t.Place = filepath.Dir(abs)
	return t, filepath.Base(abs), index, pin, nil
}

// foundRun is a run on a tier.
type foundRun struct {
	tier     string
	record   *control.AttemptRecord
	manifest *tier.Manifest // the newest that counts, or the chosen one; nil: there is none
	end      *tier.Manifest // … says that the run has finished; nil: it has not
	quiet    bool           // no rank of it runs any more
}

// findRun looks for the run on its tiers, if the run directory is new.
func (s *Supervisor) findRun() error {
	lost := s.intent.Lost
	if s.policy == nil && lost != nil {
		return notAgain(lost, "this command names no tiers")
	}
	if s.policy == nil {
		return nil
	}
	if !s.intent.New || s.o.Fresh || s.o.From == "" && len(s.rec.Replaces)+len(s.rec.Clear) > 0 {
		if s.o.From != "" {
			s.intent.Note = strings.TrimPrefix(s.intent.Note+"; the run directory has a run, which is resumed: --from is for a new one", "; ")
		}
		return nil
	}
	s.rec.Name = cmp.Or(s.from.name, local.Name(s.o.Run))
	if s.from.copied != "" {
		if err := nothingToResume(s.from.copied); err != nil {
			return err
		}
		if _, err := CopyRun(context.Background(), s.from.copied, filepath.Join(s.o.Run, s.from.name), "", ""); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), readTimeLimit)
	defer cancel()
	var best *foundRun
	for _, t := range s.policy.Outer() {
		f, err := s.findOn(ctx, t)
		if err == nil && f == nil && t.Kind == policy.Shared && s.o.From == "" {
			err = isMounted(t.Parent())
		}
		if err != nil {
			return fmt.Errorf("%s cannot be read, and may have this run: %w; nothing is started: bring it back, or begin a new run with --fresh", t.Name(), err)
		}
		if f != nil && (best == nil || f.record.Number > best.record.Number || f.record.Number == best.record.Number && best.end == nil && (best.manifest == nil || f.end != nil)) {
			best = f
		}
	}
	switch {
	case best == nil && s.o.From != "":
		return fmt.Errorf("there is no run at %s", s.o.From)
	case best == nil && lost != nil:
		return notAgain(lost, "this command does not find it there")
	case best == nil:
		return nil
	case lost != nil && lost.ID != best.record.Run:
		return notAgain(lost, fmt.Sprintf("another run is on %s", best.tier))
	}
	return s.adopt(best)
}

// nothingToResume returns an error if a run directory is that of a run that has
// finished and removed its checkpoints.
func nothingToResume(run string) error {
	rec, err := rundir.ReadRecord(run) // there is none if it ends in @12
	if err != nil || rec == nil || rec.State != rundir.Finished || !rec.Discard {
		return nil
	}
	text := fmt.Sprintf("%s: the run has finished with status %d, at %s, and there is nothing to resume: its output is in %s", run, rec.Status, rec.Time.Format(time.DateTime), rec.Output)
	if pol, err := policy.Parse(rec.Policy); rec.Policy != "" && err == nil {
		for _, t := range pol.Outer() {
			text += fmt.Sprintf("; with --from %s, its output and its files are put back", strings.TrimRight(t.RunDir(rec.Name), "/"))
		}
	}
	return errors.New(text + "; without --from, a new run begins")
}

// notAgain refuses to begin anything else in a directory that was to resume a
// run on a tier.
func notAgain(lost *rundir.Record, why string) error {
	same := "give the same command"
	if from := lost.Found.From; from != "" {
		same = "give --from " + from
	}
	return fmt.Errorf("this run directory was to resume the run on %s, and no start of it has counted; now %s: %s to look for the run again, name another run directory, or begin a new run with --fresh", lost.Found.Tier, why, same)
}

// findOn looks for a run on a tier. It returns nil if there is none.
func (s *Supervisor) findOn(ctx context.Context, t *policy.Tier) (*foundRun, error) {
	x, err := helper.LookAtTier(ctx, t, s.rec.Name, s.o.access())
	if errors.Is(err, fs.ErrNotExist) && t.Kind == policy.Shared {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	runs, err := tier.Runs(ctx, x)
	if err != nil {
		return nil, err
	}
	owner, _, _, err := readOwner(ctx, x)
	if err != nil && !errors.Is(err, tier.ErrDamaged) {
		return nil, err
	}
	if s.from.pin != "" {
		return findPinned(ctx, x, t, runs, s.from.pin)
	}
	var best *foundRun
	for _, id := range runs {
		a, err := readAttempt(ctx, x, id)
		if err != nil {
			return nil, err
		}
		if a != nil && s.o.From == "" && hasFinished(ctx, x, a) {
			continue // only pinned checkpoints are left of it
		}
		end := (*tier.Manifest)(nil)
		if a != nil && s.from.index == 0 {
			if end, err = readEnd(ctx, x, a); err != nil {
				return nil, err
			}
		}
		if end != nil && owner != nil && owner.Run != id {
			continue // another run has the place now
		}
		owns := func(a *control.AttemptRecord) bool { return owner != nil && a.Run == owner.Run }
		// Clocks of hosts may be wrong: the owner of the place counts first.
		if a == nil || best != nil && (owns(best.record) || !owns(a) && !a.Time.After(best.record.Time)) {
			continue
		}
		f := &foundRun{tier: t.Name(), record: a, end: end}
		list, err := tier.Checkpoints(ctx, x, id)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if a.Counts(m.Index, m.Attempt) && (s.from.index == 0 || m.Index == s.from.index) && (f.manifest == nil || m.Index > f.manifest.Index) {
				f.manifest = m
			}
		}
		if f.manifest == nil && s.from.index == 0 && (owner == nil || owner.Run == id) {
			if f.end, err = endBefore(ctx, x, a); err != nil {
				return nil, err
			}
		}
		f.quiet = isQuiet(ctx, x, a) || end != nil || hasEnd(ctx, x, a)
		best = f
	}
	return best, nil
}

// endBefore returns the end of a run that has no checkpoint; nil: it has not
// finished. A start may have been recorded while the run finished, and was
// killed before it saved anything: it is taken out of the record.
func endBefore(ctx context.Context, x tier.Tier, a *control.AttemptRecord) (*tier.Manifest, error) {
	m, err := tier.ReadEnd(ctx, x, a.Run)
	if err != nil || m == nil {
		return nil, err
	}
	i := slices.IndexFunc(a.Line, func(x control.Span) bool { return x.Attempt == m.Attempt })
	if i < 0 {
		return nil, nil
	}
	a.Line = a.Line[:i+1]
	return m, nil
}

// adopt gives the run directory the run that was found on a tier.
func (s *Supervisor) adopt(f *foundRun) error {
	a := f.record
	by := fmt.Sprintf("the run on %s, whose start %d was on %s at %s", f.tier, a.Number, a.Host, a.Time.Format(time.DateTime))
	switch {
	case a.Ranks != s.n:
		return fmt.Errorf("%s has %s, not %d: give -n %d", by, control.Count(a.Ranks, "rank"), s.n, a.Ranks)
	case f.end != nil:
		return s.foundEnd(f)
	case f.manifest == nil && s.from.index > 0:
		return fmt.Errorf("%s has no checkpoint %d there", by, s.from.index)
	case f.manifest == nil && s.from.pin != "":
		return fmt.Errorf("%s went back to an older checkpoint than the one that is pinned as %s: copy that one first ('cairn copy')", by, s.from.pin)
	case f.manifest == nil:
		return fmt.Errorf("%s has no checkpoint there, and its hosts may have some: give the command in the run's own directory, or begin a new run with --fresh", by)
	}
	a.End = nil // it is resumed
	if s.from.pin != "" {
		s.from.index = f.manifest.Index
	}
	if index := s.from.index; index > 0 {
		// Newer ones do not count any more.
		line := slices.DeleteFunc(slices.Clone(a.Line), func(x control.Span) bool { return x.Above >= index })
		a.Line = append(line, control.Span{Attempt: store.NewID(), Above: index})
	}
	at, _ := time.Parse(time.RFC3339, f.manifest.Time)
	s.rec.ID, s.rec.Started, s.rec.Quiet, s.rec.Attempt = a.Run, a, f.quiet, 1
	s.rec.Last = &control.CheckpointState{Index: f.manifest.Index, Time: at}
	s.found(f)
	s.intent.Note = strings.TrimPrefix(s.intent.Note+"; "+s.isNew()+"; "+by+", is resumed", "; ")
	return nil
}

// found records that the run was found on a tier. Until this start counts
// there, another one may have the run.
func (s *Supervisor) found(f *foundRun) {
	s.intent.New = false
	if s.from.copied == "" {
		s.rec.Found = &rundir.FoundRun{Tier: f.tier, From: s.o.From}
	}
}

// isNew says why the run was looked for on tiers.
func (s *Supervisor) isNew() string {
	if s.intent.Lost != nil {
		return "no start of this run directory has counted yet"
	}
	return "this run directory is new"
}

// findOnHosts is for a new run directory in place of one that was lost. If
// hosts could not join because their directories have files of a run, it gives
// the run directory that run; again says that the hosts have to join again. It
// refuses if that cannot be the run of this command.
func (s *Supervisor) findOnHosts() (again bool, err error) {
	if s.local == nil || s.rec.Started != nil {
		return false, nil
	}
	var a *control.AttemptRecord
	other, err := "", error(nil)
	for _, h := range s.hosts {
		if h.other == "" || h.state == hostUp {
			continue
		}
		if other != "" && other != h.other {
			return false, fmt.Errorf("the run directory is new, and hosts have the files of several runs (%s and %s): give --hosts with the hosts of one of them, or begin a new run with --fresh", other, h.other)
		}
		if other, err = h.other, h.err; h.found != nil && h.found.Check() == nil && h.found.Newer(a) {
			a = h.found
		}
	}
	if other == "" {
		return false, nil
	}
	if a == nil { // they keep something for hosts that have the record
		return false, err
	}
	by := fmt.Sprintf("the run on the hosts, whose start %d was on %s at %s", a.Number, a.Host, a.Time.Format(time.DateTime))
	if a.Ranks != s.n {
		return false, fmt.Errorf("the run directory is new, and %s, has %s, not %d: give -n %d, or begin a new run with --fresh", by, control.Count(a.Ranks, "rank"), s.n, a.Ranks)
	}
	// Blank hosts have joined as those of a new run.
	s.rec.Replaces = append(s.rec.Replaces, s.rec.ID)
	s.rec.ID, s.rec.Started, s.rec.Quiet, s.rec.Attempt = a.Run, a, false, max(1, s.rec.Attempt)
	s.intent.New = false
	s.save()
	if a.End != nil {
		s.say("this run directory is new, and hosts have the run")
	} else {
		s.say("this run directory is new; %s, is resumed", by)
	}
	for _, h := range s.hosts {
		if h.state == hostUp {
			h.hangUp()
		}
	}
	return true, nil
}

// The object RUN/attempts/00000007.quiet says that no rank of start 7 runs any
// more: the run was stopped. Another supervisor need not wait then.

func quietName(run string, number uint64) string {
	return strings.TrimSuffix(attemptName(run, number), ".json") + ".quiet"
}

func isQuiet(ctx context.Context, t tier.Tier, a *control.AttemptRecord) bool {
	_, err := t.Stat(ctx, quietName(a.Run, a.Number))
	return err == nil
}

// tellQuiet creates that object.
func tellQuiet(ctx context.Context, t tier.Tier, a *control.AttemptRecord) error {
	err := t.Create(ctx, quietName(a.Run, a.Number), []byte("{}\n"))
	if errors.Is(err, tier.ErrExists) {
		return nil
	}
	return err
}

// quietTime is how long the end of a run waits until tiers know of it.
const quietTime = 10 * time.Second

// tellQuiet tells tiers that no rank runs any more. If that fails, another
// supervisor waits for their end.
func (s *Supervisor) tellQuiet() {
	a, left := s.rec.Started, 0
	for _, t := range s.outer() {
		left++
		s.do(t, func(ctx context.Context, x tier.Tier) error {
			return tellQuiet(ctx, x, a)
		}, func(error) { left-- })
	}
	s.until(context.Background(), func() bool { return left == 0 }, time.After(quietTime))
}
