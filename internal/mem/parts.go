package mem

import (
	"reflect"
	"sync"
)

// Parts is memory that messages are sent from or received into part by part,
// because it is on a device or has gaps: an array of package device, or a view
// of one.
type Parts interface {
	// Len returns the number of bytes, and Elem the type of the elements.
	Len() int
	Elem() reflect.Type
	// Sub returns bytes from…to. They are whole elements.
	Sub(from, to int) Parts
	// Overlaps reports whether the two may share bytes.
	Overlaps(Parts) bool
	// Direct returns the bytes themselves, if they are in host memory and
	// next to each other; else nil. If write is set, the caller may write
	// there until Release.
	Direct(write bool) ([]byte, error)
	// Release ends a Direct whose caller may write. It has written n bytes.
	Release(n int)
	// Slot returns a buffer for parts of up to n bytes. It may wait.
	Slot(n int) (Slot, error)
	// Stored says that a message of n bytes was stored.
	Stored(n int)
}

// Slot is host memory through which parts pass. One goroutine at a time uses
// it. Its methods wait for the device.
type Slot interface {
	Bytes() []byte
	// Load fills the first n bytes with those from off on. It waits for the
	// kernels that write them.
	Load(off, n int) error
	// Store is the reverse.
	Store(off, n int) error
	// Free makes the memory available again. Drop is Free for memory that
	// somebody may still write to.
	Free()
	Drop()
}

var partsOf struct {
	sync.RWMutex
	list []func(v any) (Parts, error)
}

// DescribeParts lets PartsOf know a kind of arrays. f returns nil for other
// values. Call it from an init function.
func DescribeParts(f func(v any) (Parts, error)) {
	partsOf.Lock()
	defer partsOf.Unlock()
	partsOf.list = append(partsOf.list, f)
}

// PartsOf returns the memory of an array, or nil if v is none.
func PartsOf(v any) (Parts, error) {
	partsOf.RLock()
	defer partsOf.RUnlock()
	for _, f := range partsOf.list {
		if p, err := f(v); p != nil || err != nil {
			return p, err
		}
	}
	return nil, nil
}
