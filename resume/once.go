package resume

import (
	"reflect"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Calls of sync.Once.Do on the resumable path become calls of a function in the
// program's package, which can be resumed while f runs:
//
//	if OnceBegin(o) {
//		defer OnceEnd(o)
//		f()
//	}
//
// As in package sync, the goroutine that runs f holds the mutex of the Once.
// Others wait for it as for any mutex.

// onceFields returns what a sync.Once consists of.
func onceFields(o *sync.Once) (done *uint32, m *sync.Mutex) {
	p := unsafe.Pointer(o)
	return (*uint32)(unsafe.Add(p, onceOffsets.done)), (*sync.Mutex)(unsafe.Add(p, onceOffsets.m))
}

var onceOffsets = func() (at struct{ done, m uintptr }) {
	done, _ := reflect.TypeFor[sync.Once]().FieldByName("done")
	m, _ := reflect.TypeFor[sync.Once]().FieldByName("m")
	at.done, at.m = done.Offset, m.Offset
	return at
}()

// OnceKnown verifies the layout of sync.Once, and what Do does.
func OnceKnown() bool { return onceKnown() }

var onceKnown = sync.OnceValue(func() bool {
	t := reflect.TypeFor[sync.Once]()
	f, ok1 := t.FieldByName("done")
	m, ok2 := t.FieldByName("m")
	if !ok1 || !ok2 || f.Type.Size() != 4 || m.Type != reflect.TypeFor[sync.Mutex]() {
		return false
	}
	o := new(sync.Once)
	done, mu := onceFields(o)
	within := false
	o.Do(func() { within = atomic.LoadUint32(done) == 0 && !mu.TryLock() })
	return within && atomic.LoadUint32(done) == 1 && mu.TryLock()
})

// OnceBegin reports whether the caller has to run the function of o. It waits
// while another goroutine runs it.
func OnceBegin(o *sync.Once) bool {
	if o != nil {
		done, m := onceFields(o)
		switch {
		case atomic.LoadUint32(done) != 0:
			return false
		case !locks.urgent.may(unsafe.Pointer(m)) && m.TryLock():
			return onceLocked(done, m)
		}
	}
	return awaitOnce(o)
}

// onceLocked decides with the mutex locked whether the function has run.
func onceLocked(done *uint32, m *sync.Mutex) bool {
	if atomic.LoadUint32(done) == 0 {
		return true
	}
	Unlock(m)
	return false
}

type onceFrame struct{ O *sync.Once }

func awaitOnce(o *sync.Once) bool {
	w, can, f := beginWait[onceFrame]()
	if f != nil {
		o = f.O
	}
	done, m := onceFields(o)
	if !can || !several {
		m.Lock()
	} else if !w.lock(lock{M: m}, func() any { return &onceFrame{o} }) {
		return false
	}
	return onceLocked(done, m)
}

// OnceEnd says that the function of o has returned, or has panicked.
func OnceEnd(o *sync.Once) {
	done, m := onceFields(o)
	atomic.StoreUint32(done, 1)
	Unlock(m)
}
