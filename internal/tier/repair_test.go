package tier_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/tiertest"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// everyOperation lets something fail at each operation on a tier in each way,
// and stops it there (None: a process that was killed). After each, check looks
// at the tier, and what is done again must succeed. The short version takes
// every fifth operation.
func everyOperation(t *testing.T, base *tiertest.Mem, do func(ctx context.Context, x tier.Tier) error, check func(m *tiertest.Mem) error, same *tiertest.Mem) {
	t.Helper()
	by := 5
	if os.Getenv("CAIRN_LONG") != "" {
		by = 1
	}
	for i, fault := range append([]tiertest.Fault{tiertest.None}, tiertest.Faults...) {
		for at, end := 1+i%by, false; !end; at += by {
			ctx, cancel := context.WithCancel(t.Context())
			m, n := base.Clone(), 0
			x := tiertest.Faulty(m, func(op, name string) tiertest.Fault {
				n++
				switch {
				case n == at && fault == tiertest.Hang:
					cancel()
					return fault
				case n == at && fault != tiertest.None:
					return fault
				case n >= at && fault == tiertest.None:
					return tiertest.Refuse
				}
				return tiertest.None
			})
			err := do(ctx, x)
			cancel()
			end = n < at
			if cerr := check(m); cerr != nil {
				t.Fatalf("%v at operation %d: %v (%v)", fault, at, cerr, err)
			}
			if err := do(t.Context(), m); err != nil {
				t.Fatalf("%v at operation %d: again: %v", fault, at, err)
			}
			got := slices.DeleteFunc(m.Names(), func(name string) bool { return strings.Contains(name, "/claims/") }) // for the next collection
			if !slices.Equal(got, same.Names()) {
				t.Fatalf("%v at operation %d: after it was repeated:\n%s\nwant\n%s", fault, at, strings.Join(got, "\n"), strings.Join(same.Names(), "\n"))
			}
			if cerr := check(m); cerr != nil {
				t.Fatalf("%v at operation %d: after it was repeated: %v", fault, at, cerr)
			}
		}
	}
}

// damaged returns a copy of a tier in which the middle byte of objects is
// changed.
func damaged(m *tiertest.Mem, names ...string) *tiertest.Mem {
	out := m.Clone()
	for _, name := range names {
		out.Change(name, func(b []byte) []byte { b[len(b)/2] ^= 1; return b })
	}
	return out
}

// repairAll repairs a tier as a command does: manifests from parts, then
// objects from another tier, or all of a checkpoint from there.
func repairAll(ctx context.Context, x tier.Tier, p *tiertest.Program, from tier.Tier, want []*tier.Manifest) error {
	list, err := tier.Manifests(ctx, x, p.Run)
	if err != nil {
		return err
	}
	gone, err := tier.Interrupted(ctx, x, p.Run)
	if err != nil {
		return err
	}
	for _, index := range gone {
		list = append(list, tier.Listed{At: index, Err: tier.ErrNotExist})
	}
	for _, m := range list {
		i := slices.IndexFunc(want, func(w *tier.Manifest) bool { return w.Index == m.At })
		err := m.Err
		if err != nil {
			if m.Manifest, err = tier.RebuildManifest(ctx, x, p.Run, m.At, p.Attempt, want[i].Ranks); errors.Is(err, tier.ErrTemporary) || ctx.Err() != nil {
				return err
			}
		}
		if err == nil {
			var bad error
			err = tier.Repair(ctx, x, m.Manifest, tier.RepairOptions{Seen: make(map[string]error),
				Get: func(ctx context.Context, w *tier.Wanted) (*os.File, string, error) {
					f, err := os.CreateTemp("", "repair-")
					if err != nil {
						return nil, "", err
					}
					os.Remove(f.Name())
					return f, "there", tier.Download(ctx, from, w.Object, f)
				},
				Done: func(w *tier.Wanted, _ string, err error) { bad = errors.Join(bad, err) }})
			if bad != nil {
				return bad
			}
		}
		if errors.Is(err, tier.ErrDamaged) || errors.Is(err, tier.ErrNotExist) {
			err = tier.CopyCheckpoint(ctx, from, x, want[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestRepair_Crash damages a manifest, a part, or a file, and stops the repair
// at every operation, and lets each operation fail in every way. What was whole
// stays, a collection that comes between takes nothing that the repair can use,
// and the repair succeeds when it is repeated.
func TestRepair_Crash(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	whole := tiertest.NewMem()
	var list []*tier.Manifest
	for range 2 {
		list = append(list, p.Publish(whole, p.Save()))
	}
	newest := func(prefix string) string {
		all := tiertest.All(t, whole, p.Run+prefix)
		return all[len(all)-1]
	}
	for _, what := range []string{"/checkpoints/", "/parts/00000002", "/files/rank-0000-00000002", "/files/rank-0000-00000001"} {
		t.Run(strings.Trim(what, "/"), func(t *testing.T) {
			name := newest(what)
			from := tiertest.NewMem() // another tier
			if what != "/checkpoints/" {
				from = whole.Clone()
			}
			check := func(m *tiertest.Mem) error {
				// A collection may come at any moment. It removes nothing as
				// long as a manifest is unreadable.
				c := m.Clone()
				_, cerr := tier.Collect(t.Context(), c, p.Run, tier.CollectOptions{Keep: 2})
				if len(from.Names()) == 0 {
					for _, object := range whole.Names() {
						if _, err := c.Stat(t.Context(), object); err != nil && object != name {
							return fmt.Errorf("%s is lost (collection: %v)", object, cerr)
						}
					}
				}
				if err := repairAll(t.Context(), c, p, from, list); err != nil {
					return fmt.Errorf("after a collection (%v): %w", cerr, err)
				}
				if got := indexes(t, c, p.Run); !slices.Equal(got, []uint64{2, 1}) {
					return fmt.Errorf("checkpoints %v after a collection and a repair", got)
				}
				return complete(c, p.Run)
			}
			everyOperation(t, damaged(whole, name), func(ctx context.Context, x tier.Tier) error {
				return repairAll(ctx, x, p, from, list)
			}, check, whole)
		})
	}
}

// TestCopyRun_Crash stops a copy at every operation on the place that it is
// made at, and lets each fail in every way. Only a whole copy counts, the
// source is as it was, and the copy succeeds when it is repeated.
func TestCopyRun_Crash(t *testing.T) {
	p := tiertest.NewProgram(t, vfstest.NewMem(), "/ckpt", 2)
	from := tiertest.NewMem()
	var list []*tier.Manifest
	for range 2 {
		list = append(list, p.Publish(from, p.Save()))
	}
	names, as, want := from.Names(), store.NewID(), tiertest.NewMem()
	if _, err := tier.CopyRun(t.Context(), from, want, as, list); err != nil {
		t.Fatal(err)
	}
	everyOperation(t, tiertest.NewMem(), func(ctx context.Context, x tier.Tier) error {
		_, err := tier.CopyRun(ctx, from, x, as, list)
		return err
	}, func(m *tiertest.Mem) error {
		if !slices.Equal(from.Names(), names) {
			return errors.New("the source was changed")
		}
		return complete(m, as)
	}, want)
}
