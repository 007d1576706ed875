package graph

import (
	"fmt"
	"math/bits"
	"reflect"
	"strings"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/hdf5"
)

// kind says how the package treats values of a type.
type kind uint8

const (
	kScalar  kind = iota // bool, integers, floats, complex
	kStruct              // walked field by field
	kArray               // treated as its elements
	kPtr                 // *T, atomic.Pointer[T]
	kString              //
	kSlice               //
	kMap                 // stand-in: region of struct{Key; Val}
	kIface               //
	kTime                // time.Time
	kLoc                 // *time.Location
	kType                // *reflect.rtype, which a reflect.Type holds
	kFile                // *os.File
	kSyncMap             // sync.Map, stand-in: []pair
	kCodec               // describes its own state, stand-in: []record
	kFunc                // stand-in: function; see SaveWholeProgram
	kChan                // stand-in: region of struct{Val}; see SaveWholeProgram
	kTimer               // *time.Timer, *time.Ticker: stand-in of its channel; see SaveWholeProgram
	kOpaque              // savable only when zero; not stored
	kIgnore              // not looked at, not stored, kept as it is in roots
)

const (
	wordSize = unsafe.Sizeof(uintptr(0))
	maxDepth = 48 // bound of the nesting of structs and arrays by value, below hdf5's limit
)

// plan is what the package knows about one Go type.
type plan struct {
	t     reflect.Type
	id    uint32
	kind  kind
	built bool
	size  uintptr
	enc   bool      // stored encoded; otherwise as it lies in memory
	form  hdf5.Type // form of one element; Size 0: not stored
	slots uint64    // number of leaves
	depth int       // nesting by value
	align uint8     // addresses are multiples of 1<<align

	fields []fieldPlan // kStruct: the fields that have a size
	elem   *plan       // array element, pointer and slice target, entry struct of a map or stand-in
	n      uint64      // kArray: length

	// An array of arrays of T is mult × base T; anything else is 1 × itself.
	base *plan
	mult uint64

	ops      []op                        // steps to encode one element in its native form
	walk     []op                        // the ops that have to be walked
	reason   string                      // kOpaque: why it cannot be saved
	direct   bool                        // an interface holds the value itself in its data word
	hasCodec bool                        // contains kCodec by value
	state    func(v any, c *Coder) error // kCodec: saves and restores a value
	hasBool  bool                        // contains a bool by value
	remote   bool                        // elements of a mem.Remote: their addresses must not be accessed
	ordered  bool                        // map keys of this type are sorted

	kids []*plan // types that it contains or refers to, in order

	once sync.Once
	all  []*plan       // itself and its kids, transitively
	nth  map[*plan]int // inverse of all
	text string        // description
}

type fieldPlan struct {
	name string // "_" is not stored
	off  uintptr
	slot uint64
	p    *plan
}

var plans struct {
	sync.Mutex
	m     map[reflect.Type]*plan
	queue []*plan
}

// planOf returns the plan of t. All plans that it leads to are complete.
func planOf(t reflect.Type) *plan {
	plans.Lock()
	defer plans.Unlock()
	p := shell(t)
	for len(plans.queue) > 0 {
		q := plans.queue[len(plans.queue)-1]
		plans.queue = plans.queue[:len(plans.queue)-1]
		q.build()
	}
	return p
}

// shell returns the plan of t, which may be incomplete.
func shell(t reflect.Type) *plan {
	p := plans.m[t]
	if p == nil {
		if plans.m == nil {
			plans.m = make(map[reflect.Type]*plan)
		}
		p = &plan{t: t, id: uint32(len(plans.m)), size: t.Size(), align: uint8(bits.TrailingZeros(uint(t.Align())))}
		p.base, p.mult = p, 1
		plans.m[t] = p
		plans.queue = append(plans.queue, p)
	}
	return p
}

// inline returns the complete plan of t, a type that the caller contains by
// value.
func inline(t reflect.Type) *plan {
	p := shell(t)
	p.build()
	return p
}

func (p *plan) build() {
	if p.built {
		return
	}
	p.built = true
	t := p.t
	p.slots = 1
	if p.size == 0 {
		p.slots = 0
	}
	if p.size == wordSize {
		z := reflect.Zero(t).Interface()
		p.direct = t.Kind() != reflect.Interface && (*[2]unsafe.Pointer)(unsafe.Pointer(&z))[1] == nil
	}
	if !p.special() {
		p.plain()
	}
	p.enc = p.kind != kScalar && p.enc
	if p.size == 0 {
		// The type has no memory and no leaves: all its values are equal.
		p.enc, p.form, p.fields, p.kids, p.ordered = false, hdf5.Type{}, nil, nil, true
		if p.kind != kOpaque && p.kind != kIgnore {
			p.kind = kStruct
		}
		return
	}
	if p.depth > maxDepth {
		p.opaque("its type is nested too deeply")
	}
	if p.enc {
		ops, err := compile(p, p.form)
		if err != nil {
			p.opaque("its type is too large")
			ops, _ = compile(p, p.form)
		}
		p.ops = ops
		for _, o := range ops {
			if o.kind != opCopy {
				p.walk = append(p.walk, o)
			}
		}
	}
}

func (p *plan) opaque(reason string) {
	p.kind, p.enc, p.reason = kOpaque, true, reason
	p.form, p.kids, p.fields = hdf5.Type{}, nil, nil
	p.base, p.mult, p.slots, p.hasCodec, p.hasBool, p.ordered = p, 1, 1, false, false, false
}

func (p *plan) kid(q *plan) *plan {
	p.kids = append(p.kids, q)
	return q
}

var hostBig = func() bool { x := uint16(1); return *(*byte)(unsafe.Pointer(&x)) == 0 }()

func number(c hdf5.Class, size uintptr) hdf5.Type {
	return hdf5.Type{Class: c, Size: int(size), Big: hostBig && size > 1}
}

// packed returns a compound type of members without padding.
func packed(f ...hdf5.Field) hdf5.Type {
	t := hdf5.Type{Class: hdf5.Compound, Fields: f}
	for i := range f {
		f[i].Offset = t.Size
		t.Size += f[i].Type.Size
	}
	return t
}

func reference(names ...string) hdf5.Type {
	var f []hdf5.Field
	for _, n := range names {
		size := uintptr(8)
		if n == "type" || n == "obj" || n == "off" {
			size = 4
		}
		f = append(f, hdf5.Field{Name: n, Type: number(hdf5.Uint, size)})
	}
	return packed(f...)
}

// plain fills in a plan according to the kind of its type.
func (p *plan) plain() {
	t := p.t
	switch k := t.Kind(); k {
	case reflect.Bool:
		p.form = hdf5.Type{Class: hdf5.Bool, Size: 1}
		p.ordered, p.hasBool = true, true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		p.form = number(hdf5.Int, p.size)
		p.ordered = true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		p.form = number(hdf5.Uint, p.size)
		p.ordered = true
	case reflect.Float32, reflect.Float64:
		p.form = number(hdf5.Float, p.size)
		p.ordered = true
	case reflect.Complex64, reflect.Complex128:
		f := number(hdf5.Float, p.size/2)
		p.form = packed(hdf5.Field{Name: "r", Type: f}, hdf5.Field{Name: "i", Type: f})
	case reflect.String:
		p.kind, p.enc, p.ordered = kString, true, true
		p.form = reference("obj", "off", "len")
		p.elem = p.kid(shell(byteType))
	case reflect.Pointer:
		p.kind, p.enc = kPtr, true
		p.form = reference("obj", "off")
		p.elem = p.kid(shell(t.Elem()))
	case reflect.Slice:
		p.kind, p.enc = kSlice, true
		p.form = reference("obj", "off", "len", "cap")
		p.elem = p.kid(shell(t.Elem()))
	case reflect.Map:
		p.kind, p.enc = kMap, true
		p.form = reference("obj")
		p.elem = p.kid(shell(entryType(t.Key(), t.Elem())))
	case reflect.Interface:
		p.kind, p.enc = kIface, true
		p.form = reference("type", "obj", "off")
	case reflect.Chan:
		if !wholeProgram {
			p.opaque("it is a channel")
			break
		}
		p.kind, p.enc = kChan, true
		p.form = reference("obj", "size", "closed")
		p.elem = p.kid(shell(slotType(t.Elem())))
	case reflect.Func:
		if !wholeProgram {
			p.opaque("it is a function")
			break
		}
		p.kind, p.enc = kFunc, true
		p.form = reference("obj")
		p.elem = p.kid(shell(functionType))
	case reflect.UnsafePointer:
		p.opaque(unknownPointer)
	case reflect.Array:
		p.array()
	case reflect.Struct:
		p.structure()
	default:
		p.opaque("it is of an unknown kind")
	}
}

// entryType returns the element type of a map's stand-in.
func entryType(key, val reflect.Type) reflect.Type {
	return reflect.StructOf([]reflect.StructField{{Name: "Key", Type: key}, {Name: "Val", Type: val}})
}

func (p *plan) array() {
	p.kind = kArray
	e := p.kid(inline(p.t.Elem()))
	p.elem, p.n = e, uint64(p.t.Len())
	if p.size == 0 {
		return
	}
	p.base, p.mult = e.base, e.mult*p.n
	p.depth = e.depth + 1
	p.enc, p.hasCodec, p.hasBool, p.ordered = e.enc, e.hasCodec, e.hasBool, e.ordered
	hi, slots := bits.Mul64(p.n, e.slots)
	if hi != 0 || uint64(e.form.Size) > (1<<40)/p.n {
		p.opaque("its type is too large")
		return
	}
	p.slots = slots
	if e.form.Size == 0 {
		return
	}
	p.form = hdf5.Type{Class: hdf5.Array, Size: int(p.n) * e.form.Size, Dims: []int{int(p.n)}, Elem: &e.form}
	if e.form.Class == hdf5.Array {
		p.form.Dims = append(p.form.Dims, e.form.Dims...)
		p.form.Elem = e.form.Elem
	}
}

func (p *plan) structure() {
	p.kind, p.ordered, p.slots = kStruct, true, 0
	for i := range p.t.NumField() {
		f := p.t.Field(i)
		if p.t == poolType && f.Name != "New" { // the pooled values need not be saved
			continue
		}
		q := inline(f.Type)
		if q.size == 0 {
			continue
		}
		p.kid(q)
		p.fields = append(p.fields, fieldPlan{f.Name, f.Offset, p.slots, q})
		p.slots += q.slots
		p.depth = max(p.depth, q.depth+1)
		p.enc = p.enc || q.enc
		p.hasCodec = p.hasCodec || q.hasCodec
		p.hasBool = p.hasBool || q.hasBool
		p.ordered = p.ordered && q.ordered
	}
	if p.size == 0 {
		return
	}
	c := hdf5.Type{Class: hdf5.Compound, Size: int(p.size)}
	if p.enc {
		c.Size = 0
	}
	for _, f := range p.fields {
		if f.name == "_" || f.p.form.Size == 0 {
			continue
		}
		off := int(f.off)
		if p.enc {
			off = c.Size
			c.Size += f.p.form.Size
		}
		c.Fields = append(c.Fields, hdf5.Field{Name: f.name, Offset: off, Type: f.p.form})
	}
	if len(c.Fields) == 0 {
		p.enc, c = true, hdf5.Type{}
	}
	p.form = c
}

// dims returns the lengths of the nested arrays that p consists of.
func (p *plan) dims() (d []uint64) {
	for ; p.kind == kArray; p = p.elem {
		d = append(d, p.n)
	}
	return d
}

// closure lists all types that p leads to, itself first. The order depends only
// on what describe shows.
func (p *plan) closure() []*plan {
	p.finish()
	return p.all
}

func (p *plan) finish() {
	p.once.Do(func() {
		p.all = []*plan{p}
		p.nth = map[*plan]int{p: 0}
		for i := 0; i < len(p.all); i++ {
			for _, k := range p.all[i].kids {
				if _, ok := p.nth[k]; !ok {
					p.nth[k] = len(p.all)
					p.all = append(p.all, k)
				}
			}
		}
		p.text = describe(p)
	})
}

func (p *plan) String() string { return strings.TrimSpace(fmt.Sprintf("%s %s", typeName(p.t), p.form)) }
