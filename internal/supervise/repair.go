//go:build linux

package supervise

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
	"github.com/cairnrun/cairn/internal/vfs"
)

// Repair brings the checkpoints of a run back to what its policy says, from
// whatever tier has them. It reads everything first. Hosts come before the
// tiers outside of them, and each of them goes through the checkpoints, the
// newest first:
//
//	local        a home gets its file from another host's directory, from what
//	             hosts keep, or from a tier
//	partner, rs  the owner of a part gets its objects, then copies what others
//	             lack
//	shared, s3   single objects are replaced; a checkpoint whose manifest or
//	             parts are damaged is copied or uploaded again
//
// Nothing is removed that can be used, and each step leaves everything better
// than it was, so repair may be killed and repeated. It changes neither the
// record of the run nor the files of the program: a rank whose home is gone
// gets them back when the run is resumed.

// repairer repairs one run.
type repairer struct {
	v     *HostView
	rec   *rundir.Record
	pol   *policy.Policy
	outer []*outerTier
	// replace are the kinds of tiers whose content is lost for good: they begin
	// anew.
	replace []string
	out     *RepairedRun
	bad     map[copyOf]string // files in checkpoint directories that are damaged, and why
}

// RepairRun repairs a run. If it is running, only the tiers outside of the
// hosts are repaired. command starts a helper on this machine. replace are the
// kinds of tiers whose content is lost for good.
func RepairRun(ctx context.Context, run string, command, replace []string) (*RepairedRun, error) {
	rec, err := rundir.ReadRecord(run)
	switch {
	case err != nil:
		return nil, err
	case rec == nil:
		return nil, fmt.Errorf("%s: this is no run directory", run)
	case rec.Policy == "":
		return nil, fmt.Errorf("%s: the run has no tiers (cairn run --tiers), so nothing can be rebuilt from another one", run)
	case rec.Started == nil:
		return nil, fmt.Errorf("%s: the run has no checkpoints: it was not started", run)
	case rec.State == rundir.Finishing:
		return nil, fmt.Errorf("%s: the ranks have finished, and their end is not complete: give the command of the run again, which completes it", run)
	}
	r := &repairer{rec: rec, replace: replace, out: &RepairedRun{Run: rec.ID, Checkpoints: []uint64{}, Repaired: []Repair{}, Lost: []Repair{}, Notes: []string{}}, bad: make(map[copyOf]string)}
	if r.pol, err = policy.Parse(rec.Policy); err != nil {
		return nil, err
	}
	if rec.State == rundir.Finished {
		if len(r.pol.Outer()) == 0 {
			return nil, fmt.Errorf("%s: the run has finished, and only hosts keep its end, so there is nothing to repair: 'cairn verify --tier' checks what they keep", run)
		}
		return r.out, r.repairEnds(ctx, run, command)
	}
	dir, err := rundir.Open(run, rec.Cwd, vfs.AccessFromEnv())
	if errors.Is(err, rundir.ErrBusy) {
		r.out.Running = true
	} else if err != nil {
		return nil, err
	} else {
		defer dir.Close()
	}
	setup := control.LocalDir{ReadOnly: true}
	if !r.out.Running {
		a := vfs.AccessFromEnv()
		setup = control.LocalDir{Supervisor: randomName(), Secret: randomBytes(32), Group: a.Group, AnyOwner: a.AnyOwner, Policy: rec.Policy, Name: rec.Name, Env: storeEnv(r.pol)}
	}
	r.v = viewHosts(ctx, run, rec, command, setup)
	defer r.v.Close()
	for _, h := range r.v.Hosts {
		if h.Err != nil {
			r.notef("host %s cannot be repaired, nor used for it: %v", h.Name, h.Err)
		}
	}
	return r.out, r.repair(ctx)
}

func (r *repairer) repair(ctx context.Context) error {
	if err := r.openOuter(ctx); err != nil {
		return err
	}
	if r.out.Running {
		r.notef("the run is running, so what hosts have is not repaired: stop it for that ('cairn stop')")
	} else if err := r.verifyHosts(ctx); err != nil {
		return err
	}
	p := r.inventory()
	for _, c := range p.inventory().Checkpoints() {
		if c.Index <= p.committed() {
			r.out.Checkpoints = append(r.out.Checkpoints, c.Index)
		}
	}
	if !r.out.Running {
		hosts := r.tellPeers() // so that they can fetch from each other
		r.repairLocal(ctx)
		r.repairKept(ctx, hosts)
	}
	r.repairOuter(ctx)
	return ctx.Err()
}

func (r *repairer) notef(format string, args ...any) {
	r.out.Notes = append(r.out.Notes, strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "; "))
}

// did records an outcome. Without an error, it was repaired.
func (r *repairer) did(c uint64, tier, what, from string, err error) {
	x := Repair{Checkpoint: c, Tier: tier, What: what, From: from}
	if err == nil {
		r.out.Repaired = append(r.out.Repaired, x)
		return
	}
	x.From, x.Why = "", strings.ReplaceAll(err.Error(), "\n", "; ")
	r.out.Lost = append(r.out.Lost, x)
}

// verifyHosts lets all hosts read everything that they have.
func (r *repairer) verifyHosts(ctx context.Context) error {
	var mu sync.Mutex
	return r.v.eachHost(func(h *ViewedHost) error {
		defer context.AfterFunc(ctx, func() { h.conn.Close() })()
		for _, part := range h.Files.Parts {
			answer, err := ask[*control.PartVerified](h, &control.VerifyPart{Rank: part.Rank, Index: part.Index})
			if err != nil {
				return err
			}
			why := answer.Error
			if len(answer.Damage) > 0 {
				why = answer.Damage[0].Reason
			}
			if why != "" {
				mu.Lock()
				r.bad[copyOf{h.Files.ID, part.Rank, part.Index}] = why
				mu.Unlock()
			}
		}
		answer, err := ask[*control.PartVerified](h, &control.VerifyPart{Kept: true})
		if err != nil {
			return err
		}
		if answer.Error != "" {
			mu.Lock()
			r.notef("host %s could not check all that it keeps for other hosts: %s", h.Name, answer.Error)
			mu.Unlock()
		}
		return h.rescan()
	})
}

// rescan asks a host again what it has.
func (h *ViewedHost) rescan() error {
	answer, err := ask[*control.Scanned](h, new(control.Scan))
	switch {
	case err != nil:
		return err
	case answer.Error != "":
		return errors.New(answer.Error)
	}
	h.Files = answer.Files
	return nil
}

// inventory puts together what hosts and tiers have. It marks the files of
// checkpoint directories that verifyHosts has found damaged. Hosts themselves
// leave out what they keep and have found damaged.
func (r *repairer) inventory() *localInventory {
	for _, h := range r.v.Hosts {
		if h.Files == nil {
			continue
		}
		for i := range h.Files.Parts {
			part := &h.Files.Parts[i]
			part.Error = cmp.Or(part.Error, r.bad[copyOf{h.Files.ID, part.Rank, part.Index}])
		}
	}
	p := r.v.inventory()
	for _, t := range r.outer {
		p.tiers = append(p.tiers, t.stored)
	}
	if r.rec.Last != nil {
		p.last = r.rec.Last.Index
	}
	return p
}

// source is a way to get something.
type source struct {
	name string // in messages
	item control.FetchItem
}

// fetch lets a host get something, from the first source that has it.
func (r *repairer) fetch(h *ViewedHost, sources []source, lacks []error) (from string, err error) {
	errs := lacks
	for _, s := range sources {
		answer, err := ask[*control.Fetched](h, &control.Fetch{Run: r.rec.ID, Ranks: r.rec.Ranks, Items: []control.FetchItem{s.item}})
		switch {
		case err != nil:
			return "", fmt.Errorf("host %s: %w", h.Name, err)
		case len(answer.Failed) == 0:
			return s.name, h.rescan()
		}
		errs = append(errs, fmt.Errorf("%s: %s", s.name, answer.Failed[0].Error))
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("nobody has it"))
	}
	return "", errors.Join(errs...)
}

// tierSources returns the tiers outside of the hosts that have a checkpoint.
func (r *repairer) tierSources(c recovery.Checkpoint, rank int, keepOnly bool) (out []source) {
	for _, t := range r.outer {
		for _, x := range t.stored.checkpoints {
			if x.Index == c.Index && x.Attempt == c.Attempt {
				out = append(out, source{t.name, control.FetchItem{Rank: rank, Index: c.Index, Attempt: c.Attempt, Tier: string(t.Kind), Manifest: x.text, Host: t.name, KeepOnly: keepOnly}})
			}
		}
	}
	return out
}

// keptSources returns how a host gets a rank's part from what hosts keep.
// Without keepOnly, the rank's files suffice.
func (r *repairer) keptSources(p *localInventory, c recovery.Checkpoint, rank int, h *ViewedHost, keepOnly bool) (out []source, lacks []error) {
	inv := p.inventory()
	names := p.names()
	var stores []string
	for _, id := range p.ids() {
		stores = append(stores, names[id])
	}
	for _, part := range keptPartsOf(p, c, rank) {
		if !keepOnly {
			part.Objects = slices.DeleteFunc(slices.Clone(part.Objects), func(o recovery.Object) bool { return !isKeptFile(o.Name) })
		}
		fetches, missing := recovery.Sources(inv, &part, h.Name)
		if len(missing) > 0 {
			for i := range missing {
				lacks = append(lacks, errors.New(missing[i].Why))
			}
			continue
		}
		from := []string{}
		for _, f := range fetches {
			for _, s := range f.From {
				if !slices.Contains(from, stores[s.Store]) {
					from = append(from, stores[s.Store])
				}
			}
		}
		if len(from) == 0 {
			from = append(from, h.Name)
		}
		text, err := json.Marshal(&helper.KeptItem{Part: part, Fetches: fetches, Stores: stores})
		if err != nil {
			continue
		}
		out = append(out, source{"what " + strings.Join(from, ", ") + " kept", control.FetchItem{Rank: rank, Index: c.Index, Attempt: c.Attempt, Kept: text, Host: "other hosts", KeepOnly: keepOnly}})
	}
	return out, lacks
}

// keptPartsOf returns what hosts know about a rank's part of a checkpoint,
// without repetitions. Mostly all know the same.
func keptPartsOf(p *localInventory, c recovery.Checkpoint, rank int) (out []recovery.Part) {
	for _, id := range p.ids() {
		if p.kept[id] == nil {
			continue
		}
		for _, part := range p.kept[id].Parts {
			if part.Checkpoint == c && part.Rank == rank && !slices.ContainsFunc(out, func(x recovery.Part) bool { return slices.Equal(x.Objects, part.Objects) }) {
				out = append(out, part)
			}
		}
	}
	return out
}

// committedOf returns the checkpoints that count and were complete, newest
// first.
func committedOf(p *localInventory) []recovery.Checkpoint {
	return slices.DeleteFunc(p.inventory().Checkpoints(), func(c recovery.Checkpoint) bool { return c.Index > p.committed() })
}

// repairLocal restores the files of ranks in their homes. A file that is
// missing counts as lost only in the newest checkpoint: the run may have been
// removing an older one.
func (r *repairer) repairLocal(ctx context.Context) {
	p := r.inventory()
	newest := true
	for _, c := range committedOf(p) {
		onHosts := false
		for _, home := range p.record.Homes {
			onHosts = onHosts || p.dirs[home.Dir] != nil && slices.ContainsFunc(p.dirs[home.Dir].Parts, func(x control.Part) bool { return x.Index == c.Index })
		}
		if !onHosts && !newest {
			continue
		}
		for rank, home := range p.record.Homes {
			d := p.dirs[home.Dir]
			if d == nil || p.good(d, rank, c.Index) || ctx.Err() != nil {
				continue
			}
			h := r.v.hostOf(home.Dir)
			var sources []source
			for _, id := range p.ids() {
				if x := p.dirs[id]; p.good(x, rank, c.Index) {
					sources = append(sources, source{"host " + x.host, control.FetchItem{Rank: rank, Index: c.Index, Attempt: c.Attempt, Host: x.host, Addresses: x.addresses}})
				}
			}
			kept, lacks := r.keptSources(p, c, rank, h, false)
			sources = append(append(sources, kept...), r.tierSources(c, rank, false)...)
			damaged := d.part(rank, c.Index)
			if damaged.Index == 0 && !newest && len(sources) == 0 {
				continue
			}
			from, err := r.fetch(h, sources, lacks)
			what := fmt.Sprintf("rank %d's file on host %s, which was missing", rank, h.Name)
			if damaged.Index > 0 {
				what = fmt.Sprintf("rank %d's file on host %s, which was damaged (%s)", rank, h.Name, damaged.Error)
			}
			if err == nil {
				delete(r.bad, copyOf{home.Dir, rank, c.Index})
			}
			r.did(c.Index, string(policy.Local), what, from, err)
			p = r.inventory()
		}
		newest = false
	}
	for _, list := range p.byHome() {
		if home := p.record.Homes[list[0]]; p.dirs[home.Dir] == nil {
			r.notef("the directory of %s on host %s is gone; 'cairn run' puts their files back when it resumes the run", control.RanksText(list), home.Host)
		}
	}
}

// owner returns the host that copies a rank's part to others: its home, or the
// host that had it, or any.
func (r *repairer) owner(p *localInventory, rank int) *ViewedHost {
	home := p.record.Homes[rank]
	var best *ViewedHost
	for _, h := range r.v.Hosts {
		switch {
		case h.Files == nil || len(h.ready.Peer) == 0:
		case h.Files.ID == home.Dir:
			return h
		case best == nil || h.Name == home.Host:
			best = h
		}
	}
	return best
}

// tellPeers tells helpers who the others are, and who holds for whom.
func (r *repairer) tellPeers() (hosts int) {
	m := &control.Peers{}
	var list []placement.Host
	var domains *placement.Domains
	if r.pol.Domains != "" {
		var err error
		if domains, err = placement.ReadDomains(r.pol.Domains); err != nil {
			r.notef("%v", err)
		}
	}
	for _, h := range r.v.Hosts {
		if h.Files != nil && len(h.ready.Peer) > 0 {
			m.Hosts = append(m.Hosts, control.PeerHost{Name: h.Name, Addresses: h.ready.Peer})
			list = append(list, placement.Host{Name: h.Name, Domain: domains.Of(h.Name)})
		}
	}
	holders := make(map[string]map[string][]string)
	for _, h := range list {
		holders[h.Name] = make(map[string][]string)
	}
	for _, t := range r.pol.OnOthers() {
		for _, g := range placement.Groups(nil, list, groupSize(t)) {
			for host, names := range placement.Holders(g, groupSize(t)) {
				holders[host][string(t.Kind)] = names
			}
		}
	}
	for _, h := range r.v.Hosts {
		if holders[h.Name] != nil {
			h.conn.Send(&control.Peers{Hosts: m.Hosts, Holders: holders[h.Name]})
		}
	}
	return len(list)
}

// repairKept restores what hosts keep for partner and rs. hosts is how many
// hosts can keep something.
func (r *repairer) repairKept(ctx context.Context, hosts int) {
	tiers := r.pol.OnOthers()
	if len(tiers) == 0 {
		return
	}
	p := r.inventory()
	list := committedOf(p)
	known := func(c recovery.Checkpoint) bool {
		return slices.ContainsFunc(p.ids(), func(id string) bool {
			return p.kept[id] != nil && slices.ContainsFunc(p.kept[id].Parts, func(x recovery.Part) bool { return x.Checkpoint == c })
		})
	}
	if len(list) > 0 && !slices.ContainsFunc(list, known) { // all is lost: they get the newest again
		list = list[:1]
	} else {
		list = slices.DeleteFunc(list, func(c recovery.Checkpoint) bool { return !known(c) })
	}
	for i, c := range list {
		for _, h := range r.v.Hosts {
			if h.Files != nil && ctx.Err() == nil {
				r.repairOwned(ctx, c, h, tiers, hosts, i == 0)
			}
		}
	}
}

// repairOwned restores, on all hosts, what they keep of the parts that host h
// copies to the others.
func (r *repairer) repairOwned(ctx context.Context, c recovery.Checkpoint, h *ViewedHost, tiers []*policy.Tier, hosts int, newest bool) {
	p := r.inventory()
	var short []*policy.Tier
	var ranks []int
	for rank := range p.ranks {
		if r.owner(p, rank) != h {
			continue
		}
		for _, t := range tiers {
			if !p.keptWhole(c, rank, t, h, hosts) {
				if !slices.Contains(short, t) {
					short = append(short, t)
				}
				if !slices.Contains(ranks, rank) {
					ranks = append(ranks, rank)
				}
			}
		}
	}
	var have, link []int
	var from []string
	for _, rank := range ranks {
		where, linked, err := r.own(p, c, rank, h)
		switch {
		case err == nil && linked:
			link = r.ranksOf(p, h) // their packs are made together
		case err == nil:
			have = append(have, rank)
		case newest || len(keptPartsOf(p, c, rank)) > 0:
			r.did(c.Index, short[0].Name(), fmt.Sprintf("what hosts keep of rank %d", rank), "", err)
		}
		if err == nil && !slices.Contains(from, where) {
			from = append(from, where)
		}
	}
	order := control.Keep{Index: c.Index, Ranks: have, All: p.ranks, Attempt: c.Attempt}
	if len(link) > 0 {
		order.Ranks, order.Attempt = link, ""
	}
	if len(order.Ranks) == 0 {
		return
	}
	for _, t := range short {
		what := "what hosts keep of " + control.RanksText(order.Ranks)
		if hosts < 2 {
			r.did(c.Index, t.Name(), what, "", errors.New("there is no other host that can be reached"))
			continue
		}
		order.Tier = string(t.Kind)
		_, err := r.keep(ctx, h, &order)
		r.did(c.Index, t.Name(), what, strings.Join(from, ", "), err)
	}
	if err := r.v.eachHost((*ViewedHost).rescan); err != nil {
		r.notef("%v", err)
	}
}

// ranksOf returns the ranks whose home is a host's directory.
func (r *repairer) ranksOf(p *localInventory, h *ViewedHost) (out []int) {
	for rank, home := range p.record.Homes {
		if home.Dir == h.Files.ID {
			out = append(out, rank)
		}
	}
	return out
}

// own lets a host keep all objects of a rank's part. linked says that the part
// is to be made of what is in the host's checkpoint directory.
func (r *repairer) own(p *localInventory, c recovery.Checkpoint, rank int, h *ViewedHost) (from string, linked bool, err error) {
	kept, lacks := r.keptSources(p, c, rank, h, true)
	from, err = r.fetch(h, append(kept, r.tierSources(c, rank, true)...), lacks)
	if err == nil {
		return from, false, nil
	}
	mine := r.ranksOf(p, h)
	if !slices.Contains(mine, rank) || slices.ContainsFunc(mine, func(x int) bool { return !p.good(p.dirs[h.Files.ID], x, c.Index) }) {
		return "", false, err
	}
	return "the checkpoint directory of host " + h.Name, true, nil
}

// keptWhole reports whether other hosts keep enough of a rank's part, and its
// owner all of it.
func (p *localInventory) keptWhole(c recovery.Checkpoint, rank int, t *policy.Tier, owner *ViewedHost, hosts int) bool {
	return slices.ContainsFunc(keptPartsOf(p, c, rank), func(part recovery.Part) bool {
		copies := 0
		shards := make(map[string]map[int]bool)
		for _, id := range p.ids() {
			k := p.kept[id]
			if k == nil {
				k = new(recovery.Store)
			}
			knows := slices.ContainsFunc(k.Parts, func(x recovery.Part) bool {
				return x.Checkpoint == c && x.Rank == rank && slices.Equal(x.Objects, part.Objects)
			})
			all := knows
			for _, o := range part.Objects {
				all = all && slices.Contains(k.Copies, o.Name)
				if shards[o.Name] == nil {
					shards[o.Name] = make(map[int]bool)
				}
				for _, s := range k.Shards {
					if knows && s.Object == o.Name && s.Number > 0 && s.Data == t.Data && s.Parity == t.Parity {
						shards[o.Name][s.Number] = true
					}
				}
			}
			if id == owner.Files.ID {
				if !all {
					return false
				}
			} else if all {
				copies++
			}
		}
		if t.Kind == policy.Partner {
			return copies >= min(t.Copies, max(hosts-1, 1))
		}
		for _, numbers := range shards {
			if len(numbers) < t.Data+t.Parity-1 {
				return false
			}
		}
		return true
	})
}

// keep gives an order to a helper, and waits until it is done.
func (r *repairer) keep(ctx context.Context, h *ViewedHost, m *control.Keep) (*control.Stored, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.said = nil
	if err := h.conn.Send(m); err != nil {
		return nil, fmt.Errorf("host %s: %w", h.Name, err)
	}
	ctx, end := context.WithTimeout(ctx, uploadTime)
	defer end()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, x := range r.v.Hosts { // it may wait for another host
		if x.Files != nil {
			go func() {
				select {
				case <-x.ended:
					cancel(fmt.Errorf("the helper of host %s has ended; repeat the command", x.Name))
				case <-ctx.Done():
				}
			}()
		}
	}
	defer context.AfterFunc(ctx, func() { h.conn.Close() })()
	for {
		got, err := h.conn.Recv()
		if err != nil {
			return nil, fmt.Errorf("host %s: %w", h.Name, cmp.Or(context.Cause(ctx), err))
		}
		s, ok := got.(*control.Stored)
		switch {
		case !ok || s.Tier != m.Tier || s.Index != 0 && s.Index != m.Index:
		case s.Error != "":
			return nil, fmt.Errorf("host %s: %s", h.Name, s.Error)
		case s.Index == m.Index:
			return s, nil
		}
	}
}
