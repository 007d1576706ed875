package hdf5

import "math/bits"

// fixedArray reads the chunk index of a dataset of fixed dimensions.
func (x *chunkLoader) fixedArray() error {
	f, at := x.d.f, x.d.layout.addr
	c, err := f.checked(at, uint64(12+f.osz+f.lsz), "fixed array")
	if err != nil {
		return err
	}
	if !c.sig("FAHD") || c.u8() != 0 {
		return corrupt(at, "no fixed array")
	}
	client, elem, pageBits := c.u8(), c.u8(), c.u8()
	n, block := c.length(), c.addr()
	filtered, err := x.checkElement(elem, client, at)
	if err != nil {
		return err
	}
	want, ok := elements(x.full)
	if !ok || n != want || pageBits > 32 {
		return corrupt(at, "fixed array of %d elements for %d chunks", n, want)
	}
	if block == undef {
		return nil
	}
	place := make([]uint64, len(x.grid))
	take := func(c *cursor, from, count uint64) error {
		for i := from; i < from+count; i++ {
			if err := x.element(c, elem, filtered, place, x.unflatten(place, i, x.full)); err != nil {
				return err
			}
		}
		return nil
	}
	head := uint64(6 + f.osz)
	page := uint64(1) << pageBits
	if n <= page {
		if n > f.size {
			return corrupt(block, "fixed array of %d elements", n)
		}
		c, err := f.checked(block, head+n*uint64(elem)+4, "fixed array")
		if err != nil {
			return err
		}
		if !c.sig("FADB") {
			return corrupt(block, "no fixed array block")
		}
		c.skip(int(head) - 4)
		return take(c, 0, n)
	}
	pages := (n-1)/page + 1
	if pages > f.size {
		return corrupt(block, "fixed array of %d pages", pages)
	}
	bitmap := (pages + 7) / 8
	if c, err = f.checked(block, head+bitmap+4, "fixed array"); err != nil {
		return err
	}
	if !c.sig("FADB") {
		return corrupt(block, "no fixed array block")
	}
	c.skip(int(head) - 4)
	present := c.bytes(bitmap)
	next := block + head + bitmap + 4
	for p := range pages {
		count := min(page, n-p*page)
		size, ok := mul(count, uint64(elem))
		if !ok || size > f.size {
			return corrupt(next, "page of %d elements", count)
		}
		if present[p/8]&(0x80>>(p%8)) != 0 {
			c, err := f.checked(next, size+4, "fixed array page")
			if err != nil {
				return err
			}
			if err := take(c, p*page, count); err != nil {
				return err
			}
		}
		next += size + 4
	}
	return nil
}

// extensible is an extensible array: the chunk index of a dataset with one
// unlimited dimension.
type extensible struct {
	x        *chunkLoader
	elem     int
	filtered bool
	client   int
	offSize  int    // bytes that a block's offset takes
	page     uint64 // elements of a page
	limit    uint64 // elements that the dataset can have now
	grid     []uint64
	swapped  int // dimension that varies slowest here
	place    []uint64
	turned   []uint64
	blocks   map[uint64]bool
}

func (x *chunkLoader) extensibleArray() error {
	f, at := x.d.f, x.d.layout.addr
	c, err := f.checked(at, uint64(16+6*f.lsz+f.osz), "extensible array")
	if err != nil {
		return err
	}
	if !c.sig("EAHD") || c.u8() != 0 {
		return corrupt(at, "no extensible array")
	}
	e := &extensible{x: x, client: c.u8(), elem: c.u8(), blocks: map[uint64]bool{}}
	maxBits, inIndex, minElems := c.u8(), uint64(c.u8()), uint64(c.u8())
	minPtrs, pageBits := uint64(c.u8()), c.u8()
	for range 4 {
		c.length()
	}
	e.limit = c.length() // no element after this one was ever set
	c.length()
	index := c.addr()
	if e.filtered, err = x.checkElement(e.elem, e.client, at); err != nil {
		return err
	}
	pow2 := func(n uint64) bool { return n != 0 && n&(n-1) == 0 }
	if maxBits < 1 || maxBits > 64 || !pow2(minElems) || !pow2(minPtrs) || pageBits > 32 ||
		maxBits < bits.Len64(minElems) {
		return corrupt(at, "extensible array has a bad header")
	}
	e.page = 1 << pageBits
	e.offSize = (maxBits + 7) / 8
	if index == undef {
		return nil
	}
	e.swapped = -1
	for i, n := range x.full {
		if n == undef {
			if e.swapped >= 0 {
				return corrupt(at, "extensible array for several unlimited dimensions")
			}
			e.swapped = i
		}
	}
	if e.swapped < 0 {
		return corrupt(at, "extensible array for fixed dimensions")
	}
	// The unlimited dimension comes first; the others keep their order.
	e.grid = append(e.grid, undef)
	for i, n := range x.full {
		if i != e.swapped {
			e.grid = append(e.grid, n)
		}
	}
	e.place, e.turned = make([]uint64, len(e.grid)), make([]uint64, len(e.grid))

	// Super block i has 2^(i/2) data blocks of minElems * 2^((i+1)/2) elements.
	// The index block has the first elements, then pointers to the data blocks
	// of the first super blocks, then to the other super blocks.
	log := func(n uint64) int { return bits.Len64(n) - 1 }
	supers := 1 + maxBits - log(minElems)
	inline := min(2*log(minPtrs), supers)
	dataPtrs := 2 * (minPtrs - 1)
	rest := supers - inline
	head := 6 + f.osz
	size := uint64(head) + inIndex*uint64(e.elem) + (dataPtrs+uint64(rest))*uint64(f.osz) + 4
	if c, err = f.checked(index, size, "extensible array index"); err != nil {
		return err
	}
	if !c.sig("EAIB") {
		return corrupt(index, "no extensible array index")
	}
	c.skip(head - 4)
	if err := e.take(c, 0, inIndex); err != nil {
		return err
	}
	next := inIndex
	for i := range supers {
		count, elems := uint64(1)<<(i/2), minElems<<((i+1)/2)
		span, ok := mul(count, elems)
		if !ok || elems>>((i+1)/2) != minElems || span > maxBytes {
			break // more than any file can have
		}
		if i < inline {
			for j := range count {
				block := c.addr()
				if err := e.dataBlock(block, next+j*elems, elems, nil, 0); err != nil {
					return err
				}
			}
		} else if block := c.addr(); block != undef && next < e.limit {
			if err := e.superBlock(block, next, count, elems); err != nil {
				return err
			}
		}
		if c.bad {
			return corrupt(index, "extensible array index cut short")
		}
		if next += span; next >= e.limit || next > maxBytes {
			break
		}
	}
	return nil
}

// take reads n elements. The first one has number from.
func (e *extensible) take(c *cursor, from, n uint64) error {
	for i := from; i < from+n; i++ {
		inside := e.x.unflattenTurned(e, i)
		if err := e.x.element(c, e.elem, e.filtered, e.place, inside); err != nil {
			return err
		}
	}
	return nil
}

func (x *chunkLoader) unflattenTurned(e *extensible, i uint64) bool {
	for j := len(e.grid) - 1; j > 0; j-- {
		e.turned[j] = i % e.grid[j]
		i /= e.grid[j]
	}
	e.turned[0] = i
	k := 1
	for j := range e.place {
		if j == e.swapped {
			e.place[j] = e.turned[0]
		} else {
			e.place[j] = e.turned[k]
			k++
		}
	}
	for j, p := range e.place {
		if p >= x.grid[j] {
			return false
		}
	}
	return true
}

func (e *extensible) superBlock(at, from, count, elems uint64) error {
	f := e.x.d.f
	if e.blocks[at] {
		return corrupt(at, "extensible array block is there twice")
	}
	e.blocks[at] = true
	head := uint64(6 + f.osz + e.offSize)
	bitmap := uint64(0) // each data block has whole bytes, though the bits are consecutive
	if elems > e.page {
		bitmap = (elems/e.page + 7) / 8
	}
	maps, ok := mul(bitmap, count)
	if !ok || maps > f.size || count > f.size {
		return corrupt(at, "super block of %d data blocks", count)
	}
	c, err := f.checked(at, head+maps+count*uint64(f.osz)+4, "super block")
	if err != nil {
		return err
	}
	if !c.sig("EASB") {
		return corrupt(at, "no super block")
	}
	c.skip(int(head) - 4)
	present := c.bytes(maps)
	for j := range count {
		if err := e.dataBlock(c.addr(), from+j*elems, elems, present, j*(elems/e.page)); err != nil {
			return err
		}
	}
	return nil
}

// dataBlock reads the elements of a data block. If it has pages, their bits
// start at index bit of present.
func (e *extensible) dataBlock(at, from, elems uint64, present []byte, bit uint64) error {
	if at == undef || from >= e.limit {
		return nil
	}
	f := e.x.d.f
	if e.blocks[at] {
		return corrupt(at, "extensible array block is there twice")
	}
	e.blocks[at] = true
	head := uint64(6 + f.osz + e.offSize)
	if elems > f.size {
		return corrupt(at, "data block of %d elements", elems)
	}
	if elems <= e.page {
		c, err := f.checked(at, head+elems*uint64(e.elem)+4, "data block")
		if err != nil {
			return err
		}
		if !c.sig("EADB") {
			return corrupt(at, "no data block")
		}
		c.skip(int(head) - 4)
		return e.take(c, from, elems)
	}
	c, err := f.checked(at, head+4, "data block")
	if err != nil {
		return err
	}
	if !c.sig("EADB") {
		return corrupt(at, "no data block")
	}
	next := at + head + 4
	size := e.page*uint64(e.elem) + 4
	for p := range min(elems/e.page, 8*uint64(len(present))-min(bit, 8*uint64(len(present)))) {
		if b := bit + p; present[b/8]&(0x80>>(b%8)) != 0 {
			c, err := f.checked(next, size, "data block page")
			if err != nil {
				return err
			}
			if err := e.take(c, from+p*e.page, e.page); err != nil {
				return err
			}
		}
		next += size
	}
	return nil
}
