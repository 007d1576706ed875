package hdf5

import "slices"

// collection is a global heap collection, with the places of its objects.
type collection struct {
	bytes   uint64
	objects map[uint32]extent
}

func (f *File) collection(at uint64) (*collection, error) {
	c, err := f.cursor(at, uint64(8+f.lsz))
	if err != nil {
		return nil, err
	}
	ok := c.sig("GCOL")
	c.skip(4)
	g := &collection{bytes: c.length(), objects: map[uint32]extent{}}
	if !ok {
		return nil, corrupt(at, "no global heap")
	}
	if c, err = f.cursor(at, g.bytes); err != nil {
		return nil, err
	}
	c.skip(8 + f.lsz)
	c.align(8)
	for c.left() >= 16 {
		index := c.u16()
		c.skip(6)
		n := c.length()
		c.align(8)
		if index == 0 { // free space, to the end
			break
		}
		e := extent{c.here(), n}
		if c.bytes(n); c.bad {
			return nil, corrupt(e.at, "object of %d bytes exceeds its global heap", n)
		}
		if _, ok := g.objects[uint32(index)]; !ok {
			g.objects[uint32(index)] = e
		}
		c.align(8)
	}
	return g, nil
}

// heapObject returns an object of the collection.
func (f *File) heapObject(g *collection, id heapID) ([]byte, uint64, error) {
	e, ok := g.objects[id.index]
	if !ok {
		return nil, 0, corrupt(id.addr, "no object %d in a global heap", id.index)
	}
	b, err := f.read(e.at, e.n)
	return b, e.at, err
}

// parseVirtual reads a virtual dataset's mappings.
func (d *Dataset) parseVirtual(id heapID) error {
	if id.addr == undef {
		return nil
	}
	g, err := d.f.collection(id.addr)
	if err != nil {
		return err
	}
	b, at, err := d.f.heapObject(g, id)
	if err != nil {
		return err
	}
	if len(b) < 4 || lookup3(b[:len(b)-4]) != le.Uint32(b[len(b)-4:]) {
		return corrupt(at, "bad checksum of a virtual dataset's mappings")
	}
	c := d.f.over(b[:len(b)-4], at)
	if version := c.u8(); version != 0 {
		return unsupported(at, "virtual dataset of version %d", version)
	}
	n := c.length()
	for i := uint64(0); i < n && !c.bad; i++ {
		m := Mapping{File: c.cstring(), Path: c.cstring()}
		from, err := d.box(c)
		if err != nil {
			return err
		}
		box, err := d.box(c)
		if err != nil {
			return err
		}
		if len(box.Start) != len(d.Dims) {
			return corrupt(at, "selection of another rank")
		}
		for i, n := range d.Dims {
			if box.Count[i] > n || box.Start[i] > n-box.Count[i] {
				return corrupt(at, "selection outside the dataset")
			}
		}
		m.Start, m.Count = box.Start, box.Count
		if !slices.Equal(from.Start, box.Start) || !slices.Equal(from.Count, box.Count) {
			m.From = &from
		}
		d.Virtual = append(d.Virtual, m)
	}
	if c.bad {
		return corrupt(at, "mappings of a virtual dataset cut short")
	}
	return nil
}

// box reads a selection, which must consist of one block. That everything is
// selected stands for all of the virtual dataset.
func (d *Dataset) box(c *cursor) (b Box, err error) {
	at := c.here()
	kind, version := c.u32(), c.u32()
	rank := 0
	ranked := func() bool {
		if rank = int(c.u32()); c.bad || rank == 0 || rank > maxRank {
			c.bad = true
			return false
		}
		b = Box{make([]uint64, rank), make([]uint64, rank)}
		return true
	}
	switch {
	case kind == 3:
		c.skip(8)
		b = Box{make([]uint64, len(d.Dims)), slices.Clone(d.Dims)}
	case kind == 2 && version == 1:
		c.skip(8)
		if !ranked() {
			break
		}
		if blocks := c.u32(); blocks != 1 {
			return b, unsupported(at, "selection of %d blocks", blocks)
		}
		for i := range b.Start {
			b.Start[i] = uint64(c.u32())
		}
		for i := range b.Count {
			end := uint64(c.u32())
			if end < b.Start[i] {
				c.bad = true
			}
			b.Count[i] = end - b.Start[i] + 1
		}
	case kind == 2 && version == 2:
		flags := c.u8()
		c.skip(4)
		if flags != 1 {
			return b, unsupported(at, "selection that is not regular")
		}
		if !ranked() {
			break
		}
		for i := range b.Start {
			b.Start[i] = c.u64()
			c.skip(8) // stride
			blocks := c.u64()
			if b.Count[i] = c.u64(); blocks != 1 {
				return b, unsupported(at, "selection of %d blocks", blocks)
			}
		}
	default:
		return b, unsupported(at, "selection of type %d, version %d", kind, version)
	}
	if c.bad {
		return b, corrupt(at, "selection cut short, or of no rank")
	}
	return b, nil
}
