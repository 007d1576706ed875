//go:build linux

package supervise

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/tier"
	"github.com/cairnrun/cairn/internal/tier/local"
	"github.com/cairnrun/cairn/internal/tier/policy"
)

// tierWith is a tier that has checkpoint 2 of two ranks. Rank 1 has own files
// that the tier does not have.
func tierWith(absent ...string) *tierStore {
	return &tierStore{name: "shared=/s", kind: policy.Shared, checkpoints: []tierCheckpoint{{Manifest: &tier.Manifest{Index: 2, Attempt: "y", Ranks: 2}, text: []byte("{}"),
		parts: []local.RankPart{{Rank: 0, Header: "h0"}, {Rank: 1, Header: "h1", Absent: absent}}}}}
}

// TestTierInventory_Plan has two ranks with homes in a and b, and a tier with
// checkpoint 2.
func TestTierInventory_Plan(t *testing.T) {
	part := func(rank int, index uint64) control.Part {
		return control.Part{Rank: rank, Index: index, Attempt: "y", Header: strings.Repeat("g", int(index))}
	}
	for _, c := range []struct {
		name     string
		parts    []control.Part // in b; a has the same of rank 0
		gone     bool           // b is
		absent   []string
		journal  bool // rank 1 has one, in b
		reach    uint64
		damaged  bool // rank 1's file on the tier is
		refuses  string
		restores uint64
		items    string // of rank 1: its file, its own files, from where
	}{
		{name: "home gone", gone: true, restores: 2, items: "file+own from shared=/s"},
		{name: "home gone, and the tier has no journal", gone: true, absent: []string{"ckpt/journal"}, refuses: "does not have ckpt/journal"},
		{name: "home gone, and its copy is damaged", gone: true, damaged: true, refuses: "rank 1's file on shared=/s cannot be loaded: torn"},
		{name: "home there without a file, no journal", restores: 2, items: "file from shared=/s"},
		{name: "journal does not reach back", journal: true, absent: []string{"ckpt/journal"}, refuses: "does not have ckpt/journal"},
		{name: "journal reaches back", parts: []control.Part{{Rank: 1, Index: 1, Attempt: "x"}}, journal: true, absent: []string{"ckpt/journal"}, restores: 2, items: "file from shared=/s"},
		{name: "journal begins later", parts: []control.Part{part(1, 2)}, journal: true, absent: []string{"ckpt/journal"}, reach: 3, refuses: "it is stored nowhere"},
	} {
		record := startedOn("a", "b")
		record.Homes[1].Reach = c.reach
		a, b := dirNamed("a"), dirNamed("b")
		a.Lines, b.Lines = []control.RankLine{{Rank: 0, Index: 2}}, []control.RankLine{{Rank: 1, Index: 2}}
		if b.Parts = c.parts; c.journal {
			b.Journals = []int{1}
		}
		dirs, at := []*hostDir{a, b}, []string{"a", "b"}
		if c.gone {
			dirs, at = dirs[:1], []string{"a", "a"}
		}
		p := newLocalInventory(2, record, dirs)
		if c.damaged {
			p.damaged[copyOf{"shared=/s", 1, 2}] = "torn"
		}
		if plan, err := p.plan(at); err == nil || !p.needsTiers(plan, err) {
			t.Errorf("%s: without the tier: %+v, %v", c.name, plan, err)
		}
		p.tiers = []*tierStore{tierWith(c.absent...)}
		plan, err := p.plan(at)
		if c.refuses != "" {
			if err == nil || !strings.Contains(err.Error(), c.refuses) {
				t.Errorf("%s: %+v, %v; want %q", c.name, plan, err, c.refuses)
			}
			continue
		}
		if err != nil || plan.Index != c.restores {
			t.Errorf("%s: %+v, %v; want checkpoint %d", c.name, plan, err, c.restores)
			continue
		}
		got := ""
		for _, x := range p.fetches(plan, at)[at[1]] {
			if x.Rank == 1 && x.Tier != "" {
				if got = "file"; x.Own {
					got += "+own"
				}
				got += " from " + x.Host
			} else if x.Rank == 1 {
				got += " and " + x.Host
			}
			if x.Tier != "" && x.Own && x.Line != 2 {
				t.Errorf("%s: the recovery line is %d, want 2", c.name, x.Line)
			}
		}
		if got != c.items {
			t.Errorf("%s: rank 1 gets %q, want %q", c.name, got, c.items)
		}
	}
}
