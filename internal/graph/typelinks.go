package graph

import (
	"cmp"
	"hash/maphash"
	"reflect"
	"slices"
	"sync"
	"unsafe"
)

// The two functions of package reflect below list the types in the binary. They
// are not part of its API, but widely used through linkname and therefore kept
// (go.dev/issue/67401). The list holds unnamed types: pointers, slices, maps…
// Named types are found behind them, since the compiler emits *T for every
// named T that can end up in an interface.

//go:linkname typelinks reflect.typelinks
func typelinks() (sections []unsafe.Pointer, offsets [][]int32)

//go:linkname rtypeOff reflect.rtypeOff
func rtypeOff(section unsafe.Pointer, off int32) unsafe.Pointer

// binaryType is a type in the binary, by a hash of its name.
type binaryType struct {
	hash uint64
	t    unsafe.Pointer // what an interface with a value of it points to
}

var nameSeed = maphash.MakeSeed()

// binaryIndex holds the types in the binary, by hash. It stays for the whole run,
// so it is kept small, and has no pointers to the heap: the program's collector
// goes over it each time.
var binaryIndex = sync.OnceValue(func() []binaryType {
	var index []binaryType
	seen := make(map[reflect.Type]bool)
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		index = append(index, binaryType{maphash.String(nameSeed, typeName(t)), (*ifaceHeader)(unsafe.Pointer(&t)).data})
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Chan:
			add(t.Elem())
		case reflect.Map:
			add(t.Key())
			add(t.Elem())
		}
	}
	sections, offsets := typelinks()
	for i, s := range sections {
		for _, off := range offsets[i] {
			add(typeAt(rtypeOff(s, off)))
		}
	}
	slices.SortStableFunc(index, func(a, b binaryType) int { return cmp.Compare(a.hash, b.hash) })
	return slices.Clip(index)
})

func typeAt(t unsafe.Pointer) reflect.Type {
	var v any
	(*ifaceHeader)(unsafe.Pointer(&v)).tab = t
	return reflect.TypeOf(v)
}

// binaryTypes returns the types in the binary that have a name.
func binaryTypes(name string) []reflect.Type {
	var out []reflect.Type
	index, hash := binaryIndex(), maphash.String(nameSeed, name)
	at, _ := slices.BinarySearchFunc(index, hash, func(e binaryType, h uint64) int { return cmp.Compare(e.hash, h) })
	for ; at < len(index) && index[at].hash == hash; at++ {
		if t := typeAt(index[at].t); typeName(t) == name {
			out = append(out, t)
		}
	}
	return out
}
