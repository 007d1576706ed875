package resume

import (
	"reflect"
	"runtime"
	"sync"
)

// finalizers is held for reading by finalizers and cleanups of the program while
// they run, on a goroutine of the Go runtime, and for writing while the state is
// copied: one that starts meanwhile would change what is copied.
var finalizers sync.RWMutex

// finalizersHeld says that they are held for writing, by the main goroutine.
var finalizersHeld bool

// holdFinalizers keeps finalizers from starting. It reports false if one is
// running: the state can't be copied now.
func holdFinalizers() bool {
	if !finalizersHeld {
		finalizersHeld = finalizers.TryLock()
	}
	return finalizersHeld
}

// freeFinalizers is the end of that.
func freeFinalizers() {
	if finalizersHeld {
		finalizersHeld = false
		finalizers.Unlock()
	}
}

// SetFinalizer is runtime.SetFinalizer. The finalizer waits while the state is
// copied.
func SetFinalizer(obj, finalizer any) {
	f := reflect.ValueOf(finalizer)
	if run == nil || f.Kind() != reflect.Func || f.IsNil() {
		runtime.SetFinalizer(obj, finalizer)
		return
	}
	waits := reflect.MakeFunc(f.Type(), func(args []reflect.Value) []reflect.Value {
		finalizers.RLock()
		defer finalizers.RUnlock()
		if f.Type().IsVariadic() {
			return f.CallSlice(args)
		}
		return f.Call(args)
	})
	runtime.SetFinalizer(obj, waits.Interface())
}

// AddCleanup is runtime.AddCleanup. The cleanup waits while the state is copied.
func AddCleanup[T, S any](ptr *T, cleanup func(S), arg S) runtime.Cleanup {
	if run == nil {
		return runtime.AddCleanup(ptr, cleanup, arg)
	}
	return runtime.AddCleanup(ptr, func(arg S) {
		finalizers.RLock()
		defer finalizers.RUnlock()
		cleanup(arg)
	}, arg)
}
