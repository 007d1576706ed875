package graph

import (
	"encoding/binary"
	"reflect"
	"unsafe"
)

// encoder writes values with references in their file form.
type encoder struct {
	c     *Collector
	guess int
}

var native = binary.NativeEndian

func (e *encoder) element(ops []op, mem unsafe.Pointer, file []byte) error {
	for i := range ops {
		o := &ops[i]
		src, dst := unsafe.Add(mem, o.moff), file[o.foff:]
		switch o.kind {
		case opCopy:
			copy(dst[:o.n], view(src, o.n))
		case opLoop:
			for k := range o.n {
				if err := e.element(o.sub, unsafe.Add(src, uintptr(k)*o.mstep), dst[k*o.fstep:]); err != nil {
					return err
				}
			}
		case opRef:
			if err := e.ref(o, o.p, src, dst); err != nil {
				return err
			}
		}
	}
	return nil
}

// put writes a member of a reference.
func put(o *op, dst []byte, member int, v uint64) { native.PutUint64(dst[o.at[member]:], v) }

func (e *encoder) ref(o *op, p *plan, src unsafe.Pointer, dst []byte) error {
	switch p.kind {
	case kPtr:
		obj, off := e.locate(*(*unsafe.Pointer)(src), p.elem)
		put(o, dst, atObj, obj)
		put(o, dst, atOff, off)
	case kString:
		s := (*stringHeader)(src)
		e.text(o, s.ptr, s.len, p, dst)
	case kSlice:
		s := (*sliceHeader)(src)
		obj, off := uint64(0), uint64(0)
		if s.cap > 0 {
			obj, off = e.locate(s.ptr, p.elem)
		} else if s.ptr != nil {
			obj = noObject
		}
		put(o, dst, atObj, obj)
		put(o, dst, atOff, off)
		put(o, dst, atLen, uint64(s.len))
		put(o, dst, atCap, uint64(s.cap))
	case kMap:
		put(o, dst, atObj, e.mapObject(p, src))
	case kIface:
		return e.iface(o, p, src, dst)
	case kTime, kLoc:
		return e.time(o, p, src, dst)
	case kFile:
		id, _ := e.c.fileID(src)
		put(o, dst, atObj, id)
	case kFunc:
		obj := uint64(0)
		if f := *(*unsafe.Pointer)(src); f != nil {
			obj = e.alone(e.c.made.get(uintptr(f), p.elem))
		}
		put(o, dst, atObj, obj)
	case kChan, kTimer:
		e.channel(o, p, src, dst)
	case kSyncMap, kCodec:
		i := e.c.made.get(uintptr(src), p.elem)
		n := e.c.items[i].n
		put(o, dst, atObj, e.alone(i))
		put(o, dst, atOff, 0)
		put(o, dst, atLen, n)
		put(o, dst, atCap, n)
	}
	return nil
}

// alone is the object of an item that stands alone.
func (e *encoder) alone(item uint64) uint64 { return uint64(^e.c.where[item]) + 1 }

// locate turns the address of an elem into a reference.
func (e *encoder) locate(ptr unsafe.Pointer, elem *plan) (obj, off uint64) {
	if ptr == nil {
		return 0, 0
	}
	if elem.size == 0 {
		return e.alone(e.c.made.get(uintptr(ptr), elem)), 0
	}
	q := e.c.find(uintptr(ptr), &e.guess)
	return uint64(q.region) + 1, q.position(uintptr(ptr))
}

func (e *encoder) text(o *op, ptr unsafe.Pointer, n int, p *plan, dst []byte) {
	obj, off := uint64(0), uint64(0)
	if n > 0 {
		obj, off = e.locate(ptr, p.elem)
	}
	put(o, dst, atObj, obj)
	put(o, dst, atOff, off)
	put(o, dst, atLen, uint64(n))
}

func (e *encoder) mapObject(p *plan, src unsafe.Pointer) uint64 {
	m := *(*unsafe.Pointer)(src)
	if m == nil {
		return 0
	}
	return e.alone(e.c.made.get(uintptr(m), p.elem))
}

func (e *encoder) iface(o *op, p *plan, src unsafe.Pointer, dst []byte) error {
	d, err := e.c.dynamic(p, src)
	if err != nil {
		return err
	}
	obj, off := uint64(0), uint64(0)
	index := uint32(0)
	if d != nil {
		index = e.c.dynIndex[d]
		data := &(*ifaceHeader)(src).data
		switch {
		case d.kind == kPtr && d.t.Kind() == reflect.Pointer:
			obj, off = e.locate(*data, d.elem)
		case d.kind == kMap:
			obj = e.mapObject(d, unsafe.Pointer(data))
		case d.direct:
			if *data != nil {
				obj = e.alone(e.c.made.get(uintptr(unsafe.Pointer(data)), d))
			}
		default:
			obj = e.alone(e.c.made.get(uintptr(*data), d))
		}
	}
	native.PutUint32(dst[o.at[atType]:], index)
	put(o, dst, atObj, obj)
	put(o, dst, atOff, off)
	return nil
}
