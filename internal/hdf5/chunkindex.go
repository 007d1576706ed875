package hdf5

import (
	"cmp"
	"slices"
)

// Kinds of chunk indexes in a version 4 layout message.
const (
	indexSingle     = 1
	indexImplicit   = 2
	indexFixed      = 3
	indexExtensible = 4
	indexTreeV2     = 5
)

// chunkLoader collects a dataset's chunks.
type chunkLoader struct {
	d    *Dataset
	grid []uint64
	full []uint64 // the grid for the maximum dimensions; undef where unlimited
	out  []Chunk
}

// loadChunks reads the chunk index.
func (d *Dataset) loadChunks() ([]Chunk, error) {
	l := &d.layout
	if l.addr == undef || d.bytes == 0 {
		return nil, nil
	}
	x := &chunkLoader{d: d, grid: grid(d.Dims, d.Chunk), full: grid(l.max, d.Chunk)}
	for i, m := range l.max {
		if m == undef {
			x.full[i] = undef
		}
	}
	var err error
	switch {
	case l.version == 3:
		err = x.treeV1()
	case l.index == indexSingle:
		err = x.add(make([]uint64, len(x.grid)), l.addr, l.stored, l.mask, l.addr)
	case l.index == indexImplicit:
		err = x.implicit()
	case l.index == indexFixed:
		err = x.fixedArray()
	case l.index == indexExtensible:
		err = x.extensibleArray()
	default:
		err = x.treeV2()
	}
	if err != nil {
		return nil, err
	}
	byIndex := func(a, b Chunk) int { return cmp.Compare(a.Index, b.Index) }
	if !slices.IsSortedFunc(x.out, byIndex) {
		slices.SortFunc(x.out, byIndex)
	}
	for i := 1; i < len(x.out); i++ {
		if x.out[i].Index == x.out[i-1].Index {
			return nil, corrupt(l.addr, "chunk %d is there twice", x.out[i].Index)
		}
	}
	return x.out, nil
}

// add records the chunk at a place in the grid. at is the file offset of the
// entry, for errors.
func (x *chunkLoader) add(place []uint64, addr, size uint64, mask uint32, at uint64) error {
	d := x.d
	index, partial := uint64(0), false
	for i, p := range place {
		if p >= x.grid[i] {
			return corrupt(at, "chunk at %d of a grid of %d", place, x.grid)
		}
		index = index*x.grid[i] + p
		partial = partial || p == x.grid[i]-1 && d.Dims[i]%d.Chunk[i] != 0
	}
	all := uint32(1<<len(d.Filters) - 1)
	if mask &= all; partial && d.layout.edges {
		mask = all
	}
	if size > d.f.size || addr > d.f.size-size {
		return corrupt(at, "chunk %d of %d bytes at %#x lies outside the file", index, size, addr)
	}
	if mask == all && size != d.layout.size {
		return corrupt(at, "chunk %d has %d bytes instead of %d", index, size, d.layout.size)
	}
	x.out = append(x.out, Chunk{Index: index, Addr: addr, Size: size, Mask: mask})
	return nil
}

func (x *chunkLoader) treeV1() error {
	rank := len(x.grid)
	place := make([]uint64, rank)
	f := x.d.f
	return f.treeV1(x.d.layout.addr, 1, 8+8*(rank+1), func(key []byte, addr uint64) error {
		for i := range place {
			off := le.Uint64(key[8+8*i:])
			place[i] = off / x.d.Chunk[i]
			if off%x.d.Chunk[i] != 0 {
				return corrupt(addr, "chunk of a B-tree lies at element %d", off)
			}
		}
		return x.add(place, addr, uint64(le.Uint32(key)), le.Uint32(key[4:]), addr)
	})
}

// implicit lists the chunks of a dataset that stores all of them consecutively.
func (x *chunkLoader) implicit() error {
	d := x.d
	n, ok := elements(x.full)
	all, ok2 := mul(n, d.layout.size)
	if !ok || !ok2 || all > d.f.size {
		return corrupt(d.layout.addr, "%d chunks lie outside the file", n)
	}
	place := make([]uint64, len(x.grid))
	for i := range n {
		if x.unflatten(place, i, x.full) {
			err := x.add(place, d.layout.addr+i*d.layout.size, d.layout.size, 0, d.layout.addr)
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// unflatten sets place to the place of linear index i in a grid, and reports
// whether it lies inside the current dimensions.
func (x *chunkLoader) unflatten(place []uint64, i uint64, grid []uint64) bool {
	for j := len(grid) - 1; j > 0; j-- {
		place[j] = i % grid[j]
		i /= grid[j]
	}
	place[0] = i
	for j, p := range place {
		if p >= x.grid[j] {
			return false
		}
	}
	return true
}

// element reads one element of an array index. For a filtered chunk, the
// element also has its size and mask.
func (x *chunkLoader) element(c *cursor, elem int, filtered bool, place []uint64, inside bool) error {
	at := c.here()
	addr, size, mask := c.addr(), x.d.layout.size, uint32(0)
	if filtered {
		size = c.uint(elem - c.osz - 4)
		mask = c.u32()
	}
	if c.bad {
		return corrupt(at, "chunk index cut short")
	}
	if addr == undef || !inside {
		return nil
	}
	return x.add(place, addr, size, mask, at)
}

// checkElement checks the size of the elements, and returns whether the array
// is one of filtered chunks.
func (x *chunkLoader) checkElement(elem, client int, at uint64) (filtered bool, err error) {
	osz := x.d.f.osz
	if client == 0 && elem == osz || client == 1 && elem > osz+4 && elem <= osz+12 {
		return client == 1, nil
	}
	return false, corrupt(at, "chunk index of client %d has elements of %d bytes", client, elem)
}

func (x *chunkLoader) treeV2() error {
	rank := len(x.grid)
	place := make([]uint64, rank)
	return x.d.f.treeV2(x.d.layout.addr, []int{10, 11}, func(c *cursor, typ int) error {
		at := c.here()
		addr, size, mask := c.addr(), x.d.layout.size, uint32(0)
		if typ == 11 {
			n := c.left() - 4 - 8*rank
			if n < 1 || n > 8 {
				return corrupt(at, "chunk record of %d bytes", len(c.b))
			}
			size = c.uint(n)
			mask = c.u32()
		}
		for i := range place {
			place[i] = c.u64()
		}
		if c.bad || addr == undef {
			return corrupt(at, "chunk record cut short")
		}
		return x.add(place, addr, size, mask, at)
	})
}
