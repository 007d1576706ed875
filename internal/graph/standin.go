package graph

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"unsafe"
)

type osFile = *os.File

// pushMap records the stand-in of the map m in the variable at ptr.
func (c *Collector) pushMap(p *plan, ptr, m unsafe.Pointer, i int32, at uintptr) error {
	// Maps are told apart by their address and entries, since m may be shared
	// by variables of different map types.
	k, fresh := c.made.at(uintptr(m), p.elem)
	if !fresh {
		return nil
	}
	*k = uint64(len(c.items))
	v := reflect.NewAt(p.t, ptr).Elem()
	n := v.Len()
	s := reflect.MakeSlice(reflect.SliceOf(p.elem.t), n, n)
	it := v.MapRange()
	for j := 0; j < n && it.Next(); j++ {
		e := s.Index(j)
		e.Field(0).SetIterKey(it)
		e.Field(1).SetIterValue(it)
	}
	if n > 1 && p.elem.fields[0].p.ordered {
		sortEntries(p.elem.fields[0].p, s.UnsafePointer(), s)
	}
	c.keep = append(c.keep, s.Interface())
	return c.add(item{ptr: s.UnsafePointer(), p: p.elem, n: uint64(n), walk: uint64(n), at: at, parent: i, via: viaMap, alone: true})
}

func sortEntries(key *plan, base unsafe.Pointer, s reflect.Value) {
	size := s.Type().Elem().Size()
	sort.Sort(&entrySorter{key, base, size, s.Len(), reflect.Swapper(s.Interface())})
}

type entrySorter struct {
	key  *plan
	base unsafe.Pointer
	size uintptr
	n    int
	swap func(i, j int)
}

func (e *entrySorter) Len() int      { return e.n }
func (e *entrySorter) Swap(i, j int) { e.swap(i, j) }
func (e *entrySorter) Less(i, j int) bool {
	return order(e.key, unsafe.Add(e.base, uintptr(i)*e.size), unsafe.Add(e.base, uintptr(j)*e.size)) < 0
}

// order compares two values of an ordered type.
func order(p *plan, a, b unsafe.Pointer) int {
	switch p.kind {
	case kString:
		return strings.Compare(*(*string)(a), *(*string)(b))
	case kArray:
		for i := range uintptr(p.n) {
			if o := order(p.elem, unsafe.Add(a, i*p.elem.size), unsafe.Add(b, i*p.elem.size)); o != 0 {
				return o
			}
		}
		return 0
	case kStruct:
		for _, f := range p.fields {
			if o := order(f.p, unsafe.Add(a, f.off), unsafe.Add(b, f.off)); o != 0 && f.name != "_" {
				return o
			}
		}
		return 0
	}
	switch p.t.Kind() {
	case reflect.Float32:
		return orderFloat(float64(*(*float32)(a)), float64(*(*float32)(b)))
	case reflect.Float64:
		return orderFloat(*(*float64)(a), *(*float64)(b))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return cmp.Compare(reflect.NewAt(p.t, a).Elem().Int(), reflect.NewAt(p.t, b).Elem().Int())
	case reflect.Bool:
		return cmp.Compare(*(*byte)(a), *(*byte)(b))
	}
	return cmp.Compare(reflect.NewAt(p.t, a).Elem().Uint(), reflect.NewAt(p.t, b).Elem().Uint())
}

func orderFloat(x, y float64) int {
	if o := cmp.Compare(x, y); o != 0 || x == x {
		return o
	}
	return cmp.Compare(math.Float64bits(x), math.Float64bits(y)) // NaNs
}

// pushStandIn records the stand-in of the sync.Map or value with CairnState at
// ptr.
func (c *Collector) pushStandIn(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	k, fresh := c.made.at(uintptr(ptr), p.elem) // p itself may be known as a box
	if !fresh {
		return nil
	}
	*k = uint64(len(c.items))
	it := item{p: p.elem, at: at, parent: i, alone: true}
	if p.kind == kSyncMap {
		var s []pair
		(*sync.Map)(ptr).Range(func(k, v any) bool {
			s = append(s, pair{k, v})
			return true
		})
		sort.SliceStable(s, func(i, j int) bool { return lessAny(s[i].Key, s[j].Key) })
		it.ptr, it.n, it.via = unsafe.Pointer(unsafe.SliceData(s)), uint64(len(s)), viaSyncMap
		c.keep = append(c.keep, s)
	} else {
		var coder Coder
		if err := coder.run(p, ptr); err != nil {
			return fmt.Errorf("%s: CairnState of %s: %w", c.path(i, at), typeName(p.t), err)
		}
		it.ptr, it.n, it.via = unsafe.Pointer(unsafe.SliceData(coder.recs)), uint64(len(coder.recs)), viaCodec
		c.keep = append(c.keep, coder.recs)
	}
	it.walk = it.n
	return c.add(it)
}

// lessAny orders keys of the common types.
func lessAny(a, b any) bool {
	switch a := a.(type) {
	case string:
		b, ok := b.(string)
		return ok && a < b
	case int:
		b, ok := b.(int)
		return ok && a < b
	}
	return false
}
