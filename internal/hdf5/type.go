package hdf5

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Class is the kind of an HDF5 datatype that this package knows.
type Class uint8

const (
	Int      Class = iota + 1 // two's complement, Size 1, 2, 4 or 8
	Uint                      // Size 1, 2, 4 or 8
	Float                     // IEEE 754, Size 4 or 8
	Bool                      // enumeration {FALSE=0, TRUE=1} over int8, as h5py writes it; Size 1
	String                    // fixed length, null padded, UTF-8
	Compound                  // Fields
	Array                     // Dims of Elem
)

// Type is an HDF5 datatype. Types are values; compare them with Equal.
type Type struct {
	Class  Class
	Size   int     // bytes of one element, padding included
	Big    bool    // big-endian; only Int, Uint and Float of more than one byte
	Fields []Field // Compound
	Dims   []int   // Array
	Elem   *Type   // Array
}

// Field is a member of a Compound.
type Field struct {
	Name   string
	Offset int
	Type   Type
}

// String returns the canonical text of t, which ParseType parses:
//
//	<i8 >u4 <f8 |i1 |u1      integers and floats, little or big endian
//	|b1                      Bool
//	S12                      String of 12 bytes
//	[3,4]<f8                 Array
//	{"x":0<f8,"n":8<i4}16    Compound of 16 bytes, members at offsets 0 and 8
func (t Type) String() string {
	var b strings.Builder
	t.text(&b)
	return b.String()
}

func (t Type) text(b *strings.Builder) {
	order := byte('<')
	if t.Big {
		order = '>'
	}
	if t.Size == 1 {
		order = '|'
	}
	switch t.Class {
	case Int, Uint, Float:
		b.WriteByte(order)
		b.WriteByte(" iuf"[t.Class])
		b.WriteString(strconv.Itoa(t.Size))
	case Bool:
		b.WriteString("|b1")
	case String:
		b.WriteByte('S')
		b.WriteString(strconv.Itoa(t.Size))
	case Array:
		b.WriteByte('[')
		for i, d := range t.Dims {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Itoa(d))
		}
		b.WriteByte(']')
		t.Elem.text(b)
	case Compound:
		b.WriteByte('{')
		for i, f := range t.Fields {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(strconv.Quote(f.Name))
			b.WriteByte(':')
			b.WriteString(strconv.Itoa(f.Offset))
			f.Type.text(b)
		}
		b.WriteByte('}')
		b.WriteString(strconv.Itoa(t.Size))
	default:
		fmt.Fprintf(b, "?%d", t.Class)
	}
}

// Equal reports whether t and u have the same layout and the same names.
func (t Type) Equal(u Type) bool { return t.String() == u.String() }

const (
	maxTypeDepth = 64        // bounds nesting, so that hostile text or files cannot exhaust the stack
	maxTypeSize  = 1<<31 - 1 // the file format stores it in 32 bits
	maxRank      = 32        // the library's limit, for datasets and arrays
)

// check reports why no HDF5 file can hold t, or nil.
func (t Type) check() error { return t.checkDepth(0) }

func (t Type) checkDepth(depth int) error {
	if depth > maxTypeDepth {
		return errors.New("nested too deeply")
	}
	if t.Size <= 0 || t.Size > maxTypeSize {
		return fmt.Errorf("size %d out of range", t.Size)
	}
	switch t.Class {
	case Int, Uint, Float:
		if t.Size > 8 || t.Size&(t.Size-1) != 0 || t.Class == Float && t.Size < 4 || t.Size == 1 && t.Big {
			return fmt.Errorf("no such number %s", t)
		}
	case Bool:
		if t.Size != 1 {
			return fmt.Errorf("a bool of %d bytes", t.Size)
		}
	case String:
	case Array:
		if t.Elem == nil || len(t.Dims) == 0 || len(t.Dims) > maxRank {
			return fmt.Errorf("an array of %d dimensions", len(t.Dims))
		}
		if err := t.Elem.checkDepth(depth + 1); err != nil {
			return err
		}
		n := int64(t.Elem.Size)
		for _, d := range t.Dims {
			if d <= 0 || int64(d) > maxTypeSize/n {
				return errors.New("array size out of range")
			}
			n *= int64(d)
		}
		if n != int64(t.Size) {
			return fmt.Errorf("an array of %d bytes is said to have %d", n, t.Size)
		}
	case Compound:
		if len(t.Fields) == 0 || len(t.Fields) > 0xffff {
			return fmt.Errorf("a compound of %d members", len(t.Fields))
		}
		names := make(map[string]bool, len(t.Fields))
		sorted := true
		for i, f := range t.Fields {
			if f.Name == "" || strings.IndexByte(f.Name, 0) >= 0 || names[f.Name] {
				return fmt.Errorf("member name %q is empty, twice there, or holds a NUL", f.Name)
			}
			names[f.Name] = true
			if err := f.Type.checkDepth(depth + 1); err != nil {
				return fmt.Errorf("member %q: %w", f.Name, err)
			}
			if f.Offset < 0 || f.Offset > t.Size || f.Type.Size > t.Size-f.Offset {
				return fmt.Errorf("member %q lies outside", f.Name)
			}
			if i > 0 && f.Offset < t.Fields[i-1].Offset {
				sorted = false
			}
		}
		fields := t.Fields
		if !sorted {
			fields = slices.Clone(fields)
			slices.SortFunc(fields, func(a, b Field) int { return a.Offset - b.Offset })
		}
		for i := 1; i < len(fields); i++ {
			if p := fields[i-1]; p.Offset+p.Type.Size > fields[i].Offset {
				return fmt.Errorf("members %q and %q overlap", p.Name, fields[i].Name)
			}
		}
	default:
		return fmt.Errorf("class %d", t.Class)
	}
	return nil
}

// ParseType is the inverse of Type.String. It accepts only canonical text, and
// only types that a file can hold.
func ParseType(s string) (Type, error) {
	p := typeParser{s: s}
	t, err := p.parse(0)
	if err == nil && p.s != "" {
		err = fmt.Errorf("trailing %q", p.s)
	}
	if err == nil {
		err = t.check()
	}
	if err == nil && t.String() != s {
		err = errors.New("not in canonical form")
	}
	if err != nil {
		return Type{}, fmt.Errorf("%w: %q: %v", ErrType, s, err)
	}
	return t, nil
}

type typeParser struct{ s string }

func (p *typeParser) take(c byte) bool {
	if p.s != "" && p.s[0] == c {
		p.s = p.s[1:]
		return true
	}
	return false
}

func (p *typeParser) number() (int, error) {
	i := 0
	for i < len(p.s) && p.s[i] >= '0' && p.s[i] <= '9' {
		i++
	}
	n, err := strconv.Atoi(p.s[:i])
	if err != nil || n > maxTypeSize {
		return 0, fmt.Errorf("bad number at %q", p.s)
	}
	p.s = p.s[i:]
	return n, nil
}

func (p *typeParser) parse(depth int) (t Type, err error) {
	if depth > maxTypeDepth {
		return t, errors.New("nested too deeply")
	}
	if p.s == "" {
		return t, errors.New("unexpected end")
	}
	c := p.s[0]
	p.s = p.s[1:]
	switch c {
	case '<', '>', '|':
		if p.s == "" {
			return t, errors.New("unexpected end")
		}
		k := p.s[0]
		p.s = p.s[1:]
		if t.Size, err = p.number(); err != nil {
			return t, err
		}
		t.Big = c == '>'
		t.Class = Class(strings.IndexByte(" iufb", k))
		if t.Class < Int || t.Class > Bool {
			return t, fmt.Errorf("no such number %c%c%d", c, k, t.Size)
		}
	case 'S':
		t.Class = String
		t.Size, err = p.number()
	case '[':
		t.Class = Array
		n := int64(1)
		for {
			d, err := p.number()
			if err != nil {
				return t, err
			}
			t.Dims = append(t.Dims, d)
			if n *= int64(d); n == 0 || n > maxTypeSize {
				return t, errors.New("array size out of range")
			}
			if !p.take(',') {
				break
			}
		}
		if !p.take(']') {
			return t, errors.New("missing ]")
		}
		e, err := p.parse(depth + 1)
		if err != nil {
			return t, err
		}
		if n *= int64(e.Size); n > maxTypeSize {
			return t, errors.New("array size out of range")
		}
		t.Elem, t.Size = &e, int(n)
	case '{':
		t.Class = Compound
		for {
			q, err := strconv.QuotedPrefix(p.s)
			if err != nil {
				return t, err
			}
			p.s = p.s[len(q):]
			var f Field
			if f.Name, err = strconv.Unquote(q); err != nil {
				return t, err
			}
			if !p.take(':') {
				return t, errors.New("missing :")
			}
			if f.Offset, err = p.number(); err != nil {
				return t, err
			}
			if f.Type, err = p.parse(depth + 1); err != nil {
				return t, err
			}
			t.Fields = append(t.Fields, f)
			if !p.take(',') {
				break
			}
		}
		if !p.take('}') {
			return t, errors.New("missing }")
		}
		t.Size, err = p.number()
	default:
		err = fmt.Errorf("unexpected %q", c)
	}
	return t, err
}
