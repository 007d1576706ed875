package hdf5

import (
	"bytes"
	"fmt"
	"math"
	"strings"
)

// rawAttr is an attribute message, parsed as far as all versions allow.
type rawAttr struct {
	name        string
	typ, space  []byte
	typF, spF   int // message flags: whether the part is shared
	data        []byte
	typAt, spAt uint64
	dataAt      uint64
}

func (f *File) attribute(c *cursor) (rawAttr, error) {
	var a rawAttr
	at := c.here()
	version, flags := c.u8(), c.u8()
	nameLen, typLen, spLen := c.u16(), c.u16(), c.u16()
	pad := 1
	switch version {
	case 1:
		pad, flags = 8, 0
	case 2:
	case 3:
		c.skip(1)
	default:
		return a, unsupported(at, "attribute message version %d", version)
	}
	name := c.bytes(uint64(nameLen))
	c.align(pad)
	a.typAt, a.typ = c.here(), c.bytes(uint64(typLen))
	c.align(pad)
	a.spAt, a.space = c.here(), c.bytes(uint64(spLen))
	c.align(pad)
	a.dataAt, a.data = c.here(), c.bytes(uint64(c.left()))
	if c.bad {
		return a, corrupt(at, "attribute message cut short")
	}
	a.typF, a.spF = flags&1*flagShared, flags>>1&1*flagShared
	name, _, _ = bytes.Cut(name, []byte{0})
	a.name = string(name)
	return a, nil
}

// attributes calls visit for all attributes of an object.
func (f *File) attributes(path string, visit func(rawAttr) error) error {
	at, err := f.lookup(path)
	if err != nil {
		return err
	}
	o, err := f.object(at)
	if err != nil {
		return err
	}
	for _, m := range o.msgs {
		c := f.over(m.data, m.at)
		switch m.typ {
		case msgAttribute:
			if m, err = f.resolve(m); err != nil {
				return err
			}
			a, err := f.attribute(f.over(m.data, m.at))
			if err != nil {
				return err
			}
			if err := visit(a); err != nil {
				return err
			}
		case msgAttrInfo:
			version, flags := c.u8(), c.u8()
			if flags&1 != 0 {
				c.skip(2)
			}
			heap, tree := c.addr(), c.addr()
			if c.bad || version != 0 {
				return corrupt(m.at, "attribute info message cut short or of version %d", version)
			}
			if heap == undef {
				continue
			}
			h, err := f.fractalHeap(heap)
			if err != nil {
				return err
			}
			err = f.treeV2(tree, []int{8}, func(c *cursor, _ int) error {
				if len(c.b) != h.idLen+9 {
					return corrupt(c.at, "attribute record of %d bytes", len(c.b))
				}
				id := c.bytes(uint64(h.idLen))
				if c.u8()&flagShared != 0 {
					return unsupported(c.at, "shared attribute")
				}
				c.skip(8)
				b, at, err := h.get(id)
				if err != nil {
					return err
				}
				a, err := f.attribute(f.over(b, at))
				if err != nil {
					return err
				}
				return visit(a)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Attr returns the value of an attribute: a string, bool, int64, uint64 or
// float64, or a slice of one of these, in row-major order.
func (f *File) Attr(path, name string) (any, error) {
	var value any
	found := false
	err := f.attributes(path, func(a rawAttr) error {
		if a.name != name || found {
			return nil
		}
		found = true
		var err error
		value, err = f.value(a)
		return err
	})
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, fmt.Errorf("attribute %q of %q: %w", name, path, err)
	}
	return value, nil
}

func (f *File) value(a rawAttr) (any, error) {
	tm, err := f.resolve(message{typ: msgDatatype, flags: a.typF, data: a.typ, at: a.typAt})
	if err != nil {
		return nil, err
	}
	sm, err := f.resolve(message{typ: msgDataspace, flags: a.spF, data: a.space, at: a.spAt})
	if err != nil {
		return nil, err
	}
	t, x, err := decodeType(f.over(tm.data, tm.at), 0)
	if err != nil {
		return nil, err
	}
	sp, err := f.dataspace(f.over(sm.data, sm.at))
	if err != nil {
		return nil, err
	}
	if sp.none {
		return nil, unsupported(a.spAt, "null dataspace")
	}
	count, ok := elements(sp.dims)
	size, ok2 := mul(count, uint64(t.Size))
	if !ok || !ok2 || size > uint64(len(a.data)) {
		return nil, corrupt(a.dataAt, "attribute of %d elements of %d bytes has %d", count, t.Size, len(a.data))
	}
	scalar := len(sp.dims) == 0
	elem := func(i int) []byte { return a.data[i*t.Size : (i+1)*t.Size] }
	n := int(count)
	if x.vlen {
		return f.vlenStrings(a, t.Size, n, scalar)
	}
	switch t.Class {
	case Bool:
		return collect(n, scalar, func(i int) bool { return elem(i)[0] != 0 }), nil
	case Int:
		shift := 64 - 8*t.Size
		return collect(n, scalar, func(i int) int64 { return int64(number(elem(i), t.Big)<<shift) >> shift }), nil
	case Uint:
		return collect(n, scalar, func(i int) uint64 { return number(elem(i), t.Big) }), nil
	case Float:
		return collect(n, scalar, func(i int) float64 {
			v := number(elem(i), t.Big)
			if t.Size == 4 {
				return float64(math.Float32frombits(uint32(v)))
			}
			return math.Float64frombits(v)
		}), nil
	case String:
		return collect(n, scalar, func(i int) string {
			b := elem(i)
			switch x.pad {
			case 0:
				b, _, _ = bytes.Cut(b, []byte{0})
			case 2:
				return strings.TrimRight(string(b), " ")
			}
			return strings.TrimRight(string(b), "\x00")
		}), nil
	}
	return nil, fmt.Errorf("%w: attribute of type %s (offset %#x)", ErrType, t, a.typAt)
}

func (f *File) vlenStrings(a rawAttr, size, n int, scalar bool) (any, error) {
	if size != 8+f.osz {
		return nil, corrupt(a.typAt, "variable-length string of %d bytes", size)
	}
	c := f.over(a.data, a.dataAt)
	out := make([]string, n)
	heaps := map[uint64]*collection{}
	budget, scan := f.size, f.size // in a hostile file, heaps and strings may overlap
	for i := range out {
		length := c.u32()
		id := heapID{c.addr(), c.u32()}
		if length == 0 {
			continue
		}
		g := heaps[id.addr]
		if g == nil {
			var err error
			if g, err = f.collection(id.addr); err != nil {
				return nil, err
			}
			if heaps[id.addr] = g; g.bytes > scan {
				return nil, corrupt(id.addr, "global heaps overlap")
			}
			scan -= g.bytes
		}
		b, at, err := f.heapObject(g, id)
		if err != nil {
			return nil, err
		}
		if uint64(length) > uint64(len(b)) || uint64(length) > budget {
			return nil, corrupt(at, "string of %d bytes has %d", length, len(b))
		}
		budget -= uint64(length)
		b, _, _ = bytes.Cut(b[:length], []byte{0})
		out[i] = string(b)
	}
	return collect(n, scalar, func(i int) string { return out[i] }), nil
}

func collect[T any](n int, scalar bool, at func(int) T) any {
	if scalar {
		return at(0)
	}
	out := make([]T, n)
	for i := range out {
		out[i] = at(i)
	}
	return out
}

// number decodes an unsigned number of up to 8 bytes.
func number(b []byte, big bool) uint64 {
	var v uint64
	for i := range b {
		if big {
			v = v<<8 | uint64(b[i])
		} else {
			v |= uint64(b[i]) << (8 * i)
		}
	}
	return v
}
