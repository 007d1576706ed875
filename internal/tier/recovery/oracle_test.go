package recovery

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// randomInventory makes a small inventory: ranks on hosts, checkpoints of two
// attempts, objects with copies and shards here and there.
func randomInventory(r *rand.Rand, ranks int) *Inventory {
	inv := new(Inventory)
	for i := range 1 + r.IntN(5) {
		inv.Stores = append(inv.Stores, Store{Name: fmt.Sprintf("h%d", i), Domain: []string{"", "x", "y"}[r.IntN(3)]})
	}
	if r.IntN(3) == 0 {
		inv.Stores = append(inv.Stores, Store{Name: "gpfs", Kind: Shared})
	}
	if r.IntN(3) == 0 {
		inv.Stores = append(inv.Stores, Store{Name: "bucket", Kind: S3})
	}
	attempts := []string{"aaaa", "bbbb"}
	if r.IntN(2) == 0 {
		inv.Line = []Span{{"aaaa", 0}}
		if r.IntN(2) == 0 {
			inv.Line = append(inv.Line, Span{"bbbb", uint64(r.IntN(3))})
		}
	}
	inv.Committed = uint64(r.IntN(4))
	likely := 1 + r.IntN(4) // of 4: how much there is
	there := func() bool { return r.IntN(4) < likely }
	store := func(o Object) {
		for i := range inv.Stores {
			s := &inv.Stores[i]
			if there() && r.IntN(2) == 0 {
				s.Copies = append(s.Copies, o.Name)
			}
			for range r.IntN(3) {
				if there() {
					c := []code{{2, 1}, {2, 2}, {3, 1}}[r.IntN(3)]
					s.Shards = append(s.Shards, Shard{o.Name, r.IntN(c.data + c.parity), c.data, c.parity})
				}
			}
		}
	}
	for index := range uint64(3) {
		for _, attempt := range attempts[:1+r.IntN(2)] {
			for rank := range ranks {
				for alt := range 1 + r.IntN(2)*r.IntN(2) {
					p := Part{Checkpoint: Checkpoint{index + 1, attempt}, Rank: rank, Ranks: ranks, Time: int64(r.IntN(3))}
					if r.IntN(20) == 0 {
						p.Ranks++
					}
					for o := range 1 + r.IntN(2) {
						p.Objects = append(p.Objects, Object{fmt.Sprintf("%s-%d-%d-%d-%d", attempt, index+1, rank, alt, o), int64(1+r.IntN(4)) * 12})
						store(p.Objects[o])
					}
					for i := range inv.Stores {
						if there() {
							inv.Stores[i].Parts = append(inv.Stores[i].Parts, p)
						}
					}
				}
			}
		}
	}
	return inv
}

// The oracle says the same as the package, by trying everything.

// had reports whether an object can be had from the stores that are not lost.
func (o *oracle) had(name string) bool {
	numbers := map[code]map[int]bool{}
	for i := range o.inv.Stores {
		s := &o.inv.Stores[i]
		if o.lost[i] {
			continue
		}
		if slices.Contains(s.Copies, name) {
			return true
		}
		for _, sh := range s.Shards {
			if sh.Object == name {
				c := code{sh.Data, sh.Parity}
				if numbers[c] == nil {
					numbers[c] = map[int]bool{}
				}
				numbers[c][sh.Number] = true
				if len(numbers[c]) >= c.data {
					return true
				}
			}
		}
	}
	return false
}

type oracle struct {
	inv   *Inventory
	ranks int
	lost  map[int]bool
}

// parts returns the parts of a rank that are known on stores that are not lost.
func (o *oracle) parts(c Checkpoint, rank int) (out []Part) {
	for i := range o.inv.Stores {
		if o.lost[i] {
			continue
		}
		for _, p := range o.inv.Stores[i].Parts {
			if p.Checkpoint == c && p.Rank == rank && p.Ranks == o.ranks {
				out = append(out, p)
			}
		}
	}
	return out
}

// possible reports whether a checkpoint can be restored.
func (o *oracle) possible(c Checkpoint) bool {
	for rank := range o.ranks {
		ok := false
		for _, p := range o.parts(c, rank) {
			all := true
			for _, x := range p.Objects {
				all = all && o.had(x.Name)
			}
			ok = ok || all
		}
		if !ok {
			return false
		}
	}
	return true
}

// cost returns the lowest cost to restore a checkpoint, by trying every choice
// of stores for every object.
func (o *oracle) cost(c Checkpoint, hosts []string) (total int64) {
	for rank, host := range hosts {
		best := int64(-1)
		for _, p := range o.parts(c, rank) {
			sum := int64(0)
			for _, x := range p.Objects {
				n := o.objectCost(x, host)
				if n < 0 {
					sum = -1
					break
				}
				sum += n
			}
			if sum >= 0 && (best < 0 || sum < best) {
				best = sum
			}
		}
		total += best
	}
	return total
}

func (o *oracle) objectCost(x Object, host string) int64 {
	best := int64(-1)
	take := func(n int64) {
		if best < 0 || n < best {
			best = n
		}
	}
	type at struct{ store, number int }
	shards := map[code][]at{}
	for i := range o.inv.Stores {
		s := &o.inv.Stores[i]
		if slices.Contains(s.Copies, x.Name) {
			if s.Name == host {
				return 0
			}
			take(s.Kind.cost() * x.Size)
		}
		for _, sh := range s.Shards {
			if sh.Object == x.Name {
				shards[code{sh.Data, sh.Parity}] = append(shards[code{sh.Data, sh.Parity}], at{i, sh.Number})
			}
		}
	}
	for c, list := range shards {
		for bits := range 1 << len(list) {
			numbers := map[int]bool{}
			n, picked := x.Size, 0
			for i, a := range list {
				if bits>>i&1 == 1 {
					numbers[a.number] = true
					picked++
					if o.inv.Stores[a.store].Name != host {
						n += o.inv.Stores[a.store].Kind.cost() * shardSize(x.Size, c.data)
					}
				}
			}
			if picked == c.data && len(numbers) == c.data {
				take(n)
			}
		}
	}
	return best
}

// counts is the rule for attempts, in other words.
func (o *oracle) counts(c Checkpoint) bool {
	if len(o.inv.Line) == 0 {
		return true
	}
	for i, s := range o.inv.Line {
		if s.Attempt == c.Attempt && c.Index > s.Above && (i+1 == len(o.inv.Line) || c.Index <= o.inv.Line[i+1].Above) {
			return true
		}
	}
	return false
}
