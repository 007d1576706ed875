package resume_test

import (
	"encoding/base64"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode"
	"unsafe"

	"github.com/cairnrun/cairn/internal/engine"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/resume"
)

// open starts a run in dir that saves on request.
func open(t *testing.T, dir string) *engine.Run {
	t.Helper()
	p, err := engine.Open(t.Context(), engine.Options{Dir: dir, Every: time.Hour, Signals: map[os.Signal]engine.SignalAction{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// save saves *v.
func save[T any](t *testing.T, p *engine.Run, v *T) error {
	t.Helper()
	if err := engine.Protect(p, "v", v); err != nil {
		return err
	}
	if _, err := p.Restore(t.Context()); err != nil {
		return err
	}
	return p.Checkpoint(t.Context())
}

// load restores what save has saved.
func load[T any](t *testing.T, p *engine.Run) (*T, error) {
	t.Helper()
	v := new(T)
	if err := engine.Protect(p, "v", v); err != nil {
		return nil, err
	}
	ok, err := p.Restore(t.Context())
	if err == nil && !ok {
		err = errors.New("nothing was restored")
	}
	return v, err
}

// saveAndLoad saves *v and restores it elsewhere.
func saveAndLoad[T any](t *testing.T, v *T) *T {
	t.Helper()
	dir := t.TempDir()
	p := open(t, dir)
	if err := save(t, p, v); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	w, err := load[T](t, open(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	return w
}

type env struct{ n, step int }

//go:noinline
func makeCounter(e *env) func() int {
	return func() int { e.n += e.step; return e.n }
}

type unaryOp func(float64) float64

func double(x float64) float64 { return 2 * x }
func triple(x float64) float64 { return 3 * x }

type nodeEnv struct {
	self func(int) int
	next *env
}

//go:noinline
func makeSelf(e *nodeEnv) func(int) int {
	return func(x int) int {
		if x == 0 {
			return e.next.n
		}
		return e.self(x-1) + 1
	}
}

type boxEnv[T any] struct{ v []T }

//go:noinline
func makeBox[T any](e *boxEnv[T]) func() T {
	return func() T { v := e.v[0]; e.v = e.v[1:]; return v }
}

//go:noinline
func makeShape[T any](e *boxEnv[T]) func() string {
	return func() string { return fmt.Sprintf("%T %d", e.v, len(e.v)) }
}

func init() {
	resume.Closure("shape *int", makeShape[*int])
	resume.Closure("shape *string", makeShape[*string])
	resume.Closure("counter", makeCounter)
	resume.Closure("self", makeSelf)
	resume.Closure("box int", makeBox[int])
	resume.Closure("box string", makeBox[string])
	resume.Closure("box *int", makeBox[*int])
	resume.Closure("box *env", makeBox[*env])
	resume.Func("double", double)
	resume.Func("triple", triple)
}

// TestFuncs_Saved restores func values: closures keep sharing their variables.
func TestFuncs_Saved(t *testing.T) {
	e := &env{10, 3}
	n := &nodeEnv{next: e}
	n.self = makeSelf(n)
	x, y := 7, env{8, 9}
	type state struct {
		none     func()
		ops      map[string]unaryOp
		plain    func(float64) float64
		a, b     func() int
		env      *env
		any      any
		self     func(int) int
		boxInt   func() int
		boxText  func() string
		boxPtr   func() *int
		boxEnv   func() *env
		static   func(string) string
		literal  func() int
		list     []any
		inStruct struct{ f func() int }
	}
	a := makeCounter(e)
	v := &state{
		ops: map[string]unaryOp{"double": double, "triple": triple}, plain: triple,
		a: a, b: makeCounter(e), env: e, any: a, self: n.self,
		boxInt: makeBox(&boxEnv[int]{[]int{1, 2}}), boxText: makeBox(&boxEnv[string]{[]string{"x", "y"}}),
		boxPtr: makeBox(&boxEnv[*int]{[]*int{&x}}), boxEnv: makeBox(&boxEnv[*env]{[]*env{&y}}),
		static: strings.ToUpper, literal: func() int { return 42 },
		list: []any{a, unaryOp(double), nil},
	}
	v.inStruct.f = a
	v.a()
	w := saveAndLoad(t, v)
	if w.none != nil || w.ops["double"](2) != 4 || w.ops["triple"](2) != 6 || w.plain(3) != 9 || w.static("a") != "A" || w.literal() != 42 {
		t.Error("plain functions differ")
	}
	got := []int{w.a(), w.b(), w.any.(func() int)(), w.list[0].(func() int)(), w.inStruct.f(), w.env.n}
	if want := []int{16, 19, 22, 25, 28, 28}; !reflect.DeepEqual(got, want) {
		t.Errorf("the closures share their environment no more: %v, want %v", got, want)
	}
	if w.self(3) != 31 || w.list[1].(unaryOp)(1) != 2 {
		t.Error("self-reference, or a named type")
	}
	if w.boxInt() != 1 || w.boxInt() != 2 || w.boxText() != "x" || *w.boxPtr() != 7 || w.boxEnv().step != 9 {
		t.Error("closures of generic functions")
	}
	if e.n != 13 {
		t.Error("the original was used", e.n)
	}
}

// TestFuncs_Generic restores closures of generic functions. An instance that is
// not registered is refused.
func TestFuncs_Generic(t *testing.T) {
	v := []func() string{makeShape(&boxEnv[*string]{make([]*string, 2)}), makeShape(&boxEnv[*int]{make([]*int, 3)})}
	w := *saveAndLoad(t, &v)
	if got := w[0]() + ", " + w[1](); got != "[]*string 2, []*int 3" {
		t.Error(got)
	}
	// An instance that is not registered shares its code with those.
	v[0] = makeShape(&boxEnv[*env]{})
	if err := save(t, open(t, t.TempDir()), &v); err == nil || !strings.Contains(err.Error(), "cannot be found again by a name") {
		t.Error(err)
	}
}

// TestFuncs_Refused shows that a func value that was not converted is refused,
// and named.
func TestFuncs_Refused(t *testing.T) {
	x := 1
	v := struct{ fs []func() int }{[]func() int{nil, func() int { x++; return x }}}
	err := save(t, open(t, t.TempDir()), &v)
	if err == nil || !strings.Contains(err.Error(), "v.fs[1] (func() (int)) cannot be saved: it is the function github.com/cairnrun/cairn/resume_test.TestFuncs_Refused.func1 (values_test.go:") {
		t.Error(err)
	}
}

// TestChannels_Saved restores channels with their values, closed or not, and
// what refers to them.
func TestChannels_Saved(t *testing.T) {
	type message struct {
		text string
		to   chan<- message
	}
	type state struct {
		none, empty chan int
		ring        chan string
		recv        <-chan string
		closed      chan int
		signals     chan struct{}
		self        chan message
		any         any
		arrays      chan [3]int
	}
	v := &state{empty: make(chan int), ring: make(chan string, 4), closed: make(chan int, 3), signals: make(chan struct{}, 5), self: make(chan message, 2), arrays: make(chan [3]int, 1)}
	for _, s := range strings.Fields("a b c d") {
		v.ring <- s
	}
	<-v.ring
	<-v.ring
	v.ring <- "e"
	v.recv, v.any = v.ring, v.ring
	v.closed <- 5
	close(v.closed)
	v.signals <- struct{}{}
	v.signals <- struct{}{}
	v.self <- message{"me", v.self}
	v.arrays <- [3]int{1, 2, 3}
	w := saveAndLoad(t, v)
	if w.none != nil || w.empty == nil || cap(w.empty) != 0 || cap(w.ring) != 4 || len(w.signals) != 2 || cap(w.signals) != 5 {
		t.Error("sizes differ")
	}
	if w.recv != w.ring || w.any != any(w.ring) {
		t.Error("one channel has become two")
	}
	if got := <-w.recv + <-w.ring + <-w.recv; got != "cde" || len(w.ring) != 0 {
		t.Error(got)
	}
	if x, ok := <-w.closed; x != 5 || !ok {
		t.Error(x, ok)
	}
	if x, ok := <-w.closed; x != 0 || ok {
		t.Error(x, ok)
	}
	if m := <-w.self; m.text != "me" || m.to != w.self {
		t.Error("a channel in a channel")
	}
	if <-w.arrays != [3]int{1, 2, 3} {
		t.Error("arrays")
	}
	waited := make(chan int)
	go func() { waited <- 1 }()
	for range 1000 {
		if err := save(t, open(t, t.TempDir()), &waited); err != nil {
			if !strings.Contains(err.Error(), "v (chan int) cannot be saved: a goroutine waits for the channel") {
				t.Error(err)
			}
			<-waited
			return
		}
	}
	t.Error("a channel that somebody waits for was saved")
}

// These package variables are not registered.
var (
	errOwn    = errors.New("own")
	unnamed   = &env{1, 2}
	unnamedB  = [4]env{{1, 1}, {2, 2}}
	unnamedIn = &unnamedB[1].step
)

// TestVariables_KeepIdentity shows that package variables keep their identity.
func TestVariables_KeepIdentity(t *testing.T) {
	if !graph.InProgram(unsafe.Pointer(&unnamedB)) {
		t.Skip("it cannot be told where the program lies on " + runtime.GOARCH)
	}
	type state struct {
		errs   []error
		table  *unicode.RangeTable
		enc    *base64.Encoding
		own    *env
		in     *int
		slice  []env
		text   string
		struc  struct{ e error }
		joined error
	}
	v := &state{errs: []error{csv.ErrFieldCount, os.ErrDeadlineExceeded, exec.ErrNotFound, errOwn, io.EOF}, table: unicode.Letter, enc: base64.StdEncoding,
		own: unnamed, in: unnamedIn, slice: unnamedB[:2], text: "constant", joined: fmt.Errorf("x: %w", errOwn)}
	v.struc.e = errOwn
	unnamed.n, *unnamedIn, unnamedB[0].n = 50, 60, 70
	dir := t.TempDir()
	p := open(t, dir)
	if err := save(t, p, v); err != nil {
		t.Fatal(err)
	}
	p.Close()
	unnamed.n, *unnamedIn, unnamedB[0].n = 51, 61, 71
	w, err := load[state](t, open(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range w.errs {
		if e != v.errs[i] {
			t.Errorf("%v is another error now", e)
		}
	}
	if w.struc.e != errOwn || !errors.Is(w.joined, errOwn) || w.table != unicode.Letter || w.own != unnamed || w.in != unnamedIn || &w.slice[0] != &unnamedB[0] {
		t.Error("a variable is another one now")
	}
	if unnamed.n != 50 || *unnamedIn != 60 || unnamedB[0].n != 70 || w.text != "constant" || !unicode.Is(w.table, 'ä') || w.enc.EncodeToString([]byte{1}) != "AQ==" {
		t.Error("a variable has not its value", unnamed, unnamedB)
	}
}
