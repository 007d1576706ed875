package mem

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// Readable calls f, which reads the program's memory. If some of that cannot be
// read, because it was protected or unmapped while a slice still refers to it,
// Readable returns an error, and the program continues.
func Readable(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface {
			runtime.Error
			Addr() uintptr
		}:
			err = fmt.Errorf("memory of the program at %#x cannot be read: it is protected, or was given back to the system", r.Addr())
		default:
			panic(r)
		}
	}()
	return f()
}
