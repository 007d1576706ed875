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
// are not part of its API. Many programs use them by linkname, so they are kept
// (go.dev/issue/67401). The list holds unnamed types: pointers, slices, maps…
// Named types are found through them, because the compiler emits *T for every
// named T that can be stored in an interface.

//go:linkname typelinks reflect.typelinks
func typelinks() (sections []unsafe.Pointer, offsets [][]int32)

//go:linkname rtypeOff reflect.rtypeOff
func rtypeOff(section unsafe.Pointer, off int32) unsafe.Pointer

// named holds addresses in the binary, ordered by a hash of the name of what is
// there. It exists for the whole run, so it is small and has no pointers, which
// the garbage collector would have to scan.
type named []hashed

type hashed struct {
	hash uint64
	at   uintptr
}

var nameSeed = maphash.MakeSeed()

func (n *named) add(name string, at uintptr) {
	*n = append(*n, hashed{maphash.String(nameSeed, name), at})
}

func (n *named) sort() {
	slices.SortStableFunc(*n, func(a, b hashed) int { return cmp.Compare(a.hash, b.hash) })
	*n = slices.Clip(*n)
}

// all returns the addresses whose name may equal name: the hashes are equal.
func (n named) all(name string) (out []uintptr) {
	hash := maphash.String(nameSeed, name)
	at, _ := slices.BinarySearchFunc(n, hash, func(e hashed, h uint64) int { return cmp.Compare(e.hash, h) })
	for ; at < len(n) && n[at].hash == hash; at++ {
		out = append(out, n[at].at)
	}
	return out
}

// binaryIndex holds the types in the binary: the addresses that interfaces with
// values of these types point to.
var binaryIndex = sync.OnceValue(func() named {
	var index named
	seen := make(map[reflect.Type]bool)
	var add func(t reflect.Type)
	add = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		index.add(typeName(t), uintptr((*ifaceHeader)(unsafe.Pointer(&t)).data))
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

// binaryTypes returns the types in the binary with that name.
func binaryTypes(name string) []reflect.Type {
	var out []reflect.Type
	for _, at := range binaryIndex().all(name) {
		if t := typeAt(*(*unsafe.Pointer)(unsafe.Pointer(&at))); typeName(t) == name {
			out = append(out, t)
		}
	}
	return out
}
