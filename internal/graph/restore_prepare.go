package graph

import (
	"cmp"
	"errors"
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/hdf5"
	"github.com/cairnrun/cairn/internal/mem"
)

// Options are options of Prepare.
type Options struct {
	Limit int64 // maximum number of bytes to allocate; 0: 1<<40
	// Added allows variables that the checkpoint lacks. They keep their values.
	Added bool
	// Drop names variables of the checkpoint that are not restored. No other
	// variable may refer to memory that was reached first through a dropped
	// one.
	Drop []string
	// Adopt names memory to take over.
	Adopt *Adoption
}

// Builder restores an image.
type Builder struct {
	env   *Env
	img   *Image
	roots []rootVar
	dyn   []*plan
	pools []poolTarget
	regs  []region
	codec bool // some value has CairnState

	inPlace spanSet
	static  []staticPlace
	locs    locations
	names   *resolver
	words   map[wordKey]unsafe.Pointer
	late    []lateIface
	fixes   []fix
	funcs   []funcFix
	limit   int64
	edges   []edge
	drops   []func() // free memory on devices that was allocated
	adopted map[int]bool
	rooted  map[uint64]bool // regions that contain variables, once known
	boxes   []placed        // values in interfaces
	stands  []placed        // functions and values with stand-ins
	done    bool
	// finished says that everything is restored. See Collector.KeepPlaces.
	finished bool
}

type rootVar struct {
	ptr unsafe.Pointer
	p   *plan
}

// staticPlace says where a package variable lies in this program; nil: the
// image comes from another program.
type staticPlace struct {
	index int
	ptr   unsafe.Pointer
}

// region is memory to be filled.
type region struct {
	ptr    unsafe.Pointer
	start  uint64 // first element in its pool
	n      uint64
	p      *plan
	next   uint32         // not 0: it continues the region that is so many numbers before it, see NextSlots
	known  bool           // it has its value already
	fresh  bool           // Prepare allocated it
	m      unsafe.Pointer // the map or channel that the region stands for, once known
	mt     *plan
	closed bool           // the channel is closed
	timer  unsafe.Pointer // the timer of the channel
}

type poolTarget struct {
	p       *plan
	direct  bool
	ops     []op     // converts the file form to memory, unless direct
	scratch []byte   // file bytes of an encoded pool
	regions []uint32 // in order of their places
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalid}, args...)...)
}

// Prepare checks a saved image, whose pools have the forms of the file and no
// pieces, against the roots of this program, and allocates what it needs. The
// roots are not changed before a target is filled. All mismatches are returned,
// joined; other errors about the image wrap ErrInvalid. The caller closes the
// Builder.
func Prepare(roots []Root, saved *Image, env *Env, opt Options) (*Builder, error) {
	if env == nil {
		env = new(Env)
	}
	if opt.Limit <= 0 {
		opt.Limit = 1 << 40
	}
	b := &Builder{limit: opt.Limit, env: env, img: saved, locs: make(locations), words: make(map[wordKey]unsafe.Pointer)}
	if err := b.match(roots, opt); err != nil {
		return nil, err
	}
	if err := b.checkPools(); err != nil {
		return nil, err
	}
	need, err := b.checkRegions()
	if err != nil {
		return nil, err
	}
	if err := b.place(); err != nil {
		return nil, err
	}
	if need > uint64(opt.Limit) {
		return nil, invalid("the state needs %d bytes, the limit is %d", need, opt.Limit)
	}
	b.adopt(opt.Adopt)
	if err := b.allocate(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// Close frees memory on devices that no value uses. Call it when the state is
// complete or given up. No target may be filled after that.
func (b *Builder) Close() {
	for _, drop := range b.drops {
		drop()
	}
	b.drops = nil
}

// match pairs the variables and dynamic types of the checkpoint with those of
// the program.
func (b *Builder) match(roots []Root, opt Options) error {
	ps, err := rootPlans(roots)
	if err != nil {
		return err
	}
	index := make(map[string]int, len(roots))
	for i, r := range roots {
		index[r.Name] = i
	}
	drop := make(map[string]bool, len(opt.Drop))
	for _, name := range opt.Drop {
		drop[name] = true
	}
	var errs []error
	b.roots = make([]rootVar, len(b.img.Vars))
	seen := make(map[string]bool, len(b.img.Vars))
	for i, v := range b.img.Vars {
		k, ok := index[v.Name]
		if seen[v.Name] {
			return invalid("two variables are called %q", v.Name)
		}
		seen[v.Name] = true
		if drop[v.Name] {
			continue
		}
		if IsStdVar(v.Name) {
			r, ok := stdVar(v.Name)
			if !ok {
				errs = append(errs, &MismatchError{Name: v.Name, Path: v.Name, Detail: "this version of Go has no such variable"})
			} else if r.p == nil { // a package variable: it is placed when its region is known
				b.static = append(b.static, staticPlace{i, r.ptr})
				continue
			} else if err := compare(v.Name, v.Type, r.p); err != nil {
				errs = append(errs, err)
			}
			b.roots[i] = r
			continue
		}
		if !ok {
			errs = append(errs, &MismatchError{Name: v.Name, Path: v.Name, Detail: "the program has no such variable", Removed: true})
			continue
		}
		if err := compare(v.Name, v.Type, ps[k]); err != nil {
			errs = append(errs, err)
		}
		b.roots[i] = rootVar{reflect.ValueOf(roots[k].Ptr).UnsafePointer(), ps[k]}
	}
	for _, r := range roots {
		if !seen[r.Name] && !opt.Added {
			errs = append(errs, &MismatchError{Name: r.Name, Path: r.Name, Detail: "the checkpoint has no such variable", Added: true})
		}
	}
	b.names = newResolver(ps, b.env.Types)
	for _, d := range b.img.Types {
		t, err := b.names.resolve(d.Name)
		if err != nil && len(opt.Drop) > 0 && !errors.Is(err, ErrInvalid) {
			b.dyn = append(b.dyn, nil) // perhaps only a dropped variable had a value of this type
			continue
		}
		if err != nil {
			if !errors.Is(err, ErrInvalid) {
				err = &MismatchError{Name: d.Name, Path: d.Name, Detail: err.Error()}
			}
			errs = append(errs, err)
			continue
		}
		p := planOf(t)
		if p.base.remote {
			return invalid("a value of type %.200q, which is only found on devices", d.Name)
		}
		if err := compare(d.Name, d.Type, p); err != nil {
			errs = append(errs, err)
		}
		b.dyn = append(b.dyn, p)
	}
	return errors.Join(errs...)
}

// checkPools finds the type of each pool and the steps that read its form.
func (b *Builder) checkPools() error {
	b.pools = make([]poolTarget, len(b.img.Pools))
	for i := range b.img.Pools {
		pool, t := &b.img.Pools[i], &b.pools[i]
		var owner *plan
		switch o := pool.Owner; {
		case o >= 0 && o < len(b.roots):
			owner = b.roots[o].p
		case o < 0 && ^o < len(b.dyn):
			owner = b.dyn[^o]
		default:
			return invalid("pool %d has no type", i)
		}
		if owner == nil {
			continue // t.p stays nil: the pool is dropped
		}
		all := owner.closure()
		if pool.Var < 0 || pool.Var >= len(b.roots) || pool.Nth < 0 || pool.Nth >= len(all) {
			return invalid("pool %d has no type", i)
		}
		p := all[pool.Nth]
		if typeName(p.t) != pool.Elem || p.base != p {
			return invalid("pool %d holds %.200q, not %s", i, pool.Elem, typeName(p.t))
		}
		t.p = p
		if p.form.Size == 0 {
			if pool.Form.Size != 0 {
				return invalid("pool %d of %s has a form", i, pool.Elem)
			}
			t.ops = p.ops
			continue
		}
		if err := checkForm(pool.Form, 0); err != nil {
			return invalid("pool %d: %v", i, err)
		}
		if !p.enc && pool.Form.Equal(p.form) {
			t.direct = true
			continue
		}
		ops, err := compile(p, pool.Form)
		if err != nil {
			return err
		}
		t.ops = ops
		b.codec = b.codec || p.hasCodec
	}
	return nil
}

// checkForm makes sure that a form from a file is consistent.
func checkForm(t hdf5.Type, depth int) error {
	const maxSize = 1 << 30
	bad := fmt.Errorf("a bad form")
	if depth > 64 || t.Size <= 0 || t.Size > maxSize {
		return bad
	}
	switch t.Class {
	case hdf5.Int, hdf5.Uint, hdf5.Float:
		if t.Size > 8 || t.Size&(t.Size-1) != 0 {
			return bad
		}
	case hdf5.Bool:
		if t.Size != 1 {
			return bad
		}
	case hdf5.Array:
		n := uint64(1)
		for _, d := range t.Dims {
			if d <= 0 || d > maxSize {
				return bad
			}
			if n *= uint64(d); n > maxSize {
				return bad
			}
		}
		if t.Elem == nil || len(t.Dims) == 0 {
			return bad
		}
		if err := checkForm(*t.Elem, depth+1); err != nil {
			return err
		}
		if n*uint64(t.Elem.Size) != uint64(t.Size) {
			return bad
		}
	case hdf5.Compound:
		for _, f := range t.Fields {
			if err := checkForm(f.Type, depth+1); err != nil {
				return err
			}
			if f.Offset < 0 || f.Offset > t.Size-f.Type.Size {
				return bad
			}
		}
	case hdf5.String:
	default:
		return bad
	}
	return nil
}

// checkRegions makes sure that the regions fill the pools, and returns how much
// memory they take.
func (b *Builder) checkRegions() (need uint64, err error) {
	total := uint64(0)
	for _, r := range b.img.Regions {
		total += uint64(r.Repeat)
	}
	if total >= noObject || total*uint64(unsafe.Sizeof(region{})) > uint64(b.limit) {
		return 0, invalid("%d regions", total)
	}
	b.regs = make([]region, 0, total)
	fill := make([]uint64, len(b.pools))
	rows := make([][]Region, len(b.pools)) // the rows of each pool
	far := uint64(0)
	for i, r := range b.img.Regions {
		if r.Pool == NextSlots {
			if len(b.regs) == 0 || uint64(r.Repeat) > 1<<20 {
				return 0, invalid("region %d continues none", len(b.regs))
			}
			for k := range r.Repeat {
				b.regs = append(b.regs, region{next: k + 1})
			}
			continue
		}
		if r.Pool == Unused {
			b.regs = append(b.regs, make([]region, r.Repeat)...)
			continue
		}
		if r.Pool < 0 || int(r.Pool) >= len(b.pools) {
			return 0, invalid("region %d is in pool %d of %d", i, r.Pool, len(b.pools))
		}
		pool, t := &b.img.Pools[r.Pool], &b.pools[r.Pool]
		hi, elems := bits.Mul64(uint64(r.Repeat), r.Count)
		if hi != 0 || elems > pool.Count || r.Start > pool.Count-elems {
			if pool.Form.Size > 0 || r.Start != 0 || r.Count > pool.Count {
				return 0, invalid("region %d takes elements %d+%d of %d", i, r.Start, r.Count, pool.Count)
			}
		}
		if pool.Form.Size > 0 {
			fill[r.Pool] += elems
			rows[r.Pool] = append(rows[r.Pool], r)
		}
		if t.p == nil {
			b.regs = append(b.regs, make([]region, r.Repeat)...)
			continue
		}
		hi, bytes := bits.Mul64(r.Count*uint64(r.Repeat), uint64(t.p.size))
		if hi != 0 || bytes > 1<<46 {
			return 0, invalid("region %d has %d elements of %d bytes", i, r.Count, t.p.size)
		}
		if t.p.remote { // the device that allocates the memory checks its size
			far += bytes
		} else {
			need += bytes
		}
		if need > 1<<62 || far > 1<<46 {
			return 0, invalid("the state is too large")
		}
		for k := range uint64(r.Repeat) {
			t.regions = append(t.regions, uint32(len(b.regs)))
			start := r.Start + k*r.Count
			if pool.Form.Size == 0 {
				start = 0
			}
			b.regs = append(b.regs, region{start: start, n: r.Count, p: t.p})
		}
	}
	for i := range b.pools {
		t := &b.pools[i]
		byStart := func(x, y uint32) int { return cmp.Compare(b.regs[x].start, b.regs[y].start) }
		if !slices.IsSortedFunc(t.regions, byStart) {
			slices.SortStableFunc(t.regions, byStart)
		}
		byRow := func(x, y Region) int { return cmp.Compare(x.Start, y.Start) }
		if !slices.IsSortedFunc(rows[i], byRow) {
			slices.SortStableFunc(rows[i], byRow)
		}
		at := uint64(0)
		for _, r := range rows[i] {
			if r.Count > 0 && r.Start != at {
				return 0, invalid("two regions take element %d of pool %d", r.Start, i)
			}
			at += r.Count * uint64(r.Repeat)
		}
	}
	for i := range b.pools {
		pool := &b.img.Pools[i]
		if pool.Form.Size == 0 {
			continue
		}
		if fill[i] != pool.Count {
			return 0, invalid("pool %d has %d elements, its regions %d", i, pool.Count, fill[i])
		}
		if p := b.pools[i].p; p != nil && p.enc {
			hi, bytes := bits.Mul64(pool.Count, uint64(pool.Form.Size))
			if hi != 0 || bytes > 1<<46 {
				return 0, invalid("pool %d has %d elements of %d bytes", i, pool.Count, pool.Form.Size)
			}
			need += bytes
		}
	}
	return need, nil
}

// place assigns regions to memory that the program has already: the roots, and
// the arrays of roots that are slices.
func (b *Builder) place() error {
	// First place roots that cover their regions, then roots inside others.
	for i, v := range b.img.Vars {
		r := b.roots[i]
		if v.Region >= uint64(len(b.regs)) {
			return invalid("%s is in region %d of %d", v.Name, v.Region, len(b.regs))
		}
		g := &b.regs[v.Region]
		if r.p == nil || g.p == nil {
			continue
		}
		if v.Off != 0 || !same(g.p, r.p.base) || g.n != r.p.mult && r.p.size != 0 || g.ptr != nil {
			continue
		}
		g.ptr, g.known = r.ptr, IsStdVar(v.Name)
		if r.p.size > 0 {
			s := span{uintptr(r.ptr), uintptr(r.ptr) + r.p.size}
			if !b.inPlace.add(s) {
				return &MismatchError{Name: v.Name, Path: v.Name, Detail: "the variable overlaps another one, in the checkpoint it does not"}
			}
		}
	}
	for i, v := range b.img.Vars {
		r := b.roots[i]
		if r.p == nil {
			continue
		}
		g := &b.regs[v.Region]
		if g.ptr == nil && g.p != nil {
			return invalid("%s is in region %d, which is no variable", v.Name, v.Region)
		}
		ptr, err := b.target(v.Region+1, v.Off, r.p.base, r.p.mult)
		if err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
		if ptr != r.ptr && r.p.size > 0 {
			return &MismatchError{Name: v.Name, Path: v.Name, Detail: "in the checkpoint the variable shares its memory with another one"}
		}
	}
	for _, q := range b.static {
		if q.ptr != nil {
			b.placeStatic(&b.img.Vars[q.index], q.ptr)
		}
	}
	shared := b.sharedSlices()
	for i, v := range b.img.Vars {
		r := b.roots[i]
		if v.Data == 0 || r.p == nil {
			continue
		}
		if v.Data > uint64(len(b.regs)) {
			return invalid("%s: no region %d", v.Name, v.Data-1)
		}
		if g := &b.regs[v.Data-1]; g.p != nil && g.p.remote && g.ptr == nil {
			at, n := memoryOf(r.p, r.ptr)
			sp := span{uintptr(at), uintptr(at) + uintptr(n)}
			if at != nil && uint64(n) == g.n*uint64(g.p.size) && b.inPlace.add(sp) {
				g.ptr = at
			}
			continue
		}
		if r.p.kind != kSlice {
			continue
		}
		g, e := &b.regs[v.Data-1], r.p.elem
		s := (*sliceHeader)(r.ptr)
		if g.ptr != nil || e.base.enc || e.size == 0 || g.p != e.base || s.cap == 0 || uint64(s.cap)*e.mult != g.n {
			continue
		}
		sp := span{uintptr(s.ptr), uintptr(s.ptr) + uintptr(s.cap)*e.size}
		if !shared[i] && b.inPlace.add(sp) {
			g.ptr = s.ptr
		}
	}
	return nil
}

// sharedSlices returns the roots that are slices and share memory with another
// such root.
func (b *Builder) sharedSlices() map[int]bool {
	type root struct {
		span
		index int
	}
	var all []root
	for i, r := range b.roots {
		if r.p == nil || r.p.kind != kSlice {
			continue
		}
		if s := (*sliceHeader)(r.ptr); s.cap > 0 && r.p.elem.size > 0 {
			all = append(all, root{span{uintptr(s.ptr), uintptr(s.ptr) + uintptr(s.cap)*r.p.elem.size}, i})
		}
	}
	slices.SortFunc(all, func(a, b root) int { return cmp.Compare(a.lo, b.lo) })
	shared := make(map[int]bool)
	for i, widest := 1, 0; i < len(all); i++ { // widest is the slice before i that ends last
		if all[i].lo < all[widest].hi {
			shared[all[i].index], shared[all[widest].index] = true, true
		}
		if all[i].hi > all[widest].hi {
			widest = i
		}
	}
	return shared
}

const (
	slabRegions = 1000    // Pools with more regions than slabRegions are allocated in slabs.
	slabBytes   = 1 << 20 // largest slab
)

// allocate gives memory to all regions that have none.
func (b *Builder) allocate() error {
	for i := range b.pools {
		t := &b.pools[i]
		if t.p == nil {
			continue
		}
		var slab unsafe.Pointer
		left, pending := uint64(0), uint64(0)
		carve := len(t.regions) > slabRegions && t.p.size > 0
		if carve {
			for _, k := range t.regions {
				if b.regs[k].ptr == nil {
					pending += b.regs[k].n
				}
			}
		}
		for _, k := range t.regions {
			g := &b.regs[k]
			if g.ptr != nil {
				continue
			}
			g.fresh = true
			if t.p.remote && g.n > 0 {
				ptr, drop, err := mem.NewRemote(int64(g.n) * int64(t.p.size))
				if err != nil {
					return err
				}
				g.ptr = ptr
				b.drops = append(b.drops, drop)
				continue
			}
			if !carve || g.n*uint64(t.p.size) > slabBytes/4 || g.n == 0 {
				g.ptr = allocate(t.p, g.n)
				pending -= min(pending, g.n)
				continue
			}
			if left < g.n {
				left = max(g.n, min(pending, slabBytes/uint64(t.p.size)))
				slab = allocate(t.p, left)
			}
			g.ptr = slab
			pending -= g.n
			if left -= g.n; left > 0 {
				slab = unsafe.Add(slab, uintptr(g.n)*t.p.size)
			}
		}
	}
	return nil
}

// allocate returns memory for n zero elements of p. The garbage collector knows
// their type. Memory of size 0 also has an address of its own.
func allocate(p *plan, n uint64) unsafe.Pointer {
	if n <= 1 || p.size == 0 {
		return reflect.New(p.t).UnsafePointer()
	}
	return reflect.MakeSlice(reflect.SliceOf(p.t), int(n), int(n)).UnsafePointer()
}
