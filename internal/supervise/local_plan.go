//go:build linux

package supervise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// A run with a directory per host: which checkpoint all ranks restore, and which
// files have to be brought to which host before. This file decides, and does
// nothing.
//
// The newest AttemptRecord says which checkpoints count, and where each rank's
// home is. A checkpoint can be restored if every rank's file of it is on some
// host. The journal and the output of a rank are at its home only, and without
// them a restart would be wrong: if a home is not there any more, the run
// refuses.

// hostDir is the directory of a host, as its helper has found it.
type hostDir struct {
	host string // the name of a host that has it
	*control.HostFiles
	addresses []string // of its helper
}

// localPlan decides what a start restores.
type localPlan struct {
	ranks   int
	record  *control.AttemptRecord // nil: the run was never started
	dirs    map[string]*hostDir    // by ID
	last    uint64                 // the newest checkpoint that was committed, as far as the supervisor knows
	avoid   []uint64               // in quarantine
	damaged map[copyOf]string      // copies that cannot be loaded, and why
	down    map[string]error       // hosts that cannot be reached
}

// copyOf is a rank's file of a checkpoint in a directory.
type copyOf struct {
	dir   string // ID
	rank  int
	index uint64
}

// localChoice is what a start restores.
type localChoice struct {
	index   uint64 // 0: the run begins anew
	attempt string // that saved it
	skipped string // why no newer one is taken, although it was complete; "": there is none
}

// refusal says why a run cannot be resumed. If it is temporary, another attempt
// may succeed.
type refusal struct {
	why       string
	temporary bool
}

func (r *refusal) Error() string { return r.why }

// newLocalPlan puts together what hosts have.
func newLocalPlan(ranks int, record *control.AttemptRecord, dirs []*hostDir) *localPlan {
	p := &localPlan{ranks: ranks, record: record, dirs: make(map[string]*hostDir), damaged: make(map[copyOf]string), down: make(map[string]error)}
	for _, d := range dirs {
		if p.dirs[d.ID] == nil {
			p.dirs[d.ID] = d
		}
		if d.Attempt != nil && (p.record == nil || d.Attempt.Number > p.record.Number) {
			p.record = d.Attempt
		}
	}
	return p
}

// sources returns the directories that have a rank's file of a checkpoint, the
// home first.
func (p *localPlan) sources(rank int, index uint64) (out []*hostDir) {
	if p.record == nil {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(p.dirs)) {
		d := p.dirs[id]
		for _, part := range d.Parts {
			if part.Rank == rank && part.Index == index && part.Error == "" && p.record.Counts(index, part.Attempt) && p.damaged[copyOf{id, rank, index}] == "" {
				out = append(out, d)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b *hostDir) int { return boolInt(p.isHome(b, rank)) - boolInt(p.isHome(a, rank)) })
	return out
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (p *localPlan) isHome(d *hostDir, rank int) bool { return p.record.Homes[rank].Dir == d.ID }

// indices returns the checkpoints that any host has, the newest first.
func (p *localPlan) indices() []uint64 {
	seen := make(map[uint64]bool)
	for _, d := range p.dirs {
		for _, part := range d.Parts {
			seen[part.Index] = true
		}
	}
	out := slices.Sorted(maps.Keys(seen))
	slices.Reverse(out)
	return out
}

// above returns the highest index that was ever used, as far as anybody knows.
func (p *localPlan) above() uint64 {
	top := p.committed()
	if list := p.indices(); len(list) > 0 {
		top = max(top, list[0])
	}
	if p.record != nil {
		for _, s := range p.record.Line {
			top = max(top, s.Above)
		}
	}
	return top
}

// committed returns the newest checkpoint that was complete at some time.
func (p *localPlan) committed() uint64 {
	top := p.last
	for _, d := range p.dirs {
		for _, l := range d.Lines {
			top = max(top, l.Index)
		}
	}
	return top
}

// complete returns the checkpoints that all ranks' files are there of, the
// newest first.
func (p *localPlan) complete() (out []rundir.Checkpoint) {
	for _, index := range p.indices() {
		c, whole := rundir.Checkpoint{Index: index}, true
		for r := 0; r < p.ranks && whole; r++ {
			list := p.sources(r, index)
			if whole = len(list) > 0; whole {
				if at := list[0].part(r, index).Time; at.After(c.Time) {
					c.Time = at
				}
			}
		}
		if whole {
			out = append(out, c)
		}
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
	return control.Part{Time: time.Time{}}
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

// choose decides what all ranks restore. It refuses if there was a checkpoint
// and none can be had, or if a rank's home is gone or is an older copy.
func (p *localPlan) choose() (*localChoice, error) {
	committed := p.committed()
	if p.record == nil {
		if committed > 0 || len(p.indices()) > 0 {
			return nil, &refusal{why: "hosts have checkpoints of this run, but no record of a start; discard the run with --fresh"}
		}
		return new(localChoice), nil
	}
	if p.record.Ranks != p.ranks {
		return nil, &refusal{why: fmt.Sprintf("the run was started with %d ranks, and not with %d", p.record.Ranks, p.ranks)}
	}
	if committed > 0 || slices.ContainsFunc(p.indices(), p.anyCounts) {
		if err := p.checkHomes(committed); err != nil {
			return nil, err
		}
	}
	for _, c := range p.complete() {
		if slices.Contains(p.avoid, c.Index) {
			continue
		}
		out := &localChoice{index: c.Index, attempt: p.sources(0, c.Index)[0].part(0, c.Index).Attempt}
		if c.Index < committed && !slices.Contains(p.avoid, committed) {
			out.skipped = p.missing(committed)
		}
		return out, nil
	}
	if committed > 0 {
		return nil, &refusal{why: fmt.Sprintf("%s; and no older checkpoint is complete: bring back what is missing, or discard the run with --fresh", p.missing(committed))}
	}
	return new(localChoice), nil
}

// anyCounts reports whether any rank has a file of a checkpoint that counts.
func (p *localPlan) anyCounts(index uint64) bool {
	for r := range p.ranks {
		if len(p.sources(r, index)) > 0 {
			return true
		}
	}
	return false
}

// checkHomes refuses if a rank's home is gone, or is an older copy of what it
// was.
func (p *localPlan) checkHomes(committed uint64) error {
	var out []string
	temporary := true
	for _, g := range p.byHome() {
		ranks, at := control.RanksText(g.ranks), p.record.Homes[g.ranks[0]]
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
		for _, r := range g.ranks {
			if d.line(r) < committed && d.part(r, committed).Index == 0 && len(p.sources(r, committed)) == 0 {
				out, temporary = append(out, fmt.Sprintf("%s on %s is an older copy: checkpoint %d was complete, and it knows nothing of it", d.Dir, d.host, committed)), false
				break
			}
		}
	}
	if len(out) == 0 {
		return nil
	}
	return &refusal{fmt.Sprintf("%s; nothing is started: bring that back, or discard the run with --fresh", strings.Join(out, "; ")), temporary}
}

// homeGroup are the ranks with one home.
type homeGroup struct{ ranks []int }

// byHome returns the homes with their ranks.
func (p *localPlan) byHome() (out []homeGroup) {
	at := make(map[string]int)
	for r, h := range p.record.Homes {
		i, ok := at[h.Dir]
		if !ok {
			i = len(out)
			at[h.Dir], out = i, append(out, homeGroup{})
		}
		out[i].ranks = append(out[i].ranks, r)
	}
	return out
}

// missing says why a checkpoint that was complete cannot be restored.
func (p *localPlan) missing(index uint64) string {
	var out []string
	for r := range p.ranks {
		if len(p.sources(r, index)) > 0 {
			continue
		}
		home := p.record.Homes[r]
		why := fmt.Sprintf("rank %d's file is not on %s", r, home.Host)
		for _, id := range slices.Sorted(maps.Keys(p.dirs)) {
			d := p.dirs[id]
			part := d.part(r, index)
			bad := cmp.Or(p.damaged[copyOf{id, r, index}], part.Error)
			if part.Index == index && bad == "" {
				bad = "it was saved by a start that does not count any more"
			}
			if bad != "" {
				why = fmt.Sprintf("rank %d's file on %s cannot be loaded: %s", r, d.host, bad)
			}
		}
		if out = append(out, why); len(out) == 4 {
			out = append(out, "…")
			break
		}
	}
	return fmt.Sprintf("checkpoint %d was complete, and is not any more: %s", index, strings.Join(out, "; "))
}

// fetches returns what each host must get before ranks start, by the ID of its
// directory. at are the directories in which ranks will run. If anything is
// brought, all other files of the checkpoint are verified, too: an older one
// would have to be brought as well.
func (p *localPlan) fetches(c *localChoice, at []string) map[string][]control.FetchItem {
	out := make(map[string][]control.FetchItem)
	moves := false
	for r := range p.ranks {
		home := p.record
		if home == nil || home.Homes[r].Dir == at[r] && (c.index == 0 || p.has(at[r], r, c.index)) {
			continue
		}
		moves = true
		item := control.FetchItem{Rank: r}
		if c.index > 0 && !p.has(at[r], r, c.index) {
			from := p.sources(r, c.index)[0]
			item.Index, item.Attempt, item.Host, item.Addresses = c.index, c.attempt, from.host, from.addresses
			out[at[r]] = append(out[at[r]], item)
		}
		if d := p.dirs[home.Homes[r].Dir]; d != nil && d.ID != at[r] && c.index > 0 {
			out[at[r]] = append(out[at[r]], control.FetchItem{Rank: r, Own: true, Host: d.host, Addresses: d.addresses})
		}
	}
	if !moves || c.index == 0 {
		return out
	}
	for r := range p.ranks {
		if p.has(at[r], r, c.index) {
			out[at[r]] = append(out[at[r]], control.FetchItem{Rank: r, Index: c.index, Attempt: c.attempt, Host: p.dirs[at[r]].host})
		}
	}
	return out
}

// has reports whether a directory has a good file of a rank.
func (p *localPlan) has(dir string, rank int, index uint64) bool {
	return slices.ContainsFunc(p.sources(rank, index), func(d *hostDir) bool { return d.ID == dir })
}

// placeAtHome distributes ranks over hosts with slots: to their homes as far as
// there is room, and the others by block. dirs are the hosts' directories.
func (p *localPlan) placeAtHome(slots []int, dirs []string) [][]int {
	out := make([][]int, len(slots))
	var homeless []int
	for r := range p.ranks {
		i := -1
		if p.record != nil && r < len(p.record.Homes) {
			i = slices.IndexFunc(dirs, func(id string) bool { return id == p.record.Homes[r].Dir })
			for i >= 0 && i < len(dirs) && (len(out[i]) >= slots[i] || dirs[i] != p.record.Homes[r].Dir) {
				i++
			}
		}
		if i < 0 || i >= len(dirs) {
			homeless = append(homeless, r)
			continue
		}
		out[i] = append(out[i], r)
	}
	for i := range out {
		for len(out[i]) < slots[i] && len(homeless) > 0 {
			out[i], homeless = append(out[i], homeless[0]), homeless[1:]
		}
		slices.Sort(out[i])
	}
	if len(homeless) > 0 {
		return nil
	}
	return out
}
