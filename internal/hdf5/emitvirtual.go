package hdf5

// heapID identifies an object in a global heap collection.
type heapID struct {
	addr  uint64
	index uint32
}

const (
	minCollection = 4096    // the library's minimum
	maxCollection = 1 << 16 // a new collection is begun at this size
)

// virtualHeaps emits the mappings of all virtual datasets under root, as
// objects of global heap collections, and records the place of each.
func (e *emitter) virtualHeaps(root *node) {
	var nodes []*node
	var objects []byte
	flush := func() {
		if len(nodes) == 0 {
			return
		}
		e.align()
		at := e.here()
		size := max(minCollection, 16+len(objects))
		e.meta = append(e.meta, "GCOL\x01\x00\x00\x00"...)
		e.meta = le.AppendUint64(e.meta, uint64(size))
		e.meta = append(e.meta, objects...)
		if free := size - 16 - len(objects); free >= 16 {
			e.meta = le.AppendUint64(e.meta, 0) // object 0 is the free space
			e.meta = le.AppendUint64(e.meta, uint64(free))
			e.meta = append(e.meta, make([]byte, free-16)...)
		} else {
			e.meta = append(e.meta, make([]byte, free)...)
		}
		for i, n := range nodes {
			e.heaps[n] = heapID{at, uint32(i + 1)}
		}
		nodes, objects = nil, nil
	}
	var visit func(n *node)
	visit = func(n *node) {
		if n.data != nil && n.data.Virtual != nil {
			nodes = append(nodes, n)
			block := appendMappings(nil, n.data.Virtual)
			objects = le.AppendUint16(objects, uint16(len(nodes)))
			objects = append(objects, 0, 0, 0, 0, 0, 0)
			objects = le.AppendUint64(objects, uint64(len(block)))
			objects = append(objects, block...)
			for len(objects)%8 != 0 {
				objects = append(objects, 0)
			}
			if len(objects) >= maxCollection {
				flush()
			}
		}
		for _, kid := range n.kids {
			visit(kid)
		}
	}
	visit(root)
	flush()
}

// appendMappings appends the heap object of a virtual dataset.
func appendMappings(b []byte, ms []Mapping) []byte {
	start := len(b)
	b = append(b, 0)
	b = le.AppendUint64(b, uint64(len(ms)))
	for _, m := range ms {
		b = append(append(b, m.File...), 0)
		b = append(append(b, m.Path...), 0)
		b = appendBox(b, m.source())
		b = appendBox(b, Box{m.Start, m.Count})
	}
	return le.AppendUint32(b, lookup3(b[start:]))
}

// appendBox appends a selection of one block. It uses version 1 if the
// coordinates fit in 32 bits, otherwise version 2, which libraries before 1.10
// cannot read.
func appendBox(b []byte, m Box) []byte {
	rank := len(m.Start)
	wide := false
	for i, s := range m.Start {
		wide = wide || s+m.Count[i] > 1<<32-1
	}
	b = le.AppendUint32(b, 2) // hyperslab
	if wide {
		b = le.AppendUint32(b, 2)
		b = append(b, 1) // regular selection
		b = le.AppendUint32(b, uint32(4+rank*32))
		b = le.AppendUint32(b, uint32(rank))
		for i := range rank {
			b = le.AppendUint64(b, m.Start[i])
			b = le.AppendUint64(b, 1) // stride
			b = le.AppendUint64(b, 1) // count
			b = le.AppendUint64(b, m.Count[i])
		}
		return b
	}
	b = le.AppendUint32(b, 1)
	b = le.AppendUint32(b, 0)
	b = le.AppendUint32(b, uint32(8+rank*8))
	b = le.AppendUint32(b, uint32(rank))
	b = le.AppendUint32(b, 1) // blocks
	for _, s := range m.Start {
		b = le.AppendUint32(b, uint32(s))
	}
	for i, s := range m.Start {
		b = le.AppendUint32(b, uint32(s+m.Count[i]-1))
	}
	return b
}
