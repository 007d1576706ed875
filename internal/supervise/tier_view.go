//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// What commands see of a run's tiers.

// Tiers returns the checkpoints of the run that count, on all its tiers, the
// newest first, and the tiers that cannot be read. It returns nothing if the
// run has no tiers but its hosts' disks.
func (v *HostView) Tiers(ctx context.Context) (out []TieredCheckpoint, errs []error) {
	if v.rec.Policy == "" {
		return nil, nil
	}
	pol, err := policy.Parse(v.rec.Policy)
	if err != nil {
		return nil, []error{err}
	}
	p := v.found
	p.tiers, errs = v.readTiers(ctx, pol)
	inv := p.inventory()
	for _, part := range p.keptParts(inv) { // a part is lost if all hosts that know of it are lost
		for i, id := range p.ids() {
			if k := p.kept[id]; k != nil && slices.ContainsFunc(k.Parts, func(x recovery.Part) bool { return x.Checkpoint == part.Checkpoint && x.Rank == part.Rank }) {
				inv.Stores[i].Parts = append(inv.Stores[i].Parts, part)
			}
		}
	}
	if pol.Domains != "" {
		domains, err := placement.ReadDomains(pol.Domains)
		if err != nil {
			errs = append(errs, err)
		}
		for i := range inv.Stores {
			if s := &inv.Stores[i]; s.Kind == recovery.OnHost {
				s.Domain = domains.Of(s.Name)
			}
		}
	}
	for _, c := range inv.Checkpoints() {
		s := recovery.Survives(inv, c, p.ranks)
		x := TieredCheckpoint{Index: c.Index, Tiers: []string{}, Complete: s.Complete, Survives: s.String()}
		for i := range inv.Stores {
			for _, part := range inv.Stores[i].Parts {
				if at := time.Unix(0, part.Time); part.Checkpoint == c && at.After(x.Time) {
					x.Time = at
				}
			}
		}
		for i := range pol.Tiers {
			if t := &pol.Tiers[i]; p.onTier(inv, c, t) {
				x.Tiers = append(x.Tiers, t.Name())
			}
		}
		out = append(out, x)
	}
	return out, errs
}

// readTiers reads what tiers outside of the hosts have, at the same time.
func (v *HostView) readTiers(ctx context.Context, pol *policy.Policy) (out []*tierStore, errs []error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeLimit)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, t := range pol.Outer() {
		wg.Go(func() {
			st := &tierStore{name: t.Name(), kind: t.Kind}
			var a *control.AttemptRecord
			x, err := lookAt(ctx, t, v.rec)
			if err == nil {
				a, err = readStore(ctx, x, v.rec.ID, st)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("%s cannot be read: %w", t.Name(), err))
				return
			}
			out = append(out, st)
			if a != nil && (v.found.record == nil || a.Number > v.found.record.Number) {
				v.found.record = a
			}
		})
	}
	wg.Wait()
	return out, errs
}

// lookAt opens a tier of a run for reading.
func lookAt(ctx context.Context, t *policy.Tier, rec *rundir.Record) (tier.Tier, error) {
	if slices.Contains(rec.UsedTiers, t.Name()) {
		return helper.OpenMarked(ctx, t, rec.Name, vfs.AccessFromEnv())
	}
	return helper.LookAtTier(ctx, t, rec.Name, vfs.AccessFromEnv())
}

// onTier reports whether a tier has all of a checkpoint.
func (p *localInventory) onTier(inv *recovery.Inventory, c recovery.Checkpoint, t *policy.Tier) bool {
	switch t.Kind {
	case policy.Local:
		for r := range p.ranks {
			if !slices.ContainsFunc(p.ids(), func(id string) bool {
				return p.good(p.dirs[id], r, c.Index) && p.dirs[id].part(r, c.Index).Attempt == c.Attempt
			}) {
				return false
			}
		}
		return p.ranks > 0
	case policy.Partner, policy.RS:
		for r := range p.ranks {
			if !p.rankKept(inv, c, r, t) {
				return false
			}
		}
		return p.ranks > 0
	}
	for _, s := range p.tiers {
		for _, x := range s.checkpoints {
			if s.name == t.Name() && x.Index == c.Index && x.Attempt == c.Attempt {
				return len(x.parts) == p.ranks && !slices.ContainsFunc(x.parts, func(part local.RankPart) bool { return part.Err != nil })
			}
		}
	}
	return false
}

// rankKept reports whether hosts keep a rank's part: copies besides that at its
// home, or enough shards.
func (p *localInventory) rankKept(inv *recovery.Inventory, c recovery.Checkpoint, rank int, t *policy.Tier) bool {
	ids := p.ids()
	for _, id := range ids {
		if p.kept[id] == nil {
			continue
		}
		for _, part := range p.kept[id].Parts {
			if part.Checkpoint != c || part.Rank != rank {
				continue
			}
			whole := true
			for _, o := range part.Objects {
				copies, shards := 0, make(map[int]bool)
				for i, id := range ids {
					s := &inv.Stores[i]
					if slices.Contains(s.Copies, o.Name) && (p.record == nil || rank >= len(p.record.Homes) || p.record.Homes[rank].Dir != id) {
						copies++
					}
					for _, sh := range s.Shards {
						if sh.Object == o.Name && sh.Data == t.Data && sh.Parity == t.Parity {
							shards[sh.Number] = true
						}
					}
				}
				whole = whole && (t.Kind == policy.Partner && copies >= 1 || t.Kind == policy.RS && len(shards) >= t.Data)
			}
			if whole {
				return true
			}
		}
	}
	return false
}

// VerifyTier reads all that a tier has of the run, and compares it with its
// digests. kind is partner, rs, shared or s3. Hosts check what they keep for
// partner and rs together.
func (v *HostView) VerifyTier(ctx context.Context, kind string) (*VerifiedTier, error) {
	pol, err := policy.Parse(v.rec.Policy)
	if v.rec.Policy == "" || err != nil {
		return nil, errors.Join(errors.New("the run has no tiers (cairn run --tiers)"), err)
	}
	t := pol.Of(policy.Kind(kind))
	if t == nil {
		return nil, fmt.Errorf("the run has no tier %s: its policy is %s", kind, v.rec.Policy)
	}
	out := &VerifiedTier{Tier: t.Name(), Damage: []TierDamage{}}
	if t.Kind.OnHosts() {
		return out, v.verifyKept(out)
	}
	x, err := lookAt(ctx, t, v.rec)
	if err != nil {
		return nil, err
	}
	list, err := tier.Manifests(ctx, x, v.rec.ID)
	if err != nil {
		return nil, err
	}
	seen := make(map[string]error)
	for _, m := range list {
		if m.Err != nil {
			out.Damage = append(out.Damage, TierDamage{tier.Title(m.At), "its manifest", tier.Readable(m.Err.Error())})
			continue
		}
		if m.Abandoned {
			continue
		}
		if err := out.verify(ctx, x, m.Manifest, seen); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// verifyKept lets each host check what it keeps.
func (v *HostView) verifyKept(out *VerifiedTier) error {
	var mu sync.Mutex
	return v.eachHost(func(h *ViewedHost) error {
		answer, err := ask[*control.PartVerified](h, &control.VerifyPart{Kept: true})
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		out.Checked += answer.Checked
		for _, d := range answer.Damage {
			out.Damage = append(out.Damage, TierDamage{h.Name, d.Block, d.Reason})
		}
		if answer.Error != "" {
			return errors.New(answer.Error)
		}
		return nil
	})
}

// CollectTier removes all checkpoints of a run but the newest from a tier
// outside of the hosts, and what no checkpoint needs. The run may be running.
func CollectTier(ctx context.Context, run, kind string, keep int, dry bool) (*CollectedTier, error) {
	rec, err := rundir.ReadRecord(run)
	if err == nil && (rec == nil || rec.Policy == "") {
		err = fmt.Errorf("%s: the run has no tiers (cairn run --tiers)", run)
	}
	if err != nil {
		return nil, err
	}
	pol, err := policy.Parse(rec.Policy)
	if err != nil {
		return nil, err
	}
	t := pol.Of(policy.Kind(kind))
	switch {
	case t == nil:
		return nil, fmt.Errorf("the run has no tier %s: its policy is %s", kind, rec.Policy)
	case t.Kind.OnHosts():
		return nil, fmt.Errorf("the run itself removes what hosts keep for %s: start it with keep=N", kind)
	}
	x, err := helper.OpenMarked(ctx, t, rec.Name, vfs.AccessFromEnv())
	if err != nil {
		return nil, err
	}
	line, err := readAttempt(ctx, x, rec.ID)
	if err != nil {
		return nil, err
	}
	if line == nil || rec.Started != nil && rec.Started.Number > line.Number {
		line = rec.Started
	}
	list, err := tier.Checkpoints(ctx, x, rec.ID)
	if err != nil {
		return nil, err
	}
	pins, err := tier.Pins(ctx, x, rec.ID)
	if err != nil {
		return nil, err
	}
	out := &CollectedTier{Tier: t.Name(), DryRun: dry, Kept: []uint64{}, Pinned: []uint64{}, Removed: []uint64{}}
	for _, m := range list {
		switch {
		case line != nil && line.Counts(m.Index, m.Attempt) && len(out.Kept) < keep:
			out.Kept = append(out.Kept, m.Index)
		case slices.ContainsFunc(pins, func(p tier.Pin) bool { return p.Index == m.Index }):
			out.Pinned = append(out.Pinned, m.Index)
		default:
			out.Removed = append(out.Removed, m.Index)
		}
	}
	if len(out.Kept) == 0 {
		out.Removed = []uint64{}
		return out, nil
	}
	if !dry {
		err = collectTier(ctx, x, line, keep)
	}
	return out, err
}
