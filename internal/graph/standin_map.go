package graph

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"os"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"
	"unsafe"
)

type osFile = *os.File

// pushMap records the stand-in of the map m in the variable at ptr.
func (c *Collector) pushMap(p *plan, ptr, m unsafe.Pointer, i int32, at uintptr) error {
	// A map is identified by its address and its entry type, because variables
	// of different map types may share m.
	if c.made.has(uintptr(m), p.elem) {
		return nil
	}
	v := reflect.NewAt(p.t, ptr).Elem()
	n := v.Len()
	s := reflect.MakeSlice(reflect.SliceOf(p.elem.t), n, n)
	it := v.MapRange()
	for j := 0; j < n && it.Next(); j++ {
		e := s.Index(j)
		e.Field(0).SetIterKey(it)
		e.Field(1).SetIterValue(it)
	}
	if n > 1 {
		sortEntries(p.elem.fields[0].p, s.UnsafePointer(), s)
	}
	c.keep = append(c.keep, s.Interface())
	return c.stand(m, s.UnsafePointer(), p.elem, uint64(n), viaMap, i, at)
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

// order compares two keys. Keys without a natural order are compared by address
// or bytes, which stay the same as long as the program runs.
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
			if f.name == "_" {
				continue
			}
			if o := order(f.p, unsafe.Add(a, f.off), unsafe.Add(b, f.off)); o != 0 {
				return o
			}
		}
		return 0
	case kIface:
		return orderIface(p, a, b)
	case kTime:
		s, t := (*time.Time)(a), (*time.Time)(b)
		if o := s.Compare(*t); o != 0 {
			return o
		}
		return strings.Compare(s.Location().String(), t.Location().String())
	case kPtr, kFile, kLoc, kType, kTimer:
		return cmp.Compare(*(*uintptr)(a), *(*uintptr)(b))
	case kScalar:
		switch p.t.Kind() {
		case reflect.Float32:
			return orderFloat(float64(*(*float32)(a)), float64(*(*float32)(b)))
		case reflect.Float64:
			return orderFloat(*(*float64)(a), *(*float64)(b))
		case reflect.Complex64:
			x, y := *(*complex64)(a), *(*complex64)(b)
			return cmp.Or(orderFloat(float64(real(x)), float64(real(y))), orderFloat(float64(imag(x)), float64(imag(y))))
		case reflect.Complex128:
			x, y := *(*complex128)(a), *(*complex128)(b)
			return cmp.Or(orderFloat(real(x), real(y)), orderFloat(imag(x), imag(y)))
		case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
			switch p.size {
			case 1:
				return cmp.Compare(*(*int8)(a), *(*int8)(b))
			case 2:
				return cmp.Compare(*(*int16)(a), *(*int16)(b))
			case 4:
				return cmp.Compare(*(*int32)(a), *(*int32)(b))
			}
			return cmp.Compare(*(*int64)(a), *(*int64)(b))
		}
		switch p.size {
		case 1:
			return cmp.Compare(*(*uint8)(a), *(*uint8)(b))
		case 2:
			return cmp.Compare(*(*uint16)(a), *(*uint16)(b))
		case 4:
			return cmp.Compare(*(*uint32)(a), *(*uint32)(b))
		}
		return cmp.Compare(*(*uint64)(a), *(*uint64)(b))
	}
	return bytes.Compare(view(a, int(p.size)), view(b, int(p.size)))
}

// orderIface orders by type, then by value.
func orderIface(p *plan, a, b unsafe.Pointer) int {
	x, y := (*ifaceHeader)(a), (*ifaceHeader)(b)
	if x.tab == nil || y.tab == nil {
		return cmp.Compare(uintptr(x.tab), uintptr(y.tab))
	}
	t := reflect.NewAt(p.t, a).Elem().Elem().Type()
	if x.tab != y.tab {
		u := reflect.NewAt(p.t, b).Elem().Elem().Type()
		return cmp.Or(strings.Compare(t.String(), u.String()), cmp.Compare(uintptr(x.tab), uintptr(y.tab)))
	}
	d := planOf(t)
	if d.direct {
		return order(d, unsafe.Pointer(&x.data), unsafe.Pointer(&y.data))
	}
	return order(d, x.data, y.data)
}

func orderFloat(x, y float64) int {
	if o := cmp.Compare(x, y); o != 0 || x == x {
		return o
	}
	return cmp.Compare(math.Float64bits(x), math.Float64bits(y)) // at least one NaN: compare the bits
}

// pushStandIn records the stand-in of the sync.Map or value with CairnState at
// ptr.
func (c *Collector) pushStandIn(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	if c.made.has(uintptr(ptr), p.elem) { // p itself may be registered as a box
		return nil
	}
	if p.kind == kSyncMap {
		var s []pair
		(*sync.Map)(ptr).Range(func(k, v any) bool {
			s = append(s, pair{k, v})
			return true
		})
		key := p.elem.fields[0].p
		sort.SliceStable(s, func(i, j int) bool { return order(key, unsafe.Pointer(&s[i].Key), unsafe.Pointer(&s[j].Key)) < 0 })
		c.keep = append(c.keep, s)
		return c.stand(ptr, unsafe.Pointer(unsafe.SliceData(s)), p.elem, uint64(len(s)), viaSyncMap, i, at)
	}
	coder := Coder{owner: c.env.Run, early: c.early}
	if err := coder.run(p, ptr); err != nil {
		return fmt.Errorf("%s: CairnState of %s: %w", c.path(i, at), typeName(p.t), err)
	}
	c.keep = append(c.keep, coder.recs)
	return c.stand(ptr, unsafe.Pointer(unsafe.SliceData(coder.recs)), p.elem, uint64(len(coder.recs)), viaCodec, i, at)
}
