package cuda

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// side is one side of a copy3D.
type side struct {
	x, y, z, level uintptr
	kind           uint32 // memory type
	_              uint32
	host           uintptr
	device         uintptr
	array          uintptr
	reserved       uintptr
	pitch, height  uintptr
}

// copy3D has the layout of CUDA_MEMCPY3D.
type copy3D struct {
	src, dst             side
	width, height, depth uintptr
}

// CopyRect copies a block with one command, unless its rows are farther apart
// than the driver can count.
func (q *queue) CopyRect(dst, src driver.Buffer, r driver.Rect) error {
	op := fmt.Sprintf("CopyRect of %d bytes", r.Bytes())
	if text := r.Check(); text != "" {
		return q.d.wrong(op, "%s", text)
	}
	off, n := r.Extent(r.Dst)
	b, to, err := q.d.use(op, dst, off, n)
	if err != nil {
		return err
	}
	defer q.d.unuse(b)
	off, n = r.Extent(r.Src)
	c, from, err := q.d.use(op, src, off, n)
	if err != nil {
		return err
	}
	defer q.d.unuse(c)
	if b == c {
		return q.d.wrong(op, "source and destination are in the same buffer; copy through another buffer")
	}
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	if max(r.Src.Row, r.Dst.Row) > math.MaxInt32 { // CU_DEVICE_ATTRIBUTE_MAX_PITCH
		return q.copyRows(op, to, from, r)
	}
	lay := func(addr uintptr, l driver.Layout) side {
		row := max(l.Row, r.Width)
		s := side{kind: memoryDevice, device: addr, pitch: uintptr(row), height: uintptr(r.Rows)}
		if r.Planes > 1 {
			s.height = uintptr(l.Plane / row)
		}
		return s
	}
	// The memory must be on the heap, because C reads it.
	x := &copy3D{lay(from, r.Src), lay(to, r.Dst), uintptr(r.Width), uintptr(r.Rows), uintptr(r.Planes)}
	if code := int32(dl.Call(q.d.cu.Copy3DAsync, uintptr(unsafe.Pointer(x)), q.stream)); code != success {
		return q.d.fail(op, "cuMemcpy3DAsync", code)
	}
	return nil
}

// copyRows copies a block whose rows are far apart. The context is current.
func (q *queue) copyRows(op string, to, from uintptr, r driver.Rect) (err error) {
	r.Each(func(src, dst int64) {
		if err != nil {
			return
		}
		if code := int32(dl.Call(q.d.cu.DtoDAsync, to+uintptr(dst-r.Dst.Off), from+uintptr(src-r.Src.Off), uintptr(r.Width), q.stream)); code != success {
			err = q.d.fail(op, "cuMemcpyDtoDAsync", code)
		}
	})
	return err
}

// Reaches reports whether the other device is a GPU that the driver can copy
// from. If the GPUs have no direct connection, the driver copies through the
// host by itself, which the caller does as well.
func (d *device) Reaches(other driver.Device) bool {
	o, ok := other.(*device)
	if !ok || o.system != d.system || o == d {
		return false
	}
	d.mu.Lock()
	known, ok := d.peers[o]
	d.mu.Unlock()
	if ok {
		return known
	}
	reached := d.connect(o)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.peers == nil {
		d.peers = make(map[*device]bool)
	}
	d.peers[o] = reached
	return reached
}

// connect lets this device's context use the other's memory.
func (d *device) connect(o *device) bool {
	const op = "connecting with another device"
	can := new(int32)
	if int32(dl.Call(d.cu.CanAccessPeer, uintptr(unsafe.Pointer(can)), uintptr(d.handle), uintptr(o.handle))) != success || *can == 0 {
		return false
	}
	if o.enter(op) != nil { // it makes its context
		return false
	}
	o.leave()
	if d.enter(op) != nil {
		return false
	}
	defer d.leave()
	code := int32(dl.Call(d.cu.EnablePeer, o.ctx, 0))
	return code == success || code == errPeerEnabled
}

func (q *queue) CopyFrom(dst driver.Buffer, dstOff int64, src driver.Buffer, srcOff, n int64) error {
	op := fmt.Sprintf("CopyFrom of %d bytes", n)
	b, to, err := q.d.use(op, dst, dstOff, n)
	if err != nil {
		return err
	}
	defer q.d.unuse(b)
	x, ok := src.(*buffer)
	if !ok || !q.d.Reaches(x.d) {
		return q.d.wrong(op, "the source (%T) is not a buffer of a GPU that this one reaches; copy through host memory", src)
	}
	c, from, err := x.d.use(op, src, srcOff, n)
	if err != nil {
		return err
	}
	defer x.d.unuse(c)
	if err := q.enter(op); err != nil {
		return err
	}
	defer q.d.leave()
	if n == 0 {
		return nil
	}
	if code := int32(dl.Call(q.d.cu.PeerAsync, to, q.d.ctx, from, x.d.ctx, uintptr(n), q.stream)); code != success {
		return q.d.fail(op, "cuMemcpyPeerAsync", code)
	}
	return nil
}
