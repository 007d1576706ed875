//go:build linux

package supervise

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Pinned checkpoints on tiers outside of the hosts. They stay when the run has
// newer ones, and when it has finished. Commands pin, the run may be running.

// finishedName is the name of the object that says that the run has finished in
// a start: only its pinned checkpoints are left. Without --from, nobody resumes
// it.
func finishedName(run string, number uint64) string {
	return strings.TrimSuffix(attemptName(run, number), ".json") + ".finished"
}

func hasFinished(ctx context.Context, t tier.Tier, a *control.AttemptRecord) bool {
	_, err := t.Stat(ctx, finishedName(a.Run, a.Number))
	return err == nil
}

// hasEnd reports whether a tier says that a run has finished.
func hasEnd(ctx context.Context, t tier.Tier, a *control.AttemptRecord) bool {
	m, err := readEnd(ctx, t, a)
	return err == nil && m != nil
}

// endOnTier removes a run that was replaced from a tier, but for its pinned
// checkpoints, which it returns.
func endOnTier(ctx context.Context, t tier.Tier, run string) ([]tier.Pin, error) {
	pins, err := tier.Pins(ctx, t, run)
	if err != nil {
		return nil, err
	}
	if len(pins) > 0 {
		a, err := readAttempt(ctx, t, run)
		if err == nil && a != nil {
			err = t.Create(ctx, finishedName(run, a.Number), []byte("{}\n"))
		}
		if err != nil {
			return nil, err
		}
	}
	return tier.RemoveRun(ctx, t, run)
}

// findPinned looks for a pinned checkpoint on a tier, of any run there. It
// returns nil if there is none of that name.
func findPinned(ctx context.Context, x tier.Tier, t *policy.Tier, runs []string, name string) (best *foundRun, err error) {
	for _, id := range runs {
		pins, err := tier.Pins(ctx, x, id)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(pins, func(p tier.Pin) bool { return p.Name == name })
		if i < 0 {
			continue
		}
		a, err := readAttempt(ctx, x, id)
		if err != nil {
			return nil, err
		}
		if a == nil || best != nil && !a.Time.After(best.record.Time) {
			continue
		}
		best = &foundRun{tier: t.Name(), record: a, quiet: isQuiet(ctx, x, a) || hasFinished(ctx, x, a) || hasEnd(ctx, x, a)}
		list, err := tier.Checkpoints(ctx, x, id)
		if err != nil {
			return nil, err
		}
		for _, m := range list {
			if m.Index == pins[i].Index && a.Counts(m.Index, m.Attempt) {
				best.manifest = m
			}
		}
	}
	return best, nil
}

// OutputOf returns the output directory of the run that a checkpoint directory
// belongs to; "": it belongs to none.
func OutputOf(checkpoints string) (string, error) {
	rec, err := rundir.ReadRecord(filepath.Dir(checkpoints))
	if err != nil || rec == nil || rundir.RealPath(rec.CheckpointDir) != rundir.RealPath(checkpoints) {
		return "", err
	}
	return rec.Output, nil
}

// OpenOutput opens a rank's standard output on its home.
func (v *HostView) OpenOutput(rank int) (vfs.File, error) {
	name := fmt.Sprintf("output/rank-%04d.out", rank)
	h := v.home(rank)
	if h == nil {
		return nil, fmt.Errorf("the home of rank %d does not answer", rank)
	}
	size, err := h.size(name)
	if err != nil {
		return nil, err
	}
	return h.file(name, size), nil
}

// eachTier does something with each tier of the run outside of the hosts, and
// returns the errors of those that fail.
func (v *HostView) eachTier(ctx context.Context, do func(t *policy.Tier, x tier.Tier) error) []error {
	if v.rec.Policy == "" {
		return nil
	}
	pol, err := policy.Parse(v.rec.Policy)
	if err != nil {
		return []error{err}
	}
	var errs []error
	for _, t := range pol.Outer() {
		x, err := lookAt(ctx, t, v.rec)
		if err == nil {
			err = do(t, x)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", t.Name(), err))
		}
	}
	return errs
}

func pinnedOn(t *policy.Tier, rec *rundir.Record, p *tier.Pin) PinnedOn {
	return PinnedOn{p.Name, p.Index, t.Name(), strings.TrimRight(t.RunDir(rec.Name), "/") + "@" + p.Name}
}

// Pin pins a checkpoint on all tiers outside of the hosts that have it. The
// errors are those of tiers that fail.
func (v *HostView) Pin(ctx context.Context, index uint64, name string) (out []PinnedOn, errs []error) {
	errs = v.eachTier(ctx, func(t *policy.Tier, x tier.Tier) error {
		line, err := readAttempt(ctx, x, v.rec.ID)
		if err != nil {
			return err
		}
		runs, err := tier.Runs(ctx, x)
		if err != nil {
			return err
		}
		list, err := tier.Checkpoints(ctx, x, v.rec.ID)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(list, func(m *tier.Manifest) bool {
			return m.Index == index && line != nil && line.Counts(m.Index, m.Attempt)
		})
		if i < 0 {
			return nil
		}
		for _, id := range runs { // of earlier runs at this place
			pins, err := tier.Pins(ctx, x, id)
			if err != nil {
				return err
			}
			if id != v.rec.ID && slices.ContainsFunc(pins, func(p tier.Pin) bool { return p.Name == name }) {
				return fmt.Errorf("%s: of an earlier run at this place: %w", name, tier.ErrPinned)
			}
		}
		p, err := tier.AddPin(ctx, x, list[i], name)
		if errors.Is(err, tier.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err == nil {
			out = append(out, pinnedOn(t, v.rec, p))
		}
		return err
	})
	return out, errs
}

// Pins returns what is pinned on tiers outside of the hosts, of this run and of
// earlier ones at the same place.
func (v *HostView) Pins(ctx context.Context) (out []PinnedOn, errs []error) {
	errs = v.eachPin(ctx, func(t *policy.Tier, x tier.Tier, p tier.Pin) error {
		out = append(out, pinnedOn(t, v.rec, &p))
		return nil
	})
	slices.SortStableFunc(out, func(a, b PinnedOn) int { return cmp.Compare(a.Name, b.Name) })
	return out, errs
}

// Unpin removes pins of a name from tiers outside of the hosts. What is left of
// runs that have finished is removed.
func (v *HostView) Unpin(ctx context.Context, name string) (out []PinnedOn, errs []error) {
	errs = v.eachPin(ctx, func(t *policy.Tier, x tier.Tier, p tier.Pin) error {
		if p.Name != name {
			return nil
		}
		err := tier.RemovePin(ctx, x, p)
		if err != nil {
			return err
		}
		out = append(out, pinnedOn(t, v.rec, &p))
		a, err := readAttempt(ctx, x, p.Run)
		switch {
		case err != nil || a == nil:
		case hasFinished(ctx, x, a):
			_, err = tier.RemoveRun(ctx, x, p.Run)
		case hasEnd(ctx, x, a):
			_, err = tier.RemoveRest(ctx, x, p.Run)
		}
		return err
	})
	return out, errs
}

func (v *HostView) eachPin(ctx context.Context, do func(t *policy.Tier, x tier.Tier, p tier.Pin) error) []error {
	return v.eachTier(ctx, func(t *policy.Tier, x tier.Tier) error {
		runs, err := tier.Runs(ctx, x)
		if err != nil {
			return err
		}
		for _, id := range runs {
			pins, err := tier.Pins(ctx, x, id)
			if err != nil {
				return err
			}
			for _, p := range pins {
				if err := do(t, x, p); err != nil {
					return err
				}
			}
		}
		return nil
	})
}
