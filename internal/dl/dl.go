// Package dl opens shared libraries at run time, so that one binary, built
// without a C compiler, runs with or without them.
//
// It is real on Linux for amd64 and arm64. There a program that imports it
// is linked dynamically, even without cgo; the build tag "static" leaves
// that out. Elsewhere, and with that tag, Open returns an error.
//
// A library stays open until the process ends: unloading code that may have
// started threads is not safe.
package dl

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotFound is the error of Open when no name led to a library.
	ErrNotFound = errors.New("no such library can be opened")
	// ErrNoSymbol is the error of a symbol that a library does not have.
	ErrNoSymbol = errors.New("the library has no such symbol")
	// ErrUnsupported is the error of Open in a build that cannot open any.
	ErrUnsupported = fmt.Errorf("this build cannot open shared libraries (it is for another system than Linux on amd64 and arm64, or was made with the tag \"static\"): %w", errors.ErrUnsupported)
)

// Library is a library that was opened. Its methods may be called by several
// goroutines at a time.
type Library struct {
	name   string
	handle uintptr
}

// Name is the name under which it was found.
func (l *Library) Name() string { return l.name }

// Open opens the first library of these names that can be opened. A name is
// a path, or a file name that the system's loader looks for. The library's
// symbols are seen by itself only.
func Open(names ...string) (*Library, error) { return open(false, names) }

// OpenGlobal is like Open, but libraries that are opened later see the
// symbols too. Libraries that load plug-ins may need that.
func OpenGlobal(names ...string) (*Library, error) { return open(true, names) }

func open(global bool, names []string) (*Library, error) {
	var tried []string
	for _, name := range names {
		handle, err := dlopen(name, global)
		if err == nil {
			return &Library{name, handle}, nil
		}
		if errors.Is(err, ErrUnsupported) {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		tried = append(tried, err.Error())
	}
	if len(tried) == 0 {
		return nil, fmt.Errorf("%w: no name was given", ErrNotFound)
	}
	return nil, fmt.Errorf("%w; tried: %s", ErrNotFound, strings.Join(tried, "; "))
}

// Lookup returns the address of a function or variable.
func (l *Library) Lookup(symbol string) (uintptr, error) {
	addr, err := dlsym(l.handle, symbol)
	if err != nil {
		return 0, fmt.Errorf("%s: %w: %s", l.name, ErrNoSymbol, symbol)
	}
	return addr, nil
}

// Call calls the C function at addr with up to 15 integers and pointers, and
// returns its integer result. A pointer must be converted in the argument
// list itself, as in uintptr(unsafe.Pointer(p)): then what it points to
// stays where it is during the call. An argument that is shorter than a word
// is extended as its type says: uintptr(n) for an int32 n.
//
//go:uintptrescapes
func Call(addr uintptr, args ...uintptr) uintptr { return call(addr, args...) }
