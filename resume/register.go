package resume

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
)

// global is a package variable to be saved.
type global struct {
	lo, hi  uintptr
	protect func() error
}

var (
	globals []global
	wrong   []error // what was registered badly
)

// Global makes a package variable part of the state. It is called from init.
func Global[T any](name string, v *T) {
	lo := uintptr(unsafe.Pointer(v))
	globals = append(globals, global{lo, lo + unsafe.Sizeof(*v), func() error { return engine.Protect(run, varName(name), v) }})
}

// varName is the name of a package variable in a checkpoint, where / has a
// meaning.
func varName(name string) string {
	name = strings.ReplaceAll(name, "/", "∕")
	if len(name) > 200 {
		sum := sha256.Sum256([]byte(name))
		name = strings.ToValidUTF8(name[:150], "") + fmt.Sprintf("…%x", sum[:16])
	}
	return name
}

// Func registers a function whose address may be in the state.
func Func(name string, f any) { register(graph.RegisterFunc(name, f)) }

// Closure registers the functions that mk returns. They capture what mk is
// given, and nothing else.
func Closure[E, F any](name string, mk func(*E) F) { register(graph.RegisterClosure(name, mk)) }

// Unsavable says why the function literal at a line of a file cannot be saved.
// If it is part of the state, the error says so.
func Unsavable(file string, line int, why string) { graph.RegisterUnsavable(file, line, why) }

func register(err error) {
	if err != nil {
		wrong = append(wrong, err)
	}
}

// Type registers a type that an interface may hold.
func Type[T any]() {
	if run != nil {
		engine.Register[T](run)
	}
}
