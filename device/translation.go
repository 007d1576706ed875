package device

import (
	"fmt"
	"io/fs"
	"reflect"
	"runtime"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/driver"
)

// KernelOf returns the kernel of a Go function. The host runs the function.
// Other devices run its translation to OpenCL C: 'cairn build' makes it, and
// so does 'cairn kernels', for programs that are built with go build (see
// docs/devices.md for what can be translated). f must be the name of a function
// of the package that calls KernelOf.
func KernelOf(f func(*Work)) *Kernel {
	name := "nil"
	if f != nil {
		name = runtime.FuncForPC(reflect.ValueOf(f).Pointer()).Name()
		name = name[strings.LastIndexByte(name, '.')+1:]
	}
	return NewKernel("", name, f)
}

// Translation is the translation of a kernel in Go. 'cairn kernels' writes it.
type Translation struct {
	Source string // OpenCL C
	Entry  string // the function in it
	Dims   [3]bool
	Groups bool // it works by groups
	// Most, if not 0, is the size of the largest groups that Entry is right
	// for. AnyGroup is for larger ones.
	Most     [3]int
	AnyGroup string
	Params   []Param
	// Unchanged, if not nil, returns an error if the Go function is not the
	// one that was translated.
	Unchanged func() error
}

// Param is a parameter of a Translation.
type Param struct {
	Type   string // of a value, or of an array's elements
	Size   int    // bytes of it
	Array  bool
	Local  bool // local memory
	Writes bool // the kernel writes elements
	Len    bool // the kernel uses the number of elements
}

var translations sync.Map // of *Translation, by the function's address

// Register makes the translation of a function known. Files that 'cairn
// kernels' writes call it.
func Register(f func(*Work), t Translation) {
	translations.Store(reflect.ValueOf(f).Pointer(), &t)
}

// Unchanged returns a function that checks that each of the declarations is in
// one of the files.
func Unchanged(files fs.ReadDirFS, declarations ...string) func() error {
	return sync.OnceValue(func() error {
		entries, err := files.ReadDir(".")
		if err != nil {
			return err
		}
		var all []string
		for _, e := range entries {
			text, err := fs.ReadFile(files, e.Name())
			if err != nil {
				return err
			}
			all = append(all, string(text))
		}
		for _, d := range declarations {
			found := false
			for _, text := range all {
				found = found || strings.Contains(text, d)
			}
			if !found {
				first, _, _ := strings.Cut(d, "\n")
				return fmt.Errorf("the Go source has changed since it was translated, at %q: run 'go generate', or 'cairn kernels' in its directory", first)
			}
		}
		return nil
	})
}

// translated returns the translation of the kernel's Go function, or nil.
func (k *Kernel) translated() *Translation {
	if k.source != "" || k.host == nil {
		return nil
	}
	t, ok := translations.Load(reflect.ValueOf(k.host).Pointer())
	if !ok {
		return nil
	}
	return t.(*Translation)
}

// check compares the arguments of a launch with the parameters. It does so on
// all devices, so that the host refuses what others would.
func (t *Translation) check(global, local [3]int, args []any) error {
	if len(args) != len(t.Params) {
		return fmt.Errorf("%d arguments: the kernel has %d", len(args), len(t.Params))
	}
	if t.Groups && local[0] == 0 {
		return fmt.Errorf("the kernel works by groups: give their size, as in Size{n}.In(64)")
	}
	for d, n := range global {
		if n > 1 && !t.Dims[d] {
			return fmt.Errorf("%d items in dimension %d, over which the kernel has no loop", n, d)
		}
	}
	for d, n := range local {
		if t.Groups && n > 1 && !t.Dims[d] {
			return fmt.Errorf("groups of %d items in dimension %d, over which the kernel has no loop", n, d)
		}
	}
	for i, x := range args {
		p := &t.Params[i]
		a, ok := x.(Arg)
		switch {
		case !p.Array && (ok || reflect.TypeOf(x).String() != p.Type):
			return fmt.Errorf("argument %d: the kernel expects a %s, and gets a %T", i, p.Type, x)
		case !p.Array:
		case !ok:
			return fmt.Errorf("argument %d: the kernel expects elements of type %s, and gets a %T", i, p.Type, x)
		case p.Local != (a.mode == 0):
			return fmt.Errorf("argument %d: the kernel expects %s", i, map[bool]string{true: "local memory: pass Local", false: "an array: pass In, Out or InOut"}[p.Local])
		case p.Writes && a.mode != 0 && a.mode&writes == 0:
			return fmt.Errorf("argument %d: the kernel writes the array: pass it with Out or InOut", i)
		case int64(p.Size) > 0 && (a.hi-a.lo)%int64(p.Size) != 0:
			return fmt.Errorf("argument %d: the array has %d bytes, which are no elements of %d bytes (%s)", i, a.hi-a.lo, p.Size, p.Type)
		}
	}
	return nil
}

// variant is one of the forms in which a translation is compiled.
type variant struct {
	entry string
	small bool
}

// maxSmall bounds the sizes of a small launch. Below it, the number of an item,
// and a valid index minus a constant that the translation has split off (see
// package kernel, maxOffset), fit into 31 bits. Devices may run more items than
// asked for, to fill their groups.
const maxSmall = 1<<31 - 1<<20

// variant chooses that of a launch.
func (t *Translation) variant(global, local [3]int, args []any) variant {
	v := variant{t.Entry, true}
	for d, n := range global {
		v.small = v.small && int64(n)+int64(local[d]) <= maxSmall
		if t.Most[d] > 0 && local[d] > t.Most[d] {
			v.entry = t.AnyGroup
		}
	}
	for i, p := range t.Params {
		if a, ok := args[i].(Arg); ok && a.mode != 0 {
			v.small = v.small && (a.hi-a.lo)/int64(max(p.Size, 1)) <= maxSmall
		}
	}
	return v
}

// hidden returns the arguments that the translation has after the others: the
// size of the launch, and lengths.
func (t *Translation) hidden(global [3]int, list []driver.Arg) []driver.Arg {
	put := func(n int64) {
		v := make([]byte, 8)
		scalar(v, n)
		list = append(list, driver.Arg{Value: v})
	}
	args := list
	for _, n := range global {
		put(int64(n))
	}
	for i, p := range t.Params {
		if p.Len {
			put(max(args[i].Len, int64(args[i].Local)) / int64(p.Size))
		}
	}
	return list
}
