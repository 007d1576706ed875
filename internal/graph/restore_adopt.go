package graph

// Adoption lets Prepare take over memory of an unfinished Builder, for pools
// that are equal in both. After that the old Builder cannot be used any more.
type Adoption struct {
	From  *Builder
	Pools map[int]int // pool → the equal pool of From
}

// adopt takes over memory before any is allocated. It takes pools of the same
// type, form and regions, unless the program already has memory for one of
// their regions.
func (b *Builder) adopt(a *Adoption) {
	b.adopted = make(map[int]bool)
	if a == nil || a.From == nil || a.From.done {
		return
	}
	for i, k := range a.Pools {
		if i < 0 || i >= len(b.pools) || k < 0 || k >= len(a.From.pools) || !b.mayAdopt(a.From, i, k) {
			continue
		}
		p, q := &b.pools[i], &a.From.pools[k]
		for n, r := range p.regions {
			b.regs[r].ptr, b.regs[r].fresh = a.From.regs[q.regions[n]].ptr, a.From.regs[q.regions[n]].fresh
		}
		p.scratch, q.scratch = q.scratch, nil
		b.adopted[i] = true
	}
	a.From.pools, a.From.regs, a.From.done = nil, nil, true // the old Builder must not keep anything alive
}

func (b *Builder) mayAdopt(from *Builder, i, k int) bool {
	p, q := &b.pools[i], &from.pools[k]
	if p.p == nil || p.p != q.p || p.p.remote || p.direct != q.direct || len(p.regions) != len(q.regions) {
		return false
	}
	if pool := &b.img.Pools[i]; pool.Count != from.img.Pools[k].Count || !pool.Form.Equal(from.img.Pools[k].Form) {
		return false
	}
	for n, r := range p.regions {
		g, h := &b.regs[r], &from.regs[q.regions[n]]
		if g.n != h.n || g.known || h.known || g.ptr != h.ptr && (g.ptr != nil || !h.fresh) {
			return false
		}
	}
	return true
}

// Adopted reports whether a pool has the memory of the earlier Builder, with
// the contents that its target was filled with there.
func (b *Builder) Adopted(pool int) bool { return b.adopted[pool] }
