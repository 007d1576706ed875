// Package placement decides which hosts hold copies and shards for which
// others. It does no I/O.
//
// The hosts are divided into groups, and the members of a group hold for each
// other: with partner=p a group has p+1 hosts, with rs=n+k it has n+k. So any
// p hosts, or any k of each group, may be lost. If the number of hosts is not
// a multiple, some groups have more members; if there are too few hosts, the
// only group has fewer.
//
//	partner=1, 7 hosts in 3 racks          groups
//	  rack a: a1 a2 a3                       a1 b1 c2     a1→b1→c2→a1
//	  rack b: b1 b2                          a2 b2        a2⇄b2
//	  rack c: c1 c2                          a3 c1        a3⇄c1
//
// Groups are disjoint: then few combinations of hosts lose data when they are
// lost together. For partner=1 there are H/2 such pairs of hosts; a ring would
// have H.
//
// A domain is a set of hosts that fail together: a rack, a switch, a power
// supply. The hosts of a domain are spread over the groups: of D hosts of a
// domain, no group has more than ⌈D/groups⌉. That is as few as possible.
package placement

import (
	"cmp"
	"slices"
)

// Host is a host and the domain that it fails with.
type Host struct {
	Name   string
	Domain string // "": the host alone
}

func (h Host) domain() string {
	if h.Domain != "" {
		return "domain " + h.Domain
	}
	return "host " + h.Name
}

// Groups divides hosts into groups of size or more hosts, or into one group if
// there are fewer. prev are the groups of an earlier division, by name: if few
// hosts came or were lost since, few hosts get new neighbours. The result
// depends on nothing else: not on the order of hosts. Names must differ.
func Groups(prev [][]string, hosts []Host, size int) [][]Host {
	if len(hosts) == 0 {
		return nil
	}
	d := &division{size: max(size, 1), q: max(1, len(hosts)/max(size, 1)), limit: make(map[string]int)}
	for _, h := range hosts {
		d.limit[h.domain()]++
	}
	sorted := slices.Clone(hosts)
	slices.SortFunc(sorted, func(a, b Host) int { // large domains first
		return cmp.Or(d.limit[b.domain()]-d.limit[a.domain()], cmp.Compare(a.domain(), b.domain()), cmp.Compare(a.Name, b.Name))
	})
	for name, n := range d.limit {
		d.limit[name] = (n + d.q - 1) / d.q
	}
	if len(prev) > 0 && d.adapt(prev, sorted) {
		return d.groups
	}
	d.groups = make([][]Host, d.q)
	for i, h := range sorted {
		d.groups[i%d.q] = append(d.groups[i%d.q], h)
	}
	return d.groups
}

// division is a division of hosts into groups that is being made.
type division struct {
	size   int // members that a group has at least
	q      int // number of groups
	limit  map[string]int
	groups [][]Host
}

// adapt changes earlier groups as little as it can. It reports whether the
// result spreads the domains as well as a new division does.
func (d *division) adapt(prev [][]string, sorted []Host) bool {
	known := make(map[string]Host, len(sorted))
	for _, h := range sorted {
		known[h.Name] = h
	}
	for _, names := range prev {
		var g []Host
		for _, name := range names {
			if h, ok := known[name]; ok {
				g = append(g, h)
				delete(known, name) // once
			}
		}
		if len(g) > 0 {
			d.groups = append(d.groups, g)
		}
	}
	var loose []Host
	for _, h := range sorted {
		if _, ok := known[h.Name]; ok {
			loose = append(loose, h)
		}
	}
	for len(d.groups) > d.q { // dissolve the smallest
		i := d.least(func(g []Host) int { return len(g) })
		loose = append(loose, d.groups[i]...)
		d.groups = slices.Delete(d.groups, i, i+1)
	}
	for len(d.groups) < d.q {
		d.groups = append(d.groups, nil)
	}
	for _, h := range loose {
		// Prefer a group that needs members, then one with few hosts of the
		// same domain, then a small one.
		i := d.least(func(g []Host) int {
			need := 0
			if len(g) >= d.size {
				need = 1
			}
			return (need<<20+count(g, h.domain()))<<20 + len(g)
		})
		d.groups[i] = append(d.groups[i], h)
	}
	for {
		i := d.least(func(g []Host) int { return len(g) })
		if d.q == 1 || len(d.groups[i]) >= d.size {
			break
		}
		d.take(i)
	}
	for d.swap() {
	}
	for _, g := range d.groups {
		for _, h := range g {
			if count(g, h.domain()) > d.limit[h.domain()] {
				return false
			}
		}
	}
	return true
}

// least returns the group with the smallest value, the first of several.
func (d *division) least(value func([]Host) int) int {
	best := 0
	for i := range d.groups {
		if value(d.groups[i]) < value(d.groups[best]) {
			best = i
		}
	}
	return best
}

// count returns how many of a group's hosts are in a domain.
func count(g []Host, domain string) (n int) {
	for _, h := range g {
		if h.domain() == domain {
			n++
		}
	}
	return n
}

// take moves a host from the largest group to group to. It chooses a host whose
// domain has many hosts in the one group and few in the other.
func (d *division) take(to int) {
	from := d.least(func(g []Host) int { return -len(g) })
	g := d.groups[from]
	best, gain := 0, 0
	for i, h := range g {
		if x := count(g, h.domain()) - count(d.groups[to], h.domain()) + len(d.groups[to]); i == 0 || x >= gain {
			best, gain = i, x
		}
	}
	d.groups[to] = append(d.groups[to], g[best])
	d.groups[from] = slices.Delete(slices.Clone(g), best, best+1)
}

// swap finds a host of a domain that has too many hosts in its group, and
// exchanges it for one of another group. It reports whether it found one.
func (d *division) swap() bool {
	for a, ga := range d.groups {
		for i, x := range ga {
			if count(ga, x.domain()) <= d.limit[x.domain()] {
				continue
			}
			for b, gb := range d.groups {
				if b == a || count(gb, x.domain()) >= d.limit[x.domain()] {
					continue
				}
				for j, y := range gb {
					if y.domain() != x.domain() && count(ga, y.domain()) < d.limit[y.domain()] {
						ga[i], gb[j] = y, x
						return true
					}
				}
				if len(ga) > d.size {
					d.groups[b] = append(gb, x)
					d.groups[a] = slices.Delete(ga, i, i+1)
					return true
				}
			}
		}
	}
	return false
}

// Names returns the groups by the names of their members.
func Names(groups [][]Host) [][]string {
	out := make([][]string, len(groups))
	for i, g := range groups {
		for _, h := range g {
			out[i] = append(out[i], h.Name)
		}
	}
	return out
}

// Holders returns, for each host of a group, the size-1 other members that hold
// for it; all of them, if the group is not larger. Every member holds for about
// as many others. If domains allow it, a host's holders are in other domains
// than the host, and in different ones.
func Holders(group []Host, size int) map[string][]string {
	k := min(size, len(group)) - 1
	ring := make([][]int, len(group))
	for i := range group {
		for j := 1; j <= k; j++ {
			ring[i] = append(ring[i], (i+j)%len(group))
		}
	}
	best := ring
	if same(group, ring) > 0 && len(group) > size {
		if apart := choose(group, k); same(group, apart) < same(group, ring) {
			best = apart
		}
	}
	out := make(map[string][]string, len(group))
	for i, h := range group {
		names := make([]string, 0, k)
		for _, j := range best[i] {
			names = append(names, group[j].Name)
		}
		out[h.Name] = names
	}
	return out
}

// same counts the holders that share a domain with their host or with an
// earlier holder of it.
func same(group []Host, holders [][]int) (n int) {
	for i, list := range holders {
		seen := map[string]bool{group[i].domain(): true}
		for _, j := range list {
			if seen[group[j].domain()] {
				n++
			}
			seen[group[j].domain()] = true
		}
	}
	return n
}

// choose gives every host k holders: first of domains that it does not have
// yet, then those that hold for the fewest others, then its neighbours.
func choose(group []Host, k int) [][]int {
	load := make([]int, len(group))
	out := make([][]int, len(group))
	for i := range group {
		seen := map[string]int{group[i].domain(): 1}
		for range k {
			best := -1
			for step := 1; step < len(group); step++ {
				j := (i + step) % len(group)
				if slices.Contains(out[i], j) {
					continue
				}
				if best < 0 || cmp.Or(cmp.Compare(seen[group[j].domain()], seen[group[best].domain()]), cmp.Compare(load[j], load[best])) < 0 {
					best = j
				}
			}
			out[i] = append(out[i], best)
			load[best]++
			seen[group[best].domain()]++
		}
	}
	return out
}
