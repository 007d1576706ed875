package commcheck

import (
	"maps"
	"slices"

	"github.com/cairnrun/cairn/internal/compiler/ir"
)

// object is the target of a reference, which is a symbol. It stands for one
// object on each rank, which all ranks made in the same step. An object in a
// state does not change.
type object struct {
	sym  int32
	typ  string
	kind int  // number of typ
	many bool // there may be others with the same contents
	view bool // it stands for one of the objects with these contents
	// unknown says that the values of elements that are not in fields are
	// unknown. Otherwise they are 0.
	unknown bool
	fields  map[*ir.Var]*cells
	top     int32 // the largest symbol in it
}

// cells holds a field's values: of the elements in all, and of all other
// elements.
type cells struct {
	all  map[int64]vec
	rest vec // nil: the object determines it
}

// noIndex is the index for a field that is not an array.
const noIndex = 0

const (
	maxObjects  = 48 // maximum number of objects of one type in a state
	maxContents = 6  // maximum number of different objects of one type that a reference may lead to
)

func (a *analyzer) get(o *object, f *ir.Var, i int64) vec {
	if c := o.fields[f]; c != nil {
		if x := c.all[i]; x != nil {
			return x
		}
		if c.rest != nil {
			return c.rest
		}
	}
	if o.unknown {
		return a.all(anything)
	}
	return a.all(num(0))
}

func (o *object) clone() *object {
	c := *o
	c.fields = make(map[*ir.Var]*cells, len(o.fields))
	maps.Copy(c.fields, o.fields)
	return &c
}

// set sets the value of an element of a field.
func (o *object) set(f *ir.Var, i int64, x vec) {
	c := &cells{all: map[int64]vec{i: x}}
	if old := o.fields[f]; old != nil {
		c.rest = old.rest
		for k, y := range old.all {
			if k != i {
				c.all[k] = y
			}
		}
	}
	o.fields[f] = c
}

// forgetField makes a field unknown on some ranks.
func (a *analyzer) forgetField(o *object, f *ir.Var, ranks []int) {
	c := &cells{all: map[int64]vec{}}
	blur := func(x vec) vec {
		x = append(vec(nil), x...)
		for _, r := range ranks {
			x[r] = anything
		}
		return x
	}
	rest := a.all(num(0))
	if o.unknown {
		rest = a.all(anything)
	}
	if old := o.fields[f]; old != nil {
		if old.rest != nil {
			rest = old.rest
		}
		for k, x := range old.all {
			c.all[k] = blur(x)
		}
	}
	c.rest = blur(rest)
	o.fields[f] = c
}

// newObject returns a new object. Copies of an object keep its kind.
func (a *analyzer) newObject(typ string) *object {
	kind, ok := a.kinds[typ]
	if !ok {
		kind = len(a.kinds)
		a.kinds[typ] = kind
	}
	o := &object{typ: typ, kind: kind, fields: map[*ir.Var]*cells{}}
	a.name(o)
	return o
}

// name gives a new symbol to an object that is in no state.
func (a *analyzer) name(o *object) {
	o.sym = a.fresh(false).sym
	a.kindOf[o.sym] = o.kind
}

// setObject puts an object into a state, where it replaces the object of the
// same symbol.
func (a *analyzer) setObject(s *state, o *object) {
	o.top = 0
	for _, c := range o.fields {
		for _, e := range c.rest {
			o.top = max(o.top, e.sym)
		}
		for _, x := range c.all {
			for _, e := range x {
				o.top = max(o.top, e.sym)
			}
		}
	}
	s.heap = s.heap.put(o, &a.work)
}

func (a *analyzer) dropObject(s *state, o *object) {
	s.heap = s.heap.with(o.kind, without(s.heap.of(o.kind), func(x *object) bool { return x.sym == o.sym }), &a.work)
}

// create interprets a New.
func (a *analyzer) create(st *ir.New, s *state) {
	if !a.info.types[st.Type] {
		if st.Dst != nil {
			ref := a.fresh(false)
			a.refs[ref.sym] = true
			a.store(st.Dst, a.all(ref), s)
		}
		return
	}
	var from vec
	if st.From != nil {
		from = a.eval(st.From, s)
	}
	o := a.newObject(st.Type)
	ref := entry{sym: o.sym}
	a.refs[ref.sym] = true
	live := s.live.list()
	if from != nil {
		o.unknown = true
		src := a.object(s, from[live[0]])
		for _, r := range live {
			if a.object(s, from[r]) != src {
				src = nil
			}
		}
		if src != nil {
			o.unknown = src.unknown
			maps.Copy(o.fields, src.fields)
		}
	}
	if len(live) < a.n {
		// The other ranks have no such object: its contents are unknown there.
		others := a.full.sub(s.live).list()
		for _, f := range a.info.fields[st.Type] {
			a.forgetField(o, f, others)
		}
	}
	a.setObject(s, o)
	a.store(st.Dst, a.all(ref), s)
	a.limitObjects(s)
}

// limitObjects forgets the objects of a type if there are too many.
func (a *analyzer) limitObjects(s *state) {
	if s.heap.root == nil || s.heap.root.over == 0 {
		return
	}
	var types []string
	s.heap = s.heap.each(func(b *sum) bool { return b.over > 0 }, func(_ int, l []*object) []*object {
		types = append(types, l[0].typ)
		return nil
	}, &a.work)
	for _, t := range types {
		a.unknownObject(t, s)
	}
}

// unknownObject records that there may be an object whose contents are unknown.
func (a *analyzer) unknownObject(typ string, s *state) {
	if kind, ok := a.kinds[typ]; ok {
		for _, o := range s.heap.of(kind) {
			if o.unknown && len(o.fields) == 0 {
				return
			}
		}
	}
	o := a.newObject(typ)
	o.many, o.unknown = true, true
	a.setObject(s, o)
}

// object returns the object that a value refers to, or nil if it is unknown.
func (a *analyzer) object(s *state, e entry) *object {
	if kind, ok := a.kindOf[e.sym]; ok {
		return s.heap.get(kind, e.sym)
	}
	return nil
}

// field evaluates a Field.
func (a *analyzer) field(e ir.Field, s *state) vec {
	var els vec
	otherwise := func(r int) entry {
		if els == nil {
			els = a.all(anything)
			if e.Else != nil {
				els = a.eval(e.Else, s)
			}
		}
		return els[r]
	}
	out := a.all(anything)
	if !a.info.followed(e.Var) {
		for r := range out {
			out[r] = otherwise(r)
		}
		return out
	}
	of := a.eval(e.Of, s)
	var index vec
	if e.Index != nil {
		index = a.eval(e.Index, s)
	}
	for _, r := range s.live.list() {
		o, i := a.object(s, of[r]), int64(noIndex)
		if index != nil {
			if i = index[r].v; !index[r].known() {
				o = nil
			}
		}
		if o != nil {
			if out[r] = s.fact(a.get(o, e.Var, i)[r]); !out[r].isAny() {
				continue
			}
		}
		out[r] = otherwise(r)
	}
	return out
}

// put interprets a Put.
func (a *analyzer) put(st *ir.Put, s *state) {
	if !a.info.followed(st.Field) {
		return
	}
	of := a.eval(st.Of, s)
	src, index := a.all(anything), vec(nil)
	if st.Src != nil {
		src = a.eval(st.Src, s)
	}
	if st.Index != nil {
		index = a.eval(st.Index, s)
	}
	var wild []int // ranks for which it is unknown where they write
	for _, r := range s.live.list() {
		o := a.object(s, of[r])
		switch {
		case o == nil && of[r] == num(0): // an error, which ends the run
		case o == nil || o.view:
			wild = append(wild, r)
		case index != nil && !index[r].known() || st.Src == nil:
			c := o.clone()
			a.forgetField(c, st.Field, []int{r})
			a.setObject(s, c)
		default:
			i := int64(noIndex)
			if index != nil {
				i = index[r].v
			}
			c := o.clone()
			x := append(vec(nil), a.get(o, st.Field, i)...)
			if o.many && x[r] != src[r] {
				x[r] = anything
			} else {
				x[r] = src[r]
			}
			c.set(st.Field, i, x)
			a.setObject(s, c)
		}
	}
	if len(wild) > 0 {
		a.forgetFieldEverywhere(st.Field, wild, s)
	}
}

// forgetFieldEverywhere makes a field unknown in all objects, on some ranks.
func (a *analyzer) forgetFieldEverywhere(f *ir.Var, ranks []int, s *state) {
	a.steps += s.heap.size()
	kind, ok := a.kinds[f.Type]
	if !ok {
		return
	}
	l := slices.Clone(s.heap.of(kind))
	if len(l) == 0 {
		return
	}
	for i, o := range l {
		l[i] = o.clone()
		a.forgetField(l[i], f, ranks)
	}
	s.heap = s.heap.with(kind, l, &a.work)
}

// equal reports whether two objects of a type have the same contents. Values
// that cannot be distinguished later count as equal.
func (a *analyzer) equal(x, y *object) bool {
	if x.typ != y.typ {
		return false
	}
	for _, f := range a.info.fields[x.typ] {
		for _, i := range indices(x, y, f) {
			if !equalVec(a.get(x, f, i), a.get(y, f, i)) {
				return false
			}
		}
	}
	return true
}

// indices returns the elements of a field that either of two objects has a
// value for, and one index that stands for all others.
func indices(x, y *object, f *ir.Var) []int64 {
	list := []int64{-1}
	for _, o := range []*object{x, y} {
		if c := o.fields[f]; c != nil {
			list = slices.AppendSeq(list, maps.Keys(c.all))
		}
	}
	return list
}

func equalVec(x, y vec) bool {
	for i := range x {
		if x[i] != y[i] {
			return false
		}
	}
	return true
}

// joined returns an object with what x and y have in common.
func (a *analyzer) joined(x, y *object) (o *object, changed bool) {
	o = x
	for _, f := range a.info.fields[x.typ] {
		for _, i := range indices(x, y, f) {
			p, q := a.get(o, f, i), a.get(y, f, i)
			if equalVec(p, q) {
				continue
			}
			if !changed {
				o, changed = o.clone(), true
			}
			p = append(vec(nil), p...)
			for r := range p {
				if p[r] != q[r] {
					p[r] = anything
				}
			}
			if i == -1 {
				c := &cells{rest: p}
				if old := o.fields[f]; old != nil {
					c.all = old.all
				}
				o.fields[f] = c
			} else {
				o.set(f, i, p)
			}
		}
	}
	if y.many && !o.many {
		if !changed {
			o, changed = o.clone(), true
		}
		o.many = true
	}
	return o, changed
}

// joinHeap joins the objects of t into s. At the head of a loop (alike),
// objects with equal contents become one.
func (a *analyzer) joinHeap(s, t *state, alike bool) (changed bool) {
	if s.heap.stamp == t.heap.stamp {
		return false
	}
	for _, o := range s.heap.news(t.heap, &a.work) {
		if old := s.heap.get(o.kind, o.sym); old != nil {
			if j, c := a.joined(old, o); c {
				a.setObject(s, j)
				changed = true
			}
			continue
		}
		if !alike {
			a.setObject(s, o)
			changed = true
			continue
		}
		kept, n := false, 0
		for _, x := range s.heap.of(o.kind) {
			n++
			if !kept && a.equal(x, o) {
				if kept = true; !x.many {
					x = x.clone()
					x.many = true
					a.setObject(s, x)
					changed = true
				}
			}
		}
		switch {
		case kept:
		case n < 4*maxContents:
			a.setObject(s, o)
			changed = true
		default:
			before := s.heap.size()
			a.unknownObject(o.typ, s)
			changed = changed || s.heap.size() != before
		}
	}
	a.limitObjects(s)
	return changed
}
