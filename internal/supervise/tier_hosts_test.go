//go:build linux

package supervise

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/tier/recovery"
)

// keeps makes a directory keep both ranks' parts of checkpoint 2, with copies
// of their objects. absent are files that rank 1's pack does not have.
func keeps(t *testing.T, d *hostDir, absent []string) {
	t.Helper()
	s := recovery.Store{}
	for rank := range 2 {
		part := recovery.Part{Checkpoint: recovery.Checkpoint{Index: 2, Attempt: "y"}, Rank: rank, Ranks: 2}
		if rank == 1 {
			part.Absent = absent
		}
		for _, ext := range []string{"h5", "pack"} {
			o := recovery.Object{Name: fmt.Sprintf("rank-%04d-00000002-%s.%s", rank, strings.Repeat("d", 32), ext), Size: 10}
			part.Objects = append(part.Objects, o)
			s.Copies = append(s.Copies, o.Name)
		}
		s.Parts = append(s.Parts, part)
	}
	var err error
	if d.Kept, err = json.Marshal(&s); err != nil {
		t.Fatal(err)
	}
}

// TestHostView_Tiers has two hosts that keep everything for each other. Then
// one of them is lost.
func TestHostView_Tiers(t *testing.T) {
	a, b := dirNamed("a"), dirNamed("b")
	for r, d := range []*hostDir{a, b} {
		d.Parts = []control.Part{{Rank: r, Index: 2, Attempt: "y", Header: "h"}}
		d.Lines = []control.RankLine{{Rank: r, Index: 2}}
		keeps(t, d, nil)
	}
	for _, c := range []struct {
		dirs     []*hostDir
		tiers    string
		survives string
	}{
		{[]*hostDir{a, b}, "local partner=1", "any 1 of 2 hosts"},
		{[]*hostDir{a}, "", "no loss"},
	} {
		v := &HostView{rec: &rundir.Record{Policy: "local=/scratch, partner", Ranks: 2}, found: newLocalInventory(2, startedOn("a", "b"), c.dirs)}
		got, errs := v.Tiers(t.Context())
		if len(errs) > 0 || len(got) != 1 || !got[0].Complete || strings.Join(got[0].Tiers, " ") != c.tiers || got[0].Survives != c.survives {
			t.Errorf("%d hosts: %+v, %v; want %q, %q", len(c.dirs), got, errs, c.tiers, c.survives)
		}
	}
}

// TestKeptInventory_Plan has rank 0 in directory a, and rank 1 with its home in
// b. Directory a keeps a copy of rank 1's part. If the rank runs there, it gets
// its pack, because the home's journal and output have none of its files.
func TestKeptInventory_Plan(t *testing.T) {
	for _, c := range []struct {
		name    string
		absent  []string
		gone    bool // b is
		away    bool // rank 1 runs in a
		damaged bool // rank 1's file in b is
		refuses string
		fetches int // of rank 1
		ownKept bool
	}{
		{name: "home gone", gone: true, ownKept: true},
		{name: "home gone, and its pack lacks a file", absent: []string{"/gpfs/result"}, gone: true, refuses: "it does not have /gpfs/result"},
		{name: "away from home", away: true, ownKept: true},
		{name: "file at home damaged", absent: []string{"/gpfs/result"}, damaged: true, fetches: 1},
	} {
		a, b := dirNamed("a"), dirNamed("b")
		file := func(rank int) control.Part {
			return control.Part{Rank: rank, Index: 2, Attempt: "y", Header: "h"}
		}
		a.Parts, b.Parts = []control.Part{file(0)}, []control.Part{file(1)}
		a.Lines, b.Lines, b.Journals = []control.RankLine{{Rank: 0, Index: 2}}, []control.RankLine{{Rank: 1, Index: 2}}, []int{1}
		keeps(t, a, c.absent)
		keeps(t, b, c.absent)
		dirs, at := []*hostDir{a, b}, []string{"a", "b"}
		if c.gone {
			dirs = dirs[:1]
		}
		if c.gone || c.away {
			at = []string{"a", "a"}
		}
		p := newLocalInventory(2, startedOn("a", "b"), dirs)
		if c.damaged {
			p.damaged[copyOf{"b", 1, 2}] = "torn"
		}
		plan, err := p.plan(at)
		if c.refuses != "" {
			if err == nil || !strings.Contains(err.Error(), c.refuses) {
				t.Errorf("%s: %+v, %v; want %q", c.name, plan, err, c.refuses)
			}
			continue
		}
		if err != nil || plan.Index != 2 {
			t.Errorf("%s: %+v, %v", c.name, plan, err)
			continue
		}
		items := p.keptFetches(plan)
		var x helper.KeptItem
		if len(items) != 1 || items[0].Rank != 1 || items[0].Own != c.ownKept || items[0].Line != 2 || json.Unmarshal(items[0].Kept, &x) != nil || len(x.Fetches) != c.fetches {
			t.Errorf("%s: %+v, %+v", c.name, items, x)
		}
		for _, o := range x.Part.Objects {
			if isOwn(o, 1) {
				t.Errorf("%s: the helper is to place %s", c.name, o.Name)
			}
		}
	}
}

// TestKeptInventory_NewerAtHome has a checkpoint that was not copied yet, and
// rank 1 is to run on another host than its home. If the program writes files
// at home, the rank gets the older checkpoint with its pack. Otherwise it gets
// the newer one.
func TestKeptInventory_NewerAtHome(t *testing.T) {
	for _, writes := range []bool{false, true} {
		a, b := dirNamed("a"), dirNamed("b")
		for _, index := range []uint64{3, 2} {
			for rank, d := range []*hostDir{a, b} {
				d.Parts = append(d.Parts, control.Part{Rank: rank, Index: index, Attempt: "y", Header: "h", Writes: writes})
			}
		}
		a.Lines, b.Lines = []control.RankLine{{Rank: 0, Index: 3}}, []control.RankLine{{Rank: 1, Index: 3}}
		keeps(t, a, nil)
		keeps(t, b, nil)
		p := newLocalInventory(2, startedOn("a", "b"), []*hostDir{a, b})
		for at, want := range map[string]uint64{"a": 3, "b": 3} {
			if at == "a" && writes {
				want = 2
			}
			plan, err := p.plan([]string{"a", at})
			if err != nil || plan.Index != want {
				t.Errorf("writes %v, rank 1 on %s: %+v, %v; want checkpoint %d", writes, at, plan, err, want)
				continue
			}
			if why := p.skipped(plan); want == 2 && !strings.Contains(why, "rank 1's journal and output on host b cannot be loaded: the files that the program writes are there") {
				t.Errorf("it says: %s", why)
			}
			if packed := slices.ContainsFunc(p.keptFetches(plan), func(x control.FetchItem) bool { return x.Rank == 1 && x.Own }); packed != (want == 2) {
				t.Errorf("writes %v, rank 1 on %s: its pack is brought: %v", writes, at, packed)
			}
		}
	}
}
