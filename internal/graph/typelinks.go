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

// named holds things by a hash of their names. It stays for the whole run, so it
// is kept small, and T has no pointers to the heap: the program's collector goes
// over it each time.
type named[T any] []hashed[T]

type hashed[T any] struct {
	hash uint64
	it   T
}

var nameSeed = maphash.MakeSeed()

func (n *named[T]) add(name string, it T) {
	*n = append(*n, hashed[T]{maphash.String(nameSeed, name), it})
}

func (n *named[T]) sort() {
	slices.SortStableFunc(*n, func(a, b hashed[T]) int { return cmp.Compare(a.hash, b.hash) })
	*n = slices.Clip(*n)
}

// all returns what may have a name: the hash is that of the name.
func (n named[T]) all(name string) (out []T) {
	hash := maphash.String(nameSeed, name)
	at, _ := slices.BinarySearchFunc(n, hash, func(e hashed[T], h uint64) int { return cmp.Compare(e.hash, h) })
	for ; at < len(n) && n[at].hash == hash; at++ {
		out = append(out, n[at].it)
	}
	return out
}

// binaryIndex holds the types in the binary, as what interfaces with values of
// them point to.
var binaryIndex = sync.OnceValue(func() named[unsafe.Pointer] {
	var index named[unsafe.Pointer]
	seen := make(map[reflect.Type]bool)
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		index.add(typeName(t), (*ifaceHeader)(unsafe.Pointer(&t)).data)
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
	index.sort()
	return index
})

func typeAt(t unsafe.Pointer) reflect.Type {
	var v any
	(*ifaceHeader)(unsafe.Pointer(&v)).tab = t
	return reflect.TypeOf(v)
}

// binaryTypes returns the types in the binary that have a name.
func binaryTypes(name string) []reflect.Type {
	var out []reflect.Type
	for _, at := range binaryIndex().all(name) {
		if t := typeAt(at); typeName(t) == name {
			out = append(out, t)
		}
	}
	return out
}
