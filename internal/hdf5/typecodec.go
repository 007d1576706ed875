package hdf5

import (
	"fmt"
	"math/bits"
)

// Datatype classes of the file format.
const (
	dtFixed    = 0
	dtFloat    = 1
	dtString   = 3
	dtCompound = 6
	dtEnum     = 8
	dtVlen     = 9
	dtArray    = 10
)

var dtNames = [...]string{"integer", "float", "time", "string", "bitfield", "opaque",
	"compound", "reference", "enumeration", "variable-length", "array", "complex"}

// offsetBytes returns how many bytes a version 3 compound of this size uses for
// a member's offset.
func offsetBytes(size uint64) int { return max(1, (bits.Len64(size)+7)/8) }

// appendType appends t as a datatype message. Plain numbers and strings have
// version 1. Nested types have version 3 at all levels.
func appendType(b []byte, t Type) []byte {
	switch t.Class {
	case Array, Compound, Bool:
		return appendTypeV(b, t, 3)
	}
	return appendTypeV(b, t, 1)
}

func appendTypeV(b []byte, t Type, version byte) []byte {
	head := func(class byte, flags uint32, size int) {
		b = append(b, version<<4|class, byte(flags), byte(flags>>8), byte(flags>>16))
		b = le.AppendUint32(b, uint32(size))
	}
	var order uint32
	if t.Big {
		order = 1
	}
	switch t.Class {
	case Int, Uint:
		if t.Class == Int {
			order |= 8
		}
		head(dtFixed, order, t.Size)
		b = le.AppendUint16(b, 0)
		b = le.AppendUint16(b, uint16(8*t.Size))
	case Float:
		head(dtFloat, order|2<<4|uint32(8*t.Size-1)<<8, t.Size)
		b = append(b, floatLayout(t.Size)...)
	case Bool:
		head(dtEnum, 2, 1)
		b = appendTypeV(b, Type{Class: Int, Size: 1}, version)
		b = append(b, "FALSE\x00TRUE\x00\x00\x01"...)
	case String:
		head(dtString, 1|1<<4, t.Size)
	case Array:
		head(dtArray, 0, t.Size)
		b = append(b, byte(len(t.Dims)))
		for _, d := range t.Dims {
			b = le.AppendUint32(b, uint32(d))
		}
		b = appendTypeV(b, *t.Elem, version)
	case Compound:
		head(dtCompound, uint32(len(t.Fields)), t.Size)
		for _, f := range t.Fields {
			b = append(append(b, f.Name...), 0)
			b = appendUint(b, uint64(f.Offset), offsetBytes(uint64(t.Size)))
			b = appendTypeV(b, f.Type, version)
		}
	}
	return b
}

// floatLayout returns the properties part of the message for an IEEE 754
// number.
func floatLayout(size int) []byte {
	if size == 4 {
		return []byte{0, 0, 32, 0, 23, 8, 0, 23, 127, 0, 0, 0}
	}
	return []byte{0, 0, 64, 0, 52, 11, 0, 52, 0xff, 3, 0, 0}
}

// textual holds the properties of a string that Type lacks: its padding, and
// whether its length is variable.
type textual struct {
	pad  int // 0: ends at a NUL, 1: padded with NULs, 2: padded with spaces
	vlen bool
}

// decodeType reads one datatype message from c. A variable-length string is
// returned as Class 0 with textual.vlen set, at the top level only.
func decodeType(c *cursor, depth int) (Type, textual, error) {
	var t Type
	var x textual
	at := c.here()
	if depth > maxTypeDepth {
		return t, x, corrupt(at, "datatype nested too deeply")
	}
	cv := c.u8()
	flags := uint32(c.uint(3))
	size := c.u32()
	version, class := cv>>4, cv&15
	if c.bad {
		return t, x, corrupt(at, "datatype message cut short")
	}
	if version < 1 || version > 4 {
		return t, x, unsupported(at, "datatype message version %d", version)
	}
	refuse := func(format string, args ...any) (Type, textual, error) {
		return t, x, fmt.Errorf("%w: %s (offset %#x)", ErrType, fmt.Sprintf(format, args...), at)
	}
	if size == 0 || size > maxTypeSize {
		if class == dtString && size == 0 {
			return refuse("string of 0 bytes")
		}
		return t, x, corrupt(at, "datatype of %d bytes", size)
	}
	t.Size = int(size)
	t.Big = flags&1 != 0 && size > 1
	switch class {
	case dtFixed:
		off, prec := c.u16(), c.u16()
		if off != 0 || prec != 8*t.Size || t.Size > 8 || t.Size&(t.Size-1) != 0 {
			return refuse("%d-bit integer at bit %d of %d bytes", prec, off, size)
		}
		t.Class = Uint
		if flags&8 != 0 {
			t.Class = Int
		}
	case dtFloat:
		props := c.bytes(12)
		if size != 4 && size != 8 || string(props) != string(floatLayout(t.Size)) ||
			flags>>4&3 != 2 || flags&0x40 != 0 || int(flags>>8&0xff) != 8*t.Size-1 {
			return refuse("float of %d bytes that is not IEEE 754 single or double", size)
		}
		t.Class = Float
	case dtString:
		t.Class, t.Big = String, false
		x.pad = int(flags & 15)
	case dtCompound:
		if err := decodeCompound(c, &t, int(flags&0xffff), version, depth); err != nil {
			return t, x, err
		}
	case dtEnum:
		return t, x, decodeBool(c, &t, int(flags&0xffff), version, depth, refuse)
	case dtArray:
		t.Class, t.Big = Array, false
		n := c.u8()
		if version < 3 {
			c.skip(3)
		}
		if n > maxRank || c.bad {
			return t, x, corrupt(at, "array of %d dimensions", n)
		}
		for range n {
			t.Dims = append(t.Dims, int(min(c.u32(), maxTypeSize)))
		}
		if version < 3 {
			c.skip(4 * n)
		}
		e, ex, err := decodeType(c, depth+1)
		if err != nil {
			return t, x, err
		}
		if ex.vlen {
			return refuse("variable-length string in an array")
		}
		t.Elem = &e
	case dtVlen:
		if flags&15 != 1 || depth > 0 {
			return refuse("variable-length sequence")
		}
		if _, _, err := decodeType(c, depth+1); err != nil {
			return t, x, err
		}
		x.vlen = true
		return t, x, nil
	default:
		name := "class " + fmt.Sprint(class)
		if class < len(dtNames) {
			name = dtNames[class]
		}
		return refuse("%s", name)
	}
	if c.bad {
		return t, x, corrupt(at, "datatype message cut short")
	}
	if depth == 0 { // checks all nested types
		if err := t.check(); err != nil {
			return t, x, corrupt(at, "datatype: %v", err)
		}
	}
	return t, x, nil
}

func decodeCompound(c *cursor, t *Type, n, version, depth int) error {
	t.Class, t.Big = Compound, false
	for range n {
		var f Field
		at, start := c.here(), c.pos
		f.Name = c.cstring()
		if version < 3 {
			if r := (c.pos - start) % 8; r != 0 {
				c.skip(8 - r)
			}
			f.Offset = int(min(c.u32(), maxTypeSize))
		} else {
			f.Offset = int(min(c.uint(offsetBytes(uint64(t.Size))), maxTypeSize))
		}
		var dims []int
		if version == 1 { // the message of a member that is an array says so itself
			rank := c.u8()
			c.skip(3 + 4 + 4)
			if rank > 4 {
				return corrupt(at, "member %q has %d dimensions", f.Name, rank)
			}
			for i := range 4 {
				if d := int(min(c.u32(), maxTypeSize)); i < rank {
					dims = append(dims, d)
				}
			}
		}
		if c.bad {
			return corrupt(at, "compound datatype cut short")
		}
		m, x, err := decodeType(c, depth+1)
		if err != nil {
			return err
		}
		if x.vlen {
			return fmt.Errorf("%w: variable-length string as member %q (offset %#x)", ErrType, f.Name, at)
		}
		if dims != nil {
			e, size := m, uint64(m.Size)
			for _, d := range dims {
				size, _ = mul(size, uint64(d))
			}
			m = Type{Class: Array, Size: int(min(size, maxTypeSize)), Dims: dims, Elem: &e}
		}
		f.Type = m
		t.Fields = append(t.Fields, f)
	}
	return nil
}

// decodeBool reads an enumeration, which must be the one that stands for Bool.
func decodeBool(c *cursor, t *Type, n, version, depth int, refuse func(string, ...any) (Type, textual, error)) error {
	base, _, err := decodeType(c, depth+1)
	if err != nil {
		return err
	}
	notBool := func() error { _, _, err := refuse("enumeration that is not {FALSE=0, TRUE=1} over int8"); return err }
	if n != 2 || base.Size != 1 || base.Class != Int && base.Class != Uint {
		return notBool()
	}
	var names [2]string
	for i := range names {
		start := c.pos
		names[i] = c.cstring()
		if r := (c.pos - start) % 8; version < 3 && r != 0 {
			c.skip(8 - r)
		}
	}
	v := [2]int{c.u8(), c.u8()}
	if c.bad {
		return corrupt(c.here(), "enumeration cut short")
	}
	if names != [2]string{"FALSE", "TRUE"} || v != [2]int{0, 1} {
		return notBool()
	}
	t.Class, t.Big = Bool, false
	return nil
}
