package graph

import (
	"math"
	"reflect"
	"sync"
	"unsafe"
)

// hchan is the Go runtime's layout of a channel.
type hchan struct {
	count, size  uint
	buf          unsafe.Pointer
	elemSize     uint16
	closed       uint32
	timer        unsafe.Pointer
	elemType     unsafe.Pointer
	sendx, recvx uint
	recvq, sendq struct{ first, last unsafe.Pointer }
}

// channelsKnown verifies that the runtime lays channels out as hchan does.
var channelsKnown = sync.OnceValue(func() bool {
	ch := make(chan int32, 3)
	h := *(**hchan)(unsafe.Pointer(&ch))
	for i := range int32(4) {
		ch <- i
		if i < 2 {
			<-ch
		}
	}
	ok := h.count == 2 && h.size == 3 && h.elemSize == 4 && h.closed == 0 && h.timer == nil && h.recvx == 2 && h.sendx == 1 &&
		h.recvq.first == nil && h.sendq.first == nil && *(*int32)(unsafe.Add(h.buf, 8)) == 2 && *(*int32)(h.buf) == 3
	close(ch)
	return ok && h.closed == 1
})

// hasWaiters says that goroutines which wait for a channel will wait again
// after a restart.
var hasWaiters bool

// NoteWaiters says whether goroutines that wait for channels will wait again
// after a restart. The caller must ensure that they do.
func NoteWaiters(again bool) { hasWaiters = again }

// slotType returns the element type of a channel's stand-in.
func slotType(elem reflect.Type) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "Val", Type: elem}})
}

// pushChan records the stand-in of the channel in the variable at ptr: the
// buffered values, the next one to be received first.
func (c *Collector) pushChan(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	h := *(**hchan)(ptr)
	if h == nil {
		return nil
	}
	if !channelsKnown() {
		return c.refuse(p, i, at, "it is a channel, and this version of Go lays them out in a way that is not known")
	}
	var t unsafe.Pointer
	if p.t.Elem() == timeType {
		k := timersKnown()
		t = k.of(h)
		switch {
		case h.timer != nil && (t == nil || !k.is(t, h)):
			return c.refuse(p, i, at, "it is the channel of a timer, and this version of Go lays them out in a way that is not known")
		case k.async && h.size == 1 && !c.timers[h]:
			return c.refuse(p, i, at, "it may be the channel of a timer, and with a Go version before 1.23 in go.mod that cannot be seen: use time.NewTimer, or ask for go 1.23 there")
		}
	}
	return c.pushFed(p, h, t, i, at)
}

func (e *encoder) channel(o *op, p *plan, src unsafe.Pointer, dst []byte) {
	var obj uint32
	var size, closed uint64
	h := *(**hchan)(src)
	if t := unsafe.Pointer(h); t != nil && p.kind == kTimer {
		if h = timerChan(t); h == nil {
			obj, closed = e.stand(uintptr(t), p.elem), afterMark
		}
	}
	if h != nil {
		obj = e.stand(uintptr(unsafe.Pointer(h)), p.elem)
		size, closed = uint64(h.size), uint64(h.closed)
		if e.c.timers[h] {
			closed = timerMark
		}
	}
	native.PutUint32(dst[o.at[atObj]:], obj)
	put(o, dst, atSize, size)
	put(o, dst, atClosed, closed)
}

// channel returns the channel that a region stands for. It is filled later.
func (d *decoder) channel(o *op, dst unsafe.Pointer, src []byte) error {
	p := o.p
	obj, _ := d.object(o, src)
	size, closed := o.get(src, atSize), o.get(src, atClosed)
	*(*unsafe.Pointer)(dst) = nil
	if obj == 0 {
		return nil
	}
	if obj <= uint64(len(d.regs)) && d.regs[obj-1].p == nil {
		return d.dropped(obj)
	}
	if obj > uint64(len(d.regs)) || d.regs[obj-1].p != p.elem {
		return invalid("a %s has no region", typeName(p.t))
	}
	g := &d.regs[obj-1]
	if closed == timerMark {
		g, err := d.timer(p, obj, size)
		if err != nil {
			return err
		}
		*(*unsafe.Pointer)(dst) = g.m
		if p.kind == kTimer {
			*(*unsafe.Pointer)(dst) = g.timer
		}
		return nil
	}
	if closed == afterMark {
		t, err := d.calling(p, obj)
		*(*unsafe.Pointer)(dst) = t
		return err
	}
	if g.timer != nil || p.kind == kTimer {
		return invalid("a %s of another kind", typeName(p.t))
	}
	if g.n > size || size > math.MaxInt32 || size*uint64(p.elem.size) > uint64(d.limit) || closed > 1 {
		return invalid("a %s of %d elements that holds %d", typeName(p.t), size, g.n)
	}
	if g.m == nil {
		ch := reflect.MakeChan(reflect.ChanOf(reflect.BothDir, p.t.Elem()), int(size))
		g.m, g.mt, g.closed = ch.UnsafePointer(), p, closed == 1
	}
	*(*unsafe.Pointer)(dst) = g.m
	return nil
}

// fillChan fills the channel that a region stands for.
func (g *region) fillChan() {
	ch := reflect.NewAt(reflect.ChanOf(reflect.BothDir, g.mt.t.Elem()), unsafe.Pointer(&g.m)).Elem()
	for i := range uintptr(g.n) {
		ch.Send(reflect.NewAt(g.p.t, unsafe.Add(g.ptr, i*g.p.size)).Elem().Field(0))
	}
	if g.closed {
		ch.Close()
	}
}
