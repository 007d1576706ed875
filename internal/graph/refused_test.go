package graph

import (
	"context"
	"errors"
	"hash/maphash"
	"net"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"
)

type layer struct {
	done chan int
	next *layer
	f    func()
}

func localA() any { type T struct{ a int }; return T{1} }
func localB() any { type T struct{ b string }; return T{"x"} }

// TestCollect_Refused checks the error for each value that cannot be saved, and
// the path to it.
func TestCollect_Refused(t *testing.T) {
	type modelT struct {
		layers []*layer
		arr    [3]layer
		m      map[string]*layer
		any    any
		keys   map[any]int
		pp     **layer
		sm     *sync.Map
		pa     *[3]layer
	}
	live := func() *layer { return &layer{done: make(chan int)} }
	const pkg = "github.com/cairnrun/cairn/internal/graph."
	ch := " (chan int) cannot be saved: it is a channel"
	deep := &layer{}
	for p, i := deep, 0; i < 100; i++ {
		p.next = &layer{}
		if p = p.next; i == 99 {
			p.f = func() {}
		}
	}
	lp := live()
	var sm sync.Map
	sm.Store("k", live())
	var mu sync.Mutex
	mu.Lock()
	var rw sync.RWMutex
	rw.RLock()
	var wg sync.WaitGroup
	wg.Add(1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		defer l.Close()
	}
	x := 5
	buf := make([]float64, 4)
	pool := &sync.Pool{New: func() any { return 1 }}
	var nilChan chan int
	var nilFunc func()
	for name, c := range map[string]struct {
		v    any
		want string
	}{
		"slice":     {&modelT{layers: []*layer{{}, nil, {}, live()}}, "v.layers[3].done" + ch},
		"array":     {&modelT{arr: [3]layer{{}, {done: make(chan int)}}}, "v.arr[1].done" + ch},
		"map":       {&modelT{m: map[string]*layer{"a": {}, "key": live()}}, `v.m["key"].done` + ch},
		"interface": {&modelT{any: live()}, "v.any.(*graph.layer).done" + ch},
		"box":       {&modelT{any: *live()}, "v.any.(graph.layer).done" + ch},
		"map key":   {&modelT{keys: map[any]int{lp: 1}}, "key [*graph.layer] of v.keys.(*graph.layer).done" + ch},
		"pointers":  {&modelT{pp: &lp}, "(*v.pp).done" + ch},
		"sync.Map":  {&modelT{sm: &sm}, `(*v.sm)["k"].(*graph.layer).done` + ch},
		"array ptr": {&modelT{pa: &[3]layer{{}, {}, *live()}}, "(*v.pa)[2].done" + ch},
		"root":      {make(chan int), ""},
		"chan root": {&nilChan, "v" + ch},
		"func root": {&nilFunc, "v (func()) cannot be saved: it is a function"},
		"deep":      {&deep, "v" + strings.Repeat(".next", 11) + "…(65 more)…" + strings.Repeat(".next", 24) + ".f (func()) cannot be saved: it is a function"},
		"unsafe":    {&struct{ p unsafe.Pointer }{unsafe.Pointer(&x)}, "v.p (unsafe.Pointer) cannot be saved: it is unknown what it points to"},
		"mutex":     {&struct{ mu *sync.Mutex }{&mu}, "*v.mu (sync.Mutex) cannot be saved: the mutex is locked"},
		"rwmutex":   {&rw, "v (sync.RWMutex) cannot be saved: the mutex is locked"},
		"waitgroup": {&wg, "v (sync.WaitGroup) cannot be saved: the WaitGroup is in use"},
		"reflect":   {&struct{ v reflect.Value }{reflect.ValueOf(1)}, "v.v (reflect.Value) cannot be saved: it is bound to its process"},
		"type":      {&[]reflect.Type{reflect.TypeOf(localA())}, "v[0].(*reflect.rtype) (*reflect.rtype) cannot be saved: two types are called " + pkg + "T (declared inside functions); register one with cairn.Register"},
		"seed":      {&[]maphash.Seed{maphash.MakeSeed()}, "v[0] (hash/maphash.Seed) cannot be saved: a maphash seed is bound to its process"},
		"file":      {&[]any{os.Stdout}, "v[0].(*os.File) (*os.File) cannot be saved: the file is not known to the run"},
		"context":   {&ctx, "*v.(*context.cancelCtx) (context.cancelCtx) cannot be saved: it is a context"},
		"timer":     {&[]*time.Timer{time.NewTimer(time.Hour)}, "*v[0] (time.Timer) cannot be saved: it is a timer"},
		"listener":  {&l, "*v.(*net.TCPListener) (net.TCPListener) cannot be saved: it is a network listener"},
		"func":      {&[]*runtime.Func{runtime.FuncForPC(reflect.ValueOf(live).Pointer())}, "v[0] (runtime.Func) cannot be saved: it belongs to the Go runtime"},
		"local":     {&[]any{localA(), localB()}, "v[0] (" + pkg + "T) cannot be saved: two types are called " + pkg + "T (declared inside functions); register one with cairn.Register"},
		"punning": {&struct {
			a *[]float64
			b []int64
		}{&buf, unsafe.Slice((*int64)(unsafe.Pointer(&buf[1])), 2)}, "v.b (int64) cannot be saved: the memory is also seen as float64, through *v.a"},
		"pool":      {&pool, "*v (sync.Pool) cannot be saved: a sync.Pool with a New function can be saved only inside a variable"},
		"two names": {nil, "v (<nil>) cannot be saved: a root has to be a pointer to a variable"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Collect([]Root{{"v", c.v}}, nil)
			var u *UnsupportedError
			if !errors.As(err, &u) {
				t.Fatalf("got %v", err)
			}
			if c.want != "" {
				want(t, err, c.want)
			}
			if err := Check(Root{"v", c.v}, nil); err == nil && name != "punning" {
				t.Errorf("Check: %v", err)
			}
		})
	}
	// Registering one of two types makes that one savable.
	v := []any{localA()}
	w := roundTrip(t, &v, &Env{Types: []reflect.Type{reflect.TypeOf(localA())}})
	if !reflect.DeepEqual(&v, w) {
		t.Error(*w)
	}
	// A root inside something that is not a root is refused.
	p := &[3]int{}
	_, err = Collect([]Root{{"q", &p[1]}, {"p", &p}}, nil)
	want(t, err, "q (int) cannot be saved: the variable is part of a larger piece of memory that is reached as well, through p")
}

type oldGrid struct {
	n     int
	cells []float64
}

// TestCompare_Mismatch checks what is said about types that differ from those
// of the checkpoint.
func TestCompare_Mismatch(t *testing.T) {
	desc := func(v any) string { return describeType(reflect.TypeOf(v)) }
	type rec struct {
		next *rec
		v    map[string]int
	}
	for _, c := range []struct {
		saved, now any
		want       string
	}{
		{struct{ cells []float64 }{}, struct{ cells []float32 }{}, "grid.cells: the checkpoint has []float64, the program []float32"},
		{1, "", "grid: the checkpoint has int, the program string"},
		{[3]int{}, [4]int{}, "grid: the checkpoint has [3]int, the program [4]int"},
		{[][]int{}, [][]int8{}, "grid: the checkpoint has [][]int, the program [][]int8"},
		{map[string]int{}, map[string]bool{}, "grid: the checkpoint has map[string]int, the program map[string]bool"},
		{struct{ a, b int }{}, struct{ a int }{}, "grid.b: the checkpoint has int, the program has no such field"},
		{struct{ a int }{}, struct{ a, b int }{}, "grid.b: the checkpoint has no such field, the program int"},
		{struct{ a, b int }{}, struct{ b, a int }{}, "grid.a: the fields are in another order"},
		{[]struct{ p *struct{ x int } }{}, []struct{ p *struct{ x uint } }{}, "grid[].p.x: the checkpoint has int, the program uint"},
		{oldGrid{}, celsius(0), "grid: the checkpoint has github.com/cairnrun/cairn/internal/graph.oldGrid, the program github.com/cairnrun/cairn/internal/graph.celsius"},
	} {
		want(t, compare("grid", desc(c.saved), planOf(reflect.TypeOf(c.now))), c.want)
		if err := compare("grid", desc(c.now), planOf(reflect.TypeOf(c.now))); err != nil {
			t.Error(err)
		}
	}
	if s := desc(rec{}); !strings.Contains(s, "next *@0") {
		t.Error(s)
	}
	for _, s := range []string{"", "*", strings.Repeat("*", 1e6), strings.Repeat("[]", 1e6) + "int", strings.Repeat("{a ", 1e6), "@1", "@0 @0\"x\"=@0", "{a int", "map*", "mapint", "[99999999999999999999]int"} {
		if err := compare("v", s, planOf(reflect.TypeOf(rec{}))); err == nil {
			t.Errorf("%.20q is fine", s)
		}
	}
	a, b := 1, "x"
	f := save(t, []Root{{"a", &a}, {"b", &b}}, nil)
	var c float64
	err := f.load([]Root{{"a", &b}, {"c", &c}}, nil)
	want(t, err, "a: the checkpoint has int, the program string\nb: the program has no such variable\nc: the checkpoint has no such variable")
	var m *MismatchError
	if !errors.As(err, &m) || m.Name != "a" {
		t.Error(m)
	}
	img, _ := f.image()
	a2, b2 := 0, ""
	c = 5
	if err := restore(img, f.data, []Root{{"c", &c}, {"a", &a2}, {"b", &b2}}, nil, Options{Added: true}); err != nil || a2 != 1 || b2 != "x" || c != 5 {
		t.Error(err)
	}
}

// describeType returns the description of a type.
func describeType(t reflect.Type) string {
	p := planOf(t)
	p.finish()
	return p.text
}
