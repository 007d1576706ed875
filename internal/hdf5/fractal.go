package hdf5

import "math/bits"

// fractalHeap holds the links or attributes of an object that has many.
type fractalHeap struct {
	f         *File
	at        uint64
	idLen     int
	maxObject uint32
	hugeTree  uint64
	width     uint64 // blocks in a row
	first     uint64 // size of a block in the first row
	maxDirect uint64
	bits      int // bits of an offset in the heap
	root      uint64
	rows      int    // rows of the root block; 0: the root is a direct block
	budget    uint64 // bytes of objects that may still be read: no more than the file has
	indirect  map[uint64]*cursor
	huge      map[uint64]extent // huge objects by ID; nil until needed
}

func (f *File) fractalHeap(at uint64) (*fractalHeap, error) {
	c, err := f.checked(at, uint64(26+12*f.lsz+3*f.osz), "fractal heap")
	if err != nil {
		// A heap with filters has a longer header. Detect it.
		if d, err := f.upTo(at, 9); err == nil && d.sig("FRHP") && d.left() == 5 {
			if d.skip(3); d.u16() != 0 {
				return nil, unsupported(at, "fractal heap with filters")
			}
		}
		return nil, err
	}
	h := &fractalHeap{f: f, at: at, budget: f.size, indirect: map[uint64]*cursor{}}
	if !c.sig("FRHP") || c.u8() != 0 {
		return nil, corrupt(at, "no fractal heap")
	}
	h.idLen = c.u16()
	if n := c.u16(); n != 0 {
		return nil, unsupported(at, "fractal heap with filters")
	}
	c.skip(1)
	h.maxObject = c.u32()
	c.length() // next huge object
	h.hugeTree = c.addr()
	c.length() // free space
	c.addr()
	for range 8 {
		c.length() // statistics
	}
	h.width, h.first, h.maxDirect = uint64(c.u16()), c.length(), c.length()
	h.bits = c.u16()
	c.skip(2)
	h.root = c.addr()
	h.rows = c.u16()
	pow2 := func(n uint64) bool { return n != 0 && n&(n-1) == 0 }
	if c.bad || !pow2(h.width) || !pow2(h.first) || !pow2(h.maxDirect) || h.first > h.maxDirect ||
		h.bits > 64 || h.bits < 8 || h.maxDirect > 1<<32 || h.rows > 64 {
		return nil, corrupt(at, "fractal heap has a bad header")
	}
	return h, nil
}

// get returns the object with an ID, and its address.
func (h *fractalHeap) get(id []byte) ([]byte, uint64, error) {
	c := h.f.over(id, h.at)
	switch flags := c.u8(); flags & 0xf0 {
	case 0x00:
		off := c.uint((h.bits + 7) / 8)
		n := c.uint(enough(min(h.maxDirect, uint64(h.maxObject))))
		if c.bad || n == 0 || n > h.budget {
			return nil, 0, corrupt(h.at, "bad ID of an object in a fractal heap")
		}
		h.budget -= n
		at, err := h.managed(off, n)
		if err != nil {
			return nil, 0, err
		}
		b, err := h.f.read(at, n)
		return b, at, err
	case 0x10:
		return h.getHuge(c)
	case 0x20:
		n := flags&15 + 1
		if h.idLen > 18 {
			n = (flags&15)<<8 | c.u8() + 1
		}
		b := c.bytes(uint64(n))
		if c.bad {
			return nil, 0, corrupt(h.at, "bad ID of a tiny object in a fractal heap")
		}
		return b, h.at, nil
	}
	return nil, 0, corrupt(h.at, "bad ID of an object in a fractal heap")
}

// managed returns the address of n bytes at a heap offset.
func (h *fractalHeap) managed(off, n uint64) (uint64, error) {
	bad := func() (uint64, error) {
		return 0, corrupt(h.at, "no object of %d bytes at %d in a fractal heap", n, off)
	}
	head := uint64(5 + h.f.osz + (h.bits+7)/8)
	block, rows, rest := h.root, h.rows, off
	size := h.first // size of a direct root block
	for depth := 0; rows > 0; depth++ {
		if depth > 64 || block == undef {
			return bad()
		}
		// Rows 0 and 1 have blocks of the first size. Then the size doubles
		// from row to row.
		row, col := 0, uint64(0)
		size = h.first
		if q := rest / (h.width * h.first); q > 0 {
			row = bits.Len64(q)
			size = h.first << (row - 1)
			rest -= h.width * size
		}
		col, rest = rest/size, rest%size
		if row >= rows || col >= h.width {
			return bad()
		}
		direct := bits.Len64(h.maxDirect/h.first) + 1 // number of rows with direct blocks
		c, err := h.indirectBlock(block, rows)
		if err != nil {
			return 0, err
		}
		c.pos = int(head) + (row*int(h.width)+int(col))*h.f.osz
		block, rows = c.addr(), 0
		if row >= direct {
			// Compute the number of rows from the size of the indirect block.
			rows = bits.Len64(size / (h.first * h.width))
			if rows == 0 {
				return bad()
			}
		}
	}
	if block == undef || rest < head || n > size || rest > size-n {
		return bad()
	}
	if b, err := h.f.read(block, 4); err != nil || string(b) != "FHDB" {
		return 0, corrupt(block, "no direct block of a fractal heap")
	}
	if block > undef-rest {
		return bad()
	}
	return block + rest, nil
}

// indirectBlock reads an indirect block, or returns it from the cache.
func (h *fractalHeap) indirectBlock(at uint64, rows int) (*cursor, error) {
	if c := h.indirect[at]; c != nil {
		return c, nil
	}
	entries, ok := mul(uint64(rows), h.width)
	if !ok || entries > h.f.size {
		return nil, corrupt(at, "indirect block of %d rows", rows)
	}
	head := uint64(5 + h.f.osz + (h.bits+7)/8)
	c, err := h.f.checked(at, head+entries*uint64(h.f.osz)+4, "indirect block")
	if err != nil {
		return nil, err
	}
	if !c.sig("FHIB") {
		return nil, corrupt(at, "no indirect block of a fractal heap")
	}
	h.indirect[at] = c
	return c, nil
}

// getHuge returns an object that is stored separately.
func (h *fractalHeap) getHuge(id *cursor) ([]byte, uint64, error) {
	var e extent
	if h.idLen > h.f.osz+h.f.lsz { // the ID contains the address
		e = extent{id.addr(), id.length()}
	} else {
		if h.huge == nil {
			h.huge = map[uint64]extent{}
			err := h.f.treeV2(h.hugeTree, []int{1}, func(c *cursor, _ int) error {
				e := extent{c.addr(), c.length()}
				h.huge[c.length()] = e
				return nil
			})
			if err != nil {
				return nil, 0, err
			}
		}
		var ok bool
		if e, ok = h.huge[id.uint(min(h.idLen-1, h.f.lsz))]; !ok {
			id.bad = true
		}
	}
	if id.bad || e.n > h.budget {
		return nil, 0, corrupt(h.at, "bad ID of a huge object in a fractal heap")
	}
	h.budget -= e.n
	b, err := h.f.read(e.at, e.n)
	return b, e.at, err
}
