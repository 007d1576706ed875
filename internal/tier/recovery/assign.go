package recovery

import (
	"cmp"
	"slices"
)

// Slots is a host and how many ranks it takes.
type Slots struct {
	Host  string
	Slots int
}

// Assign chooses hosts for ranks 0 … ranks-1, so that few bytes move when the
// newest checkpoint is restored. A rank whose part is on its home, the first
// host of its Home, gets that host. As many of the others as possible, the
// large ones first, get a host that has their part. To make room, a rank may
// move to another host that has its part. The rest go to their homes if there
// is room, and then fill the free slots in order. Assign returns nil if there
// are too few slots.
func Assign(inv *Inventory, hosts []Slots, ranks int, avoid []uint64) []string {
	room := 0
	for _, h := range hosts {
		room += max(h.Slots, 0)
	}
	if room < ranks {
		return nil
	}
	a := &assignment{free: make([]int, len(hosts)), on: make([]int, ranks), fits: make([][]int, ranks)}
	at := make(map[string]int, len(hosts))
	for i, h := range hosts {
		a.free[i], at[h.Host] = max(h.Slots, 0), i
	}
	for r := range a.on {
		a.on[r] = -1
	}
	// Which checkpoint is restored does not depend on the hosts of the ranks.
	if p, err := MakePlan(inv, Want{Hosts: make([]string, ranks), Avoid: avoid}); err == nil && p != nil {
		a.match(inv, p, at)
	}
	for _, h := range inv.Homes {
		if i, ok := at[h.first()]; ok && h.Rank < ranks && a.on[h.Rank] < 0 && a.free[i] > 0 {
			a.free[i]--
			a.on[h.Rank] = i
		}
	}
	next := 0
	out := make([]string, ranks)
	for r := range out {
		if a.on[r] < 0 {
			for a.free[next] == 0 {
				next++
			}
			a.on[r] = next
			a.free[next]--
		}
		out[r] = hosts[a.on[r]].Host
	}
	return out
}

// first returns the host that a rank ran on; "": none is known.
func (h *Home) first() string {
	if len(h.Hosts) == 0 {
		return ""
	}
	return h.Hosts[0]
}

// assignment is an assignment of ranks to hosts that is being made.
type assignment struct {
	free []int   // slots, by host
	on   []int   // host, by rank; -1: none yet
	fits [][]int // hosts that have a rank's part, by rank
	seen []int   // by host: the last search that has looked at it
	by   [][]int // ranks, by host
}

// match finds hosts for ranks by augmenting paths, the largest ranks first. So
// no other choice of ranks, besides those at home, would save more bytes.
func (a *assignment) match(inv *Inventory, p *Plan, at map[string]int) {
	x := inv.index()
	home := make(map[int]string)
	for _, h := range inv.Homes {
		if h.Attempt == p.Attempt && len(h.Hosts) > 0 {
			home[h.Rank] = h.Hosts[0]
		}
	}
	size := make([]int64, len(a.on))
	order := make([]int, len(a.on))
	for r := range a.on {
		order[r] = r
		count := make(map[int]int) // objects, by store
		for i, o := range p.Parts[r].Objects {
			size[r] += o.Size
			for _, s := range x.copies[o.Name] {
				if count[s] == i {
					count[s]++
				}
			}
		}
		for s, n := range count {
			if i, ok := at[inv.Stores[s].Name]; ok && inv.Stores[s].Kind == OnHost && n == len(p.Parts[r].Objects) {
				a.fits[r] = append(a.fits[r], i)
			}
		}
		slices.Sort(a.fits[r])
		if h, ok := at[home[r]]; ok {
			if i := slices.Index(a.fits[r], h); i >= 0 {
				a.fits[r] = append([]int{h}, slices.Delete(a.fits[r], i, i+1)...)
			}
		}
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(size[j], size[i]) })
	a.seen, a.by = make([]int, len(a.free)), make([][]int, len(a.free))
	for r, f := range a.fits {
		if h, ok := at[home[r]]; ok && len(f) > 0 && f[0] == h && a.free[h] > 0 {
			a.free[h]--
			a.put(r, h)
		}
	}
	for i, r := range order {
		if a.on[r] < 0 {
			a.augment(r, i+1)
		}
	}
}

// augment finds a host for a rank. It may move others.
func (a *assignment) augment(r, search int) bool {
	for _, h := range a.fits[r] {
		if a.free[h] > 0 {
			a.free[h]--
			a.put(r, h)
			return true
		}
	}
	for _, h := range a.fits[r] {
		if a.seen[h] == search {
			continue
		}
		a.seen[h] = search
		for i, other := range a.by[h] {
			if a.augment(other, search) { // other has another host now
				a.by[h] = slices.Delete(a.by[h], i, i+1)
				a.put(r, h)
				return true
			}
		}
	}
	return false
}

func (a *assignment) put(r, h int) {
	a.on[r] = h
	a.by[h] = append(a.by[h], r)
}
