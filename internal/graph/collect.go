package graph

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Collector collects images, again and again. It keeps its tables between
// calls. The pools of an image are valid until the next call. The zero value is
// ready, but serves one goroutine at a time.
type Collector struct {
	// Remember keeps the places of objects in their pools from one image to the
	// next, as far as possible. A new or deleted object then does not move all
	// others. Pools of small objects are not copied then, but encoded on
	// request: see Pool.Gather.
	Remember bool

	env   *Env
	roots []Root
	names *resolver
	types []reflect.Type // types of the roots, to check whether names is up to date

	items      mem.OffHeap[item]
	byID       []*plan             // plans of items, by id
	head       int                 // next item to walk
	lastRun    int                 // see rootOf
	runs       []itemRun           // the root of each item, see itemRun
	partial    map[int]partial     // items of which only some elements have to be walked
	cells      cells               // small objects that need no item
	queue      mem.OffHeap[queued] // cells whose references have not been followed yet
	root       int                 // the root that is being walked
	touched    byte                // sink for the reads in walkCells
	barred     map[cellKey]bool    // kinds that must not be cells
	named      map[uintptr]bool    // pages with package variables, see cellsIn
	celled     bool                // there may be cells
	shown      bool                // collect again: an array on a device has a host copy in the state, see show
	plain      bool                // for tests: no cells
	copies     *Copies             // of other roots, which the image is joined with; nil: none
	early      bool                // the image is a copy of some roots: see Copies.Add
	base       uint32              // how many regions the image is joined with
	elsewhere  map[uintptr]uint32  // objects that the others have → their regions
	numbered   bool                // place belongs to the image that is being collected
	seen       table               // end of a walked piece → its start
	begun      table               // start of a walked slice → its end
	made       table               // map, stand-in, zero-size value → its item, later its region
	keep       []any               // keeps stand-ins alive
	timers     map[*hchan]bool     // channels of timers
	trace      bool                // record how items were reached, for an error's path
	needsTrace bool                // the error lacks its path: set trace and collect again
	traces     []trace

	order      mem.OffHeap[uint32] // scratch memory for sweep
	where      mem.OffHeap[uint32] // item → piece, box or stand-in
	pieces     sorted              // merged memory
	merged     map[uint32]merged
	firstFound map[uint32]uint32 // piece → the item that was reached first, if it is not the lowest
	walked     int               // items from this index on were cells
	covered    map[uint32]bool   // pieces that a root covers completely
	boxes      sorted            // values in interfaces
	stands     []standIn

	dyn      []*plan          // dynamic types, in order of discovery
	dynIndex map[*plan]uint32 // index in dyn, plus 1
	ifaces   map[unsafe.Pointer]*plan
	zones    zoneCache
	inRoots  []span        // see inRoot; nil: not computed yet
	owners   map[*plan]int // a root that leads to a type, or ^ the index of a dynamic type

	place placement // placement of the last image
	pools poolStates
	refs  mem.OffHeap[uintptr] // region → address of its memory; 0: none
	lock  sync.Mutex
	idle  []*encoder
}

// via says how an item was reached.
type via uint8

const (
	viaRoot via = iota
	viaPtr
	viaSlice
	viaString
	viaMap
	viaIface
	viaCodec
	viaSyncMap
	viaFunc
	viaChan
)

// item is a piece of memory that something refers to: n elements of a plan. It
// holds an address instead of a pointer, so that the garbage collector need not
// scan millions of items. The roots and Collector.keep keep the memory alive.
type item struct {
	addr uintptr
	meta uint64 // n, plan, via, alone
}

const (
	maxElements = 1<<40 - 1 // maximum n of an item
	maxPlans    = 1 << 19
)

func newItem(addr uintptr, p *plan, n uint64, v via, alone bool) item {
	m := n<<24 | uint64(p.id)<<5 | uint64(v)<<1
	if alone {
		m |= 1
	}
	return item{addr, m}
}

func (it item) n() uint64   { return it.meta >> 24 }
func (it item) via() via    { return via(it.meta >> 1 & 15) }
func (it item) alone() bool { return it.meta&1 != 0 } // not part of the sweep

// plan returns the type of an item's elements.
func (c *Collector) plan(it item) *plan { return c.byID[it.meta>>5&(maxPlans-1)] }

// end returns the address after an item.
func (c *Collector) end(it item) uintptr { return it.addr + uintptr(it.n())*c.plan(it).size }

// partial is the range of elements of an item that have to be walked.
type partial struct{ from, to uint64 }

// trace records how an item was reached.
type trace struct {
	at     uintptr // byte offset of the reference in the parent
	parent int32   // index of the parent item; -1 for roots
}

// standIn is memory that is saved in place of something else.
type standIn struct {
	addr uintptr
	num  uint32 // region
}

// Check reports whether a root can be saved as it is.
func Check(root Root, env *Env) error {
	c := new(Collector)
	defer c.Close()
	return c.reach([]Root{root}, env)
}

// Collect collects an image of the roots. Nothing may change them meanwhile, or
// while the pieces of pools without pointers are in use.
func Collect(roots []Root, env *Env) (*Image, error) {
	c := new(Collector)
	defer c.Close()
	return c.Collect(roots, env)
}

// Outline is Collect for an image whose pools are not needed.
func Outline(roots []Root, env *Env) (*Image, error) {
	c := &Collector{Remember: true}
	defer c.Close()
	img, err := c.Collect(roots, env)
	if err == nil {
		for i := range img.Pools {
			img.Pools[i].Gather, img.Pools[i].Pieces = nil, nil
		}
	}
	return img, err
}

// Collect works like the function Collect, and keeps tables for the next call.
func (c *Collector) Collect(roots []Root, env *Env) (*Image, error) {
	return c.collect(roots, env, nil)
}

// collect is Collect for an image that is joined with copies of other roots.
// The numbers of its regions begin where theirs end.
func (c *Collector) collect(roots []Root, env *Env, copies *Copies) (*Image, error) {
	c.copies, c.base, c.elsewhere = copies, 0, nil
	if copies != nil {
		c.base, c.elsewhere = copies.regions, copies.std
	}
	c.place.rotate(c)
	c.numbered = false
	ended := false
	defer func() {
		if !ended { // a CairnState method panicked: the tables are incomplete
			c.Forget()
		}
	}()
	img, err := c.image(roots, env, c.Remember)
	if err == errAgain {
		img, err = c.image(roots, env, false)
	}
	ended = true
	// Only what Gather needs remains. It keeps no memory of the program alive
	// except stand-ins.
	c.items.Drop()
	c.where.Drop()
	c.queue.Drop()
	c.seen.drop()
	c.begun.drop()
	c.partial, c.traces = nil, nil
	if err != nil {
		c.Release()
		if c.numbered {
			c.Forget()
		} else {
			c.place.rotate(c) // the next image continues the last complete one
		}
		return nil, err
	}
	if !c.Remember {
		c.Release()
		c.Forget()
	}
	return img, nil
}

// image collects an image, with cells or without.
func (c *Collector) image(roots []Root, env *Env, cells bool) (*Image, error) {
	c.celled = cells
	if err := c.scan(roots, env); err != nil {
		return nil, err
	}
	return c.assemble()
}

// Release says that the pools of the image are not used any more. The collector
// still remembers the places.
func (c *Collector) Release() {
	clear(c.keep)
	c.keep = c.keep[:0]
	c.refs.Drop()
}

// Forget makes the next image give all objects new places.
func (c *Collector) Forget() {
	c.place.drop()
	c.pieces.drop()
	c.boxes.drop()
	c.cells.drop()
	c.made.drop()
	c.refs.Drop()
}

// Close frees the collector's memory.
func (c *Collector) Close() {
	c.items.Close()
	c.queue.Close()
	c.cells.close()
	c.order.Close()
	c.where.Close()
	c.refs.Close()
	c.pieces.close()
	c.boxes.close()
	c.place.close()
}

func (c *Collector) reset(roots []Root, env *Env) {
	if env == nil {
		env = new(Env)
	}
	clear(c.keep)
	c.env, c.roots = env, roots
	c.items.Reset()
	c.keep, c.traces, c.partial, c.needsTrace = c.keep[:0], c.traces[:0], nil, false
	c.runs, c.dyn, c.inRoots = c.runs[:0], c.dyn[:0], c.inRoots[:0]
	c.cells.clear()
	c.cells.on = false
	c.queue.Reset()
	c.seen.clear()
	c.begun.clear()
	c.made.clear()
	clear(c.timers)
	if c.ifaces == nil {
		c.ifaces = make(map[unsafe.Pointer]*plan)
	}
	c.dynIndex = make(map[*plan]uint32)
	if c.copies != nil {
		c.dyn = append(c.dyn, c.copies.dyn...)
		for i, d := range c.dyn {
			c.dynIndex[d] = uint32(i) + 1
		}
	}
}

// rootPlans checks the roots and returns the plans of their types.
func rootPlans(roots []Root) ([]*plan, error) {
	ps := make([]*plan, len(roots))
	names := make(map[string]bool, len(roots))
	for i, r := range roots {
		v := reflect.ValueOf(r.Ptr)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return nil, &UnsupportedError{r.Name, fmt.Sprintf("%T", r.Ptr), "a root has to be a pointer to a variable"}
		}
		if names[r.Name] {
			return nil, &UnsupportedError{r.Name, fmt.Sprintf("%T", r.Ptr), "two roots have this name"}
		}
		names[r.Name] = true
		ps[i] = planOf(v.Type().Elem())
	}
	return ps, nil
}

// reach finds everything that the roots lead to.
func (c *Collector) reach(roots []Root, env *Env) error {
	err := c.tryReach(roots, env)
	if err != nil && c.needsTrace && !c.trace { // collect once more, to find the path for the error
		c.trace = true
		err = c.tryReach(roots, env)
	}
	return err
}

func (c *Collector) tryReach(roots []Root, env *Env) error {
	ps, err := rootPlans(roots)
	if err != nil {
		return err
	}
	c.reset(roots, env)
	c.resolver(ps)
	for i, p := range ps {
		if k := p.t.Kind(); p.kind == kOpaque && (k == reflect.Chan || k == reflect.Func || k == reflect.UnsafePointer) {
			return &UnsupportedError{roots[i].Name, typeName(p.t), p.reason}
		}
		addr := uintptr(reflect.ValueOf(roots[i].Ptr).UnsafePointer())
		if p.size == 0 {
			if v, fresh := c.made.at(addr, p); fresh {
				*v = uint64(i)
			}
		} else if p.base.enc && addr&(1<<p.align-1) == 0 {
			c.first(addr, p, 0)
		}
		if err := c.add(addr, p, 1, viaRoot, p.size == 0, -1, 0); err != nil {
			return err
		}
		c.endRun(i)
	}
	c.cells.on = c.celled && !c.trace && !c.plain && !c.shown
	c.head = len(roots)
	for i := range roots {
		c.root = i
		if err := c.walkItem(i); err != nil {
			return err
		}
		for c.head < len(c.items.S) || len(c.queue.S) > 0 {
			for ; c.head < len(c.items.S); c.head++ {
				if err := c.walkItem(c.head); err != nil {
					return err
				}
			}
			if err := c.walkCells(); err != nil {
				return err
			}
		}
		c.endRun(i)
	}
	return nil
}

// resolver rebuilds names if the types of the roots have changed.
func (c *Collector) resolver(ps []*plan) {
	if c.copies != nil {
		ps = c.copies.plans // those of the joined image
	}
	ts := make([]reflect.Type, 0, len(ps)+len(c.env.Types))
	for _, p := range ps {
		ts = append(ts, p.t)
	}
	ts = append(ts, c.env.Types...)
	if c.names == nil || len(ts) != len(c.types) {
		c.names = nil
	} else {
		for i, t := range ts {
			if t != c.types[i] {
				c.names = nil
				break
			}
		}
	}
	if c.names == nil {
		c.names, c.types = newResolver(ps, c.env.Types), ts
	}
}
