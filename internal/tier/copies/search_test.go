package copies

import (
	"fmt"
	"hash/maphash"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

func fields(s string) []string { return strings.Fields(s) }

// clone returns a copy. Hosts in touched share nothing with the old ones; the
// others must not be changed.
func (w *world) clone(touched func(i int) bool) *world {
	c := *w
	c.hosts = slices.Clone(w.hosts)
	for i := range c.hosts {
		h := &c.hosts[i]
		if !touched(i) {
			continue
		}
		h.disk.ids, h.disk.parts = maps.Clone(h.disk.ids), maps.Clone(h.disk.parts)
		h.expects, h.writes, h.partWrites, h.reported = maps.Clone(h.expects), maps.Clone(h.writes), maps.Clone(h.partWrites), maps.Clone(h.reported)
		if h.node != nil {
			h.node = h.node.clone()
		}
	}
	c.conn, c.links, c.data = maps.Clone(w.conn), maps.Clone(w.links), maps.Clone(w.data)
	return &c
}

func (n *Node) clone() *Node {
	c := *n
	c.up, c.own, c.have, c.incoming = maps.Clone(n.up), maps.Clone(n.own), maps.Clone(n.have), maps.Clone(n.incoming)
	c.waiting = slices.Clone(n.waiting)
	c.kept = nil
	for _, k := range n.kept {
		k := *k
		c.kept = append(c.kept, &k)
	}
	c.peers = map[string]*peer{}
	for name, p := range n.peers {
		c.peers[name] = &peer{maps.Clone(p.stored), maps.Clone(p.asked), maps.Clone(p.failed), maps.Clone(p.parts)}
	}
	c.parts, c.claims, c.writing = map[PartID][]ID{}, map[ID][]claim{}, map[PartID][]partOffer{}
	for k, v := range n.parts {
		c.parts[k] = slices.Clone(v)
	}
	for k, v := range n.claims {
		c.claims[k] = slices.Clone(v)
	}
	for k, v := range n.writing {
		c.writing[k] = slices.Clone(v)
	}
	return &c
}

// key is a digest of a world: a sum over all facts, in any order.
type key [2]uint64

type hasher struct {
	seed [2]maphash.Seed
	sum  key
	buf  []byte
}

// fact adds a fact: numbers and texts.
func (h *hasher) fact(kind byte, numbers []int, texts ...string) {
	h.buf = append(h.buf[:0], kind)
	for _, n := range numbers {
		h.buf = append(h.buf, byte(n), byte(n>>8))
	}
	for _, t := range texts {
		h.buf = append(append(h.buf, t...), 0)
	}
	for i := range h.sum {
		h.sum[i] += maphash.Bytes(h.seed[i], h.buf)
	}
}

func (h *hasher) id(kind byte, at int, id ID, more ...int) {
	h.fact(kind, append([]int{at, id.Shard, id.Data}, more...), id.Object)
}

func (h *hasher) part(kind byte, at int, id PartID, more ...int) {
	h.fact(kind, append([]int{at, int(id.Index), id.Rank}, more...))
}

// digest returns the digest of everything that can matter later.
func (w *world) digest(seed [2]maphash.Seed) key {
	h := &hasher{seed: seed}
	h.fact('0', append([]int{len(w.views)}, w.left[:]...))
	for k := range w.conn {
		h.fact('c', k[:])
	}
	for k, list := range w.data {
		for _, id := range list {
			h.id('d', k[0], id, k[1])
		}
	}
	for k, list := range w.links {
		for at, m := range list {
			pid := m.Of
			if m.Part != nil {
				pid = partID(m.Part)
			}
			h.fact('l', []int{k[0], k[1], at, m.ID.Shard, m.ID.Data, int(m.Checkpoint.Index), int(pid.Index), pid.Rank}, string(m.Kind), string(m.Tier), m.ID.Object)
			for i, id := range m.IDs {
				h.id('i', k[0], id, k[1], at, i)
			}
		}
	}
	for i := range w.hosts {
		w.hosts[i].digest(h, i)
	}
	return h.sum
}

func (x *host) digest(h *hasher, i int) {
	flags := 0
	if x.later {
		flags = 1
	}
	if x.node != nil {
		flags |= 2
	}
	if x.away {
		flags |= 4
	}
	h.fact('h', append([]int{i, x.steps, x.view, x.disk.store, flags}, x.met...))
	for id := range x.disk.ids {
		h.id('D', i, id)
	}
	for id := range x.disk.parts {
		h.part('P', i, id)
	}
	for id, from := range x.expects {
		h.id('e', i, id, from)
	}
	for id := range x.writes {
		h.id('w', i, id)
	}
	for id := range x.partWrites {
		h.part('W', i, id)
	}
	for k, n := range x.reported {
		h.fact('r', []int{i, n}, k)
	}
	n := x.node
	if n == nil {
		return
	}
	for name := range n.up {
		h.fact('u', []int{i}, name)
	}
	for id := range n.have {
		h.id('H', i, id)
	}
	for id := range n.own {
		h.part('o', i, id)
	}
	for id, from := range n.incoming {
		h.id('I', i, id, number(from))
	}
	for at, o := range n.waiting {
		h.id('q', i, o.id, at, number(o.from))
	}
	for pid, ids := range n.parts {
		h.part('p', i, pid)
		for _, id := range ids {
			h.id('n', i, id, int(pid.Index), pid.Rank)
		}
	}
	for id, list := range n.claims {
		for _, c := range list {
			h.fact('C', []int{i, id.Shard, id.Data, int(c.checkpoint.Index)}, id.Object, string(c.tier))
		}
	}
	for pid, list := range n.writing {
		for at, o := range list {
			h.fact('x', []int{i, int(pid.Index), pid.Rank, at}, o.from, string(o.tier))
		}
	}
	for at, k := range n.kept {
		h.fact('k', []int{i, at, int(k.checkpoint.Index), k.reported}, string(k.tier))
	}
	for name, p := range n.peers {
		j := number(name)
		for id := range p.stored {
			h.id('s', i, id, j)
		}
		for id, a := range p.asked {
			h.id('a', i, id, j, int(a))
		}
		for id := range p.failed {
			h.id('f', i, id, j)
		}
		for on, s := range p.parts {
			h.fact('g', []int{i, j, int(on.id.Index), on.id.Rank, int(s)}, string(on.tier))
		}
	}
}

// graph is what a search has seen: which world follows which.
type graph struct {
	numbers map[key]int
	from    [][]int32 // by number: the worlds that lead to it
	first   []int32   // … the first of them
	how     []event   // … by this event
	ends    []int
}

func (g *graph) path(n int) string {
	var path []string
	for ; n != 0; n = int(g.first[n]) {
		path = append(path, g.how[n].String())
	}
	slices.Reverse(path)
	return strings.Join(path, " ")
}

// explore visits every world that can be reached. It checks each, and that
// from each an end can be reached: nobody does the same again and again.
func explore(sc *scenario, limit int) (g *graph, err error) {
	seed := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	g = &graph{numbers: map[key]int{}}
	// add returns the number of a world.
	add := func(w *world, from int, e event) (n int, isNew bool) {
		k := w.digest(seed)
		n, old := g.numbers[k]
		if !old {
			n = len(g.numbers)
			g.numbers[k] = n
			g.from, g.first, g.how = append(g.from, nil), append(g.first, int32(from)), append(g.how, e)
		}
		if e.kind != 0 && !quiet([]event{e}) { // an end must be reached without more misfortunes
			g.from[n] = append(g.from[n], int32(from))
		}
		return n, !old
	}
	type frame struct {
		w    *world
		n    int
		todo []event
	}
	first := newWorld(sc)
	if err := first.act(func(int) bool { return true }); err != nil {
		return g, err
	}
	add(first, 0, event{})
	stack := []frame{{first, 0, first.events()}}
	for len(stack) > 0 {
		top := &stack[len(stack)-1]
		if len(top.todo) == 0 {
			stack = stack[:len(stack)-1]
			continue
		}
		e := top.todo[0]
		top.todo = top.todo[1:]
		w, err := top.w.apply(e)
		if err != nil {
			return g, fmt.Errorf("%w\nafter %s %v", err, g.path(top.n), e)
		}
		n, isNew := add(w, top.n, e)
		if !isNew {
			continue
		}
		if n > limit {
			return g, fmt.Errorf("more than %d states\nafter %s", limit, g.path(n))
		}
		todo := w.events()
		if quiet(todo) {
			g.ends = append(g.ends, n)
			if err := w.end(); err != nil {
				return g, fmt.Errorf("%w\nafter %s", err, g.path(n))
			}
		}
		stack = append(stack, frame{w, n, todo})
	}
	good := make([]bool, len(g.from))
	list := slices.Clone(g.ends)
	for _, n := range list {
		good[n] = true
	}
	for len(list) > 0 {
		n := list[len(list)-1]
		list = list[:len(list)-1]
		for _, m := range g.from[n] {
			if !good[m] {
				good[m] = true
				list = append(list, int(m))
			}
		}
	}
	if n := slices.Index(good, false); n >= 0 {
		return g, fmt.Errorf("no end can be reached\nafter %s", g.path(n))
	}
	return g, nil
}

var scenarios = []scenario{
	{name: "two partners", hosts: 2, partner: 1, steps: []string{"keep partner 1"}, cuts: 1, failures: 1},
	{name: "two partners, one is lost", hosts: 2, partner: 1, steps: []string{"keep partner 1"}, losses: 1},
	{name: "two partners, one is replaced", hosts: 2, partner: 1, steps: []string{"keep partner 1"}, owners: 1, losses: 1, replaced: true, cuts: 1},
	{name: "three partners", hosts: 3, partner: 1, steps: []string{"keep partner 1"}, losses: 1},
	{name: "three, one owner", hosts: 3, partner: 1, owners: 1, steps: []string{"keep partner 1"}, losses: 1, cuts: 1, failures: 1},
	{name: "a base is shared", hosts: 2, partner: 1, owners: 1, steps: []string{"keep partner 1", "keep partner 2", "retain partner 2"},
		objects: map[uint64]string{1: "b", 2: "bd"}, cuts: 1},
	{name: "the older one goes while the newer one is copied", hosts: 2, partner: 1, owners: 1, steps: []string{"keep partner 1", "keep partner 2", "retain partner 2"}, cuts: 1, failures: 1},
	{name: "rot", hosts: 2, partner: 1, owners: 1, steps: []string{"keep partner 1"}, rot: 2, cuts: 1},
	{name: "two copies", hosts: 3, partner: 2, owners: 1, steps: []string{"keep partner 1"}, losses: 1, cuts: 1},
	{name: "shards", hosts: 3, code: [2]int{2, 1}, owners: 1, steps: []string{"keep rs 1"}, losses: 1, failures: 1},
	{name: "shards and copies, too few hosts", hosts: 2, partner: 1, code: [2]int{2, 1}, owners: 1, steps: []string{"keep partner 1", "keep rs 1", "retain rs 1"}},
	{name: "a helper is started again", hosts: 2, partner: 1, owners: 1, steps: []string{"keep partner 1", "keep partner 2", "retain partner 2"}, objects: map[uint64]string{1: "b", 2: "bd"}, restarts: 1},
	{name: "a holder is not needed for a while", hosts: 3, partner: 1, owners: 1, incoming: 1, steps: []string{"keep partner 1"}, away: 1},
	{name: "one place to receive", hosts: 2, partner: 1, owners: 1, incoming: 1, steps: []string{"keep partner 1"}, objects: map[uint64]string{1: "bd"}, cuts: 1, failures: 1},
}

// larger are scenarios that take minutes.
var larger = []scenario{
	{name: "shards and copies", hosts: 3, partner: 1, code: [2]int{2, 1}, owners: 1, steps: []string{"keep partner 1", "keep rs 1", "retain rs 1"}, cuts: 1},
	{name: "one place to receive, two owners", hosts: 3, partner: 2, owners: 2, incoming: 1, steps: []string{"keep partner 1"}, cuts: 1},
	{name: "three, one owner, two cuts", hosts: 3, partner: 1, owners: 1, steps: []string{"keep partner 1", "keep partner 2", "retain partner 2"}, losses: 1, cuts: 1},
	{name: "shards, replaced", hosts: 3, code: [2]int{2, 1}, owners: 1, steps: []string{"keep rs 1"}, losses: 1, replaced: true, cuts: 1},
	{name: "shards of four hosts", hosts: 4, code: [2]int{2, 2}, owners: 1, steps: []string{"keep rs 1"}, losses: 2},
	{name: "two partners, two checkpoints", hosts: 2, partner: 1, steps: []string{"keep partner 1", "keep partner 2", "retain partner 2"}},
}

// TestSearch visits every order of events of small worlds.
func TestSearch(t *testing.T) {
	list, limit := scenarios, 300_000
	if os.Getenv("CAIRN_LONG") != "" {
		list, limit = append(list, larger...), 20_000_000
	}
	for i := range list {
		sc := &list[i]
		t.Run(strings.ReplaceAll(sc.name, " ", "_"), func(t *testing.T) {
			g, err := explore(sc, limit)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d states, %d ends", len(g.numbers), len(g.ends))
		})
	}
}
