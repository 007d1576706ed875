package recovery

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// runs returns how many random cases to try.
func runs(n uint64) uint64 {
	if os.Getenv("CAIRN_LONG") != "" {
		return 50 * n
	}
	return n
}

// TestMakePlan_Random compares plans with an oracle that tries everything:
// the same checkpoint, the same cost, and after the fetches every host has what
// its ranks need.
func TestMakePlan_Random(t *testing.T) {
	found, none, fresh, older, moved, rebuilt := 0, 0, 0, 0, 0, 0
	for seed := range runs(4000) {
		r := rand.New(rand.NewPCG(seed, 1))
		ranks := 1 + r.IntN(3)
		inv := randomInventory(r, ranks)
		w := Want{Hosts: make([]string, ranks)}
		for i := range w.Hosts {
			w.Hosts[i] = fmt.Sprintf("h%d", r.IntN(6)) // some are new
		}
		if r.IntN(4) == 0 {
			w.Avoid = []uint64{uint64(1 + r.IntN(3))}
		}
		if r.IntN(4) == 0 {
			w.Only = uint64(1 + r.IntN(3))
		}
		o := &oracle{inv: inv, ranks: ranks}
		best, any := uint64(0), false
		for i := range inv.Stores {
			for _, p := range inv.Stores[i].Parts {
				any = true
				wanted := w.Only == p.Index || w.Only == 0 && !slices.Contains(w.Avoid, p.Index)
				if wanted && p.Index > best && o.counts(p.Checkpoint) && o.possible(p.Checkpoint) {
					best = p.Index
				}
			}
		}
		plan, err := MakePlan(inv, w)
		switch {
		case err != nil:
			none++
			if !errors.Is(err, ErrNone) || best != 0 {
				t.Fatalf("seed %d: %v; the oracle has checkpoint %d", seed, err, best)
			}
			continue
		case plan == nil:
			fresh++
			if any || w.Only != 0 {
				t.Fatalf("seed %d: nothing, but there are parts", seed)
			}
			continue
		}
		found++
		if plan.Index != best || !o.counts(plan.Checkpoint) || !o.possible(plan.Checkpoint) {
			t.Fatalf("seed %d: checkpoint %v, the oracle has %d", seed, plan.Checkpoint, best)
		}
		if len(plan.Skipped) > 0 {
			older++
		}
		cost := int64(0)
		for _, f := range plan.Fetches {
			cost += o.checkFetch(t, seed, plan, f)
			moved++
			if f.Data > 0 {
				rebuilt++
			}
		}
		if want := o.cost(plan.Checkpoint, w.Hosts); cost != want {
			t.Fatalf("seed %d: cost %d, the cheapest is %d", seed, cost, want)
		}
		o.checkWhole(t, seed, plan, w.Hosts)
	}
	for name, n := range map[string]int{"plans": found, "refusals": none, "fresh starts": fresh, "older checkpoints": older, "fetches": moved, "rebuilds": rebuilt} {
		if n < 5 {
			t.Errorf("only %d %s: the cases are too simple", n, name)
		}
	}
	t.Logf("%d plans, %d of an older checkpoint, %d fetches, %d of them from shards; %d refused, %d fresh", found, older, moved, rebuilt, none, fresh)
}

// checkFetch checks that the sources have what they are to send, and returns
// the cost.
func (o *oracle) checkFetch(t *testing.T, seed uint64, plan *Plan, f Fetch) int64 {
	t.Helper()
	if f.Data == 0 {
		s := &o.inv.Stores[f.From[0].Store]
		if len(f.From) != 1 || f.From[0].Shard != -1 || !slices.Contains(s.Copies, f.Object.Name) {
			t.Fatalf("seed %d: %+v: there is no such copy", seed, f)
		}
		return s.Kind.cost() * f.Object.Size
	}
	cost, numbers := f.Object.Size, map[int]bool{}
	for _, from := range f.From {
		s := &o.inv.Stores[from.Store]
		if !slices.Contains(s.Shards, Shard{f.Object.Name, from.Shard, f.Data, f.Parity}) {
			t.Fatalf("seed %d: %+v: there is no such shard", seed, f)
		}
		numbers[from.Shard] = true
		if s.Name != f.To {
			cost += s.Kind.cost() * shardSize(f.Object.Size, f.Data)
		}
	}
	if len(numbers) != f.Data || len(f.From) != f.Data {
		t.Fatalf("seed %d: %+v: not enough shards", seed, f)
	}
	return cost
}

// checkWhole checks that after the fetches every host has the parts of its
// ranks.
func (o *oracle) checkWhole(t *testing.T, seed uint64, plan *Plan, hosts []string) {
	t.Helper()
	for rank, host := range hosts {
		p := plan.Parts[rank]
		if p.Rank != rank || p.Checkpoint != plan.Checkpoint || p.Ranks != len(hosts) {
			t.Fatalf("seed %d: rank %d has part %+v", seed, rank, p)
		}
		for _, x := range p.Objects {
			has := slices.ContainsFunc(o.inv.Stores, func(s Store) bool { return s.Kind == OnHost && s.Name == host && slices.Contains(s.Copies, x.Name) })
			gets := 0
			for _, f := range plan.Fetches {
				if f.To == host && f.Object == x && f.Rank == rank {
					gets++
				}
			}
			if !has && gets != 1 || has && gets != 0 {
				t.Fatalf("seed %d: host %s, %s: has it: %v, gets it %d times", seed, host, x.Name, has, gets)
			}
		}
	}
}

// TestSurvives_Random compares with an oracle that loses every combination of
// hosts and of domains.
func TestSurvives_Random(t *testing.T) {
	seen := map[string]int{}
	for seed := range runs(1500) {
		r := rand.New(rand.NewPCG(seed, 2))
		ranks := 1 + r.IntN(2)
		inv := randomInventory(r, ranks)
		alone := r.IntN(3) > 0
		for i := range inv.Stores { // one part per rank, so that the result is exact
			if alone {
				inv.Stores[i].Parts = slices.DeleteFunc(inv.Stores[i].Parts, func(p Part) bool { return strings.Contains(p.Objects[0].Name, "-1-0") })
			}
		}
		for _, c := range inv.Checkpoints() {
			got := Survives(inv, c, ranks)
			hosts := oracleSurvives(inv, c, ranks, func(s *Store) string { return s.Name })
			domains := oracleSurvives(inv, c, ranks, func(s *Store) string {
				if s.Domain == "" {
					return "host " + s.Name
				}
				return s.Domain
			})
			want := Survival{Complete: hosts >= 0}
			for i := range inv.Stores {
				if inv.Stores[i].Kind == OnHost {
					want.Of++
				}
			}
			if want.Complete {
				want.Hosts, want.Domains = hosts, domains
				want.Always = hosts == want.Of
			}
			got2 := got
			got2.Rank, got2.OfDomains = 0, 0
			several := slices.ContainsFunc(inv.Stores, func(s Store) bool {
				return slices.ContainsFunc(s.Parts, func(p Part) bool { return strings.Contains(p.Objects[0].Name, "-1-0") })
			})
			if several {
				if got.Complete != want.Complete || got.Hosts > want.Hosts || got.Domains > want.Domains {
					t.Fatalf("seed %d: got %+v, the oracle %+v", seed, got, want)
				}
			} else if got2 != want {
				t.Fatalf("seed %d, %v: got %+v, the oracle %+v", seed, c, got, want)
			}
			seen[got.String()]++
		}
	}
	if len(seen) < 10 {
		t.Errorf("only %v: the cases are too simple", seen)
	}
}

// oracleSurvives returns how many units may be lost, whichever they are; -1 if
// the checkpoint is lost already.
func oracleSurvives(inv *Inventory, c Checkpoint, ranks int, unit func(*Store) string) int {
	var units []string
	for i := range inv.Stores {
		if u := unit(&inv.Stores[i]); inv.Stores[i].Kind == OnHost && !slices.Contains(units, u) {
			units = append(units, u)
		}
	}
	for k := 0; k <= len(units); k++ {
		ok := true
		combinations(len(units), k, func(pick []int) bool {
			o := &oracle{inv: inv, ranks: ranks, lost: map[int]bool{}}
			for i := range inv.Stores {
				for _, u := range pick {
					if inv.Stores[i].Kind == OnHost && unit(&inv.Stores[i]) == units[u] {
						o.lost[i] = true
					}
				}
			}
			ok = o.possible(c)
			return ok
		})
		if !ok {
			return k - 1
		}
	}
	return len(units)
}

// cluster makes an inventory of hosts a, b, c, …, each with one rank and its
// checkpoints 1 and 2, and with copies on the next host.
func cluster(hosts int) *Inventory {
	inv := &Inventory{Committed: 2, Line: []Span{{"51e9", 0}}}
	name := func(i int) string { return string(rune('a' + i%hosts)) }
	for i := range hosts {
		inv.Stores = append(inv.Stores, Store{Name: name(i)})
	}
	for rank := range hosts {
		inv.Homes = append(inv.Homes, Home{"51e9", rank, []string{name(rank), name(rank + 1)}})
		for index := range uint64(2) {
			o := Object{fmt.Sprintf("rank-%d-%d", rank, index+1), 100}
			p := Part{Checkpoint: Checkpoint{index + 1, "51e9"}, Rank: rank, Ranks: hosts, Objects: []Object{o}}
			for _, h := range []int{rank, (rank + 1) % hosts} {
				inv.Stores[h].Parts = append(inv.Stores[h].Parts, p)
				inv.Stores[h].Copies = append(inv.Stores[h].Copies, o.Name)
			}
		}
	}
	return inv
}

func without(inv *Inventory, names ...string) *Inventory {
	out := *inv
	out.Stores = slices.DeleteFunc(slices.Clone(inv.Stores), func(s Store) bool { return slices.Contains(names, s.Name) })
	return &out
}

func planText(inv *Inventory, p *Plan) string {
	var out []string
	for _, f := range p.Fetches {
		from := []string{}
		for _, s := range f.From {
			from = append(from, inv.Stores[s.Store].Name)
		}
		out = append(out, fmt.Sprintf("%s gets %s from %s", f.To, f.Object.Name, strings.Join(from, "+")))
	}
	return fmt.Sprintf("checkpoint %d: %s", p.Index, strings.Join(out, ", "))
}

// TestMakePlan_Partner checks which host gets which object from where, when
// hosts with partners are lost.
func TestMakePlan_Partner(t *testing.T) {
	whole := cluster(4)
	for _, c := range []struct {
		lost  string
		hosts string
		want  string
	}{
		{"", "abcd", "checkpoint 2: "},
		{"b", "aecd", "checkpoint 2: e gets rank-1-2 from c"},
		{"b", "aacd", "checkpoint 2: a gets rank-1-2 from c"},
		{"b", "accd", "checkpoint 2: "},
		{"bd", "aecf", "checkpoint 2: e gets rank-1-2 from c, f gets rank-3-2 from a"},
		{"", "efgh", "checkpoint 2: e gets rank-0-2 from a, f gets rank-1-2 from b, g gets rank-2-2 from c, h gets rank-3-2 from d"},
	} {
		inv := without(whole, strings.Split(c.lost, "")...)
		p, err := MakePlan(inv, Want{Hosts: strings.Split(c.hosts, "")})
		if err != nil {
			t.Errorf("%s: %v", c.lost, err)
		} else if got := planText(inv, p); got != c.want {
			t.Errorf("%s lost, on %s: got %s, want %s", c.lost, c.hosts, got, c.want)
		}
	}
}

// TestMakePlan_Errors checks the reasons that are given if no checkpoint can be
// restored.
func TestMakePlan_Errors(t *testing.T) {
	hosts := strings.Split("abcd", "")
	inv := without(cluster(4), "b", "c")
	_, err := MakePlan(inv, Want{Hosts: hosts})
	want := "no checkpoint can be restored: checkpoint 2: rank 1: its part is stored nowhere; b and c had it, and are missing\ncheckpoint 1: rank 1: its part is stored nowhere; b and c had it, and are missing"
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	// Checkpoint 2 of rank 1 was not copied yet when b was lost.
	inv = without(cluster(4), "b")
	inv.Stores[1].Copies = slices.DeleteFunc(inv.Stores[1].Copies, func(s string) bool { return s == "rank-1-2" })
	inv.Stores[1].Damaged = []Damage{{"rank-1-2", "its digest differs"}}
	p, err := MakePlan(inv, Want{Hosts: hosts})
	if err != nil || p.Index != 1 || len(p.Skipped) != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	want = "checkpoint 2: rank 1: rank-1-2: the one on c is damaged (its digest differs); b had it, and is missing; c had it, but not any more"
	if got := p.Skipped[0].String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	_, err = MakePlan(inv, Want{Hosts: hosts, Only: 2})
	if err == nil || err.Error() != "no checkpoint can be restored: "+want+"; checkpoint 1 can be restored" {
		t.Errorf("got %v", err)
	}
	_, err = MakePlan(inv, Want{Hosts: hosts, Only: 7})
	if err == nil || err.Error() != "no checkpoint can be restored: checkpoint 7 is not stored anywhere; checkpoint 1 can be restored" {
		t.Errorf("got %v", err)
	}
	_, err = MakePlan(inv, Want{Hosts: hosts[:3]})
	if err == nil || !strings.Contains(err.Error(), "it was saved by a run of 4 ranks, and this one has 3") {
		t.Errorf("got %v", err)
	}
	// An attempt that was given up.
	inv = cluster(2)
	inv.Line = []Span{{"51e9", 0}, {"c0de", 1}}
	if p, err := MakePlan(inv, Want{Hosts: hosts[:2]}); err != nil || p.Index != 1 {
		t.Errorf("%+v, %v: checkpoint 2 was given up", p, err)
	}
	if inv.Highest() != 2 {
		t.Errorf("highest %d", inv.Highest())
	}
	inv.Line = []Span{{"c0de", 0}}
	if _, err := MakePlan(inv, Want{Hosts: hosts[:2]}); err == nil || !strings.Contains(err.Error(), "belong to attempts that were given up") {
		t.Errorf("got %v", err)
	}
	if p, err := MakePlan(&Inventory{Stores: []Store{{Name: "a"}}}, Want{Hosts: hosts}); p != nil || err != nil {
		t.Errorf("%+v, %v: there is nothing", p, err)
	}
}

// TestMakePlan_ErrorsNameObjects checks that messages say what an object is to
// its rank.
func TestMakePlan_ErrorsNameObjects(t *testing.T) {
	file, own := Object{Name: "f", Size: 1}, Object{Name: "o"}
	part := Part{Checkpoint: Checkpoint{1, "x"}, Ranks: 1, Objects: []Object{file, own}}
	inv := &Inventory{Stores: []Store{{Name: "a", Parts: []Part{part}, Damaged: []Damage{{"f", "bad block"}}}},
		Homes: []Home{{Attempt: "x", Hosts: []string{"b"}}}, Titles: map[string]string{"f": "file", "o": "journal"}}
	_, err := MakePlan(inv, Want{Hosts: []string{"a"}})
	for _, text := range []string{"checkpoint 1: rank 0's file on a cannot be loaded: bad block; ", "; rank 0's journal: it is stored nowhere; b had it, and is missing"} {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%v\ndoes not say %q", err, text)
		}
	}
}

// TestMakePlan_Balance checks that hosts which have the same things share the
// work of sending them.
func TestMakePlan_Balance(t *testing.T) {
	inv := &Inventory{Stores: []Store{{Name: "a"}, {Name: "b"}, {Name: "c"}}}
	const ranks = 30
	hosts := make([]string, ranks)
	for rank := range ranks {
		hosts[rank] = "new"
		o := Object{fmt.Sprintf("o%d", rank), 10}
		for i := range inv.Stores {
			s := &inv.Stores[i]
			s.Parts = append(s.Parts, Part{Checkpoint: Checkpoint{1, "x"}, Rank: rank, Ranks: ranks, Objects: []Object{o}})
			s.Copies = append(s.Copies, o.Name)
		}
	}
	p, err := MakePlan(inv, Want{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	sent := make([]int, 3)
	for _, f := range p.Fetches {
		sent[f.From[0].Store]++
	}
	if !slices.Equal(sent, []int{10, 10, 10}) || p.Bytes != 300 {
		t.Errorf("sent %v, %d bytes", sent, p.Bytes)
	}
}

// TestAssign checks which host gets which rank: one that has its objects, if
// there is room.
func TestAssign(t *testing.T) {
	slots := func(text string) (out []Slots) {
		for _, w := range strings.Fields(text) {
			out = append(out, Slots{w[:1], int(w[1] - '0')})
		}
		return out
	}
	for _, c := range []struct{ lost, slots, want string }{
		{"", "a1 b1 c1 d1", "a b c d"},
		{"", "d1 c1 b1 a1", "a b c d"}, // whatever the order
		{"b", "a1 e1 c1 d1", "a e c d"},
		{"b", "a1 c2 d1", "a c c d"}, // c has the copy of rank 1
		{"b", "a1 c1 d2", "a c d d"}, // rank 2 makes room: d has its copy
		{"bd", "a2 c2", "a c c a"},
		{"ab", "c2 d2", "c d c d"}, // rank 0 is lost, and no checkpoint can be restored: ranks 2 and 3 go home
		{"abcd", "a2 b2", "a b a b"},
		{"", "a1 b1 c1", ""},
	} {
		inv := without(cluster(4), strings.Split(c.lost, "")...)
		got := strings.Join(Assign(inv, slots(c.slots), 4, nil), " ")
		if got != c.want {
			t.Errorf("%s lost, %s: got %s, want %s", c.lost, c.slots, got, c.want)
		}
	}
}

// TestAssign_Random compares the bytes that move with those of the best of all
// assignments, where each rank has one object.
func TestAssign_Random(t *testing.T) {
	for seed := range runs(600) {
		r := rand.New(rand.NewPCG(seed, 3))
		ranks := 1 + r.IntN(5)
		inv := new(Inventory)
		var slots []Slots
		for i := range 2 + r.IntN(3) {
			inv.Stores = append(inv.Stores, Store{Name: fmt.Sprintf("h%d", i)})
			slots = append(slots, Slots{fmt.Sprintf("h%d", i), r.IntN(4)})
		}
		for rank := range ranks {
			p := Part{Checkpoint: Checkpoint{1, "x"}, Rank: rank, Ranks: ranks, Objects: []Object{{fmt.Sprintf("o%d", rank), int64(1 + r.IntN(9))}}}
			for n, i := range r.Perm(len(inv.Stores)) {
				if n == 0 || r.IntN(3) == 0 {
					inv.Stores[i].Parts = append(inv.Stores[i].Parts, p)
					inv.Stores[i].Copies = append(inv.Stores[i].Copies, p.Objects[0].Name)
				}
			}
		}
		bytes := func(hosts []string) int64 {
			p, err := MakePlan(inv, Want{Hosts: hosts})
			if err != nil {
				t.Fatal(err)
			}
			return p.Bytes
		}
		best := int64(-1)
		hosts := make([]string, ranks)
		var try func(rank int, free []int)
		try = func(rank int, free []int) {
			if rank == ranks {
				if n := bytes(hosts); best < 0 || n < best {
					best = n
				}
				return
			}
			for i := range free {
				if free[i] > 0 {
					free[i]--
					hosts[rank] = slots[i].Host
					try(rank+1, free)
					free[i]++
				}
			}
		}
		var free []int
		for _, s := range slots {
			free = append(free, s.Slots)
		}
		try(0, free)
		got := Assign(inv, slots, ranks, nil)
		if best < 0 {
			if got != nil {
				t.Fatalf("seed %d: %v without room", seed, got)
			}
			continue
		}
		if n := bytes(got); n != best {
			t.Fatalf("seed %d: %v moves %d bytes, the best %d", seed, got, n, best)
		}
		count := map[string]int{}
		for _, h := range got {
			count[h]++
		}
		for _, s := range slots {
			if count[s.Host] > s.Slots {
				t.Fatalf("seed %d: %v on %v", seed, got, slots)
			}
		}
	}
}

// TestSurvives_ByCode checks how many hosts may be lost, for partners and
// codes.
func TestSurvives_ByCode(t *testing.T) {
	inv := cluster(6)
	c := Checkpoint{2, "51e9"}
	if got := Survives(inv, c, 6).String(); got != "any 1 of 6 hosts" {
		t.Errorf("partner: %s", got)
	}
	if got := Survives(without(inv, "b"), c, 6); got.String() != "no loss" || got.Rank != 0 {
		t.Errorf("partner, one lost: %s, rank %d", got, got.Rank)
	}
	if got := Survives(without(inv, "b", "c"), c, 6).String(); got != "incomplete" {
		t.Errorf("partner, two lost: %s", got)
	}
	// rs=4+2: each host has its file, the others shards 1 … 5 of it.
	rs := &Inventory{}
	for i := range 6 {
		rs.Stores = append(rs.Stores, Store{Name: fmt.Sprint(i), Domain: fmt.Sprint("rack", i/2)})
	}
	for rank := range 6 {
		o := Object{fmt.Sprintf("o%d", rank), 100}
		p := Part{Checkpoint: c, Rank: rank, Ranks: 6, Objects: []Object{o}}
		for j := range 6 {
			s := &rs.Stores[(rank+j)%6]
			s.Parts = append(s.Parts, p)
			if j == 0 {
				s.Copies = append(s.Copies, o.Name)
			} else {
				s.Shards = append(s.Shards, Shard{o.Name, j, 4, 2})
			}
		}
	}
	if got := Survives(rs, c, 6).String(); got != "any 2 of 6 hosts, any 1 of 3 domains" {
		t.Errorf("rs: %s", got)
	}
	s3 := Store{Name: "s3", Kind: S3}
	for i := range rs.Stores {
		s3.Copies = append(s3.Copies, rs.Stores[i].Copies...)
	}
	s3.Parts = rs.Stores[0].Parts
	rs.Stores = append(rs.Stores, s3)
	if got := Survives(rs, c, 6); got.String() != "all hosts" || got.Hosts != 6 {
		t.Errorf("s3: %+v", got)
	}
}

// TestMakePlan_TenThousandHosts plans for 10,000 hosts of which 100 are lost.
func TestMakePlan_TenThousandHosts(t *testing.T) {
	inv := &Inventory{Committed: 1, Line: []Span{{"x", 0}}}
	const n = 10000
	hosts := make([]string, n)
	slots := make([]Slots, n)
	for i := range n {
		hosts[i] = fmt.Sprintf("h%05d", i)
		slots[i] = Slots{hosts[i], 1}
		inv.Stores = append(inv.Stores, Store{Name: hosts[i]})
	}
	for rank := range n {
		o := Object{fmt.Sprintf("o%05d", rank), 1 << 30}
		p := Part{Checkpoint: Checkpoint{1, "x"}, Rank: rank, Ranks: n, Objects: []Object{o}}
		for _, i := range []int{rank, rank ^ 1} {
			inv.Stores[i].Parts = append(inv.Stores[i].Parts, p)
			inv.Stores[i].Copies = append(inv.Stores[i].Copies, o.Name)
		}
	}
	for i := range 100 {
		lost := &inv.Stores[i*100]
		lost.Name = fmt.Sprintf("new%05d", i)
		lost.Copies, lost.Parts = nil, nil
		slots[i*100].Host = lost.Name
	}
	got := Assign(inv, slots, n, nil)
	p, err := MakePlan(inv, Want{Hosts: got})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Fetches) != 100 || p.Bytes != 100<<30 {
		t.Errorf("%d fetches, %d bytes", len(p.Fetches), p.Bytes)
	}
	if s := Survives(inv, p.Checkpoint, n); s.Hosts != 0 || !s.Complete {
		t.Errorf("%+v", s)
	}
	if again := Assign(inv, slots, n, nil); !reflect.DeepEqual(got, again) {
		t.Error("another assignment")
	}
}
