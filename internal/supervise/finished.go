//go:build linux

package supervise

import (
	"context"

	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/policy"
)

// Finished returns how the run of a run directory has finished, and which tiers
// keep its end; nil: it has not finished, or there is no run.
func Finished(ctx context.Context, run string) *FinishedRun {
	rec, err := rundir.ReadRecord(run)
	if err != nil || rec == nil || rec.State != rundir.Finished {
		return nil
	}
	out := &FinishedRun{Run: rec.ID, Status: rec.Status, Time: rec.Time, Tiers: []FinishedTier{}}
	pol, err := policy.Parse(rec.Policy)
	if rec.Policy == "" || err != nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeLimit)
	defer cancel()
	onHosts := rec.Started != nil && rec.Started.End != nil
	for i := range pol.Tiers {
		t := &pol.Tiers[i]
		switch {
		case t.Kind == policy.Local:
		case t.Kind.OnHosts():
			out.Tiers = append(out.Tiers, FinishedTier{Tier: t.Name(), End: onHosts})
		default:
			x, err := lookAt(ctx, t, rec)
			var m *tier.Manifest
			if err == nil {
				m, err = tier.ReadEnd(ctx, x, rec.ID)
			}
			on := FinishedTier{Tier: t.Name(), End: m != nil}
			if err != nil {
				on.Error = err.Error()
			}
			out.Tiers = append(out.Tiers, on)
		}
	}
	return out
}

// Emptied reports whether the run has finished and has removed its checkpoints.
func (v *HostView) Emptied() bool { return v.rec.State == rundir.Finished && v.rec.Discard }
