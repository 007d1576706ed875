package ckpt

import "sort"

// compaction says which bases of a checkpoint the next one drops, so that no
// checkpoint needs more than a few older files.
type compaction struct {
	table *Table
	drop  []bool // per base: whether its blocks are written again
	keep  []Base // the other bases
	rows  []int  // rows of the blocks to write again, ascending
}

// spread bounds the size of all bases together, in multiples of the state.
const spread = 3

// planCompaction drops the bases with the fewest live blocks until there are at
// most most files, and then those with the smallest share of live blocks until
// the size is within spread.
func planCompaction(prev *Table, most int) *compaction {
	l := &compaction{table: prev}
	if prev == nil {
		return l
	}
	l.drop = make([]bool, len(prev.Bases))
	live := make([]int, len(prev.Bases))
	for _, b := range prev.Blocks {
		if b.Source >= SourceBase {
			live[b.Source-SourceBase]++
		}
	}
	count, total := len(prev.Bases)+1, 0
	for i, b := range prev.Bases {
		total += max(b.Blocks, live[i])
	}
	drop := func(better func(i, j int) bool) bool {
		worst := -1
		for i := range live {
			if !l.drop[i] && (worst < 0 || better(i, worst)) {
				worst = i
			}
		}
		if worst < 0 {
			return false
		}
		l.drop[worst] = true
		count--
		total -= max(prev.Bases[worst].Blocks, live[worst])
		return true
	}
	for count > most && drop(func(i, j int) bool { return live[i] < live[j] }) {
	}
	share := func(i int) float64 { return float64(live[i]) / float64(max(prev.Bases[i].Blocks, live[i], 1)) }
	for total > spread*len(prev.Blocks) && drop(func(i, j int) bool { return share(i) < share(j) }) {
	}
	for i, b := range prev.Bases {
		if !l.drop[i] {
			l.keep = append(l.keep, b)
		}
	}
	for i, b := range prev.Blocks {
		if len(l.keep) < len(prev.Bases) && b.Source >= SourceBase && l.drop[b.Source-SourceBase] {
			l.rows = append(l.rows, i)
		}
	}
	return l
}

// blocks returns which of blocks lo…hi of d are written again. The table has
// the same dataset with the same blocks.
func (l *compaction) blocks(d *Dataset, lo, hi int) (blocks []int) {
	if len(l.rows) == 0 {
		return nil
	}
	first := l.table.Datasets[l.table.byPath[d.Path]].First
	at := sort.SearchInts(l.rows, first+lo)
	for ; at < len(l.rows) && l.rows[at] < first+hi; at++ {
		blocks = append(blocks, l.rows[at]-first)
	}
	return blocks
}

// changes returns, for each dataset, the share of its blocks that differ from
// the previous checkpoint; -1 if it has no such dataset.
func changes(t, prev *Table) []float64 {
	out := make([]float64, len(t.Datasets))
	for i := range t.Datasets {
		d := &t.Datasets[i]
		old := prev.find(d)
		if out[i] = -1; old == nil {
			continue
		}
		n := 0
		for k, b := range t.Blocks[d.First : d.First+d.NumBlocks()] {
			if k >= len(old) || b.Digest != old[k].Digest {
				n++
			}
		}
		out[i] = float64(n) / float64(max(1, d.NumBlocks()))
	}
	return out
}

// compaction returns which blocks the next save writes again.
func (s *Saver) compaction() *compaction {
	if s.compact == nil || s.compact.table != s.prev {
		s.compact = planCompaction(s.prev, s.opts.MaxBases)
	}
	return s.compact
}

// mayKeep reports whether an unchanged block may stay where the previous
// checkpoint has it.
func (c *copying) mayKeep(b *Block) bool {
	return b.Source < SourceBase || !c.compact.drop[b.Source-SourceBase]
}
