//go:build linux

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// What tiers outside of the hosts have, as package recovery wants to know it.
// It is read only if hosts alone do not suffice. A rank's part there has the
// rank's file, and its own files as they were at that checkpoint. So the rank's
// home is not needed.

// tierStore is what a tier has.
type tierStore struct {
	name        string // of the tier in messages
	kind        policy.Kind
	checkpoints []tierCheckpoint
}

// tierCheckpoint is a checkpoint on a tier.
type tierCheckpoint struct {
	*tier.Manifest
	text  []byte // of the manifest
	parts []local.RankPart
}

// readStore reads what a tier has of a run, and the newest record of a start.
func readStore(ctx context.Context, x tier.Tier, run string, s *tierStore) (*control.AttemptRecord, error) {
	a, err := readAttempt(ctx, x, run)
	if err != nil {
		return nil, err
	}
	list, err := tier.Checkpoints(ctx, x, run)
	if err != nil && len(list) == 0 {
		return nil, err
	}
	for _, m := range list {
		c := tierCheckpoint{Manifest: m}
		if c.text, err = json.Marshal(m); err != nil {
			return nil, err
		}
		if c.parts, err = local.RankParts(ctx, x, m); err != nil {
			return nil, err
		}
		s.checkpoints = append(s.checkpoints, c)
	}
	return a, nil
}

// tierOwn names the own files of a rank as they were at a checkpoint on a tier.
func tierOwn(rank int, m *tier.Manifest) recovery.Object {
	return recovery.Object{Name: fmt.Sprintf("rank-%04d-own-%08d-%s", rank, m.Index, m.Attempt)}
}

// store returns what the tier has for an inventory.
func (t *tierStore) store(p *localInventory, inv *recovery.Inventory) recovery.Store {
	s := recovery.Store{Name: t.name, Kind: recovery.Shared}
	if t.kind == policy.S3 {
		s.Kind = recovery.S3
	}
	for _, c := range t.checkpoints {
		at, _ := time.Parse(time.RFC3339, c.Time)
		for _, x := range c.parts {
			file, own := fileObject(&control.Part{Rank: x.Rank, Index: c.Index, Header: x.Header, Bytes: x.Bytes}), tierOwn(x.Rank, c.Manifest)
			inv.Titles[file.Name], inv.Titles[own.Name] = "file", "journal and output"
			bad := p.damaged[copyOf{t.name, x.Rank, c.Index}]
			if bad == "" && x.Err != nil {
				bad = x.Err.Error()
			}
			switch {
			case bad != "":
				s.Damaged = append(s.Damaged, recovery.Damage{Object: file.Name, Why: bad}, recovery.Damage{Object: own.Name, Why: bad})
			case len(x.Absent) > 0:
				s.Damaged = append(s.Damaged, recovery.Damage{Object: own.Name, Why: "it does not have " + strings.Join(x.Absent, ", ")})
				s.Copies = append(s.Copies, file.Name)
			default:
				s.Copies = append(s.Copies, file.Name, own.Name)
			}
			part := recovery.Part{Checkpoint: recovery.Checkpoint{Index: c.Index, Attempt: c.Attempt}, Rank: x.Rank, Ranks: c.Ranks, Time: at.UnixNano(), Objects: []recovery.Object{file, own}}
			if p.homeGoesBack(x.Rank, c.Index) { // better
				home := part
				home.Objects = []recovery.Object{file, ownObject(x.Rank)}
				s.Parts = append(s.Parts, home)
			}
			s.Parts = append(s.Parts, part)
		}
	}
	return s
}

// homeGoesBack reports whether a rank's home is there, and what is in it can go
// back to a checkpoint that only a tier has: the home has a file of that
// checkpoint or of an older one, or the rank keeps no journal.
func (p *localInventory) homeGoesBack(rank int, index uint64) bool {
	if p.record == nil || rank >= len(p.record.Homes) || !p.journalReaches(rank, index) {
		return false
	}
	d := p.dirs[p.record.Homes[rank].Dir]
	return d != nil && (!slices.Contains(d.Journals, rank) ||
		slices.ContainsFunc(d.Parts, func(x control.Part) bool { return x.Rank == rank && x.Index <= index }))
}

// tierFetches returns what ranks get from tiers. hosts is the number of stores
// that are directories of hosts. A rank that gets its own files from a tier
// gets its file from there, too, if its host does not have it.
func (p *localInventory) tierFetches(plan *recovery.Plan, hosts int) (out []control.FetchItem) {
	for _, f := range plan.Fetches {
		if f.From[0].Store < hosts {
			continue
		}
		t := p.tiers[f.From[0].Store-hosts]
		i := slices.IndexFunc(t.checkpoints, func(c tierCheckpoint) bool { return c.Index == plan.Index && c.Attempt == plan.Attempt })
		if i < 0 { // the planner takes what is there
			continue
		}
		own := f.Object == tierOwn(f.Rank, t.checkpoints[i].Manifest)
		if k := slices.IndexFunc(out, func(x control.FetchItem) bool { return x.Rank == f.Rank }); k >= 0 {
			out[k].Own = out[k].Own || own
			continue
		}
		out = append(out, control.FetchItem{Rank: f.Rank, Index: plan.Index, Attempt: plan.Attempt, Own: own, Tier: string(t.kind),
			Manifest: t.checkpoints[i].text, Line: p.committed(), Host: t.name})
	}
	return out
}

// fromTier returns the ranks whose own files come from a tier, and the kind of
// that tier.
func fromTier(items map[string][]control.FetchItem) map[int]string {
	out := make(map[int]string)
	for _, list := range items {
		for _, x := range list {
			if x.Own && (x.Tier != "" || len(x.Kept) > 0) {
				out[x.Rank] = cmp.Or(x.Tier, keptTier)
			}
		}
	}
	return out
}

// needsTiers reports whether a start should look at the tiers outside of the
// hosts: a home is gone, a rank will run elsewhere, or hosts do not have the
// newest checkpoint.
func (p *localInventory) needsTiers(plan *recovery.Plan, err error) bool {
	switch {
	case p.record == nil:
		return false
	case err != nil:
		return p.record.Ranks == p.ranks
	case plan == nil:
		return len(p.missingHomes()) > 0
	}
	return len(bringsOwn(plan)) > 0 || plan.Index < p.committed() && !slices.Contains(p.avoid, p.committed())
}

// missingHomes returns the homes of ranks whose directories were not found.
func (p *localInventory) missingHomes() (out []control.Home) {
	if p.record == nil {
		return nil
	}
	for _, list := range p.byHome() {
		if home := p.record.Homes[list[0]]; p.dirs[home.Dir] == nil {
			out = append(out, home)
		}
	}
	return out
}

// readTimeLimit is how long a start waits for what a tier says.
const readTimeLimit = 2 * time.Minute

// readTiers reads what tiers have. It reports an error for each that cannot be
// read.
func (s *Supervisor) readTiers(ctx context.Context) (errs []error) {
	l := s.local
	l.stored = []*tierStore{}
	left, late := len(s.outer()), false
	var newest *control.AttemptRecord
	for _, t := range s.outer() {
		st := &tierStore{name: t.String(), kind: t.Kind}
		var a *control.AttemptRecord
		s.do(t, func(ctx context.Context, x tier.Tier) (err error) {
			ctx, cancel := context.WithTimeout(ctx, readTimeLimit)
			defer cancel()
			a, err = readStore(ctx, x, s.rec.ID, st)
			return err
		}, func(err error) {
			left--
			if late {
				return
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s cannot be read: %w", t, err))
				return
			}
			l.stored = append(l.stored, st)
			if a != nil && (newest == nil || a.Number > newest.Number) {
				newest = a
			}
		})
	}
	s.until(ctx, func() bool { return left == 0 || s.killed || s.stopping }, time.After(readTimeLimit))
	if late = true; left > 0 {
		errs = append(errs, errors.New("a tier does not answer"))
	}
	if newest != nil && (s.rec.Started == nil || newest.Number > s.rec.Started.Number) {
		s.rec.Started, s.rec.Quiet = newest, false
	}
	return errs
}

// awaitLeft waits until no rank can run any more on hosts that are left behind:
// helpers that have lost their supervisor end them, and in a container they end
// with it. It reports whether it has waited; the hosts may be back then.
func (s *Supervisor) awaitLeft(ctx context.Context, homes []control.Home) bool {
	until := time.Time{}
	var names []string
	for _, home := range homes {
		since, known := s.local.left[home.Dir]
		if !known && (s.rec.Quiet || home.Contained) {
			continue
		}
		if !known {
			since = s.local.began
		}
		end := since.Add(max(s.o.Grace, s.rec.Started.Grace) + helperEndTime)
		if time.Now().Before(end) {
			names = append(names, home.Host)
		}
		if end.After(until) {
			until = end
		}
	}
	if len(names) == 0 {
		return false
	}
	slices.Sort(names)
	s.say("ranks of the last start may still run on %s; waiting %s for their end", strings.Join(slices.Compact(names), ", "), control.TimeText(time.Until(until).Round(time.Second)))
	s.until(ctx, func() bool { return s.killed || s.stopping }, time.After(time.Until(until)))
	return true
}

// claimAttempt records this start on the tiers. If own files of ranks come from
// a tier, it waits for that, and returns an error if it fails: exactly one
// supervisor may start without the hosts that are left behind.
func (s *Supervisor) claimAttempt(ctx context.Context, own map[int]string) error {
	record := new(control.AttemptRecord)
	*record = *s.rec.Started
	var errs []error
	left := 0
	for _, t := range s.outer() {
		// The run before may have ended there. Without this run's claim, nobody
		// could tell its end from this one's.
		replaces := len(s.rec.Replaces) > 0 && !slices.Contains(s.rec.Placed, t.String())
		needs := replaces || slices.Contains(slices.Collect(maps.Values(own)), t.kind())
		if needs {
			left++
		}
		var newer *control.AttemptRecord
		claim, back := s.claimPlace(t), s.from.index > 0
		s.do(t, func(ctx context.Context, x tier.Tier) (err error) {
			var before *control.AttemptRecord
			if err = claim(ctx, x); err == nil {
				before, err = readAttempt(ctx, x, record.Run)
			}
			if err == nil || errors.Is(err, tier.ErrDamaged) {
				newer, err = createAttempt(ctx, x, record)
			}
			if err == nil && before != nil && before.Number < record.Number {
				err = heedEnd(ctx, x, before, back)
			}
			return err
		}, func(err error) {
			if needs {
				left--
			}
			if newer != nil {
				s.rec.Started = newer // the next start has a higher number
				s.save()
			}
			switch {
			case err == nil && replaces:
				s.rec.Placed = append(s.rec.Placed, t.String())
				err = s.record()
				if err != nil {
					errs = append(errs, err)
				}
			case err == nil:
			case replaces && !errors.Is(err, errSuperseded):
				errs = append(errs, fmt.Errorf("%s cannot be written, and may have the end of an earlier run: %w; bring it back, or leave it out of --tiers", t, err))
			case needs:
				errs = append(errs, err)
			case errors.Is(err, errSuperseded):
				s.superseded(t, err)
			default:
				s.tierFails(t, err)
			}
		})
	}
	s.until(ctx, func() bool { return left == 0 || s.killed || s.stopping }, nil)
	return errors.Join(errs...)
}

// errFinishedMeanwhile means that the run has finished while another start of
// it began.
var errFinishedMeanwhile = errors.New("the run has finished meanwhile")

// heedEnd returns errFinishedMeanwhile if the run has finished with the start
// before. If this start has gone back to a checkpoint, that does not count, and
// heedEnd removes the end.
func heedEnd(ctx context.Context, x tier.Tier, before *control.AttemptRecord, back bool) error {
	if back {
		return tier.RemoveEnd(ctx, x, before.Run)
	}
	end, err := readEnd(ctx, x, before)
	if err == nil && end != nil {
		err = errFinishedMeanwhile
	}
	return err
}
