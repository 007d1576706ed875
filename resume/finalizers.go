package resume

import (
	"reflect"
	"runtime"
	"sync"
)

// finalizers is locked for reading while a finalizer or cleanup of the program
// runs, on a goroutine of the Go runtime, and for writing while the state is
// copied: a finalizer must not change it then.
var finalizers sync.RWMutex

// finalizersLocked says that the main goroutine has locked it for writing.
var finalizersLocked bool

// lockFinalizers keeps finalizers from starting. It reports false if one is
// running: the state cannot be copied now.
func lockFinalizers() bool {
	if !finalizersLocked {
		finalizersLocked = finalizers.TryLock()
	}
	return finalizersLocked
}

// unlockFinalizers lets them start again.
func unlockFinalizers() {
	if finalizersLocked {
		finalizersLocked = false
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

// AddCleanup is runtime.AddCleanup. The cleanup waits while the state is
// copied.
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
