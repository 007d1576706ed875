package graph

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"unsafe"
)

// Frames is implemented by a root that has the frames of functions: structs
// whose first field has the function's name as its tag, like
//
//	At int `cairn:"main.run"`
//
// The other fields are the function's variables. The tag of a field is the name
// of the variable if that is another one than the field's, "-" if the field is
// none of the function's variables, and "." if it leads to a struct that has
// variables as its fields.
type Frames interface {
	AllFrames() iter.Seq[any]
}

// Name says where the values of a variable are, or of a field that it leads to:
// Dims elements of a pool, from Start on. The name is that in the source,
// main.run.lattice for variable lattice of function run. If the function has
// several frames, they are numbered, main.run[0].lattice; if it has several
// variables of one name, the second one is main.run.lattice#2.
type Name struct {
	Name  string   `json:"name"`
	Go    string   `json:"go"` // the variable's type
	Pool  int      `json:"pool"`
	Start uint64   `json:"start,omitempty"`
	Dims  []uint64 `json:"dims"`
}

// Bounds of what findNames looks at. A recursion may have 10⁵ frames; only the
// variables of the outer ones get names.
const (
	maxNames     = 1000   // names, and frames
	maxNameSteps = 200000 // values looked at, and rows of matrices
	maxNameDepth = 6      // pointers followed from a variable
)

// namer finds the names of an image.
type namer struct {
	c     *Collector
	list  []Name
	used  map[string]bool
	seen  map[seenValue]bool // structs behind pointers, of the frame at hand
	steps int
	guess int
}

type seenValue struct {
	addr unsafe.Pointer
	p    *plan
}

// findNames fills in the names of the variables of functions, and of what
// package variables lead to.
func (c *Collector) findNames(img *Image) {
	if !wholeProgram {
		return
	}
	n := namer{c: c, used: make(map[string]bool), steps: maxNameSteps}
	for _, r := range c.roots {
		n.used[r.Name] = true // it has a dataset
	}
	for _, r := range c.roots {
		if f, ok := r.Ptr.(Frames); ok {
			n.frames(f)
			continue
		}
		n.seen = make(map[seenValue]bool)
		n.value(r.Name, planOf(reflect.TypeOf(r.Ptr).Elem()), reflect.ValueOf(r.Ptr).UnsafePointer(), 0)
	}
	img.Names = n.list
}

func (n *namer) frames(f Frames) {
	count := make(map[reflect.Type]int)
	var outer []any
	for frame := range f.AllFrames() {
		if len(outer) == maxNames {
			break
		}
		outer = append(outer, frame)
		count[reflect.TypeOf(frame)]++
	}
	next := make(map[reflect.Type]int)
	for _, frame := range outer {
		t := reflect.TypeOf(frame)
		if n.over() {
			break
		}
		if t == nil || t.Kind() != reflect.Pointer || t.Elem().Kind() != reflect.Struct || t.Elem().NumField() < 2 {
			continue
		}
		name := t.Elem().Field(0).Tag.Get("cairn")
		at := reflect.ValueOf(frame).UnsafePointer()
		if name == "" || at == nil {
			continue
		}
		if count[t] > 1 {
			name = fmt.Sprintf("%s[%d]", name, next[t])
			next[t]++
		}
		n.seen = make(map[seenValue]bool)
		for i := 1; i < t.Elem().NumField(); i++ {
			f := t.Elem().Field(i)
			field := f.Tag.Get("cairn")
			switch field {
			case "-":
				continue
			case ".":
				n.value(name, planOf(f.Type), unsafe.Add(at, f.Offset), 0)
				continue
			case "":
				field = f.Name
			}
			n.value(name+"."+field, planOf(f.Type), unsafe.Add(at, f.Offset), 0)
		}
	}
}

func (n *namer) over() bool { return n.steps <= 0 || len(n.list) >= maxNames }

// value names the value of type p at ptr, and what it leads to.
func (n *namer) value(name string, p *plan, ptr unsafe.Pointer, depth int) {
	if n.steps--; n.over() {
		return
	}
	switch p.kind {
	case kStruct:
		if !p.enc {
			return // it is part of what it is in
		}
		for i := range p.fields {
			if f := &p.fields[i]; f.name != "_" {
				n.value(name+"."+f.name, f.p, unsafe.Add(ptr, f.off), depth)
			}
		}
	case kPtr:
		to := *(*unsafe.Pointer)(ptr)
		if to == nil || depth == maxNameDepth {
			return
		}
		if !p.elem.enc {
			n.add(name, p, n.elements(to, p.elem, 1, nil))
		} else if v := (seenValue{to, p.elem}); !n.seen[v] {
			n.seen[v] = true
			n.value(name, p.elem, to, depth+1)
		}
	case kIface:
		v := reflect.NewAt(p.t, ptr).Elem().Elem()
		if v.IsValid() && v.Kind() == reflect.Pointer {
			to := v.UnsafePointer()
			n.value(name, planOf(v.Type()), unsafe.Pointer(&to), depth)
		}
	case kSlice:
		n.add(name, p, n.array(p, ptr))
	case kCodec:
		at, size := memoryOf(p, ptr)
		if at == nil || size == 0 {
			return
		}
		k := n.c.pieces.find(uintptr(at), &n.guess)
		if k < 0 {
			return
		}
		if lo, hi, q := n.c.extent(k); q.remote && lo <= uintptr(at) && uintptr(at)+uintptr(size) <= hi {
			n.add(name, p, n.elements(at, q, uint64(size)/uint64(q.size), []uint64{uint64(size) / uint64(q.size)}))
		}
	}
}

// add records a name for a place.
func (n *namer) add(name string, p *plan, at *arrayPlace) {
	if at == nil || n.over() {
		return
	}
	name = strings.ReplaceAll(name, "/", "∕")
	for first, i := name, 2; n.used[name]; i++ { // it shadows another variable
		name = fmt.Sprintf("%s#%d", first, i)
	}
	n.used[name] = true
	if len(at.dims) == 0 {
		at.dims = []uint64{1}
	}
	n.list = append(n.list, Name{Name: name, Go: typeName(p.t), Pool: int(at.pool), Start: at.start, Dims: at.dims})
}

// arrayPlace is where the elements of an array are.
type arrayPlace struct {
	pool  int32
	start uint64
	dims  []uint64
}

// array returns the place of the slice at ptr, or nil if its elements are not
// consecutive numbers in one pool. A slice of slices is a matrix.
func (n *namer) array(p *plan, ptr unsafe.Pointer) *arrayPlace {
	n.steps--
	s := (*sliceHeader)(ptr)
	if s.len == 0 || n.steps <= 0 {
		return nil
	}
	if !p.elem.enc {
		return n.elements(s.ptr, p.elem, uint64(s.len), []uint64{uint64(s.len)})
	}
	if p.elem.kind != kSlice {
		return nil
	}
	all := n.array(p.elem, s.ptr)
	if all == nil {
		return nil
	}
	row := product(all.dims)
	for i := 1; i < s.len; i++ {
		next := n.array(p.elem, unsafe.Add(s.ptr, uintptr(i)*p.elem.size))
		if next == nil || next.pool != all.pool || next.start != all.start+uint64(i)*row || !slices.Equal(next.dims, all.dims) {
			return nil
		}
	}
	all.dims = append([]uint64{uint64(s.len)}, all.dims...)
	return all
}

// elements returns the place of count values of type p at ptr, which have no
// references. Those of an array are values of its base type.
func (n *namer) elements(ptr unsafe.Pointer, p *plan, count uint64, dims []uint64) *arrayPlace {
	for q := p; q.kind == kArray; q = q.elem {
		dims = append(dims, q.n)
	}
	k := n.c.pieces.find(uintptr(ptr), &n.guess)
	if k < 0 || p.size == 0 || p.base.form.Size == 0 {
		return nil
	}
	lo, hi, q := n.c.extent(k)
	at, bytes := uintptr(ptr)-lo, uintptr(count)*p.size
	if q != p.base || uintptr(ptr) < lo || uintptr(ptr)+bytes > hi || at%q.size != 0 {
		return nil
	}
	guess := 0
	num := n.c.pieces.num.S[k]
	row := n.c.place.row(num, &guess)
	r := n.c.place.regions[row]
	if r.Pool < 0 {
		return nil
	}
	return &arrayPlace{r.Pool, r.Start + uint64(num-n.c.place.firsts[row])*r.Count + uint64(at/q.size), dims}
}
