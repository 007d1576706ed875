package graph

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// Finish completes the restoration once all targets are filled: it converts,
// sets pointers, rebuilds maps and stand-ins and runs the CairnState methods.
// After an error the roots are in no particular state.
func (b *Builder) Finish() error {
	if b.done {
		return errors.New("the state is finished already")
	}
	b.done = true
	for i := range b.pools {
		if err := b.fillPool(i); err != nil {
			return err
		}
	}
	for i := range b.regs {
		if g := &b.regs[i]; g.p != nil && g.p.hasBool && !g.p.remote {
			for k := uint64(0); k < g.n; k++ {
				trueOrFalse(g.p, unsafe.Add(g.ptr, uintptr(k)*g.p.size))
			}
		}
	}
	if err := b.makeFuncs(); err != nil {
		return err
	}
	if !b.codec { // otherwise boxes may have to be rebuilt first
		for _, l := range b.late {
			(*ifaceHeader)(l.dst).data = *(*unsafe.Pointer)(l.box)
		}
	}
	if err := b.rebuild(); err != nil {
		return err
	}
	for _, f := range b.fixes {
		b.stands = append(b.stands, placed{uintptr(f.ptr), f.p.elem.id + 1, uint32(f.region)})
	}
	b.late, b.fixes, b.edges = nil, nil, nil
	b.finished = true
	return nil
}

// fillPool decodes an encoded pool.
func (b *Builder) fillPool(i int) error {
	t, pool := &b.pools[i], &b.img.Pools[i]
	if t.p == nil || !t.p.enc {
		return nil
	}
	d := decoder{Builder: b}
	size := pool.Form.Size
	if b.rooted == nil {
		b.rooted = make(map[uint64]bool, len(b.img.Vars))
		for _, v := range b.img.Vars {
			b.rooted[v.Region] = true
		}
	}
	if size > 0 && pool.Count > 0 && t.scratch == nil {
		return fmt.Errorf("pool %d was not filled", i)
	}
	for _, k := range t.regions {
		g := &b.regs[k]
		if size == 0 && !b.rooted[uint64(k)] || g.n == 0 || g.known {
			continue // fresh memory is zero already
		}
		d.in = k
		src := []byte(nil)
		if size > 0 {
			src = t.scratch[int(g.start)*size:]
		}
		if err := d.elements(t, g, src, size); err != nil {
			return fmt.Errorf("%s: %w", b.img.Vars[pool.Var].Name, err)
		}
	}
	t.scratch = nil
	return nil
}

// trueOrFalse makes sure that the bools in a value are 0 or 1. Go relies on
// that, but a file may hold other bytes.
func trueOrFalse(p *plan, ptr unsafe.Pointer) {
	switch p.kind {
	case kScalar:
		if x := (*byte)(ptr); *x > 1 {
			*x = 1
		}
	case kStruct:
		for _, f := range p.fields {
			if f.p.hasBool {
				trueOrFalse(f.p, unsafe.Add(ptr, f.off))
			}
		}
	case kArray:
		for i := range uintptr(p.mult) {
			trueOrFalse(p.base, unsafe.Add(ptr, i*p.base.size))
		}
	}
}

// rebuild makes values from stand-ins. It uses a stand-in only when everything
// that the stand-in refers to is complete, unless the stand-in refers to
// itself.
func (b *Builder) rebuild() error {
	if !b.codec {
		for i := range b.fixes {
			if err := b.fix(&b.fixes[i]); err != nil {
				return err
			}
		}
		for i := range b.regs {
			if err := b.fillMap(uint32(i)); err != nil {
				return err
			}
		}
		return nil
	}
	byRegion := make(map[uint32][]*fix)
	for i := range b.fixes {
		f := &b.fixes[i]
		byRegion[f.in] = append(byRegion[f.in], f)
	}
	late := make(map[uint32][]lateIface)
	for _, l := range b.late {
		late[l.in] = append(late[l.in], l)
	}
	for _, r := range b.postOrder() {
		for _, l := range late[r] {
			(*ifaceHeader)(l.dst).data = *(*unsafe.Pointer)(l.box)
		}
		fs := byRegion[r]
		for i := len(fs) - 1; i >= 0; i-- {
			if err := b.fix(fs[i]); err != nil {
				return err
			}
		}
		if err := b.fillMap(r); err != nil {
			return err
		}
	}
	for _, l := range b.late { // once more, for interfaces in cycles
		(*ifaceHeader)(l.dst).data = *(*unsafe.Pointer)(l.box)
	}
	return nil
}

// postOrder lists the regions such that each comes after the regions it refers
// to, except in cycles.
func (b *Builder) postOrder() []uint32 {
	n := len(b.regs)
	first := make([]uint32, n+1)
	for _, e := range b.edges {
		first[e.from+1]++
	}
	for i := range n {
		first[i+1] += first[i]
	}
	to := make([]uint32, len(b.edges))
	next := make([]uint32, n)
	copy(next, first)
	for _, e := range b.edges {
		to[next[e.from]] = e.to
		next[e.from]++
	}
	copy(next, first)
	seen := make([]bool, n)
	order := make([]uint32, 0, n)
	var stack []uint32
	for i := range n {
		if seen[i] {
			continue
		}
		seen[i] = true
		stack = append(stack[:0], uint32(i))
		for len(stack) > 0 {
			r := stack[len(stack)-1]
			if next[r] == first[r+1] {
				order = append(order, r)
				stack = stack[:len(stack)-1]
				continue
			}
			t := to[next[r]]
			next[r]++
			if !seen[t] {
				seen[t] = true
				stack = append(stack, t)
			}
		}
	}
	return order
}

func (b *Builder) fix(f *fix) (err error) {
	g := &b.regs[f.region]
	if f.p.kind == kCodec {
		c := Coder{restoring: true, owner: b.env.Run}
		if g.n > 0 {
			c.recs = unsafe.Slice((*record)(g.ptr), int(g.n))
		}
		if err := c.run(f.p, f.ptr); err != nil {
			return fmt.Errorf("CairnState of %s: %w", typeName(f.p.t), err)
		}
		return nil
	}
	m := (*sync.Map)(f.ptr)
	m.Clear()
	if g.n == 0 {
		return nil
	}
	boxed := planOf(reflect.TypeFor[any]())
	for _, e := range unsafe.Slice((*pair)(g.ptr), int(g.n)) {
		if err := checkKey(boxed, unsafe.Pointer(&e.Key)); err != nil {
			return err
		}
		m.Store(e.Key, e.Val)
	}
	return nil
}

// fillMap fills the map that region r stands for, if it stands for one.
func (b *Builder) fillMap(r uint32) error {
	g := &b.regs[r]
	if g.m == nil {
		return nil
	}
	if g.timer != nil {
		g.setTimer()
		return nil
	}
	if g.mt.kind == kChan {
		g.fillChan()
		return nil
	}
	m := reflect.NewAt(g.mt.t, unsafe.Pointer(&g.m)).Elem()
	entries := reflect.NewAt(g.p.t, g.ptr).Elem()
	// If the entry struct has size 0, its plan has no fields.
	var key *plan
	if len(g.p.fields) > 0 && g.p.fields[0].name == "Key" && !g.p.fields[0].p.ordered {
		key = g.p.fields[0].p
	}
	ptr := g.ptr
	for i := uint64(0); i < g.n; i++ {
		if i > 0 {
			ptr = unsafe.Add(ptr, g.p.size)
			entries = reflect.NewAt(g.p.t, ptr).Elem()
		}
		if key != nil {
			if err := checkKey(key, ptr); err != nil {
				return err
			}
		}
		m.SetMapIndex(entries.Field(0), entries.Field(1))
	}
	return nil
}

// checkKey makes sure that the key of a map can be hashed: no interface in it
// may hold a value that cannot be compared, or lead back to itself.
func checkKey(p *plan, ptr unsafe.Pointer) error {
	budget := 1 << 16
	if !hashable(p, ptr, 0, &budget) {
		return invalid("a key of a map cannot be compared")
	}
	return nil
}

func hashable(p *plan, ptr unsafe.Pointer, depth int, budget *int) bool {
	if p.ordered {
		return true
	}
	if *budget--; *budget < 0 || depth > 1000 {
		return false
	}
	switch p.kind {
	case kArray:
		for i := range p.n {
			if !hashable(p.elem, unsafe.Add(ptr, uintptr(i)*p.elem.size), depth+1, budget) {
				return false
			}
		}
	case kStruct:
		for _, f := range p.fields {
			if !hashable(f.p, unsafe.Add(ptr, f.off), depth+1, budget) {
				return false
			}
		}
	case kIface:
		h := (*ifaceHeader)(ptr)
		if h.tab == nil {
			return true
		}
		d := planOf(reflect.NewAt(p.t, ptr).Elem().Elem().Type())
		if !d.t.Comparable() {
			return false
		}
		if d.direct {
			return hashable(d, unsafe.Pointer(&h.data), depth+1, budget)
		}
		return hashable(d, h.data, depth+1, budget)
	}
	return true
}
