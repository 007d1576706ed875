//go:build linux

package supervise

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// A run with a directory per host: what hosts have, as package recovery wants
// to know it, and what follows from its plans. This file does nothing to hosts.
//
// The newest AttemptRecord says which checkpoints count, and where each rank's
// home is. A rank's part of a checkpoint has two objects: its file, with the
// bases, and its own files: the journal and the output. The latter are the same
// object in all checkpoints, and only the home has it. Without it a restart
// would be wrong: if a home is not there any more, the run refuses, unless a
// tier outside of the hosts has a checkpoint with the rank's own files.

// hostDir is the directory of a host, as its helper has found it.
type hostDir struct {
	host string // the name of a host that has it
	*control.HostFiles
	addresses []string // of its helper
}

// localInventory is what hosts have, and what is known about the run.
type localInventory struct {
	ranks   int
	record  *control.AttemptRecord // nil: the run was never started
	dirs    map[string]*hostDir    // by ID
	last    uint64                 // the newest checkpoint that was committed, as far as the supervisor knows
	tiers   []*tierStore           // outside of the hosts, if they were read
	avoid   []uint64               // in quarantine
	damaged map[copyOf]string      // copies that cannot be loaded, and why
	down    map[string]error       // hosts that cannot be reached

	kept   map[string]*recovery.Store // what directories keep for the tiers on hosts, by ID
	ends   map[string]*recovery.Store // … of the end of a run that has finished
	rotten map[keptCopy]string        // what of that cannot be used, and why
}

// copyOf is a rank's file of a checkpoint in a directory, or on a tier.
type copyOf struct {
	dir   string // ID; of a tier: its name
	rank  int
	index uint64
}

// refusal says why a run cannot be resumed. If it is temporary, another attempt
// may succeed.
type refusal struct {
	why       string
	temporary bool
}

func (r *refusal) Error() string { return r.why }

// newLocalInventory puts together what hosts have.
func newLocalInventory(ranks int, record *control.AttemptRecord, dirs []*hostDir) *localInventory {
	p := &localInventory{ranks: ranks, record: record, dirs: make(map[string]*hostDir), damaged: make(map[copyOf]string), down: make(map[string]error), kept: make(map[string]*recovery.Store), ends: make(map[string]*recovery.Store)}
	for _, d := range dirs {
		if p.dirs[d.ID] == nil {
			p.dirs[d.ID] = d
		}
		if k := decodeKept(d); k != nil { // one of the helpers that have the directory knows it
			p.kept[d.ID] = k
			p.splitEnd(d.ID)
		}
		if d.Attempt != nil && d.Attempt.Newer(p.record) {
			p.record = d.Attempt
		}
	}
	return p
}

// splitEnd separates what a directory keeps of the end of the run from what it
// keeps of checkpoints.
func (p *localInventory) splitEnd(id string) {
	isEnd := func(x recovery.Part) bool { return x.Index == tier.EndIndex }
	if all := p.kept[id]; slices.ContainsFunc(all.Parts, isEnd) {
		end := *all
		end.Parts = slices.DeleteFunc(slices.Clone(all.Parts), func(x recovery.Part) bool { return !isEnd(x) })
		for i := range end.Parts {
			end.Parts[i].Absent = nil // these files stay where they are
		}
		all.Parts = slices.DeleteFunc(all.Parts, isEnd)
		p.ends[id] = &end
	}
}

// ids returns the IDs of the directories, in the order of the stores.
func (p *localInventory) ids() []string { return slices.Sorted(maps.Keys(p.dirs)) }

// names returns the names of the directories for package recovery, by ID: those
// of their hosts.
func (p *localInventory) names() map[string]string {
	out, seen := make(map[string]string), make(map[string]bool)
	for _, id := range p.ids() {
		name := p.dirs[id].host
		if seen[name] {
			name = fmt.Sprintf("%s (%s)", name, id)
		}
		out[id], seen[name] = name, true
	}
	return out
}

// ownObject names the journal and the output of a rank.
func ownObject(rank int) recovery.Object {
	return recovery.Object{Name: fmt.Sprintf("rank-%04d-own", rank)}
}

// isOwn reports whether an object is the journal and the output of a rank.
func isOwn(o recovery.Object, rank int) bool { return o.Name == ownObject(rank).Name }

// farFromHome is the size that a plan gives to the journal and the output of a
// rank: they are brought to another host only if no pack is there, because the
// files of the program stay at home.
const farFromHome = 1 << 45

// preferPacks makes plans bring a pack to a rank that does not run at home.
func preferPacks(inv *recovery.Inventory) {
	for i := range inv.Stores {
		for _, part := range inv.Stores[i].Parts {
			for k := range part.Objects {
				if isOwn(part.Objects[k], part.Rank) {
					part.Objects[k].Size = farFromHome
				}
			}
		}
	}
}

// bringsOwn returns the ranks whose journals and output a plan brings to other
// hosts, without the files of the program.
func bringsOwn(plan *recovery.Plan) (ranks []int) {
	for _, f := range plan.Fetches {
		if isOwn(f.Object, f.Rank) {
			ranks = append(ranks, f.Rank)
		}
	}
	return ranks
}

// writesAtHome reports whether a rank writes files that only its home has.
func (p *localInventory) writesAtHome(rank int) bool {
	d := p.dirs[p.record.Homes[rank].Dir]
	return d != nil && slices.ContainsFunc(d.Parts, func(x control.Part) bool { return x.Rank == rank && x.Writes })
}

// withPacks returns a plan that brings packs to those ranks of another plan
// that write files at home; nil: there is none. It may restore an older
// checkpoint: without its files, a rank cannot restore the newer one.
func (p *localInventory) withPacks(plan *recovery.Plan, want recovery.Want) *recovery.Plan {
	const why = "the files that the program writes are there, and the rank is to run on another host"
	inv := p.inventory()
	stay := false
	for _, rank := range bringsOwn(plan) {
		if !p.writesAtHome(rank) {
			continue
		}
		stay = true
		own := ownObject(rank)
		for i := range inv.Stores {
			s := &inv.Stores[i]
			if slices.Contains(s.Copies, own.Name) {
				s.Copies = slices.DeleteFunc(s.Copies, func(name string) bool { return name == own.Name })
				s.Damaged = append(s.Damaged, recovery.Damage{Object: own.Name, Why: why})
			}
		}
	}
	if !stay {
		return nil
	}
	preferPacks(inv)
	other, err := recovery.MakePlan(inv, want)
	if err != nil {
		return nil
	}
	return other
}

// fileObject names a rank's file of a checkpoint, with its bases.
func fileObject(part *control.Part) recovery.Object {
	name := fmt.Sprintf("rank-%04d-%08d", part.Rank, part.Index)
	if part.Header != "" {
		name += "-" + part.Header[:min(16, len(part.Header))]
	}
	return recovery.Object{Name: name, Size: part.Bytes}
}

// journalReaches reports whether the journal in a rank's home can go back to a
// checkpoint, as far as the record of the start shows.
func (p *localInventory) journalReaches(rank int, index uint64) bool {
	return p.record == nil || rank >= len(p.record.Homes) || index >= p.record.Homes[rank].Reach
}

// inventory returns what hosts and tiers have. A Store is a directory, or a
// tier; those of tiers come last.
func (p *localInventory) inventory() *recovery.Inventory {
	inv := &recovery.Inventory{Committed: p.committed(), Titles: make(map[string]string)}
	names := p.names()
	if p.record != nil {
		for _, s := range p.record.Line {
			inv.Line = append(inv.Line, recovery.Span(s))
		}
		for _, s := range slices.Backward(p.record.Line) {
			for r, home := range p.record.Homes {
				inv.Homes = append(inv.Homes, recovery.Home{Attempt: s.Attempt, Rank: r, Hosts: []string{cmp.Or(names[home.Dir], home.Host)}})
			}
		}
	}
	for _, id := range p.ids() {
		d := p.dirs[id]
		s := recovery.Store{Name: names[id]}
		for i := range d.Parts {
			part := &d.Parts[i]
			file, own := fileObject(part), ownObject(part.Rank)
			if !p.journalReaches(part.Rank, part.Index) {
				own.Name += "-before" // nobody has it
			}
			inv.Titles[file.Name], inv.Titles[own.Name] = "file", "journal and output"
			if bad := cmp.Or(p.damaged[copyOf{id, part.Rank, part.Index}], part.Error); bad != "" {
				s.Damaged = append(s.Damaged, recovery.Damage{Object: file.Name, Why: bad})
			} else {
				s.Copies = append(s.Copies, file.Name)
			}
			s.Parts = append(s.Parts, recovery.Part{Checkpoint: recovery.Checkpoint{Index: part.Index, Attempt: cmp.Or(part.Attempt, p.counting(part.Index))},
				Rank: part.Rank, Ranks: p.ranks, Time: part.Time.UnixNano(), Objects: []recovery.Object{file, own}})
		}
		if p.record != nil {
			for r, home := range p.record.Homes {
				if home.Dir == id && !p.olderCopy(d, r, inv.Committed) {
					s.Copies = append(s.Copies, ownObject(r).Name)
				}
			}
		}
		p.addKept(id, &s)
		inv.Stores = append(inv.Stores, s)
	}
	if n := len(inv.Stores); n > 0 {
		inv.Stores[n-1].Parts = append(inv.Stores[n-1].Parts, p.keptParts(inv)...)
	}
	for _, t := range p.tiers {
		inv.Stores = append(inv.Stores, t.store(p, inv))
	}
	return inv
}

// counting returns the attempt whose checkpoint of an index counts.
func (p *localInventory) counting(index uint64) (attempt string) {
	if p.record != nil {
		for _, s := range p.record.Line {
			if index > s.Above {
				attempt = s.Attempt
			}
		}
	}
	return attempt
}

// good reports whether a directory has a rank's file of a checkpoint that
// counts and is not known to be damaged.
func (p *localInventory) good(d *hostDir, rank int, index uint64) bool {
	part := d.part(rank, index)
	return p.record != nil && part.Index == index && part.Error == "" && p.record.Counts(index, part.Attempt) && p.damaged[copyOf{d.ID, rank, index}] == ""
}

// committed returns the newest checkpoint that was complete at some time.
func (p *localInventory) committed() uint64 {
	top := p.last
	for _, d := range p.dirs {
		for _, l := range d.Lines {
			top = max(top, l.Index)
		}
	}
	return top
}

// complete returns the checkpoints that can be restored, the newest first.
func (p *localInventory) complete() (out []rundir.Checkpoint) {
	if p.record == nil {
		return nil
	}
	inv := p.inventory()
	for _, c := range inv.Checkpoints() {
		plan, err := recovery.MakePlan(inv, recovery.Want{Hosts: make([]string, p.ranks), Only: c.Index})
		if err != nil || plan == nil {
			continue
		}
		at := int64(0)
		for i := range plan.Parts {
			at = max(at, plan.Parts[i].Time)
		}
		out = append(out, rundir.Checkpoint{Index: c.Index, Time: time.Unix(0, at)})
	}
	return out
}

// part returns a rank's part of a checkpoint.
func (d *hostDir) part(rank int, index uint64) control.Part {
	for _, part := range d.Parts {
		if part.Rank == rank && part.Index == index {
			return part
		}
	}
	return control.Part{}
}

// line returns the recovery line that a rank has recorded there.
func (d *hostDir) line(rank int) uint64 {
	for _, l := range d.Lines {
		if l.Rank == rank {
			return l.Index
		}
	}
	return 0
}

// plan decides what the ranks restore, and how the files get to the directories
// in which they will run. It returns nil if the run begins anew. It refuses if
// there was a checkpoint and none can be restored, or if a rank's home is gone
// or is an older copy.
func (p *localInventory) plan(at []string) (*recovery.Plan, error) {
	inv := p.inventory()
	committed := inv.Committed
	if p.record == nil {
		if inv.Highest() > 0 {
			return nil, &refusal{why: "hosts have checkpoints of this run, but no record of a start; discard the run with --fresh"}
		}
		return nil, nil
	}
	if p.record.Ranks != p.ranks {
		return nil, &refusal{why: fmt.Sprintf("the run was started with %d ranks, and not with %d", p.record.Ranks, p.ranks)}
	}
	var homes error
	if committed > 0 || len(inv.Checkpoints()) > 0 {
		if homes = p.checkHomes(committed); homes != nil && p.tiers == nil && len(p.kept) == 0 {
			return nil, homes
		}
	}
	names := p.names()
	want := recovery.Want{Avoid: p.avoid}
	for _, id := range at {
		want.Hosts = append(want.Hosts, names[id])
	}
	preferPacks(inv)
	plan, err := recovery.MakePlan(inv, want)
	if plan != nil {
		plan = cmp.Or(p.withPacks(plan, want), plan)
	}
	switch {
	case plan == nil && homes != nil: // and no tier has enough
		if err != nil {
			homes.(*refusal).why += "; " + err.Error()
		}
		return nil, homes
	case err != nil && !errors.Is(err, recovery.ErrNone):
		return nil, err
	case committed == 0 && plan == nil: // what is there was never complete
		return nil, nil
	case plan == nil:
		why := fmt.Sprintf("checkpoint %d was complete, and no host has a file of it", committed)
		if err != nil {
			why = err.Error()
		}
		return nil, &refusal{why: why + "; and no older checkpoint is complete: bring back what is missing, or discard the run with --fresh"}
	}
	return plan, nil
}

// skipped says why a plan does not restore the newest checkpoint that was
// complete at some time; "": it does, or that one is in quarantine.
func (p *localInventory) skipped(plan *recovery.Plan) string {
	committed := p.committed()
	if plan.Index >= committed || slices.Contains(p.avoid, committed) {
		return ""
	}
	for i := range plan.Skipped {
		if m := &plan.Skipped[i]; m.Index == committed {
			return m.String()
		}
	}
	return fmt.Sprintf("checkpoint %d was complete, and no host has a file of it", committed)
}

// checkHomes refuses if a rank's home is gone, or is an older copy of what it
// was.
func (p *localInventory) checkHomes(committed uint64) error {
	var out []string
	temporary := true
	for _, list := range p.byHome() {
		ranks, at := control.RanksText(list), p.record.Homes[list[0]]
		d := p.dirs[at.Dir]
		switch {
		case d == nil && p.down[at.Host] != nil:
			out = append(out, fmt.Sprintf("the files of %s are on %s: %v", ranks, at.Host, p.down[at.Host]))
			continue
		case d == nil:
			what := fmt.Sprintf("no host has the directory that %s had on %s", ranks, at.Host)
			for _, x := range p.dirs {
				if x.host == at.Host {
					is := "is another one"
					if x.Attempt == nil && len(x.Parts) == 0 {
						is = "is blank"
					}
					what = fmt.Sprintf("the directory %s on %s %s, and %s had files there (a new disk, or a file system that is not mounted?)", x.Dir, at.Host, is, ranks)
				}
			}
			out, temporary = append(out, what), false
			continue
		}
		if slices.ContainsFunc(list, func(r int) bool { return p.olderCopy(d, r, committed) }) {
			out, temporary = append(out, fmt.Sprintf("%s on %s is an older copy: it knows nothing of checkpoint %d, which was complete", d.Dir, d.host, committed)), false
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &refusal{fmt.Sprintf("%s; nothing is started: bring that back, or discard the run with --fresh", strings.Join(out, "; ")), temporary}
}

// olderCopy reports whether a rank's home knows nothing of the newest
// checkpoint that was complete.
func (p *localInventory) olderCopy(d *hostDir, rank int, committed uint64) bool {
	if d.line(rank) >= committed || d.part(rank, committed).Index > 0 {
		return false
	}
	for _, x := range p.dirs {
		if p.good(x, rank, committed) {
			return false
		}
	}
	return true
}

// byHome returns the ranks of each home.
func (p *localInventory) byHome() (out [][]int) {
	at := make(map[string]int)
	for r, h := range p.record.Homes {
		i, ok := at[h.Dir]
		if !ok {
			i = len(out)
			at[h.Dir], out = i, append(out, nil)
		}
		out[i] = append(out[i], r)
	}
	return out
}

// fetches returns what each host must get before ranks start, by the ID of its
// directory. at are the directories in which ranks will run. If anything is
// brought, the hosts verify all other files of the checkpoint, too: if one is
// damaged, the run needs another checkpoint, whose files must be brought as
// well.
func (p *localInventory) fetches(plan *recovery.Plan, at []string) map[string][]control.FetchItem {
	out := make(map[string][]control.FetchItem)
	if plan == nil {
		return out
	}
	ids, brought := p.ids(), make(map[int]bool)
	kept := p.keptFetches(plan)
	if len(kept)+len(plan.Fetches) == 0 {
		return out
	}
	for _, item := range append(kept, p.tierFetches(plan, len(ids))...) {
		if brought[item.Rank] {
			continue
		}
		brought[item.Rank] = true
		out[at[item.Rank]] = append(out[at[item.Rank]], item)
	}
	for _, f := range plan.Fetches {
		if f.From[0].Store >= len(ids) || brought[f.Rank] && !isOwn(f.Object, f.Rank) { // from a tier
			continue
		}
		from := p.dirs[ids[f.From[0].Store]]
		item := control.FetchItem{Rank: f.Rank, Host: from.host, Addresses: from.addresses}
		if isOwn(f.Object, f.Rank) {
			item.Own = true
		} else {
			item.Index, item.Attempt, brought[f.Rank] = plan.Index, plan.Attempt, true
		}
		out[at[f.Rank]] = append(out[at[f.Rank]], item)
	}
	for r, id := range at {
		if !brought[r] {
			out[id] = append(out[id], control.FetchItem{Rank: r, Index: plan.Index, Attempt: plan.Attempt, Host: p.dirs[id].host})
		}
	}
	return out
}

// place distributes ranks over hosts with slots, so that few files have to be
// brought. dirs are the hosts' directories; some may have the same one. It
// returns nil if there is no room.
func (p *localInventory) place(slots []int, dirs []string) [][]int {
	names := p.names()
	var room []recovery.Slots
	for i, id := range dirs {
		k := slices.IndexFunc(room, func(s recovery.Slots) bool { return s.Host == names[id] })
		if k < 0 {
			k, room = len(room), append(room, recovery.Slots{Host: names[id]})
		}
		room[k].Slots += slots[i]
	}
	on := recovery.Assign(p.inventory(), room, p.ranks, p.avoid)
	if on == nil {
		return nil
	}
	out := make([][]int, len(slots))
	for r, name := range on {
		for i, id := range dirs {
			if names[id] == name && len(out[i]) < slots[i] {
				out[i] = append(out[i], r)
				break
			}
		}
	}
	return out
}
