package graph

import (
	"context"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"unsafe"
)

// A program that is saved as a whole, by package resume, has functions and
// channels in its state. In other programs, functions and channels in the state
// are an error.

// wholeProgram says that functions and channels are saved.
var wholeProgram bool

// SaveWholeProgram makes the package save functions and channels. It is called
// from an init function, before anything else.
func SaveWholeProgram() {
	plans.Lock()
	defer plans.Unlock()
	for t := range plans.m {
		if k := t.Kind(); k == reflect.Func || k == reflect.Chan || t == timerTypes[0] || t == timerTypes[1] {
			panic("graph: Whole comes too late")
		}
	}
	wholeProgram = true
	ctx, cancel := context.WithCancel(context.Background())
	registerLike("context.WithCancel", cancel, ctx)
	cancel()
	ctx, because := context.WithCancelCause(context.Background())
	registerLike("context.WithCancelCause", because, ctx)
	because(nil)
}

// function is the stand-in of a func value.
type function struct {
	Name string
	Env  any // the captured variables of a closure, a *E
}

// funcEntry is a registered function. It is found by its name.
type funcEntry struct {
	name string
	t    reflect.Type
	word unsafe.Pointer // func value of a function that captures nothing
	// The other fields are for closures.
	env  reflect.Type                                // *E
	make func(env unsafe.Pointer) (f unsafe.Pointer) // returns the func value of a new closure
	slot int                                         // position of env in the closure's object, in words
	dict uintptr                                     // the other word of a closure in a generic function
}

var funcs struct {
	sync.Mutex
	byName map[string]*funcEntry
	byCode map[uintptr][]*funcEntry
}

// object is what a func value points to: the code pointer, followed by the
// captured variables.
type object struct{ code uintptr }

// word returns the nth word of an object. It may read behind the object while
// the object's size is being determined.
//
//go:nocheckptr
func (o *object) word(n int) uintptr {
	return *(*uintptr)(unsafe.Add(unsafe.Pointer(o), uintptr(n)*wordSize))
}

// RegisterFunc registers a function that captures nothing.
func RegisterFunc(name string, f any) error {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func || v.IsNil() {
		return fmt.Errorf("function %s: a %T is registered in its place", name, f)
	}
	word := (*ifaceHeader)(unsafe.Pointer(&f)).data
	return addFunc(&funcEntry{name: name, t: v.Type(), word: word}, (*object)(word).code)
}

// RegisterClosure registers the functions that mk returns. They must capture
// the argument of mk and nothing else.
func RegisterClosure[E, F any](name string, mk func(*E) F) error {
	t := reflect.TypeFor[F]()
	if t.Kind() != reflect.Func {
		return fmt.Errorf("closure %s: its constructor returns a %s", name, t)
	}
	build := func(env unsafe.Pointer) unsafe.Pointer {
		f := mk((*E)(env))
		return *(*unsafe.Pointer)(unsafe.Pointer(&f))
	}
	e := &funcEntry{name: name, t: t, env: reflect.TypeFor[*E](), make: build}
	var objects [4]*object
	for i := range objects {
		// The struct is not empty, so that it has an address of its own.
		env := unsafe.Pointer(new(struct {
			e E
			_ byte
		}))
		o := (*object)(build(env))
		if o == nil {
			return fmt.Errorf("closure %s: its constructor returned nil", name)
		}
		slot := 0
		switch uintptr(env) {
		case o.word(1):
			slot = 1
		case o.word(2):
			slot = 2
		}
		if slot == 0 || i > 0 && slot != e.slot {
			return fmt.Errorf("closure %s: %s does not capture its environment alone; the compiler must have changed", name, funcName(o.code))
		}
		e.slot = slot
		objects[i] = o
		runtime.KeepAlive(env)
	}
	// Instances of a generic function may share their code. Their closures also
	// capture the dictionary of the instance, which is a constant.
	other := objects[0].word(3 - e.slot)
	constant := InProgram(address(other)) && other != objects[0].code
	for _, o := range objects[1:] {
		constant = constant && o.word(3-e.slot) == other
	}
	if constant {
		e.dict = other
	} else if e.slot == 2 {
		return fmt.Errorf("closure %s: %s captures more than its environment; the compiler must have changed", name, funcName(objects[0].code))
	}
	return addFunc(e, objects[0].code)
}

// registerLike registers the functions that have the code of f, a closure that
// captures the pointer env and nothing else. It serves closures of the standard
// library that cannot be created from outside.
func registerLike(name string, f any, env any) {
	o := (*object)((*ifaceHeader)(unsafe.Pointer(&f)).data)
	at := (*ifaceHeader)(unsafe.Pointer(&env)).data
	if o.word(1) != uintptr(at) {
		return // this version makes them differently: they cannot be saved
	}
	code := o.code
	_ = addFunc(&funcEntry{name: name, t: reflect.TypeOf(f), env: reflect.TypeOf(env), slot: 1, make: func(env unsafe.Pointer) unsafe.Pointer {
		return unsafe.Pointer(&closure{code, env})
	}}, code)
}

// closure is an object with one captured pointer.
type closure struct {
	code uintptr
	env  unsafe.Pointer
}

func addFunc(e *funcEntry, code uintptr) error {
	funcs.Lock()
	defer funcs.Unlock()
	if funcs.byName == nil {
		funcs.byName, funcs.byCode = make(map[string]*funcEntry), make(map[uintptr][]*funcEntry)
	}
	if old := funcs.byName[e.name]; old != nil && old.word != nil && old.word == e.word {
		return nil
	} else if old != nil {
		return fmt.Errorf("two functions are registered as %s", e.name)
	}
	for _, o := range funcs.byCode[code] {
		if e.make != nil && o.make != nil && (o.dict == 0 || e.dict == 0 || o.dict == e.dict) {
			return fmt.Errorf("closures %s and %s have the same code, and cannot be distinguished", e.name, o.name)
		}
	}
	funcs.byName[e.name] = e
	funcs.byCode[code] = append(funcs.byCode[code], e)
	return nil
}

// functionOf returns the stand-in of a func value that is not nil.
func functionOf(o *object, t reflect.Type) (*function, error) {
	funcs.Lock()
	defer funcs.Unlock()
	for _, e := range funcs.byCode[o.code] {
		switch {
		case !e.t.ConvertibleTo(t):
		case e.make == nil:
			return &function{Name: e.name}, nil
		case e.dict == 0 || o.word(3-e.slot) == e.dict:
			env := *(*unsafe.Pointer)(unsafe.Add(unsafe.Pointer(o), uintptr(e.slot)*wordSize))
			return &function{e.name, reflect.NewAt(e.env.Elem(), env).Interface()}, nil
		}
	}
	if f := staticOf(o); f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("it is the function %s, which cannot be found again by a name%s", funcName(o.code), unsavableAt(o.code))
}

// unsavable holds the reasons why functions cannot be saved.
var unsavable sync.Map // of string, by FILE:LINE

// RegisterUnsavable says why the function literal at a line of a file cannot be
// saved.
func RegisterUnsavable(file string, line int, why string) {
	unsavable.Store(fmt.Sprintf("%s:%d", file, line), why)
}

// unsavableAt returns the reason that was registered for a function.
func unsavableAt(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return ""
	}
	file, line := f.FileLine(f.Entry())
	if why, ok := unsavable.Load(fmt.Sprintf("%s:%d", file[strings.LastIndexByte(file, '/')+1:], line)); ok {
		return ": " + why.(string)
	}
	return ""
}

// value makes the func value that a stand-in describes.
func (f *function) value(t reflect.Type) (unsafe.Pointer, error) {
	if strings.HasPrefix(f.Name, staticPrefix) {
		return f.static()
	}
	funcs.Lock()
	e := funcs.byName[f.Name]
	funcs.Unlock()
	if e == nil {
		return nil, &MismatchError{Name: f.Name, Path: f.Name, Detail: "the program has no such function"}
	}
	if !e.t.ConvertibleTo(t) {
		return nil, &MismatchError{Name: f.Name, Path: f.Name, Detail: fmt.Sprintf("the function is a %s in the program, a %s in the checkpoint", typeName(e.t), typeName(t))}
	}
	if e.make == nil {
		return e.word, nil
	}
	if reflect.TypeOf(f.Env) != e.env {
		return nil, &MismatchError{Name: f.Name, Path: f.Name, Detail: fmt.Sprintf("the closure captures a %s in the program, a %T in the checkpoint", typeName(e.env), f.Env)}
	}
	return e.make((*ifaceHeader)(unsafe.Pointer(&f.Env)).data), nil
}

// funcName returns a readable name of a function.
func funcName(pc uintptr) string {
	f := runtime.FuncForPC(pc)
	if f == nil {
		return "?"
	}
	file, line := f.FileLine(f.Entry())
	return fmt.Sprintf("%s (%s:%d)", SourceName(f.Name()), file[strings.LastIndexByte(file, '/')+1:], line)
}

// SourceName returns a function's name without what the compiler has put into
// it.
func SourceName(function string) string {
	if !strings.Contains(function, "airn_") {
		return function
	}
	function = strings.ReplaceAll(function, "[...]", "")
	base := function[strings.LastIndexByte(function, '/')+1:]
	parts := strings.Split(base, ".")
	for i, part := range parts {
		kind, name, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(part, "C"), "c"), "_")
		if kind != "airn" {
			continue
		}
		switch kind, name, _ = strings.Cut(name, "_"); kind {
		case "fast", "plain", "continue", "rest", "resume":
			parts[i] = strings.TrimLeft(strings.TrimLeft(name, "0123456789"), "_")
		case "make", "forward", "func":
			name, _, _ = strings.Cut(name, "_of_")
			name = strings.TrimRight(name, "_0123456789")
			if of, ok := strings.CutPrefix(name, "0value_"); ok {
				parts[i] = "a method value in " + of
			} else if of, ok := strings.CutPrefix(name, "0expr_"); ok {
				parts[i] = "a method expression in " + of
			} else {
				parts[i] = name + ".func"
			}
			if kind != "func" && i+1 < len(parts) && parts[i+1] == "func1" {
				parts = append(parts[:i+1], parts[i+2:]...)
				return strings.TrimSuffix(function, base) + strings.Join(parts, ".")
			}
		}
	}
	return strings.TrimSuffix(function, base) + strings.Join(parts, ".")
}

// pushFunc records the stand-in of the func value at ptr.
func (c *Collector) pushFunc(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	o := *(**object)(ptr)
	if o == nil {
		return nil
	}
	if c.made.has(uintptr(unsafe.Pointer(o)), p.elem) {
		return nil
	}
	f, err := functionOf(o, p.t)
	if err != nil {
		return c.refuse(p, i, at, err.Error())
	}
	c.keep = append(c.keep, f)
	return c.stand(unsafe.Pointer(o), unsafe.Pointer(f), p.elem, 1, viaFunc, i, at)
}

// funcFix is a func value that is made when its stand-in is filled.
type funcFix struct {
	p      *plan
	ptr    unsafe.Pointer
	region uint64
}

func (d *decoder) function(p *plan, dst unsafe.Pointer, obj uint64) error {
	*(*unsafe.Pointer)(dst) = nil
	if obj == 0 {
		return nil
	}
	if obj <= uint64(len(d.regs)) && d.regs[obj-1].p == nil {
		return d.dropped(obj)
	}
	if obj > uint64(len(d.regs)) || d.regs[obj-1].p != p.elem || d.regs[obj-1].n != 1 {
		return invalid("a %s has no region", typeName(p.t))
	}
	d.funcs = append(d.funcs, funcFix{p, dst, obj - 1})
	return nil
}

// makeFuncs makes all func values. The captured variables have their addresses
// by now, but perhaps not their values.
func (b *Builder) makeFuncs() error {
	for _, f := range b.funcs {
		g := &b.regs[f.region]
		if g.m == nil || g.mt != f.p {
			var err error
			if g.m, err = (*function)(g.ptr).value(f.p.t); err != nil {
				return err
			}
			g.mt = f.p
		}
		*(*unsafe.Pointer)(f.ptr) = g.m
	}
	for _, f := range b.funcs {
		if g := &b.regs[f.region]; g.m != nil {
			b.stands = append(b.stands, placed{uintptr(g.m), f.p.elem.id + 1, uint32(f.region)})
			g.m = nil // the region stands for no map
		}
	}
	b.funcs = nil
	return nil
}
