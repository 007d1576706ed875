package ckpttest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/mem"
)

// ErrDevice is the error of a failing Device.
var ErrDevice = errors.New("the fake device failed")

// Device is a fake mem.Device in host memory. It counts the bytes that are
// copied, and fails on request.
type Device struct {
	mu    sync.Mutex
	Room  int64
	Read  int64 // bytes read
	Froze int64
	Calls int
	Fail  int // number of the first call that fails; all later ones fail, too
	Open  int // open diffs and frozen copies
	Over  int // diffs that found too many changes
}

func (d *Device) call() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.Calls++; d.Fail > 0 && d.Calls >= d.Fail {
		return ErrDevice
	}
	return nil
}

func (d *Device) Name() string       { return "fake" }
func (d *Device) Pin(p []byte) error { return d.call() }
func (d *Device) Unpin(p []byte)     {}
func (d *Device) Reserve(int64)      {}

func digests(b []byte, block int64) (out []xxh3.Uint128) {
	for len(b) > 0 {
		n := min(int64(len(b)), block)
		out = append(out, mem.Digest(b[:n]))
		b = b[n:]
	}
	return out
}

func (d *Device) Diff(at mem.Extent, most int) (mem.Diff, error) {
	if d.Room == 0 {
		return nil, mem.ErrNoRoom
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	data := (*at.Buffer.(*[]byte))[at.Off : at.Off+at.Len]
	d.Open++
	return &diff{d: d, at: at, most: most, data: data, sums: digests(data, at.Block), expect: make([]xxh3.Uint128, at.Blocks())}, nil
}

type diff struct {
	d            *Device
	at           mem.Extent
	most         int
	data         []byte
	sums, expect []xxh3.Uint128
	list         []mem.Changed
	frozen       *frozen
}

func (v *diff) Expect() []xxh3.Uint128 { return v.expect }

func (v *diff) Start() error {
	var copies []byte
	for _, i := range rand.Perm(len(v.sums)) {
		sum := v.sums[i]
		if sum == v.expect[i] {
			continue
		}
		p := make([]byte, v.at.Block)
		copy(p, v.data[int64(i)*v.at.Block:])
		copies = append(copies, p...)
		v.list = append(v.list, mem.Changed{Block: uint64(i), Digest: sum})
	}
	err := v.d.call()
	if err == nil && int64(v.most)*v.at.Block > v.d.Room {
		err = mem.ErrNoRoom
	}
	if err != nil {
		v.Close()
		return err
	}
	if len(v.list) > 0 && len(v.list) <= v.most {
		v.frozen = &frozen{d: v.d, data: [][]byte{copies}, block: []int64{v.at.Block}}
		v.d.Froze += int64(len(copies))
	}
	return nil
}

func (v *diff) Wait() ([]mem.Changed, mem.Frozen, error) {
	defer v.Close()
	if len(v.list) > v.most {
		v.d.Over++
		return nil, nil, mem.ErrNoRoom
	}
	if err := v.d.call(); v.frozen == nil || err != nil {
		return nil, nil, err
	}
	v.d.Open++
	return v.list, v.frozen, nil
}

func (v *diff) Close() {
	if v.d != nil {
		v.d.Open--
		v.d = nil
	}
}

func (d *Device) Freeze(at []mem.Extent) (mem.Frozen, error) {
	f := &frozen{d: d}
	n := int64(0)
	for _, e := range at {
		n += e.Len
		f.data = append(f.data, bytes.Clone((*e.Buffer.(*[]byte))[e.Off:e.Off+e.Len]))
		f.block = append(f.block, e.Block)
	}
	if n > d.Room {
		return nil, mem.ErrNoRoom
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	d.Froze += n
	d.Open++
	return f, nil
}

func (d *Device) Live(at []mem.Extent) (mem.Frozen, error) {
	f := &frozen{d: d}
	for _, e := range at {
		f.data = append(f.data, (*e.Buffer.(*[]byte))[e.Off:e.Off+e.Len])
		f.block = append(f.block, e.Block)
	}
	if err := d.call(); err != nil {
		return nil, err
	}
	d.Open++
	return f, nil
}

type frozen struct {
	d     *Device
	data  [][]byte
	block []int64
	under []chan struct{} // copies in progress; each channel is closed when the copy is done
}

func (f *frozen) Wait() error { return f.d.call() }

func (f *frozen) Digests(i, lo, hi int) ([]xxh3.Uint128, error) {
	b := f.data[i]
	return digests(b[int64(lo)*f.block[i]:min(int64(hi)*f.block[i], int64(len(b)))], f.block[i]), f.d.call()
}

func (f *frozen) Read(dst []byte, i int, off int64) error {
	f.d.Read += int64(len(dst))
	done := make(chan struct{})
	f.under = append(f.under, done)
	go func() {
		defer close(done)
		copy(dst, f.data[i][off:off+int64(len(dst))])
	}()
	return f.d.call()
}

func (f *frozen) Mark() (func() error, error) {
	under := f.under[:len(f.under):len(f.under)]
	return func() error { await(under); return f.d.call() }, f.d.call()
}

func (f *frozen) Close() {
	await(f.under)
	if f.d != nil {
		f.d.Open--
		f.d = nil
	}
}

func await(list []chan struct{}) {
	for _, done := range list {
		<-done
	}
}

// Array is an array whose bytes are in several places.
type Array struct {
	Data    []byte // its content; devices have other memory with the same content
	Parts   []Part
	Ptr     unsafe.Pointer
	Guarded atomic.Int64 // guards in effect
	Yield   []func([]byte)
}

// Part is a part of an Array in one place.
type Part struct {
	Len     int64
	Dev     *Device // nil: host
	Buf     []byte
	Version uint64
	Guarded bool // a host copy that the program does not change
}

// Cell is an element of an Array.
type Cell struct{ V float32 }

func (Cell) CairnCell() {}

func (a *Array) CairnState(c *graph.Coder) error {
	var cells []Cell
	if !c.Restoring() {
		cells = unsafe.Slice((*Cell)(a.Ptr), len(a.Data)/4)
	}
	graph.Field(c, "data", &cells)
	if c.Restoring() && len(cells) > 0 {
		r, _ := mem.FindRemote(unsafe.Pointer(&cells[0]))
		a.Data = r.(*Array).Data
	}
	return nil
}

func init() { graph.DescribeMemory((*Array).addresses) }

func (a *Array) addresses() (unsafe.Pointer, int64) { return a.Ptr, int64(len(a.Data)) }

func (a *Array) Shape() []uint64 { return []uint64{uint64(len(a.Data) / 4)} }

func (a *Array) Places(lo, hi int64) (out []mem.Place, err error) {
	at := int64(0)
	for i := range a.Parts {
		w := &a.Parts[i]
		l, h := max(lo, at), min(hi, at+w.Len)
		if l < h {
			p := mem.Place{Len: h - l, Version: w.Version}
			if w.Dev == nil {
				p.Host = a.Data[l:h]
				if w.Guarded {
					p.Guard = func(yield func([]byte)) func() {
						a.Guarded.Add(1)
						a.Yield = append(a.Yield, yield)
						return func() { a.Guarded.Add(-1) }
					}
				}
			} else {
				p.Device, p.Buffer, p.Off = w.Dev, &w.Buf, l-at
			}
			out = append(out, p)
		}
		at += w.Len
	}
	return out, nil
}

func (a *Array) Host(lo, hi int64) ([]byte, error)   { return a.Data[lo:hi], nil }
func (a *Array) Target(lo, hi int64) ([]byte, error) { return a.Data[lo:hi], nil }
func (a *Array) Fill(off int64, p []byte) error      { copy(a.Data[off:], p); return nil }

// NewArray returns an Array of n bytes.
func NewArray(n int64) *Array {
	a := &Array{Data: make([]byte, n)}
	var err error
	if a.Ptr, err = mem.Reserve(a, n); err != nil {
		panic(err)
	}
	return a
}

var lastVersion uint64

// Scatter distributes the bytes over devices and the host, at random.
func (a *Array) Scatter(r *rand.Rand, devs []*Device) {
	a.Parts = nil
	for left := int64(len(a.Data)); left > 0; {
		n := left
		if r.IntN(3) > 0 {
			n = min(left, 4*(1+r.Int64N(100_000)))
		}
		w := Part{Len: n}
		if k := r.IntN(len(devs) + 2); k < len(devs) {
			w.Dev = devs[k]
		} else if w.Guarded = k == len(devs); w.Guarded {
			lastVersion++
			w.Version = lastVersion
		}
		a.Parts = append(a.Parts, w)
		left -= n
	}
	a.Upload(true)
}

// Upload gives the devices the current content, as kernels would write it.
func (a *Array) Upload(all bool) {
	at := int64(0)
	for i := range a.Parts {
		w := &a.Parts[i]
		if now := a.Data[at : at+w.Len]; (w.Dev != nil || w.Guarded) && (all || !bytes.Equal(w.Buf, now)) {
			lastVersion++
			w.Buf, w.Version = bytes.Clone(now), lastVersion
		}
		at += w.Len
	}
}

// Change changes some bytes at random.
func (a *Array) Change(r *rand.Rand) {
	for range r.IntN(4) {
		lo := r.IntN(len(a.Data))
		p := a.Data[lo:min(len(a.Data), lo+1+r.IntN(200_000))]
		switch r.IntN(3) {
		case 0:
			clear(p)
		default:
			for i := range p {
				p[i] = byte(r.Uint32())
			}
		}
	}
}
