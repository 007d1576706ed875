package graph

import (
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// poolKey tells pools apart.
type poolKey struct {
	root int
	p    *plan
	own  int32 // a piece that has a pool of its own, +1
}

// ownPool is from how many bytes on an array has a pool of its own, in programs
// that are saved as a whole: all of their arrays are in one variable, and one that
// changes its size would move the others. In memory there may be thousands of
// them; then later ones share.
const (
	ownPool  = 1 << 20
	ownPools = 256
)

// poolState is what assemble knows about a pool while it grows.
type poolState struct {
	p       *plan
	regions int
	uniform uint64 // count of every region so far
	regular bool   // all regions have that count and were reached as slices of like
	like    *plan
	first   int32 // the item that its first region comes from
	text    bool
	fill    int // bytes encoded so far
}

// assemble numbers the regions in order of discovery, sorts them into pools and
// encodes those with pointers.
func (c *Collector) assemble() (*Image, error) {
	c.owners = nil
	img := &Image{Regions: make([]Region, 0, len(c.pieces)+len(c.items)-len(c.keys))}
	c.image = img
	index := make(map[poolKey]int32)
	var states []poolState
	var last poolKey
	lastPool := int32(-1)
	root := 0
	regionOf := make([]unsafe.Pointer, 0, cap(img.Regions)) // memory of regions
	for i := range c.items {
		it := &c.items[i]
		switch {
		case i < len(c.roots):
			root = i
		case i == len(c.roots):
			root = 0
		}
		for i >= len(c.roots) && i >= c.rootEnd[root] {
			root++
		}
		p, ptr, count := it.p.base, it.ptr, it.n*it.p.mult
		if w := c.where[i]; w >= 0 {
			q := &c.pieces[w]
			if q.region >= 0 {
				// Known already; only what is text can change.
				if it.via != viaString {
					states[img.Regions[q.region].Pool].text = false
				}
				continue
			}
			q.region = int32(len(img.Regions))
			p, ptr, count = q.p, c.items[q.low].ptr, uint64((q.hi-q.lo)/q.p.size)
		} else {
			if p.size == 0 {
				count = it.n
			}
			c.where[i] = ^int32(len(img.Regions))
		}
		k := poolKey{root: root, p: p}
		if w := c.where[i]; whole && !p.enc && w >= 0 && count*uint64(p.size) >= ownPool && (p.remote || len(states) < ownPools) {
			k.own = w + 1
		}
		if lastPool < 0 || k != last {
			n, ok := index[k]
			if !ok {
				n = int32(len(states))
				index[k] = n
				states = append(states, poolState{p: p, uniform: count, regular: true, like: it.p, first: int32(i), text: true})
				owner, nth, err := c.owner(root, p)
				if err != nil {
					return nil, err
				}
				img.Pools = append(img.Pools, Pool{Var: root, Owner: owner, Nth: nth, Elem: typeName(p.t), Form: p.form, Pointers: p.enc && p.form.Size > 0, Remote: p.remote})
			}
			last, lastPool = k, n
		}
		s, pool := &states[lastPool], &img.Pools[lastPool]
		s.regions++
		s.regular = s.regular && count == s.uniform && it.via == viaSlice && it.p == s.like
		s.text = s.text && it.via == viaString
		r := Region{lastPool, pool.Count, count}
		if p.form.Size == 0 {
			r.Start = 0
			pool.Count = max(pool.Count, count)
		} else {
			pool.Count += count
		}
		img.Regions = append(img.Regions, r)
		regionOf = append(regionOf, ptr)
	}
	c.shapes(img, states)
	c.vars(img)
	for _, d := range c.dyn {
		d.finish()
		img.Types = append(img.Types, DynType{typeName(d.t), d.text})
	}
	return img, c.encodeAll(img, states, regionOf)
}

// owner finds a type that the restoring program can derive p from.
func (c *Collector) owner(root int, p *plan) (owner, nth int, err error) {
	look := func(q *plan) bool {
		q.finish()
		n, ok := q.nth[p]
		nth = n
		return ok
	}
	if look(c.items[root].p) {
		return root, nth, nil
	}
	if c.owners == nil {
		c.owners = make(map[*plan]int)
		leads := func(q *plan, owner int) {
			if _, known := c.owners[q]; known {
				return // so are all that it leads to
			}
			for _, k := range q.closure() {
				if _, known := c.owners[k]; !known {
					c.owners[k] = owner
				}
			}
		}
		for i := range c.roots {
			leads(c.items[i].p, i)
		}
		for i, d := range c.dyn {
			leads(d, ^i)
		}
	}
	owner, ok := c.owners[p]
	switch {
	case !ok:
		return 0, 0, fmt.Errorf("no type leads to %s", typeName(p.t))
	case owner >= 0:
		look(c.items[owner].p)
	default:
		look(c.dyn[^owner])
	}
	return owner, nth, nil
}

// shapes finds a natural shape for each pool.
func (c *Collector) shapes(img *Image, states []poolState) {
	for i := range states {
		s, pool := &states[i], &img.Pools[i]
		pool.Text = s.text && s.p.t == byteType && s.regions > 0
		it := &c.items[s.first]
		if pool.Remote && s.regions == 1 {
			if r, _ := mem.FindRemote(it.ptr); r != nil {
				if shape := r.Shape(); product(shape) == pool.Count {
					pool.Shape = shape
					continue
				}
			}
		}
		switch {
		case pool.Text || pool.Form.Size == 0:
			pool.Shape = []uint64{pool.Count}
		case s.regions == 1 && it.via == viaRoot && it.n*it.p.mult == pool.Count:
			pool.Shape = it.p.dims()
		case s.regions == 1 && it.n*it.p.mult == pool.Count:
			pool.Shape = append([]uint64{it.n}, it.p.dims()...)
		case s.regular && s.uniform > 1 && s.uniform%s.like.mult == 0:
			pool.Shape = []uint64{uint64(s.regions)}
			if n := s.uniform / s.like.mult; n > 1 {
				pool.Shape = append(pool.Shape, n)
			}
			pool.Shape = append(pool.Shape, s.like.dims()...)
		default:
			pool.Shape = []uint64{pool.Count}
		}
	}
}

func product(dims []uint64) uint64 {
	n := uint64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// memoryOf returns the address range of a variable that is a handle of a
// mem.Remote, nil if it is none.
func memoryOf(p *plan, ptr unsafe.Pointer) (unsafe.Pointer, int64) {
	if p.kind != kCodec {
		return nil, 0
	}
	h, ok := reflect.NewAt(p.t, ptr).Interface().(interface {
		CairnMemory() (unsafe.Pointer, int64)
	})
	if !ok {
		return nil, 0
	}
	return h.CairnMemory()
}

// vars fills in the variables.
func (c *Collector) vars(img *Image) {
	guess := 0
	for i, r := range c.roots {
		it := &c.items[i]
		it.p.finish()
		v := Var{Name: r.Name, Type: it.p.text}
		if w := c.where[i]; w < 0 {
			v.Region = uint64(^w)
		} else {
			q := &c.pieces[w]
			v.Region, v.Off = uint64(q.region), q.position(uintptr(it.ptr))
		}
		if it.p.kind == kSlice && !it.p.elem.base.enc && it.p.elem.size > 0 {
			if s := (*sliceHeader)(it.ptr); s.cap > 0 {
				q := c.find(uintptr(s.ptr), &guess)
				if q.lo == uintptr(s.ptr) && q.hi == q.lo+uintptr(s.cap)*it.p.elem.size && q.p == it.p.elem.base && !q.held {
					v.Data = uint64(q.region) + 1
				}
			}
		}
		if at, n := memoryOf(it.p, it.ptr); at != nil && n > 0 {
			q := c.find(uintptr(at), &guess)
			if q.lo == uintptr(at) && q.hi == q.lo+uintptr(n) && q.p.remote {
				v.Data = uint64(q.region) + 1
			}
		}
		img.Vars = append(img.Vars, v)
	}
	c.knownVars(img)
}

// position of an address in a piece, in slots.
func (q *piece) position(addr uintptr) uint64 {
	off := addr - q.lo
	if off == 0 {
		return 0
	}
	n := off / q.p.size
	return uint64(n)*q.p.slots + q.p.slotOf(off-n*q.p.size)
}

// encodeAll gives the pools their pieces.
func (c *Collector) encodeAll(img *Image, states []poolState, regions []unsafe.Pointer) error {
	used := 0
	for i := range img.Pools {
		p := &img.Pools[i]
		switch {
		case p.Form.Size == 0:
		case p.Pointers:
			if used == len(c.bufs) {
				c.bufs = append(c.bufs, nil)
			}
			n := int(p.Bytes())
			if cap(c.bufs[used]) < n {
				c.bufs[used] = make([]byte, n)
			}
			p.Pieces = [][]byte{c.bufs[used][:n]}
			used++
		default:
			p.Pieces = make([][]byte, 0, states[i].regions)
		}
	}
	clear(c.bufs[used:])
	c.bufs = slices.Delete(c.bufs, used, len(c.bufs))
	e := encoder{c: c}
	for n, r := range img.Regions {
		p, pool := states[r.Pool].p, &img.Pools[r.Pool]
		if pool.Form.Size == 0 || r.Count == 0 {
			continue
		}
		if !pool.Pointers {
			pool.Pieces = append(pool.Pieces, view(regions[n], int(r.Count)*int(p.size)))
			continue
		}
		dst := pool.Pieces[0][int(r.Start)*p.form.Size:]
		src := regions[n]
		for k := uint64(0); ; {
			if err := e.element(p.ops, src, dst); err != nil {
				return err
			}
			if k++; k == r.Count {
				break
			}
			src, dst = unsafe.Add(src, p.size), dst[p.form.Size:]
		}
	}
	return nil
}
