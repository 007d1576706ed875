package graph

import (
	"fmt"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// Func values that capture nothing are constants of the program. Some are not
// registered, such as the states of a parser in the standard library. They are
// found by their place in the program, and the name is checked. In another
// build of the program, they are found by name alone.

// staticPrefix begins the names of such functions. It is followed by the
// function's name, @, and the version of Go.
const staticPrefix = "="

// staticOf returns the stand-in of a func value that captures nothing, or nil
// if it may capture something.
func staticOf(o *object) *function {
	name := func() string { return staticPrefix + functionAt(o.code) + "@" + runtime.Version() }
	if made, ok := byName.Load(o.code); ok && made == o {
		return &function{name(), place{}}
	}
	lo, hi := imageStart(), imageEnd()
	at := uintptr(unsafe.Pointer(o))
	if at < lo || at >= hi || o.code < lo || o.code >= hi {
		return nil
	}
	f := runtime.FuncForPC(o.code)
	if f == nil || f.Entry() != o.code {
		return nil
	}
	return &function{name(), place{uint64(o.code - lo), uint64(at - lo)}}
}

// holds reports whether an object holds that code. o may point to something
// else.
func (o *object) holds(code uintptr) (ok bool) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return o.code == code
}

// address converts an address in the program's image to a pointer. Such memory
// never moves.
func address(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }

// InProgram reports whether memory is part of the program: package variables
// and constants. It reports false if that is unknown.
func InProgram(p unsafe.Pointer) bool { return uintptr(p) >= imageStart() && uintptr(p) < imageEnd() }

// place says where a function and its func value lie in the program.
type place struct{ Code, Value uint64 }

// static returns the func value of a stand-in that staticOf made.
func (f *function) static() (unsafe.Pointer, error) {
	name, version, _ := strings.Cut(f.Name[len(staticPrefix):], "@")
	at, ok := f.Env.(place)
	lo, hi := imageStart(), imageEnd()
	if !ok {
		return nil, invalid("the function %.200q has no place", name)
	}
	if size := uint64(hi - lo); at.Code < size && at.Value < size && (lo+uintptr(at.Value))%wordSize == 0 {
		o := (*object)(address(lo + uintptr(at.Value)))
		code := lo + uintptr(at.Code)
		if g := runtime.FuncForPC(code); g != nil && g.Entry() == code && functionAt(code) == name && o.holds(code) {
			return unsafe.Pointer(o), nil
		}
	}
	mismatch := func(why string) error {
		return &MismatchError{Name: name, Path: name, Detail: "the program was built anew, and this function " + why}
	}
	// The compiler numbers functions without a name in the function that
	// declares them.
	if version != runtime.Version() && isLiteral(name) {
		return nil, mismatch("has no name that another version of Go (" + version + ", this is " + runtime.Version() + ") would keep")
	}
	code, several := functionNamed(name)
	switch {
	case several:
		return nil, mismatch("cannot be distinguished from others of that name")
	case code == 0:
		return nil, mismatch("is not in it")
	}
	made, _ := byName.LoadOrStore(code, &object{code})
	return unsafe.Pointer(made.(*object)), nil
}

// byName holds the func values that were made because their place was unknown.
var byName sync.Map // uintptr of the code to *object

// isLiteral reports whether the compiler made up the name.
func isLiteral(name string) bool {
	for {
		_, rest, ok := strings.Cut(name, ".func")
		if !ok {
			return false
		}
		if rest != "" && '0' <= rest[0] && rest[0] <= '9' {
			return true
		}
		name = rest
	}
}

// functionAt returns the name of the function whose code begins at an address.
func functionAt(code uintptr) (name string) {
	frames := runtime.CallersFrames([]uintptr{code + 1}) // frames of inlined functions come first
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		name = f.Function
	}
	return name
}

// functionNamed returns the start of the code of the named function: 0 if there
// is none, or if there are several.
func functionNamed(name string) (code uintptr, several bool) {
	if strings.Contains(name, "[...]") { // an instance for several types
		return 0, true
	}
	for _, at := range functions().all(name) {
		if functionAt(at) == name {
			several = several || code != 0
			code = at
		}
	}
	return code, several
}

// functions holds the start of each function's code in the program.
var functions = sync.OnceValue(func() named {
	// Code is contiguous: starting from its end, each function leads to the one
	// before it.
	at := reflect.ValueOf(functionAt).Pointer()
	for step := ^uintptr(0)>>1 + 1; step > 0; step >>= 1 {
		if next := at + step; next > at && runtime.FuncForPC(next) != nil {
			at = next
		}
	}
	var index named
	for f := runtime.FuncForPC(at); f != nil; f = runtime.FuncForPC(at - 1) {
		at = f.Entry()
		index.add(functionAt(at), at)
	}
	index.sort()
	return index
})

// A state may refer to package variables that are not part of it: errors that
// are compared by identity, tables, defaults of packages. If the program is the
// same, they are restored in place, so that they keep their identity.

// staticName begins the names of such variables. It is followed by the digest
// of the program's code and the variable's distance from the start of the
// image.
const staticName = stdPrefix + "="

// codeDigest identifies a build of a program.
var codeDigest = sync.OnceValue(func() string {
	lo, hi := imageStart(), codeEnd()
	if lo >= hi {
		return ""
	}
	sum := mem.Digest(unsafe.Slice((*byte)(address(lo)), hi-lo))
	return fmt.Sprintf("%016x%016x", sum.Hi, sum.Lo)
})

// variables returns the sections of memory that contain package variables.
var variables = sync.OnceValue(func() [4]span {
	a, b, c, d, e, f, g, h := sections()
	return [4]span{{a, b}, {c, d}, {e, f}, {g, h}}
})

// staticVars names the pieces that are package variables but not roots.
func (c *Collector) staticVars(img *Image) {
	for _, s := range variables() {
		guess := 0
		k := c.pieces.find(s.lo, &guess)
		if k < 0 || c.pieces.lo.S[k] < s.lo {
			k++
		}
		for ; k < c.pieces.len(); k++ {
			lo, hi, p := c.extent(k)
			if hi > s.hi {
				break
			}
			if c.covered[uint32(k)] {
				continue
			}
			p.finish()
			name := fmt.Sprintf("%s%s:%x", staticName, codeDigest(), lo-imageStart())
			img.Vars = append(img.Vars, Var{Name: name, Type: p.text, Region: uint64(c.pieces.num.S[k])})
		}
	}
}

// staticVar returns the address of a variable that staticVars has named, or nil
// if this is another program. ok says that the name is such a name.
func staticVar(name string) (ptr unsafe.Pointer, ok bool) {
	rest, ok := strings.CutPrefix(name, staticName)
	if !ok {
		return nil, false
	}
	digest, at, _ := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(at, 16, 40)
	if err != nil || digest == "" || digest != codeDigest() {
		return nil, true
	}
	return address(imageStart() + uintptr(n)), true
}

// placeStatic assigns a region to a package variable's memory.
func (b *Builder) placeStatic(v *Var, ptr unsafe.Pointer) {
	g := &b.regs[v.Region]
	if g.p == nil || g.ptr != nil || g.p.remote || g.p.size == 0 || g.n == 0 || uintptr(ptr)%uintptr(g.p.t.Align()) != 0 {
		return
	}
	s := span{uintptr(ptr), uintptr(ptr) + uintptr(g.n)*g.p.size}
	for _, in := range variables() {
		if s.lo >= in.lo && s.hi <= in.hi && s.lo < s.hi && b.inPlace.add(s) {
			g.ptr = ptr
			return
		}
	}
}
