package ckpt

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// reading calls f, which reads the program's memory. Some of it may be unreadable:
// a mapping that was protected, or removed while a slice still points there. That
// is an error of the checkpoint, and not the end of the program.
func reading(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("memory of the program at %#x can't be read: it is protected, or not mapped", r.Addr())
		default:
			panic(r)
		}
	}()
	return f()
}
