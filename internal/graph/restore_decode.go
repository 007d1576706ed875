package graph

import (
	"math"
	"reflect"
	"time"
	"unsafe"
)

// wordKey identifies the first word of an interface value: the interface type
// and the dynamic type.
type wordKey struct{ iface, dyn *plan }

// lateIface is an interface whose data word lies in a box that may not be
// filled yet.
type lateIface struct {
	dst, box unsafe.Pointer
	in       uint32 // region that contains dst
}

// fix is a value that is rebuilt from its stand-in when the stand-in is filled.
type fix struct {
	p      *plan
	ptr    unsafe.Pointer
	in     uint32 // region that contains the value
	region uint64 // region of the stand-in
}

type edge struct{ from, to uint32 }

// decoder fills regions from encoded pools.
type decoder struct {
	*Builder
	in uint32 // the region being filled
}

// target converts a reference to n elements of f into an address.
func (b *Builder) target(obj, off uint64, f *plan, n uint64) (unsafe.Pointer, error) {
	if obj > uint64(len(b.regs)) {
		return nil, invalid("a reference to region %d of %d", obj-1, len(b.regs))
	}
	g := &b.regs[obj-1]
	for g.next > 0 { // see NextSlots
		off += uint64(g.next) * maxOffset
		obj -= uint64(g.next)
		g = &b.regs[obj-1]
	}
	if g.p == nil {
		return nil, b.dropped(obj)
	}
	if g.p.remote && g.p != f { // elements on devices have no address in host memory
		return nil, invalid("a reference to %d %s in memory of a device", n, typeName(f.t))
	}
	if g.p.size == 0 || f.size == 0 {
		if off != 0 || !same(g.p, f) || n > g.n {
			return nil, invalid("a reference to %d %s in a region of %d %s", n, typeName(f.t), g.n, typeName(g.p.t))
		}
		return g.ptr, nil
	}
	i, slot := off, uint64(0)
	if g.p.slots != 1 {
		i = off / g.p.slots
		slot = off - i*g.p.slots
	}
	if i < g.n && slot == 0 && g.p == f && n <= g.n-i {
		return unsafe.Add(g.ptr, uintptr(i)*f.size), nil
	}
	if i < g.n {
		at := g.p.byteOf(slot)
		if g.p.fits(at, g.n-i, f, n) {
			return unsafe.Add(g.ptr, uintptr(i)*g.p.size+at), nil
		}
	}
	return nil, invalid("a reference to %d %s at %d in a region of %d %s", n, typeName(f.t), off, g.n, typeName(g.p.t))
}

// dropped returns the error for a reference to a region that belongs to a
// dropped variable only.
func (b *Builder) dropped(obj uint64) error {
	r, ok := b.img.Region(obj - 1)
	if !ok {
		return invalid("a reference to region %d, which is not used", obj-1)
	}
	name := b.img.Vars[b.img.Pools[r.Pool].Var].Name
	return &MismatchError{Name: name, Path: name, Detail: "the variable cannot be dropped, another one shares memory with it"}
}

func (d *decoder) elements(t *poolTarget, g *region, src []byte, fsize int) error {
	dst := g.ptr
	for n := uint64(0); n < g.n; n++ {
		if n > 0 {
			dst = unsafe.Add(dst, t.p.size)
			src = src[fsize:]
		}
		if err := d.element(t.ops, dst, src); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) element(ops []op, mem unsafe.Pointer, file []byte) error {
	for i := range ops {
		o := &ops[i]
		dst, src := unsafe.Add(mem, o.moff), file[o.foff:]
		switch o.kind {
		case opLoop:
			for k := range o.n {
				if err := d.element(o.sub, unsafe.Add(dst, uintptr(k)*o.mstep), src[k*o.fstep:]); err != nil {
					return err
				}
			}
		case opCheck:
			if o.p.kind == kOpaque {
				d.zero(o.p, dst)
			}
		case opRef:
			if err := d.ref(o, dst, src); err != nil {
				return err
			}
		default:
			if err := o.scalar(dst, src); err != nil {
				return err
			}
		}
	}
	return nil
}

// zero clears a value that is not stored. This matters only in roots.
func (d *decoder) zero(p *plan, dst unsafe.Pointer) {
	for _, b := range view(dst, int(p.size)) {
		if b != 0 {
			reflect.NewAt(p.t, dst).Elem().SetZero()
			return
		}
	}
}

func (d *decoder) edge(obj uint64) {
	if d.codec && obj != 0 && obj <= uint64(len(d.regs)) {
		obj -= uint64(d.regs[obj-1].next)
		d.edges = append(d.edges, edge{d.in, uint32(obj - 1)})
	}
}

func (o *op) get(src []byte, member int) uint64 { return getU64(src[o.at[member]:], o.big) }

// object returns the region of a reference plus 1, and the offset in it.
func (d *decoder) object(o *op, src []byte) (obj, off uint64) {
	obj, off = o.object(src)
	if d.img.was != nil && obj != 0 && obj != noObject {
		n, ok := d.img.number(obj - 1)
		if obj = n + 1; !ok {
			obj = noObject - 1 // there is none
		}
	}
	return obj, off
}

// object returns what the file holds.
func (o *op) object(src []byte) (obj, off uint64) {
	if !o.short {
		if obj = o.get(src, atObj); obj == math.MaxUint64 && o.p.kind == kSlice {
			obj = noObject
		}
		if o.offset {
			off = o.get(src, atOff)
		}
		return obj, off
	}
	obj = uint64(getU32(src[o.at[atObj]:], o.big))
	if o.offset {
		off = uint64(getU32(src[o.at[atOff]:], o.big))
	}
	return obj, off
}

func (d *decoder) ref(o *op, dst unsafe.Pointer, src []byte) error {
	p := o.p
	if p.kind == kFile {
		return d.file(dst, o.get(src, atObj))
	}
	obj, off := d.object(o, src)
	if p.kind != kIface {
		d.edge(obj)
	}
	switch p.kind {
	case kPtr:
		return d.pointer(p, dst, obj, off)
	case kString:
		s, err := d.text(o, src)
		*(*string)(dst) = s
		return err
	case kSlice:
		return d.slice(o, dst, src)
	case kMap:
		m, err := d.mapOf(p, obj)
		*(*unsafe.Pointer)(dst) = m
		return err
	case kIface:
		return d.iface(o, dst, src)
	case kTime, kLoc:
		return d.time(o, dst, src)
	case kType:
		return d.reflectType(o, dst, src)
	case kFunc:
		return d.function(p, dst, obj)
	case kChan, kTimer:
		return d.channel(o, dst, src)
	case kSyncMap, kCodec:
		n := o.get(src, atLen)
		if obj == 0 && n == 0 && !d.rooted[uint64(d.in)] {
			return nil // an unused place
		}
		if obj != 0 && obj <= uint64(len(d.regs)) && d.regs[obj-1].p == nil {
			return d.dropped(obj)
		}
		if obj == 0 || obj > uint64(len(d.regs)) || d.regs[obj-1].p != p.elem || d.regs[obj-1].n != n {
			return invalid("the stand-in of a %s has no region", typeName(p.t))
		}
		d.fixes = append(d.fixes, fix{p, dst, d.in, obj - 1})
	}
	return nil
}

func (d *decoder) pointer(p *plan, dst unsafe.Pointer, obj, off uint64) error {
	var q unsafe.Pointer
	if obj != 0 {
		var err error
		n := p.elem.mult
		if q, err = d.target(obj, off, p.elem.base, n); err != nil {
			return err
		}
	}
	*(*unsafe.Pointer)(dst) = q
	return nil
}

func (d *decoder) text(o *op, src []byte) (string, error) {
	obj, off := d.object(o, src)
	n := o.get(src, atLen)
	if n == 0 {
		return "", nil
	}
	if obj == 0 || n > math.MaxInt {
		return "", invalid("a string of %d bytes has no memory", n)
	}
	ptr, err := d.target(obj, off, o.p.elem, n)
	if err != nil {
		return "", err
	}
	return unsafe.String((*byte)(ptr), int(n)), nil
}

func (d *decoder) slice(o *op, dst unsafe.Pointer, src []byte) error {
	obj, off := d.object(o, src)
	n, c := o.get(src, atLen), o.get(src, atCap)
	s, e := (*sliceHeader)(dst), o.p.elem
	if n > c || c > math.MaxInt {
		return invalid("a slice of length %d and capacity %d", n, c)
	}
	if obj == 0 || obj == noObject {
		if c != 0 {
			return invalid("a slice of capacity %d has no memory", c)
		}
		*s = sliceHeader{}
		if obj != 0 {
			reflect.NewAt(o.p.t, dst).Elem().Set(reflect.MakeSlice(o.p.t, 0, 0))
		}
		return nil
	}
	if e.mult > 1 && c > math.MaxUint64/e.mult {
		return invalid("a slice of capacity %d", c)
	}
	if c == 0 {
		return invalid("a slice of no capacity has memory")
	}
	ptr, err := d.target(obj, off, e.base, c*e.mult)
	if err != nil {
		return err
	}
	*s = sliceHeader{ptr, int(n), int(c)}
	return nil
}

// mapOf returns the map that region obj-1 stands for. It is filled later.
func (d *decoder) mapOf(p *plan, obj uint64) (unsafe.Pointer, error) {
	if obj == 0 {
		return nil, nil
	}
	if obj <= uint64(len(d.regs)) && d.regs[obj-1].p == nil {
		return nil, d.dropped(obj)
	}
	if obj > uint64(len(d.regs)) || d.regs[obj-1].p != p.elem {
		return nil, invalid("a %s has no region", typeName(p.t))
	}
	g := &d.regs[obj-1]
	if g.p.size == 0 && g.n > 1 {
		return nil, invalid("a %s has %d entries", typeName(p.t), g.n)
	}
	if g.m == nil {
		v := reflect.New(p.t)
		v.Elem().Set(reflect.MakeMapWithSize(p.t, int(g.n)))
		g.m, g.mt = *(*unsafe.Pointer)(v.UnsafePointer()), p
	}
	return g.m, nil
}

func (d *decoder) iface(o *op, dst unsafe.Pointer, src []byte) error {
	index := getU32(src[o.at[atType]:], o.big)
	h := (*ifaceHeader)(dst)
	*h = ifaceHeader{}
	if index == 0 {
		return nil
	}
	if uint64(index) > uint64(len(d.dyn)) {
		return invalid("dynamic type %d of %d", index, len(d.dyn))
	}
	p := d.dyn[index-1]
	if p == nil {
		name := d.img.Types[index-1].Name
		return &MismatchError{Name: name, Path: name, Detail: "the program has no such type"}
	}
	word, err := d.word(o.p, p)
	if err != nil {
		return err
	}
	obj, off := d.object(o, src)
	d.edge(obj)
	switch {
	case p.kind == kPtr && p.t.Kind() == reflect.Pointer:
		if err := d.pointer(p, unsafe.Pointer(&h.data), obj, off); err != nil {
			return err
		}
	case p.kind == kMap:
		m, err := d.mapOf(p, obj)
		if err != nil {
			return err
		}
		h.data = m
	case obj == 0:
		if !p.direct {
			return invalid("a %s in an interface has no memory", typeName(p.t))
		}
	default:
		box, err := d.target(obj, off, p.base, p.mult)
		if err != nil {
			return err
		}
		at := uintptr(box)
		if p.direct {
			at = uintptr(unsafe.Pointer(&h.data))
		}
		if obj <= uint64(len(d.regs)) && p.size > 0 {
			d.boxes = append(d.boxes, placed{addr: at, num: uint32(obj - 1)})
		}
		if p.direct {
			d.late = append(d.late, lateIface{dst, box, d.in})
		} else {
			h.data = box
		}
	}
	h.tab = word
	return nil
}

// word returns the first word of an interface of type i that holds a p.
func (d *decoder) word(i, p *plan) (unsafe.Pointer, error) {
	k := wordKey{i, p}
	w, ok := d.words[k]
	if !ok {
		if p.t.Kind() == reflect.Interface || !p.t.Implements(i.t) {
			return nil, invalid("a %s in an interface of type %s", typeName(p.t), typeName(i.t))
		}
		// Make an interface that holds a p. Only its type is used, so the data
		// is a dummy: a real value might be huge.
		var held any
		h := (*ifaceHeader)(unsafe.Pointer(&held))
		h.tab = (*ifaceHeader)(unsafe.Pointer(&p.t)).data
		if !p.direct {
			h.data = unsafe.Pointer(&nothing)
		}
		v := reflect.New(i.t)
		v.Elem().Set(reflect.ValueOf(held))
		w = (*ifaceHeader)(v.UnsafePointer()).tab
		d.words[k] = w
	}
	return w, nil
}

var nothing uint64

func (d *decoder) file(dst unsafe.Pointer, id uint64) error {
	var f osFile
	if id != 0 {
		if d.env.FileOf == nil || id > math.MaxInt32 {
			return invalid("file %d is not known", id-1)
		}
		var err error
		if f, err = d.env.FileOf(int(id - 1)); err != nil {
			return err
		}
	}
	*(*osFile)(dst) = f
	return nil
}

func (d *decoder) time(o *op, dst unsafe.Pointer, src []byte) error {
	name, err := d.text(o, src)
	if err != nil {
		return err
	}
	z := zone{name, int32(getU32(src[o.at[atOffset]:], o.big))}
	if len(name) > 1<<12 || o.p.kind == kTime && z.offset == zoneNil {
		return invalid("a bad time zone")
	}
	l, err := d.locs.get(z)
	if err != nil {
		return err
	}
	if o.p.kind == kLoc {
		*(**time.Location)(dst) = l
		return nil
	}
	nsec := getU32(src[o.at[atNsec]:], o.big)
	if nsec >= 1e9 {
		return invalid("a time with %d nanoseconds", nsec)
	}
	*(*time.Time)(dst) = time.Unix(int64(o.get(src, atSec)), int64(nsec)).In(l)
	return nil
}
