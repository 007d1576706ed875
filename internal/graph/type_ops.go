package graph

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"

	"github.com/cairnrun/cairn/internal/hdf5"
)

type opKind uint8

const (
	opCopy  opKind = iota // n bytes, the same in file and memory
	opInt                 // integer of another size or byte order
	opSwap                // n bytes in the other order
	opLoop                // sub, n times
	opRef                 // a reference; its layout depends on the kind of p
	opCheck               // kOpaque and kIgnore: not stored
)

// op is a step in encoding or decoding one element.
type op struct {
	kind   opKind
	big    bool // the file's byte order is big-endian
	signed bool
	moff   uintptr // offset in memory
	foff   int     // offset in the file
	n      int
	fsize  int // opInt: size in the file
	msize  int // opInt: size in memory
	p      *plan
	sub    []op
	mstep  uintptr
	fstep  int
	at     [6]int32 // opRef: offsets of the members, from foff
	offset bool     // opRef: the reference has an offset member
	short  bool     // opRef: regions and offsets have 4 bytes; 8 in the first version of the format
}

// members names the members of references, by kind. A time also has those of
// its zone.
var members = map[kind][]string{
	kPtr:     {"obj", "off"},
	kString:  {"obj", "off", "len"},
	kType:    {"obj", "off", "len"},
	kSlice:   {"obj", "off", "len", "cap"},
	kSyncMap: {"obj", "off", "len", "cap"},
	kCodec:   {"obj", "off", "len", "cap"},
	kMap:     {"obj"},
	kFunc:    {"obj"},
	kChan:    {"obj", "size", "closed"},
	kTimer:   {"obj", "size", "closed"},
	kIface:   {"obj", "off", "type"},
	kFile:    {"file"},
	kTime:    {"zone.obj", "zone.off", "zone.len", "offset", "nsec", "sec"},
	kLoc:     {"zone.obj", "zone.off", "zone.len", "offset"},
}

// Positions in op.at.
const (
	atObj, atOff, atLen, atCap      = 0, 1, 2, 3
	atSize, atClosed                = 1, 2
	atType, atOffset, atNsec, atSec = 2, 3, 4, 5
	noObject                        = math.MaxUint32 // obj of a slice that is not nil but has no memory
)

// compile returns the steps that convert elements of p to or from form. The
// form comes from a file and is not trusted.
func compile(p *plan, form hdf5.Type) ([]op, error) {
	c := compiler{budget: 1 << 20}
	err := c.add(p, form, 0, 0)
	return c.ops, err
}

type compiler struct {
	ops    []op
	budget int
}

func (c *compiler) emit(o op) {
	if k := len(c.ops); k > 0 && o.kind == opCopy {
		l := &c.ops[k-1]
		if l.kind == opCopy && l.foff+l.n == o.foff && l.moff+uintptr(l.n) == o.moff {
			l.n += o.n
			return
		}
	}
	c.ops = append(c.ops, o)
}

func (c *compiler) add(p *plan, form hdf5.Type, moff uintptr, foff int) error {
	if c.budget--; c.budget < 0 {
		return fmt.Errorf("%w: %s: its form is too large", ErrInvalid, typeName(p.t))
	}
	wrong := func() error {
		return fmt.Errorf("%w: a %s cannot be stored as %.200s", ErrInvalid, typeName(p.t), form)
	}
	switch p.kind {
	case kOpaque, kIgnore:
		c.emit(op{kind: opCheck, moff: moff, foff: foff, p: p})
		return nil
	case kScalar:
		return c.scalar(p, p.form, form, moff, foff, wrong)
	case kArray:
		return c.array(p, form, moff, foff, wrong)
	case kStruct:
		if p.remote {
			return c.add(p.fields[0].p, form, moff, foff)
		}
		if !p.enc && form.Equal(p.form) {
			c.emit(op{kind: opCopy, moff: moff, foff: foff, n: int(p.size)})
			return nil
		}
		if p.form.Size == 0 {
			form = hdf5.Type{}
		} else if form.Class != hdf5.Compound {
			return wrong()
		}
		for _, f := range p.fields {
			if f.name == "_" {
				continue
			}
			at, sub := 0, hdf5.Type{}
			if f.p.form.Size > 0 {
				i := member(form, f.name)
				if i < 0 {
					return fmt.Errorf("%w: the stored form of %s lacks %q", ErrInvalid, typeName(p.t), f.name)
				}
				at, sub = form.Fields[i].Offset, form.Fields[i].Type
			}
			if err := c.add(f.p, sub, moff+f.off, foff+at); err != nil {
				return err
			}
		}
		return nil
	}
	o := op{kind: opRef, moff: moff, foff: foff, p: p}
	for i, name := range members[p.kind] {
		want := number(hdf5.Uint, 8)
		short := false
		switch name {
		case "type":
			want = number(hdf5.Uint, 4)
		case "offset", "nsec":
			want = number(hdf5.Int, 4)
		case "sec":
			want = number(hdf5.Int, 8)
		}
		t, at := form, 0
		if len(name) > 5 && name[:5] == "zone." {
			k := member(t, "zone")
			if k < 0 {
				return wrong()
			}
			t, at, name = t.Fields[k].Type, t.Fields[k].Offset, name[5:]
		}
		k := member(t, name)
		if (name == "obj" || name == "off") && k >= 0 && t.Fields[k].Type.Size == 4 {
			want.Size, short = 4, true
		}
		if name == "obj" {
			o.short = short
		}
		if name == "off" {
			if short != o.short {
				return wrong()
			}
			o.offset = true
		}
		if k < 0 || t.Fields[k].Type.Class != want.Class || t.Fields[k].Type.Size != want.Size || i > 0 && t.Fields[k].Type.Big != o.big {
			return wrong()
		}
		o.big = t.Fields[k].Type.Big
		o.at[i] = int32(at + t.Fields[k].Offset)
	}
	c.emit(o)
	return nil
}

func member(t hdf5.Type, name string) int {
	if t.Class == hdf5.Compound {
		for i, f := range t.Fields {
			if f.Name == name {
				return i
			}
		}
	}
	return -1
}

func (c *compiler) scalar(p *plan, native, form hdf5.Type, moff uintptr, foff int, wrong func() error) error {
	if form.Class != native.Class {
		return wrong()
	}
	switch native.Class {
	case hdf5.Compound: // a complex number
		for i, f := range native.Fields {
			k := member(form, f.Name)
			if k < 0 {
				return wrong()
			}
			g := form.Fields[k]
			if err := c.scalar(p, native.Fields[i].Type, g.Type, moff+uintptr(f.Offset), foff+g.Offset, wrong); err != nil {
				return err
			}
		}
		return nil
	case hdf5.Bool:
		c.emit(op{kind: opCopy, moff: moff, foff: foff, n: 1})
		return nil
	}
	same := form.Size == native.Size
	switch {
	case !same && p.t == wordType: // big.Word of another size: the digits would mean other numbers
		return wrong()
	case same && (form.Big == native.Big || form.Size == 1):
		c.emit(op{kind: opCopy, moff: moff, foff: foff, n: native.Size})
	case same:
		c.emit(op{kind: opSwap, moff: moff, foff: foff, n: native.Size})
	case native.Class == hdf5.Float || form.Size > 8 || form.Size&(form.Size-1) != 0 || form.Size == 0:
		return wrong()
	default:
		c.emit(op{kind: opInt, moff: moff, foff: foff, fsize: form.Size, msize: native.Size, big: form.Big, signed: native.Class == hdf5.Int})
	}
	return nil
}

func (c *compiler) array(p *plan, form hdf5.Type, moff uintptr, foff int, wrong func() error) error {
	if !p.enc && form.Equal(p.form) {
		c.emit(op{kind: opCopy, moff: moff, foff: foff, n: int(p.size)})
		return nil
	}
	o := op{kind: opLoop, moff: moff, foff: foff, n: int(p.mult), mstep: p.base.size}
	sub := hdf5.Type{}
	if p.form.Size > 0 {
		n := uint64(1)
		for _, d := range form.Dims {
			n *= uint64(d)
		}
		if form.Class != hdf5.Array || form.Elem == nil || n != p.mult {
			return wrong()
		}
		sub = *form.Elem
		o.fstep = sub.Size
	}
	s := compiler{budget: c.budget}
	err := s.add(p.base, sub, 0, 0)
	c.budget = s.budget
	o.sub = s.ops
	c.emit(o)
	return err
}

func getU64(b []byte, big bool) uint64 {
	if big {
		return binary.BigEndian.Uint64(b)
	}
	return binary.LittleEndian.Uint64(b)
}

func getU32(b []byte, big bool) uint32 {
	if big {
		return binary.BigEndian.Uint32(b)
	}
	return binary.LittleEndian.Uint32(b)
}

// view returns the n bytes at p.
func view(p unsafe.Pointer, n int) []byte { return unsafe.Slice((*byte)(p), n) }

// convertInt executes an opInt. It reports false if the value does not fit.
func (o *op) convertInt(mem unsafe.Pointer, file []byte) bool {
	var u uint64
	for i := range o.fsize {
		j := i
		if !o.big {
			j = o.fsize - 1 - i
		}
		u = u<<8 | uint64(file[j])
	}
	if o.signed {
		s := 64 - 8*o.fsize
		v := int64(u<<s) >> s
		u = uint64(v)
		if k := 64 - 8*o.msize; v<<k>>k != v {
			return false
		}
	} else if o.msize < 8 && u>>(8*o.msize) != 0 {
		return false
	}
	dst := view(mem, o.msize)
	for i := range dst {
		j := i
		if hostBig {
			j = o.msize - 1 - i
		}
		dst[j] = byte(u >> (8 * i))
	}
	return true
}
