package hdf5

import (
	"math/bits"
	"slices"
)

// enough returns how many bytes the library uses for numbers up to limit.
func enough(limit uint64) int { return max(bits.Len64(limit)-1, 0)/8 + 1 }

// treeV2 visits all records of a version 2 B-tree in order. Its type must be
// one of types. record is called with a cursor over one record, and the type.
func (f *File) treeV2(root uint64, types []int, record func(c *cursor, typ int) error) error {
	c, err := f.checked(root, uint64(22+f.osz+f.lsz), "B-tree header")
	if err != nil {
		return err
	}
	ok := c.sig("BTHD")
	version, typ := c.u8(), c.u8()
	nodeSize, recSize, depth := c.u32(), c.u16(), c.u16()
	c.skip(2)
	first, count := c.addr(), c.u16()
	switch {
	case !ok || c.bad:
		return corrupt(root, "no B-tree header")
	case version != 0 || !slices.Contains(types, typ):
		return unsupported(root, "B-tree of version %d, type %d", version, typ)
	case recSize == 0 || nodeSize < 32 || uint64(nodeSize) > f.size || depth > 64:
		return corrupt(root, "B-tree of depth %d, nodes of %d bytes, records of %d", depth, nodeSize, recSize)
	case first == undef || count == 0:
		return nil
	}
	// The encoding of child pointers depends on how many records can be below
	// them.
	most := (uint64(nodeSize) - 10) / uint64(recSize)
	countSize := enough(most)
	total, totalSize := most, 0
	ptr := make([]int, depth+1)    // size of a child pointer, by level
	totals := make([]int, depth+1) // bytes of a child pointer's total count, by level
	for l := 1; l <= depth; l++ {
		totals[l] = totalSize
		ptr[l] = f.osz + countSize + totalSize
		if int(nodeSize) < 10+ptr[l] {
			return corrupt(root, "B-tree nodes of %d bytes", nodeSize)
		}
		n := (uint64(nodeSize) - uint64(10+ptr[l])) / uint64(recSize+ptr[l])
		below, ok := mul(n+1, total)
		if !ok || below > undef-n {
			below = undef - n
		}
		total = below + n
		totalSize = enough(total)
	}
	seen := map[uint64]bool{}
	var visit func(at uint64, level, n int) error
	visit = func(at uint64, level, n int) error {
		if seen[at] {
			return corrupt(at, "B-tree node is twice in its tree")
		}
		seen[at] = true
		size := uint64(6+n*recSize) + 4
		if level > 0 {
			size += uint64((n + 1) * ptr[level])
		}
		if size > uint64(nodeSize) {
			return corrupt(at, "B-tree node of %d records", n)
		}
		c, err := f.checked(at, size, "B-tree node")
		if err != nil {
			return err
		}
		want := "BTLF"
		if level > 0 {
			want = "BTIN"
		}
		if !c.sig(want) || c.u8() != 0 || c.u8() != typ {
			return corrupt(at, "no B-tree node of level %d", level)
		}
		records := c.bytes(uint64(n * recSize))
		from := at + 6
		for i := range n + 1 {
			if level > 0 {
				child, k := c.addr(), int(c.uint(countSize))
				c.skip(totals[level])
				if err := visit(child, level-1, k); err != nil {
					return err
				}
			}
			if i < n {
				r := f.over(records[i*recSize:(i+1)*recSize], from+uint64(i*recSize))
				if err := record(r, typ); err != nil {
					return err
				}
				if r.bad {
					return corrupt(r.at, "B-tree record cut short")
				}
			}
		}
		return nil
	}
	return visit(first, depth, count)
}
