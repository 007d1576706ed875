package hdf5

// message is one message of an object header.
type message struct {
	typ   int
	flags int
	data  []byte
	at    uint64 // file address of data
}

const flagShared = 2

// object is an object header with its continuation blocks.
type object struct {
	at   uint64
	msgs []message
}

// get returns the first message of a type.
func (o *object) get(typ int) (message, bool) {
	for _, m := range o.msgs {
		if m.typ == typ {
			return m, true
		}
	}
	return message{}, false
}

type extent struct{ at, n uint64 }

// object reads an object header of either version.
func (f *File) object(at uint64) (*object, error) {
	c, err := f.upTo(at, 64)
	if err != nil {
		return nil, err
	}
	o := &object{at: at}
	if len(c.b) >= 4 && string(c.b[:4]) == "OHDR" {
		return o, f.objectV2(o, c)
	}
	if version := c.u8(); version != 1 {
		return nil, corrupt(at, "no object header")
	}
	c.skip(7) // reserved, message count, reference count
	n := uint64(c.u32())
	if c.bad {
		return nil, corrupt(at, "object header cut short")
	}
	return o, f.blocks(extent{at + 16, n}, func(b extent) ([]extent, error) {
		c, err := f.cursor(b.at, b.n)
		if err != nil {
			return nil, err
		}
		var more []extent
		for c.left() >= 8 {
			m := message{typ: c.u16()}
			size := c.u16()
			m.flags = c.u8()
			c.skip(3)
			m.at, m.data = c.here(), c.bytes(uint64(size))
			if c.bad {
				return nil, corrupt(m.at, "message of type %#x exceeds its block", m.typ)
			}
			if more, err = o.add(f, m, more); err != nil {
				return nil, err
			}
		}
		return more, nil
	})
}

func (f *File) objectV2(o *object, c *cursor) error {
	c.skip(4)
	if version := c.u8(); version != 2 {
		return unsupported(o.at, "object header version %d", version)
	}
	flags := c.u8()
	if flags&0x20 != 0 {
		c.skip(16) // times
	}
	if flags&0x10 != 0 {
		c.skip(4) // phase change values
	}
	n := c.uint(1 << (flags & 3))
	if c.bad || n > f.size {
		return corrupt(o.at, "object header cut short")
	}
	head := c.pos
	return f.blocks(extent{o.at, uint64(head) + n + 4}, func(b extent) ([]extent, error) {
		c, err := f.checked(b.at, b.n, "object header")
		if err != nil {
			return nil, err
		}
		if b.at == o.at {
			c.skip(head)
		} else if !c.sig("OCHK") {
			return nil, corrupt(b.at, "no object header continuation")
		}
		extra := 0
		if flags&4 != 0 {
			extra = 2 // creation order
		}
		var more []extent
		for c.left() >= 4+extra {
			m := message{typ: c.u8()}
			size := c.u16()
			m.flags = c.u8()
			c.skip(extra)
			m.at, m.data = c.here(), c.bytes(uint64(size))
			if c.bad {
				return nil, corrupt(m.at, "message of type %#x exceeds its block", m.typ)
			}
			if more, err = o.add(f, m, more); err != nil {
				return nil, err
			}
		}
		return more, nil
	})
}

// add records a message, or the block that it points to.
func (o *object) add(f *File, m message, more []extent) ([]extent, error) {
	switch m.typ {
	case 0: // nil message
	case msgContinue:
		c := f.over(m.data, m.at)
		e := extent{c.addr(), c.length()}
		if c.bad {
			return nil, corrupt(m.at, "continuation message cut short")
		}
		more = append(more, e)
	default:
		o.msgs = append(o.msgs, m)
	}
	return more, nil
}

// blocks parses a block and the blocks that it leads to, each of them once.
func (f *File) blocks(first extent, parse func(extent) ([]extent, error)) error {
	todo := []extent{first}
	seen := map[uint64]bool{}
	total := uint64(0)
	for len(todo) > 0 {
		b := todo[0]
		todo = todo[1:]
		if b.n > f.size || total > f.size-b.n || seen[b.at] {
			return corrupt(b.at, "object header blocks overlap")
		}
		total += b.n
		seen[b.at] = true
		more, err := parse(b)
		if err != nil {
			return err
		}
		todo = append(todo, more...)
	}
	return nil
}

// resolve returns m, or the message that m refers to if it is stored elsewhere.
func (f *File) resolve(m message) (message, error) {
	if m.flags&flagShared == 0 {
		return m, nil
	}
	c := f.over(m.data, m.at)
	version, kind := c.u8(), c.u8()
	if version == 1 {
		c.skip(6)
	}
	if version < 1 || version > 3 || version == 3 && kind == 1 {
		return m, unsupported(m.at, "shared message of version %d, type %d", version, kind)
	}
	at := c.addr()
	if c.bad {
		return m, corrupt(m.at, "shared message cut short")
	}
	o, err := f.object(at)
	if err != nil {
		return m, err
	}
	s, ok := o.get(m.typ)
	if !ok || s.flags&flagShared != 0 {
		return m, corrupt(at, "no message of type %#x to share", m.typ)
	}
	return s, nil
}

// space is a dataspace. Without dimensions it is scalar, unless none is set.
type space struct {
	dims, max []uint64 // max is nil if it equals dims
	none      bool
}

func (f *File) dataspace(c *cursor) (space, error) {
	var s space
	at := c.here()
	version, rank, flags := c.u8(), c.u8(), c.u8()
	switch version {
	case 1:
		c.skip(5)
	case 2:
		s.none = c.u8() == 2
	default:
		return s, unsupported(at, "dataspace version %d", version)
	}
	if rank > maxRank {
		return s, corrupt(at, "%d dimensions", rank)
	}
	for range rank {
		s.dims = append(s.dims, c.length())
	}
	if flags&1 != 0 {
		for i := range rank {
			n := c.length()
			if n == undef>>(64-8*c.lsz) {
				n = undef
			}
			if n < s.dims[i] {
				return s, corrupt(at, "dimension %d exceeds its maximum %d", s.dims[i], n)
			}
			s.max = append(s.max, n)
		}
	}
	if c.bad {
		return s, corrupt(at, "dataspace message cut short")
	}
	return s, nil
}
