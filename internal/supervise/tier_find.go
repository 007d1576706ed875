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
)

// A run is found on its tiers outside of the hosts if the run directory is new:
// it was lost, or the run continues in another cluster. Everything else is as
// after a loss of all hosts.

// origin is what Options.From names.
type origin struct {
	index uint64 // of the checkpoint; 0: the newest
	name  string // of the run on a shared directory
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
	x, name, index, err := placeOf(o.From)
	if err != nil {
		return optionError("--from %v", err)
	}
	s.from = origin{index, name}
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
		return optionError("--from %s is not the place of this run on the tier %s: name the same place, or leave the tier out", o.From, tierName(t))
	}
	if p.Of(policy.Local) == nil && o.Local == "" {
		if len(o.Hosts) > 0 {
			return optionError("--from needs a directory on each host: add --local DIR")
		}
		o.Local = filepath.Join(o.Run, "local")
	}
	return nil
}

// placeOf returns the tier that a place of a run is on, and the name of the run
// there: s3://BUCKET/PREFIX, or its directory on a shared tier. At the end there
// may be @ and the index of a checkpoint.
func placeOf(place string) (t policy.Tier, name string, index uint64, err error) {
	if at := strings.LastIndexByte(place, '@'); at > 0 {
		if n, err := strconv.ParseUint(place[at+1:], 10, 64); err == nil && n > 0 {
			place, index = place[:at], n
		}
	}
	if strings.HasPrefix(place, "s3://") {
		t = policy.Defaults(policy.S3)
		t.Place = place
		return t, "", index, nil
	}
	abs, err := filepath.Abs(place)
	if err != nil {
		return t, "", 0, err
	}
	if _, err := os.Stat(filepath.Join(abs, rundir.RecordName)); err == nil {
		return t, "", 0, fmt.Errorf("%s is a run directory, and no tier: 'cairn run --run' resumes its run", place)
	}
	t = policy.Defaults(policy.Shared)
	t.Place = filepath.Dir(abs)
	return t, filepath.Base(abs), index, nil
}

// foundRun is a run on a tier.
type foundRun struct {
	tier     string
	record   *control.AttemptRecord
	manifest *tier.Manifest // the newest that counts, or the chosen one; nil: there is none
	quiet    bool           // no rank of it runs any more
}

// findRun looks for the run on its tiers, if the run directory is new.
func (s *Supervisor) findRun() error {
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
	ctx, cancel := context.WithTimeout(context.Background(), readTimeLimit)
	defer cancel()
	var best *foundRun
	for i := range s.policy.Tiers {
		t := &s.policy.Tiers[i]
		if t.Kind.OnHosts() {
			continue
		}
		f, err := s.findOn(ctx, t)
		if err != nil {
			return fmt.Errorf("%s cannot be read, and may have this run: %w; nothing is started: bring it back, or begin a new run with --fresh", tierName(t), err)
		}
		if f != nil && (best == nil || f.record.Number > best.record.Number || f.record.Number == best.record.Number && best.manifest == nil) {
			best = f
		}
	}
	switch {
	case best == nil && s.o.From != "":
		return fmt.Errorf("there is no run at %s", s.o.From)
	case best == nil:
		return nil
	}
	return s.adopt(best)
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
	var best *foundRun
	for _, id := range runs {
		a, err := readAttempt(ctx, x, id)
		if err != nil {
			return nil, err
		}
		if a == nil || best != nil && !a.Time.After(best.record.Time) {
			continue
		}
		f := &foundRun{tier: tierName(t), record: a}
		list, err := tier.Checkpoints(ctx, x, id)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if a.Counts(m.Index, m.Attempt) && (s.from.index == 0 || m.Index == s.from.index) && (f.manifest == nil || m.Index > f.manifest.Index) {
				f.manifest = m
			}
		}
		f.quiet = isQuiet(ctx, x, a)
		best = f
	}
	return best, nil
}

// adopt makes a run that was found on a tier that of the run directory.
func (s *Supervisor) adopt(f *foundRun) error {
	a := f.record
	by := fmt.Sprintf("the run on %s, whose start %d was on %s at %s", f.tier, a.Number, a.Host, a.Time.Format(time.DateTime))
	switch {
	case a.Ranks != s.n:
		return fmt.Errorf("%s has %s, not %d: give -n %d", by, control.Count(a.Ranks, "rank"), s.n, a.Ranks)
	case f.manifest == nil && s.from.index > 0:
		return fmt.Errorf("%s has no checkpoint %d there", by, s.from.index)
	case f.manifest == nil:
		return fmt.Errorf("%s has no checkpoint there, and its hosts may have some: give the command in the run's own directory, or begin a new run with --fresh", by)
	}
	if index := s.from.index; index > 0 {
		// Newer ones do not count any more.
		line := slices.DeleteFunc(slices.Clone(a.Line), func(x control.Span) bool { return x.Above >= index })
		a.Line = append(line, control.Span{Attempt: store.NewID(), Above: index})
	}
	at, _ := time.Parse(time.RFC3339, f.manifest.Time)
	s.rec.ID, s.rec.Started, s.rec.Quiet, s.rec.Attempt = a.Run, a, f.quiet, 1
	s.rec.Last = &control.CheckpointState{Index: f.manifest.Index, Time: at}
	s.intent.New = false
	s.intent.Note = strings.TrimPrefix(s.intent.Note+"; this run directory is new; "+by+", is resumed", "; ")
	return nil
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

// CopyRun copies a run from one place to another: s3://BUCKET/PREFIX, or a
// directory of a run on a shared tier. With PLACE@INDEX it copies one checkpoint.
// fromKey and toKey are files with keys, if the places are encrypted. The copy is
// a run of its own, which 'cairn run --from' resumes.
func CopyRun(ctx context.Context, from, to, fromKey, toKey string) (*CopiedRun, error) {
	s := &Supervisor{o: Options{From: from}}
	src, name, index, err := placeOf(from)
	if err != nil {
		return nil, err
	}
	s.from.index = index
	src.Key, s.rec = fromKey, &rundir.Record{Name: name}
	f, err := s.findOn(ctx, &src)
	switch {
	case err != nil:
		return nil, err
	case f == nil:
		return nil, fmt.Errorf("there is no run at %s", from)
	case f.manifest == nil:
		return nil, fmt.Errorf("there is no such checkpoint at %s", from)
	}
	x, err := helper.LookAtTier(ctx, &src, name, s.o.access())
	if err != nil {
		return nil, err
	}
	list := []*tier.Manifest{f.manifest}
	if s.from.index == 0 {
		all, err := tier.Checkpoints(ctx, x, f.record.Run)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(all, func(m *tier.Manifest) bool { return !f.record.Counts(m.Index, m.Attempt) })
	}
	dst, name, _, err := placeOf(to)
	if err != nil {
		return nil, err
	}
	dst.Key = toKey
	y, err := helper.OpenTier(ctx, &dst, name, s.o.access())
	if err != nil {
		return nil, err
	}
	others, err := tier.Runs(ctx, y)
	if err != nil {
		return nil, err
	}
	if others = slices.DeleteFunc(others, func(id string) bool { return id == f.record.Run }); len(others) > 0 {
		return nil, fmt.Errorf("%s has another run already (%s): name an empty place", to, others[0])
	}
	out := &CopiedRun{Run: f.record.Run, From: from, To: to}
	for _, m := range list {
		out.Checkpoints = append(out.Checkpoints, m.Index)
	}
	out.Bytes, err = tier.CopyRun(ctx, x, y, f.record.Run, list, []string{attemptName(f.record.Run, f.record.Number)})
	if err != nil {
		return nil, err
	}
	return out, tellQuiet(ctx, y, f.record) // no rank of the copy runs
}
