package recovery

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// Survival is what a checkpoint survives, as it is stored now.
type Survival struct {
	// Complete says that the checkpoint can be restored now.
	Complete bool
	// Any Hosts of the Of hosts may be lost with their disks. Any Domains of
	// the OfDomains domains may be lost.
	Hosts, Of          int
	Domains, OfDomains int
	// Always says that no loss of hosts matters: shared file systems and
	// object stores have all of it.
	Always bool
	// Rank is a rank whose part is lost first.
	Rank int
}

// String returns a short text: "any 2 of 6 hosts".
func (s Survival) String() string {
	switch {
	case !s.Complete:
		return "incomplete"
	case s.Always:
		return "all hosts"
	case s.Hosts == 0:
		return "no loss"
	}
	text := fmt.Sprintf("any %d of %d hosts", s.Hosts, s.Of)
	if s.Domains > 0 && s.OfDomains < s.Of {
		text += fmt.Sprintf(", any %d of %d domains", s.Domains, s.OfDomains)
	}
	return text
}

// maxUnits bounds the hosts with shards of an object: with more hosts, not all
// combinations are tried.
const maxUnits = 20

// never is the number of hosts that must be lost if no loss of hosts loses the
// object.
const never = math.MaxInt

// Survives returns which losses of hosts a checkpoint of a run with this number
// of ranks survives. A checkpoint is lost if one of its objects is. So Survives
// looks at each object alone, for the smallest number of hosts whose loss loses
// it. If a rank has several parts, one of them has to survive; the result may
// then be too low, never too high.
func Survives(inv *Inventory, c Checkpoint, ranks int) Survival {
	x := inv.index()
	domain := make([]int, len(inv.Stores)) // by store: number of its domain, or -1
	numbers := make(map[string]int)
	s := Survival{Complete: true}
	single := make([]int, len(inv.Stores))
	for i := range inv.Stores {
		st := &inv.Stores[i]
		domain[i], single[i] = -1, -1
		if st.Kind != OnHost {
			continue
		}
		single[i] = s.Of
		s.Of++
		name := "host " + st.Name
		if st.Domain != "" {
			name = "domain " + st.Domain
		}
		if _, ok := numbers[name]; !ok {
			numbers[name] = len(numbers)
		}
		domain[i] = numbers[name]
	}
	s.OfDomains = len(numbers)
	hosts, domains := never, never
	for rank := range ranks {
		bestHosts, bestDomains := 0, 0
		for _, p := range x.parts[c][rank] {
			if p.Ranks != ranks {
				continue
			}
			h, d := x.toLose(&p, single), x.toLose(&p, domain)
			bestHosts, bestDomains = max(bestHosts, h), max(bestDomains, d)
		}
		if bestHosts < hosts {
			hosts, s.Rank = bestHosts, rank
		}
		domains = min(domains, bestDomains)
	}
	switch {
	case ranks == 0 || hosts == 0:
		s.Complete = false
	case hosts == never:
		s.Always, s.Hosts, s.Domains = true, s.Of, s.OfDomains
	default:
		s.Hosts, s.Domains = hosts-1, domains-1
	}
	return s
}

// toLose returns how many units (hosts or domains, by store; -1: none) must be
// lost for a part to be lost. 0: it is lost already.
func (x *index) toLose(p *storedPart, unit []int) int {
	fewest := x.object(p.stores, nil, unit)
	for _, o := range p.Objects {
		fewest = min(fewest, x.object(x.copies[o.Name], x.shardsOf(o.Name), unit))
	}
	return fewest
}

// object returns how many units must be lost for an object to be lost. copies
// are the stores that have copies of it, shards those that have shards.
func (x *index) object(copies []int, shards map[code]map[int][]int, unit []int) int {
	gone := make(map[int]bool) // units that must be lost: they have copies
	for _, s := range copies {
		if unit[s] < 0 {
			return never
		}
		gone[unit[s]] = true
	}
	if n := fewestToBreak(shards, unit, gone); n != never {
		return len(gone) + n
	}
	return never
}

// fewestToBreak returns how many units, besides those that are gone, must be
// lost until no code has enough shards.
func fewestToBreak(shards map[code]map[int][]int, unit []int, gone map[int]bool) int {
	// Each shard is on one unit or several. Shards of places that are never
	// lost count always.
	type entry struct {
		c     code
		units map[int]bool
	}
	var list []entry
	spare := make(map[code]int) // how many more shards there are than are needed
	left := make(map[int]bool)  // units with shards
	for c, byNumber := range shards {
		spare[c] = -c.data
		for _, stores := range byNumber {
			e := entry{c, make(map[int]bool)}
			always, units := false, 0
			for _, s := range stores {
				switch u := unit[s]; {
				case u < 0:
					always = true
				case !gone[u]:
					e.units[u] = true
					units++
				}
			}
			if always || units > 0 {
				spare[c]++
			}
			if !always && units > 0 {
				list = append(list, e)
				for u := range e.units {
					left[u] = true
				}
			}
		}
	}
	broken := func() bool {
		for _, n := range spare {
			if n >= 0 {
				return false
			}
		}
		return true
	}
	if broken() {
		return 0
	}
	// The number is at least that for each code alone, where the units with
	// most of its shards are lost first.
	least := 1
	for c, n := range spare {
		per := make(map[int]int)
		for _, e := range list {
			for u := range e.units {
				if e.c == c {
					per[u]++
				}
			}
		}
		k := 0
		for _, has := range slices.SortedFunc(maps.Values(per), func(a, b int) int { return b - a }) {
			if n < 0 {
				break
			}
			n -= has
			k++
		}
		if n >= 0 {
			return never // the others are in places that are never lost
		}
		least = max(least, k)
	}
	// That is exact for one code with each shard on one unit, the usual case.
	// Otherwise try all combinations of units from there on, if they are few.
	units := slices.Sorted(maps.Keys(left))
	if len(spare) == 1 && !slices.ContainsFunc(list, func(e entry) bool { return len(e.units) > 1 }) || len(units) > maxUnits {
		return least
	}
	for k := least; k <= len(units); k++ {
		found := false
		combinations(len(units), k, func(pick []int) bool {
			lost := make(map[int]bool, k)
			for _, i := range pick {
				lost[units[i]] = true
			}
			now := maps.Clone(spare)
			for _, e := range list {
				rest := false
				for u := range e.units {
					rest = rest || !lost[u]
				}
				if !rest {
					now[e.c]--
				}
			}
			for _, n := range now {
				if n >= 0 {
					return true
				}
			}
			found = true
			return false
		})
		if found {
			return k
		}
	}
	return never
}

// combinations calls f with every choice of k of 0 … n-1, in ascending order,
// until f returns false.
func combinations(n, k int, f func([]int) bool) {
	pick := make([]int, k)
	for i := range pick {
		pick[i] = i
	}
	for f(pick) {
		i := k - 1
		for i >= 0 && pick[i] == n-k+i {
			i--
		}
		if i < 0 {
			return
		}
		pick[i]++
		for j := i + 1; j < k; j++ {
			pick[j] = pick[j-1] + 1
		}
	}
}
