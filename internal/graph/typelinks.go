package graph

import (
	"reflect"
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

// binaryTypes indexes the types in the binary by their names.
var binaryTypes = sync.OnceValue(func() map[string][]reflect.Type {
	m := make(map[string][]reflect.Type)
	seen := make(map[reflect.Type]bool)
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		n := typeName(t)
		m[n] = append(m[n], t)
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
			var v any
			(*ifaceHeader)(unsafe.Pointer(&v)).tab = rtypeOff(s, off)
			add(reflect.TypeOf(v))
		}
	}
	return m
})
