package hdf5

// defaultTreeK is the library's default. A chunk B-tree node holds twice as
// many entries.
const defaultTreeK = 32

// treeNodeSize returns the size of a version 1 B-tree node, which does not
// depend on how full it is.
func treeNodeSize(keySize, k int) int { return 24 + 2*k*8 + (2*k+1)*keySize }

func treeKeySize(rank int) int { return 8 + 8*(rank+1) }

// chooseK returns the B-tree width that makes the file's metadata smallest. All
// nodes of a file have the same size, whether full or not, so the default would
// waste 2 KiB on each small dataset.
func chooseK(root *node) int {
	widths := [...]int{2, 4, 8, 16, defaultTreeK}
	var cost [len(widths)]uint64
	var visit func(n *node)
	visit = func(n *node) {
		if d := n.data; d != nil && len(d.Chunks) > 0 {
			for i, k := range widths {
				nodes, count := 0, len(d.Chunks)
				for {
					count = (count + 2*k - 1) / (2 * k)
					nodes += count
					if count == 1 {
						break
					}
				}
				cost[i] += uint64(nodes) * uint64(treeNodeSize(treeKeySize(len(d.Dims)), k))
			}
		}
		for _, kid := range n.kids {
			visit(kid)
		}
	}
	visit(root)
	best := len(widths) - 1
	for i := best; i >= 0; i-- {
		if cost[i] < cost[best] {
			best = i
		}
	}
	return widths[best]
}

// chunkTree emits the B-tree of d's chunks and returns its address.
func (e *emitter) chunkTree(d *DatasetSpec) uint64 {
	if len(d.Chunks) == 0 {
		return undef
	}
	rank := len(d.Dims)
	g := grid(d.Dims, d.Chunk)
	coord := make([]uint64, rank)

	// key appends the key of chunk i, or the key after the last chunk.
	key := func(b []byte, i uint64) []byte {
		past := i >= uint64(len(d.Chunks))
		if past {
			i = uint64(len(d.Chunks)) - 1
		}
		c := &d.Chunks[i]
		x := c.Index
		for j := rank - 1; j > 0; j-- {
			coord[j] = x % g[j]
			x /= g[j]
		}
		coord[0] = x
		if past {
			b = le.AppendUint64(b, 0)
			for j, v := range coord {
				b = le.AppendUint64(b, (v+1)*d.Chunk[j])
			}
			return le.AppendUint64(b, uint64(d.Type.Size))
		}
		b = le.AppendUint32(b, uint32(c.Size))
		b = le.AppendUint32(b, c.Mask)
		for j, v := range coord {
			b = le.AppendUint64(b, v*d.Chunk[j])
		}
		return le.AppendUint64(b, 0)
	}

	return e.tree(1, e.treeK, treeKeySize(rank), uint64(len(d.Chunks)), key,
		func(i uint64) uint64 { return d.Chunks[i].Addr })
}
