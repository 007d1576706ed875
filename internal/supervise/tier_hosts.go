//go:build linux

package supervise

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/tier/placement"
	"github.com/cairnrun/cairn/internal/tier/policy"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// Tiers on hosts: partner and rs. Helpers copy to other hosts what their ranks
// have committed, and tell the supervisor when these have it. The supervisor
// decides who holds for whom (Peers), which checkpoint is copied (Keep), and
// which ones are kept (Retain).

// outer returns the tiers outside of the hosts.
func (s *Supervisor) outer() []*storageTier {
	return slices.DeleteFunc(slices.Clone(s.tiers), func(t *storageTier) bool { return t.Kind.OnHosts() })
}

// readDomains reads the file of the policy that says which hosts fail together.
func (s *Supervisor) readDomains() error {
	if s.policy.Domains == "" {
		return nil
	}
	var err error
	if s.domains, err = placement.ReadDomains(s.policy.Domains); err != nil {
		return optionError("--tiers: %v", err)
	}
	return nil
}

// tellPeers tells all helpers who the others are, and who holds for whom.
func (s *Supervisor) tellPeers() {
	if len(s.tiers) == len(s.outer()) {
		return
	}
	m := &control.Peers{}
	var hosts []placement.Host
	for _, h := range s.hosts {
		if h.state == hostUp && len(h.peer) > 0 {
			m.Hosts = append(m.Hosts, control.PeerHost{Name: h.title(), Addresses: h.peer})
			if slices.ContainsFunc(s.hosts, func(x *host) bool { return x.sharesDir(h) && (x.slots > 0 || s.a != nil && s.onHost(x) > 0) }) {
				hosts = append(hosts, placement.Host{Name: h.title(), Domain: s.domains.Of(h.title())})
			}
		}
	}
	holders := make(map[string]map[string][]string) // by host and tier
	for _, t := range s.tiers {
		if !t.Kind.OnHosts() {
			continue
		}
		t.alone = len(hosts) < 2
		groups := placement.Groups(t.groups, hosts, groupSize(&t.Tier))
		t.groups = placement.Names(groups)
		for _, g := range groups {
			for host, list := range placement.Holders(g, groupSize(&t.Tier)) {
				if holders[host] == nil {
					holders[host] = make(map[string][]string)
				}
				holders[host][t.kind()] = list
			}
		}
	}
	for _, h := range s.hosts {
		if h.state == hostUp && len(h.peer) > 0 {
			h.queue.Send(&control.Peers{Hosts: m.Hosts, Holders: holders[h.title()]})
		}
	}
}

// holderLost lets other hosts keep copies in place of one that is lost and ran
// no rank, so that the run continues without it.
func (s *Supervisor) holderLost(h *host) {
	if len(h.peer) == 0 || !s.keeping && (s.a == nil || !s.a.begun() || s.a.failure != nil || s.onHost(h) > 0) {
		return
	}
	s.tellPeers()
	for _, t := range s.tiers {
		if t.Kind.OnHosts() && t.alone && !t.ended {
			s.endUpload(t, t.upload)
			s.tierFails(t, fmt.Errorf("lost %w; there is no other host", h.err))
		}
	}
}

// lacksHolder reports whether a host that keeps copies for others is lost.
func (s *Supervisor) lacksHolder() bool {
	return slices.ContainsFunc(s.hosts, func(h *host) bool { return len(h.peer) > 0 && h.state != hostUp })
}

// sharesDir reports whether the helpers of two hosts have one directory, or are
// one: mpirun and srun start several on a host.
func (h *host) sharesDir(x *host) bool {
	return h == x || h.state == hostUp && h.files != nil && x.files != nil && h.files.ID == x.files.ID
}

// groupSize returns how many hosts hold for each other.
func groupSize(t *policy.Tier) int {
	if t.Kind == policy.RS {
		return t.Data + t.Parity
	}
	return t.Copies + 1
}

// beginTiers prepares tiers for an attempt: uploads of hosts that were lost are
// given up, and the checkpoint that is restored is kept.
func (s *Supervisor) beginTiers() {
	for _, t := range s.tiers {
		if u := t.upload; u != nil && slices.ContainsFunc(u.waiting, func(h *host) bool { return h.state != hostUp }) {
			s.endUpload(t, u)
		}
		t.kept = slices.DeleteFunc(t.kept, func(c control.Checkpointed) bool { return !s.rec.Started.Counts(c.Index, c.Attempt) })
		if c := s.local.restored; c.Index > 0 && !slices.Contains(t.kept, c) {
			t.kept = append(t.kept, c)
		}
	}
	s.tellPeers()
}

// retain tells helpers which checkpoints the tiers on hosts keep. One that is
// on its way is kept, too.
func (s *Supervisor) retain() {
	m := &control.Retain{Tiers: make(map[string][]control.Checkpointed)}
	for _, t := range s.tiers {
		if !t.Kind.OnHosts() {
			continue
		}
		slices.SortFunc(t.kept, func(a, b control.Checkpointed) int { return cmp.Compare(b.Index, a.Index) })
		if t.Keep != policy.KeepAll && len(t.kept) > t.Keep {
			t.kept = t.kept[:t.Keep]
		}
		list := slices.Clone(t.kept)
		if t.upload != nil {
			list = append(list, control.Checkpointed{Index: t.upload.index, Attempt: t.upload.attempt})
		}
		m.Tiers[t.kind()] = list
	}
	for _, h := range s.hosts {
		if h.state == hostUp && len(h.peer) > 0 {
			h.queue.Send(m)
		}
	}
}

// decodeKept reads what a host keeps.
func decodeKept(d *hostDir) *recovery.Store {
	if len(d.Kept) == 0 {
		return nil
	}
	s := new(recovery.Store)
	if json.Unmarshal(d.Kept, s) != nil {
		return nil
	}
	return s
}

// keptCopy is a copy, or shards, of an object in a directory.
type keptCopy struct{ dir, object string }

// keptTier stands for all that hosts keep, in copyOf.
const keptTier = "kept"

func isKeptFile(object string) bool { return strings.HasSuffix(object, ".h5") }

// addKept adds what a directory keeps to its store.
func (p *localInventory) addKept(id string, s *recovery.Store) {
	k := p.kept[id]
	if k == nil {
		return
	}
	suspect := make(map[int]string) // ranks with a damaged file here: what is kept may be links to it
	for c, why := range p.damaged {
		if c.dir == id {
			suspect[c.rank] = why
		}
	}
	usable := func(object string) bool {
		why := p.rotten[keptCopy{id, object}]
		var rank int
		if _, err := fmt.Sscanf(object, "rank-%d-", &rank); err == nil && why == "" {
			why = suspect[rank]
		}
		if why != "" {
			s.Damaged = append(s.Damaged, recovery.Damage{Object: object, Why: why})
		}
		return why == ""
	}
	for _, name := range k.Copies {
		if usable(name) {
			s.Copies = append(s.Copies, name)
		}
	}
	for _, sh := range k.Shards {
		if usable(sh.Object) {
			s.Shards = append(s.Shards, sh)
		}
	}
	s.Damaged = append(s.Damaged, k.Damaged...)
}

// keptParts returns the parts that hosts keep. They come after those of the
// checkpoint directories, which are preferred.
func (p *localInventory) keptParts(inv *recovery.Inventory) (out []recovery.Part) {
	for i, id := range p.ids() {
		if p.kept[id] == nil {
			continue
		}
		for _, part := range p.kept[id].Parts {
			if p.damaged[copyOf{keptTier, part.Rank, part.Index}] != "" {
				continue
			}
			home := part
			home.Objects = nil
			for _, o := range part.Objects {
				inv.Titles[o.Name] = "file"
				if isKeptFile(o.Name) {
					home.Objects = append(home.Objects, o)
				} else {
					inv.Titles[o.Name] = "files and output"
				}
			}
			if len(part.Absent) > 0 { // only the home has them
				absent := recovery.Object{Name: fmt.Sprintf("rank-%04d-%08d-absent", part.Rank, part.Index)}
				inv.Titles[absent.Name] = "files and output"
				inv.Stores[i].Damaged = append(inv.Stores[i].Damaged, recovery.Damage{Object: absent.Name, Why: "it does not have " + strings.Join(part.Absent, ", ")})
				part.Objects = append(slices.Clone(part.Objects), absent)
			}
			if p.homeGoesBack(part.Rank, part.Index) {
				home.Objects = append(home.Objects, ownObject(part.Rank))
				out = append(out, home)
			}
			out = append(out, part)
		}
	}
	return out
}

// keptFetches returns what ranks get from what hosts keep.
func (p *localInventory) keptFetches(plan *recovery.Plan) (out []control.FetchItem) {
	names := p.names()
	var stores []string
	for _, id := range p.ids() {
		stores = append(stores, names[id])
	}
	for r, part := range plan.Parts {
		if len(part.Objects) == 0 || !isKeptFile(part.Objects[0].Name) {
			continue
		}
		x := helper.KeptItem{Part: part, Stores: stores}
		x.Part.Objects = slices.DeleteFunc(slices.Clone(part.Objects), func(o recovery.Object) bool { return isOwn(o, r) })
		for _, f := range plan.Fetches {
			if f.Rank == r && !isOwn(f.Object, r) {
				x.Fetches = append(x.Fetches, f)
			}
		}
		text, err := json.Marshal(&x)
		if err != nil {
			continue
		}
		out = append(out, control.FetchItem{Rank: r, Index: plan.Index, Attempt: plan.Attempt, Kept: text, Line: p.committed(), Host: "other hosts",
			Own: slices.ContainsFunc(part.Objects, func(o recovery.Object) bool { return helper.IsPack(o.Name) })})
	}
	return out
}

// keptFailed records that something could not be fetched from what hosts keep.
func (l *localRun) keptFailed(f *control.FetchFailure) {
	if f.Object == "" {
		c := copyOf{keptTier, f.Rank, f.Index}
		l.damaged[c] = f.Error
		l.failed = append(l.failed, c)
		return
	}
	for id, name := range l.found.names() {
		if len(f.Hosts) == 0 || slices.Contains(f.Hosts, name) {
			l.rotten[keptCopy{id, f.Object}] = f.Error
		}
	}
}

// checkHosts refuses a new run whose hosts cannot give what the policy asks
// for. Those that a launcher uses are known later, see checkLaunched.
func (s *Supervisor) checkHosts() error {
	if s.policy == nil || s.launcher != nil || !s.intent.New {
		return nil
	}
	if err := s.policy.Check(len(s.hosts)); err != nil {
		return fmt.Errorf("%w: --tiers: %w", ErrOptions, err)
	}
	return nil
}

// checkLaunched refuses hosts that a launcher has chosen if they cannot be told
// apart, or if they are too few for a new run.
func (s *Supervisor) checkLaunched() error {
	if len(s.tiers) == len(s.outer()) {
		return nil
	}
	dirs := make(map[string]string) // by name
	for _, h := range s.hosts {
		if h.files == nil {
			continue
		}
		if other, ok := dirs[h.title()]; ok && other != h.files.ID {
			return fmt.Errorf("two hosts are called %s, or ranks there do not see the same local directory: partner and rs need hosts of different names, each with one directory", h.title())
		}
		dirs[h.title()] = h.files.ID
	}
	if !s.intent.New || s.began {
		return nil
	}
	if err := s.policy.Check(len(dirs)); err != nil {
		return fmt.Errorf("--tiers: %w", err)
	}
	return nil
}
