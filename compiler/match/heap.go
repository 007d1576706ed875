package match

import (
	"slices"
	"sort"
	"sync/atomic"

	"github.com/cairnrun/cairn/compiler/ir"
)

// object is what a reference, which is a symbol, leads to: on each rank one of its
// own, made by all in the same step. It is never changed once in a state.
type object struct {
	sym  int32
	typ  string
	many bool // there may be others with the same contents
	view bool // stands for one of those that have these contents
	// unknown: what no field says is not known, else it is 0.
	unknown bool
	fields  map[*ir.Var]*cells
	top     int32 // the largest symbol in it
}

// cells are a field's values: of the elements in all, and of the others.
type cells struct {
	all  map[int64]vec
	rest vec // nil: as the object says
}

// noIndex is the index of a field that is no array.
const noIndex = 0

const (
	maxObjects  = 48 // of one type in a state
	maxContents = 6  // different ones of one type, that a reference may be taken to lead to
)

func (a *analyser) get(o *object, f *ir.Var, i int64) vec {
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
	for f, x := range o.fields {
		c.fields[f] = x
	}
	return &c
}

// set gives an element of a field a value.
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

// spoilField makes a field unknown on some ranks.
func (a *analyser) spoilField(o *object, f *ir.Var, ranks []int) {
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

// setObject puts an object into a state, in place of the one of the same symbol.
func (s *state) setObject(o *object) {
	heap := s.heap
	if !s.own { // others may have it too
		heap = make(map[int32]*object, len(s.heap)+1)
		for k, x := range s.heap {
			heap[k] = x
		}
	}
	heap[o.sym] = o
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
	s.setHeap(heap)
	s.own = true
}

var stamps atomic.Uint64

func (s *state) setHeap(heap map[int32]*object) {
	s.heap, s.own, s.stamp = heap, false, stamps.Add(1)
}

func (s *state) dropObject(sym int32) {
	heap := make(map[int32]*object, len(s.heap))
	for k, x := range s.heap {
		if k != sym {
			heap[k] = x
		}
	}
	s.setHeap(heap)
}

// create plays a New.
func (a *analyser) create(st *ir.New, s *state) {
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
	ref := a.fresh(false)
	a.refs[ref.sym] = true
	o := &object{sym: ref.sym, typ: st.Type, fields: map[*ir.Var]*cells{}}
	live := s.live.list()
	if from != nil {
		o.unknown = true
		src := s.object(from[live[0]])
		for _, r := range live {
			if s.object(from[r]) != src {
				src = nil
			}
		}
		if src != nil {
			o.unknown = src.unknown
			for f, c := range src.fields {
				o.fields[f] = c
			}
		}
	}
	if len(live) < a.n {
		// The others have none: nothing is known of what would be in it.
		others := a.full.sub(s.live).list()
		for _, f := range a.info.fields[st.Type] {
			a.spoilField(o, f, others)
		}
	}
	s.setObject(o)
	a.store(st.Dst, a.all(ref), s)
	a.crowd(s)
}

// crowd gives up what is known of objects of a type if there are too many.
func (a *analyser) crowd(s *state) {
	if len(s.heap) <= maxObjects {
		return
	}
	types := map[string]int{}
	for _, o := range s.heap {
		types[o.typ]++
	}
	for t, n := range types {
		if n <= maxObjects {
			continue
		}
		heap := make(map[int32]*object, len(s.heap))
		for k, o := range s.heap {
			if o.typ != t {
				heap[k] = o
			}
		}
		s.setHeap(heap)
		a.unknownObject(t, s)
	}
}

// unknownObject says that there may be an object of which nothing is known.
func (a *analyser) unknownObject(typ string, s *state) {
	for _, o := range s.heap {
		if o.typ == typ && o.unknown && len(o.fields) == 0 {
			return
		}
	}
	s.setObject(&object{sym: a.fresh(false).sym, typ: typ, many: true, unknown: true, fields: map[*ir.Var]*cells{}})
}

// object is what a value refers to, nil if that is not known.
func (s *state) object(e entry) *object {
	if e.sym <= 0 {
		return nil
	}
	return s.heap[e.sym]
}

// field evaluates a Field.
func (a *analyser) field(e ir.Field, s *state) vec {
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
		o, i := s.object(of[r]), int64(noIndex)
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

// put plays a Put.
func (a *analyser) put(st *ir.Put, s *state) {
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
	var wild []int // ranks of which it is not known where they write
	for _, r := range s.live.list() {
		o := s.object(of[r])
		switch {
		case o == nil && of[r] == num(0): // an error
		case o == nil || o.view:
			wild = append(wild, r)
		case index != nil && !index[r].known() || st.Src == nil:
			c := o.clone()
			a.spoilField(c, st.Field, []int{r})
			s.setObject(c)
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
			s.setObject(c)
		}
	}
	if len(wild) > 0 {
		a.blur(st.Field, wild, s)
	}
}

// blur makes a field unknown in all objects, on some ranks.
func (a *analyser) blur(f *ir.Var, ranks []int, s *state) {
	a.steps += len(s.heap)
	heap := make(map[int32]*object, len(s.heap))
	for k, o := range s.heap {
		if f.Type == o.typ {
			o = o.clone()
			a.spoilField(o, f, ranks)
		}
		heap[k] = o
	}
	s.setHeap(heap)
}

// equal says whether two objects of a type have the same contents; what can't be
// told apart later counts as the same.
func (a *analyser) equal(x, y *object) bool {
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

// indices are the elements of a field that one of two objects knows, and one that
// stands for the others.
func indices(x, y *object, f *ir.Var) []int64 {
	list := []int64{-1}
	for _, o := range []*object{x, y} {
		if c := o.fields[f]; c != nil {
			for i := range c.all {
				list = append(list, i)
			}
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

// joined is an object that has what two have in common.
func (a *analyser) joined(x, y *object) (o *object, changed bool) {
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

// joinHeap joins the objects of t into s. At the head of a loop, those that look
// the same become one: other says so.
func (a *analyser) joinHeap(s, t *state, alike bool) (changed bool) {
	if s.stamp == t.stamp {
		return false
	}
	var list []int32 // those that differ
	for sym, o := range t.heap {
		if s.heap[sym] != o {
			list = append(list, sym)
		}
	}
	slices.Sort(list)
	for _, sym := range list {
		o := t.heap[sym]
		if old := s.heap[sym]; old != nil {
			if j, c := a.joined(old, o); c {
				s.setObject(j)
				changed = true
			}
			continue
		}
		if !alike {
			s.setObject(o)
			changed = true
			continue
		}
		kept, n := false, 0
		for _, k := range objects(s) {
			x := s.heap[k]
			if x.typ != o.typ {
				continue
			}
			n++
			if !kept && a.equal(x, o) {
				if kept = true; !x.many {
					x = x.clone()
					x.many = true
					s.setObject(x)
					changed = true
				}
			}
		}
		switch {
		case kept:
		case n < 4*maxContents:
			s.setObject(o)
			changed = true
		default:
			before := len(s.heap)
			a.unknownObject(o.typ, s)
			changed = changed || len(s.heap) != before
		}
	}
	a.crowd(s)
	return changed
}

// objects are the symbols of the objects in s, in order.
func objects(s *state) []int32 {
	list := make([]int32, 0, len(s.heap))
	for k := range s.heap {
		list = append(list, k)
	}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	return list
}
