package graph

import (
	"fmt"
	"reflect"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// poolKey identifies a pool.
type poolKey struct {
	root int
	p    *plan
	own  int32 // piece that has a pool of its own, plus 1; 0: the pool is shared
}

// In programs that are saved as a whole, an array of ownPool bytes or more has
// a pool of its own. All arrays of such a program belong to one variable, and
// an array that changes its size would move the others. There may be thousands
// of such arrays: once there are ownPools pools, further arrays share one.
const (
	ownPool  = 1 << 20
	ownPools = 256
)

// poolState is what assemble knows about a pool.
type poolState struct {
	key     poolKey
	p       *plan
	regions int
	huge    int    // regions that take several numbers
	elems   uint64 // elements of all regions
	uniform uint64 // element count of the first region
	regular bool   // all regions have that count and were reached as slices of like
	like    *plan
	first   item // the item that the first region comes from
	text    bool
	placed  bool // regions keep their places
	old     int  // the pool of the last image that this pool continues; -1: none
	kept    uint64
	fill    uint64 // elements, including unused places
	next    uint32
	rows    rowList
	sorted  []uint32 // rows of the image, ordered by start
}

// poolStates finds the pool of a region.
type poolStates struct {
	list  []poolState
	index map[poolKey]int32
	last  []lastPool // by plan id
}

type lastPool struct{ root, pool int32 } // root is the root's index + 1

// If the regions of a pool have fewer than smallRegion bytes on average, they
// keep their places, and the pool is encoded on request instead of being copied
// region by region.
const smallRegion = 4096

// assemble sorts the regions into pools, numbers them, and encodes those with
// pointers.
func (c *Collector) assemble() (*Image, error) {
	c.owners = nil
	img := &Image{}
	c.pools.list, c.pools.index = c.pools.list[:0], make(map[poolKey]int32)
	clear(c.pools.last)
	bytes := false // some byte pool looks like text so far
	err := c.leaders(func(d *leader) error {
		n, ok := c.knownPool(d)
		if !ok {
			k := poolKey{root: d.root, p: d.p, own: c.own(d)}
			if len(c.pools.list) >= ownPools && !d.p.remote {
				k.own = 0
			}
			n, ok = c.pools.index[k]
			if !ok {
				var err error
				if n, err = c.addPool(img, poolState{key: k, p: d.p, uniform: d.count, regular: true, like: c.plan(d.it), first: d.it, text: true, old: -1}); err != nil {
					return err
				}
			}
			c.notePool(d, k, n)
		}
		s := &c.pools.list[n]
		s.regions++
		s.elems += d.count
		if numbers(d.p, d.count) > 1 {
			s.huge++
		}
		v := d.it.via()
		s.regular = s.regular && d.count == s.uniform && v == viaSlice && c.plan(d.it) == s.like
		s.text = s.text && v == viaString
		return nil
	})
	if err == nil {
		err = c.cellPools(img)
	}
	if err != nil {
		return nil, err
	}
	for i := range c.pools.list {
		s := &c.pools.list[i]
		s.placed = c.Remember && s.key.own == 0 && !s.p.remote && s.regions > 1 && s.huge == 0 && s.p.form.Size > 0 &&
			!(s.regular && s.uniform > 1) && s.elems*uint64(s.p.size) < smallRegion*uint64(s.regions)
		bytes = bytes || s.text && s.p.t == byteType
	}
	if c.barCells() {
		return nil, errAgain
	}
	if err := c.number(img); err != nil {
		return nil, err
	}
	if bytes {
		c.texts(img)
	}
	c.shapes(img)
	c.vars(img)
	for _, d := range c.dyn {
		d.finish()
		img.Types = append(img.Types, DynType{typeName(d.t), d.text})
	}
	if err := c.fillPools(img); err != nil {
		return nil, err
	}
	c.findNames(img)
	return img, nil
}

func (c *Collector) addPool(img *Image, s poolState) (int32, error) {
	owner, nth, err := c.owner(s.key.root, s.p)
	if err != nil {
		return 0, err
	}
	n := int32(len(c.pools.list))
	c.pools.index[s.key] = n
	c.pools.list = append(c.pools.list, s)
	img.Pools = append(img.Pools, Pool{Var: s.key.root, Owner: owner, Nth: nth, Elem: typeName(s.p.t), Form: s.p.form, Pointers: s.p.enc && s.p.form.Size > 0, Remote: s.p.remote})
	return n, nil
}

// own returns the piece plus 1 if a region may have a pool of its own,
// otherwise 0.
func (c *Collector) own(d *leader) int32 {
	if wholeProgram && !d.p.enc && d.piece > 0 && d.count*uint64(d.p.size) >= ownPool {
		return int32(d.piece)
	}
	return 0
}

// knownPool returns the pool of a region if the last lookup for its type was
// for the same root.
func (c *Collector) knownPool(d *leader) (int32, bool) {
	if id := int(d.p.id); id < len(c.pools.last) && c.own(d) == 0 {
		if l := c.pools.last[id]; l.root == int32(d.root)+1 {
			return l.pool, true
		}
	}
	return 0, false
}

func (c *Collector) notePool(d *leader, k poolKey, n int32) {
	if k.own != 0 || c.own(d) != 0 {
		return
	}
	id := int(d.p.id)
	if id >= len(c.pools.last) {
		c.pools.last = append(c.pools.last, make([]lastPool, id+1-len(c.pools.last))...)
	}
	c.pools.last[id] = lastPool{int32(d.root) + 1, n}
}

// poolOf returns the pool of a region. The region must have one.
func (c *Collector) poolOf(d *leader) int32 {
	if n, ok := c.knownPool(d); ok {
		return n
	}
	k := poolKey{root: d.root, p: d.p, own: c.own(d)}
	n, ok := c.pools.index[k]
	if !ok {
		k.own = 0
		n = c.pools.index[k]
	}
	c.notePool(d, k, n)
	return n
}

// texts finds the byte pools that are also reached in other ways than as
// strings.
func (c *Collector) texts(img *Image) {
	guess := 0
	for i, it := range c.items.S {
		if it.alone() || it.via() == viaString || c.plan(it).base.t != byteType {
			continue
		}
		num := c.pieces.num.S[c.where.S[i]]
		if r := img.Regions[c.place.row(num, &guess)]; r.Pool >= 0 {
			c.pools.list[r.Pool].text = false
		}
	}
}

// owner finds a type that the restoring program can derive p from.
func (c *Collector) owner(root int, p *plan) (owner, nth int, err error) {
	look := func(q *plan) bool {
		q.finish()
		n, ok := q.nth[p]
		nth = n
		return ok
	}
	if look(c.plan(c.items.S[root])) {
		return root, nth, nil
	}
	if c.owners == nil {
		c.owners = make(map[*plan]int)
		leads := func(q *plan, owner int) {
			if _, known := c.owners[q]; known {
				return // everything that this type leads to has an owner, too
			}
			for _, k := range q.closure() {
				if _, known := c.owners[k]; !known {
					c.owners[k] = owner
				}
			}
		}
		for i := range c.roots {
			leads(c.plan(c.items.S[i]), i)
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
		look(c.plan(c.items.S[owner]))
	default:
		look(c.dyn[^owner])
	}
	return owner, nth, nil
}

// shapes finds a natural shape for each pool.
func (c *Collector) shapes(img *Image) {
	for i := range img.Pools {
		s, pool := &c.pools.list[i], &img.Pools[i]
		pool.Text = s.text && s.p.t == byteType && s.regions > 0
		it := s.first
		p := c.plan(it)
		if pool.Remote && s.regions == 1 {
			if r, _ := mem.FindRemote(address(it.addr)); r != nil {
				if shape := r.Shape(); product(shape) == pool.Count {
					pool.Shape = shape
					continue
				}
			}
		}
		switch {
		case pool.Text || pool.Form.Size == 0 || s.placed:
			pool.Shape = []uint64{pool.Count}
		case s.regions == 1 && it.via() == viaRoot && it.n()*p.mult == pool.Count:
			pool.Shape = p.dims()
		case s.regions == 1 && it.n()*p.mult == pool.Count:
			pool.Shape = append([]uint64{it.n()}, p.dims()...)
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
	return MemoryOf(reflect.NewAt(p.t, ptr).Interface())
}

// vars fills in the variables.
func (c *Collector) vars(img *Image) {
	guess := 0
	for i, r := range c.roots {
		it := c.items.S[i]
		p, ptr := c.plan(it), address(it.addr)
		p.finish()
		v := Var{Name: r.Name, Type: p.text}
		if w := c.where.S[i]; it.alone() {
			v.Region = uint64(c.stands[w].num)
		} else {
			obj, off := c.position(int(w), it.addr)
			v.Region, v.Off = uint64(obj), uint64(off)
			if at := obj - c.pieces.num.S[w]; at > 0 { // see NextSlots
				v.Region, v.Off = uint64(obj-at), v.Off+uint64(at)*maxOffset
			}
		}
		if p.kind == kSlice && !p.elem.base.enc && p.elem.size > 0 {
			if s := (*sliceHeader)(ptr); s.cap > 0 {
				k := c.pieces.find(uintptr(s.ptr), &guess)
				lo, hi, q := c.extent(k)
				if lo == uintptr(s.ptr) && hi == lo+uintptr(s.cap)*p.elem.size && q == p.elem.base && !c.covered[uint32(k)] {
					v.Data = uint64(c.pieces.num.S[k]) + 1
				}
			}
		}
		if at, n := memoryOf(p, ptr); at != nil && n > 0 {
			k := c.pieces.find(uintptr(at), &guess)
			if lo, hi, q := c.extent(k); lo == uintptr(at) && hi == lo+uintptr(n) && q.remote {
				v.Data = uint64(c.pieces.num.S[k]) + 1
			}
		}
		img.Vars = append(img.Vars, v)
	}
	c.stdVars(img)
}

// extent returns where piece k begins and ends, and its element type.
func (c *Collector) extent(k int) (lo, hi uintptr, p *plan) {
	if k < 0 {
		return 0, 0, planOf(byteType)
	}
	lo = c.pieces.lo.S[k]
	if m, ok := c.merged[uint32(k)]; ok {
		return lo, m.hi, m.p
	}
	guess := 0
	r := c.place.regions[c.place.row(c.pieces.num.S[k], &guess)]
	p = c.pools.list[r.Pool].p
	return lo, lo + uintptr(r.Count)*p.size, p
}

// position returns the region of an address in piece k, and the address's
// distance from the start of the region in slots.
func (c *Collector) position(k int, addr uintptr) (num, off uint32) {
	num = c.pieces.num.S[k]
	at := addr - c.pieces.lo.S[k]
	if at == 0 {
		return num, 0
	}
	_, _, p := c.extent(k)
	n := at / p.size
	slots := uint64(n)*p.slots + p.slotOf(at-n*p.size)
	return num + uint32(slots/maxOffset), uint32(slots % maxOffset)
}
