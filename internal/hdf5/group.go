package hdf5

import "fmt"

const (
	linkHard = 0
	linkSoft = 1
)

type link struct {
	kind   int
	addr   uint64 // of a hard link
	target string // of a soft link
}

// links is the content of a group.
type links struct {
	find   map[string]link
	budget uint64 // bytes of names that may still be read: no more than the file has
}

func (g *links) add(name string, l link, at uint64) error {
	if _, ok := g.find[name]; ok || name == "" || uint64(len(name)) >= g.budget {
		return corrupt(at, "link %.80q is empty or twice there", name)
	}
	g.budget -= uint64(len(name)) + 1
	g.find[name] = l
	return nil
}

// links reads the group at an address, or returns it from the cache.
func (f *File) links(at uint64) (*links, error) {
	f.mu.Lock()
	g := f.groups[at]
	f.mu.Unlock()
	if g != nil {
		return g, nil
	}
	o, err := f.object(at)
	if err != nil {
		return nil, err
	}
	g = &links{find: make(map[string]link), budget: f.size}
	group := false
	for _, m := range o.msgs {
		c := f.over(m.data, m.at)
		switch m.typ {
		case msgSymbols:
			group = true
			tree, heap := c.addr(), c.addr()
			if c.bad {
				return nil, corrupt(m.at, "symbol table message cut short")
			}
			err = f.symbolTable(g, tree, heap)
		case msgLinkInfo:
			group = true
			err = f.denseLinks(g, c)
		case msgLink:
			group = true
			err = f.link(g, c)
		}
		if err != nil {
			return nil, err
		}
	}
	if !group {
		return nil, fmt.Errorf("%w: not a group (offset %#x)", ErrNotFound, at)
	}
	f.mu.Lock()
	f.groups[at] = g
	f.mu.Unlock()
	return g, nil
}

// link reads a link message.
func (f *File) link(g *links, c *cursor) error {
	at := c.here()
	if version := c.u8(); version != 1 {
		return unsupported(at, "link message version %d", version)
	}
	flags := c.u8()
	var l link
	if flags&8 != 0 {
		l.kind = c.u8()
	}
	if flags&4 != 0 {
		c.skip(8) // creation order
	}
	if flags&16 != 0 {
		c.skip(1) // character set
	}
	name := string(c.bytes(c.uint(1 << (flags & 3))))
	switch l.kind {
	case linkHard:
		l.addr = c.addr()
	case linkSoft:
		l.target = string(c.bytes(uint64(c.u16())))
	}
	if c.bad {
		return corrupt(at, "link message cut short")
	}
	return g.add(name, l, at)
}

// denseLinks reads a link info message and the links that it refers to, if any.
func (f *File) denseLinks(g *links, c *cursor) error {
	at := c.here()
	version, flags := c.u8(), c.u8()
	if flags&1 != 0 {
		c.skip(8)
	}
	heap, tree := c.addr(), c.addr()
	if c.bad || version != 0 {
		return corrupt(at, "link info message cut short or of version %d", version)
	}
	if heap == undef {
		return nil
	}
	h, err := f.fractalHeap(heap)
	if err != nil {
		return err
	}
	return f.treeV2(tree, []int{5}, func(c *cursor, _ int) error {
		c.skip(4) // hash of the name
		b, at, err := h.get(c.bytes(uint64(c.left())))
		if err != nil {
			return err
		}
		return f.link(g, f.over(b, at))
	})
}

// symbolTable reads the links of an old-style group.
func (f *File) symbolTable(g *links, tree, heap uint64) error {
	c, err := f.upTo(heap, 64)
	if err != nil {
		return err
	}
	ok := c.sig("HEAP")
	c.skip(4)
	size := c.length()
	c.length() // free list
	data := c.addr()
	if !ok || c.bad {
		return corrupt(heap, "no local heap")
	}
	names, err := f.read(data, size)
	if err != nil {
		return err
	}
	text := string(names) // names are substrings of it, because names may overlap in a hostile file
	str := func(off uint64) (string, bool) {
		if off >= uint64(len(text)) {
			return "", false
		}
		for i := off; i < uint64(len(text)); i++ {
			if text[i] == 0 {
				return text[off:i], true
			}
			if i-off > g.budget {
				break
			}
		}
		return "", false
	}
	return f.treeV1(tree, 0, f.lsz, func(_ []byte, at uint64) error {
		c, err := f.upTo(at, 8)
		if err != nil {
			return err
		}
		ok := c.sig("SNOD")
		c.skip(2)
		n := uint64(c.u16())
		if !ok || c.bad {
			return corrupt(at, "no symbol table node")
		}
		if c, err = f.cursor(at+8, n*uint64(2*f.osz+24)); err != nil {
			return err
		}
		for range n {
			at := c.here()
			name, ok := str(c.uint(f.osz))
			if !ok {
				return corrupt(at, "name lies outside the heap")
			}
			l := link{addr: c.addr()}
			cached := c.u32()
			c.skip(4)
			s := c.bytes(16)
			if cached == 2 {
				l.kind = linkSoft
				if l.target, ok = str(uint64(le.Uint32(s))); !ok {
					return corrupt(at, "soft link lies outside the heap")
				}
			}
			if err := g.add(name, l, at); err != nil {
				return err
			}
		}
		return nil
	})
}
