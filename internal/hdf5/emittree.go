package hdf5

import (
	"slices"
	"strings"
)

// tree emits a version 1 B-tree over n > 0 entries, level by level from the
// leaves, and returns the address of the root. key appends the key before entry
// i (for i == n, the key after the last entry). child returns the address that
// entry i refers to.
func (e *emitter) tree(typ byte, k, keySize int, n uint64, key func(b []byte, i uint64) []byte, child func(i uint64) uint64) uint64 {
	size := treeNodeSize(keySize, k)
	width := uint64(2 * k)
	span := uint64(1) // leaf entries below one entry of this level
	entries := n      // entries of this level
	for level := byte(0); ; level++ {
		e.align()
		first := e.here()
		nodes := (entries + width - 1) / width
		e.meta = slices.Grow(e.meta, int(nodes)*size)
		for j := range nodes {
			start := len(e.meta)
			from, to := j*width, min((j+1)*width, entries)
			left, right := undef, undef
			if j > 0 {
				left = first + (j-1)*uint64(size)
			}
			if j < nodes-1 {
				right = first + (j+1)*uint64(size)
			}
			e.meta = append(e.meta, "TREE"...)
			e.meta = append(e.meta, typ, level)
			e.meta = le.AppendUint16(e.meta, uint16(to-from))
			e.meta = le.AppendUint64(e.meta, left)
			e.meta = le.AppendUint64(e.meta, right)
			for i := from; i < to; i++ {
				e.meta = key(e.meta, i*span)
				e.meta = le.AppendUint64(e.meta, child(i))
			}
			e.meta = key(e.meta, min(to*span, n))
			e.meta = append(e.meta, make([]byte, start+size-len(e.meta))...)
		}
		if nodes == 1 {
			return first
		}
		child = func(i uint64) uint64 { return first + i*uint64(size) }
		entries, span = nodes, span*width
	}
}

const (
	groupK     = 16 // B-tree nodes of groups hold twice as many entries
	groupLeafK = 4  // symbol table nodes hold twice as many links
	compactMax = 64 // groups with more links than this have a symbol table
)

// symbols emits the structures of a large group: a heap of names, symbol table
// nodes, and a B-tree over them. With them, a reader finds a link without a
// search through all. It returns the symbol table message. at holds the
// addresses of kids.
func (e *emitter) symbols(kids []*node, at []uint64) []byte {
	order := make([]int, len(kids))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(kids[a].name, kids[b].name) })

	names := make([]byte, 8, 8+24*len(kids)) // offset 0 is the empty name
	offset := make([]uint64, len(kids))      // offsets of the names, in the order of kids
	for i, k := range order {
		offset[i] = uint64(len(names))
		names = append(append(names, kids[k].name...), 0)
		for len(names)%8 != 0 {
			names = append(names, 0)
		}
	}
	e.align()
	heap := e.here()
	e.meta = append(e.meta, "HEAP\x00\x00\x00\x00"...)
	e.meta = le.AppendUint64(e.meta, uint64(len(names)))
	e.meta = le.AppendUint64(e.meta, 1) // no free space
	e.meta = le.AppendUint64(e.meta, heap+32)
	e.meta = append(e.meta, names...)

	const perLeaf = 2 * groupLeafK
	const leafSize = 8 + perLeaf*40
	leaves := e.here()
	n := uint64(len(kids))
	count := (n + perLeaf - 1) / perLeaf
	for j := range count {
		start := len(e.meta)
		from, to := j*perLeaf, min((j+1)*perLeaf, n)
		e.meta = append(e.meta, "SNOD\x01\x00"...)
		e.meta = le.AppendUint16(e.meta, uint16(to-from))
		for i := from; i < to; i++ {
			e.meta = le.AppendUint64(e.meta, offset[i])
			e.meta = le.AppendUint64(e.meta, at[order[i]])
			e.meta = append(e.meta, make([]byte, 24)...) // no cached information
		}
		e.meta = append(e.meta, make([]byte, start+leafSize-len(e.meta))...)
	}
	// A key is the greatest name up to that point.
	root := e.tree(0, groupK, 8, count, func(b []byte, i uint64) []byte {
		last := uint64(0)
		if i > 0 {
			last = offset[min(i*perLeaf, n)-1]
		}
		return le.AppendUint64(b, last)
	}, func(i uint64) uint64 { return leaves + i*leafSize })
	return le.AppendUint64(le.AppendUint64(nil, root), heap)
}
