//go:build linux

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/vfs"
)

// A run that has finished has no checkpoints, but its end on each tier. Repair
// reads the ends on the tiers outside of the hosts, and mends those that are
// damaged or missing. First it replaces single objects, from a tier or a host
// that has them. Then it replaces ends whose manifest or parts cannot be read,
// by copies of whole ones.

// repairEnds repairs the end of the run on the tiers outside of the hosts.
func (r *repairer) repairEnds(ctx context.Context, run string, command []string) error {
	dir, err := rundir.Open(run, r.rec.Cwd, vfs.AccessFromEnv())
	if err != nil {
		return err
	}
	defer dir.Close()
	r.v = &HostView{run: run, rec: r.rec}
	if len(r.pol.OnOthers()) > 0 { // they may have what others lack
		r.v = viewHosts(ctx, run, r.rec, command, control.LocalDir{ReadOnly: true})
		defer r.v.Close()
		r.notef("what hosts keep of the end is not repaired")
	}
	r.v.found = r.v.inventory()
	r.out.End = true
	var whole []*outerTier
	for _, p := range r.pol.Outer() {
		t := &outerTier{Tier: p, name: p.Name(), stored: new(tierStore)}
		switch ours, err := t.openEnd(ctx, r); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, errSuperseded):
			return fmt.Errorf("%w; this run directory is not the run's any more, and nothing is repaired", err)
		case err != nil:
			r.did(0, t.name, "the end of the run", "", err)
		case !ours:
			r.notef("%s has another run now, and is not repaired", t.name)
		default:
			r.outer = append(r.outer, t)
		}
	}
	damaged := make(map[*outerTier]error)
	for _, t := range r.outer {
		if damaged[t] = r.repairEndOf(ctx, t); damaged[t] == nil {
			whole = append(whole, t)
		}
	}
	for _, t := range r.outer {
		if err := damaged[t]; err != nil && ctx.Err() == nil {
			from, cerr := copyEnd(ctx, t, whole)
			if cerr != nil {
				cerr = errors.Join(err, cerr)
			}
			r.did(0, t.name, "the end of the run", from, cerr)
		}
	}
	return ctx.Err()
}

// openEnd opens a tier, and looks for the end of the run there. ours is false
// if the place belongs to another run now.
func (t *outerTier) openEnd(ctx context.Context, r *repairer) (ours bool, err error) {
	if t.x, err = t.connect(ctx, r); err != nil {
		return false, err
	}
	owner, _, _, err := readOwner(ctx, t.x)
	if err != nil && !errors.Is(err, tier.ErrDamaged) {
		return false, err
	}
	if owner != nil && owner.Run != r.rec.ID {
		return false, nil
	}
	return true, t.repairAttempt(ctx, r)
}

// repairEndOf repairs the objects of the end on a tier. It returns an error if
// it cannot be read, or is not there.
func (r *repairer) repairEndOf(ctx context.Context, t *outerTier) error {
	m, err := tier.ReadEnd(ctx, t.x, r.rec.ID)
	switch {
	case err != nil:
		return errors.New(tier.Readable(err.Error()))
	case m == nil || m.Attempt != lastAttempt(r.rec.Started):
		return errors.New("it is not there")
	}
	t.stored.checkpoints = []tierCheckpoint{{Manifest: m}}
	p := r.v.inventory()
	lost := false
	err = tier.Repair(ctx, t.x, m, tier.RepairOptions{Seen: make(map[string]error),
		Get: func(ctx context.Context, w *tier.Wanted) (*os.File, string, error) { return r.content(ctx, p, t, w) },
		Done: func(w *tier.Wanted, from string, err error) {
			if err != nil {
				lost, err = true, errors.Join(w.Err, err)
			}
			r.did(0, t.name, fmt.Sprintf("of the end of the run, %s (%s)", w, w.Name), from, err)
		}})
	if err != nil {
		t.stored.checkpoints = nil
		return errors.New(tier.Readable(err.Error()))
	}
	if lost { // that has been said
		t.stored.checkpoints = nil
	}
	return nil
}

// copyEnd copies the end to a tier from one that has it.
func copyEnd(ctx context.Context, t *outerTier, whole []*outerTier) (from string, err error) {
	errs := []error{}
	for _, other := range whole {
		if len(other.stored.checkpoints) == 0 {
			continue
		}
		if err := tier.CopyCheckpoint(ctx, other.x, t.x, other.stored.checkpoints[0].Manifest); err == nil {
			return other.name, nil
		} else {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("no other tier outside of the hosts has all of it"))
	}
	return "", errors.Join(errs...)
}
