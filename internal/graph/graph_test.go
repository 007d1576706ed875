package graph

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"reflect"
	"sync"
	"testing"
	"time"
	"unsafe"
)

// file is an image as it is stored on disk.
type file struct {
	meta    []byte
	regions []uint64
	data    [][]byte
}

func save(t testing.TB, roots []Root, env *Env) *file {
	t.Helper()
	img, err := Collect(roots, env)
	if err != nil {
		t.Fatalf("Collect: %v", err)
	}
	return store(t, img)
}

func store(t testing.TB, img *Image) *file {
	t.Helper()
	f := &file{regions: PackRegions(img.Regions)}
	var err error
	if f.meta, err = json.Marshal(img); err != nil {
		t.Fatal(err)
	}
	for _, p := range img.Pools {
		var b []byte
		for _, q := range p.Pieces {
			b = append(b, q...)
		}
		if p.Gather != nil {
			b = gathered(t, &p)
		}
		if uint64(len(b)) != p.Bytes() {
			t.Fatalf("pool of %d %s has %d bytes", p.Count, p.Elem, len(b))
		}
		n := uint64(1)
		for _, d := range p.Shape {
			n *= d
		}
		if n != p.Count {
			t.Fatalf("pool of %d %s has the shape %v", p.Count, p.Elem, p.Shape)
		}
		f.data = append(f.data, b)
	}
	return f
}

// gathered returns the bytes of a pool, which several goroutines produce in
// parts.
func gathered(t testing.TB, p *Pool) []byte {
	b := make([]byte, p.Bytes())
	step := int(p.Count/3+1) * p.Form.Size
	var wg sync.WaitGroup
	for at := 0; at < len(b); at += step {
		wg.Go(func() {
			if err := p.Gather(b[at:min(at+step, len(b))], int64(at)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	return b
}

func (f *file) image() (*Image, error) {
	img := new(Image)
	if err := json.Unmarshal(f.meta, img); err != nil {
		return nil, err
	}
	var err error
	img.Regions, err = UnpackRegions(f.regions)
	return img, err
}

func (f *file) load(roots []Root, env *Env) error {
	img, err := f.image()
	if err != nil {
		return err
	}
	return restore(img, f.data, roots, env, Options{Limit: 1 << 30})
}

func restore(img *Image, data [][]byte, roots []Root, env *Env, opt Options) error {
	b, err := Prepare(roots, img, env, opt)
	if err != nil {
		return err
	}
	for _, t := range b.Targets() {
		src := data[t.Pool]
		if t.Pieces == nil || t.Pool%2 == 1 {
			// Fill in parts, the last part first.
			size := img.Pools[t.Pool].Form.Size
			cut := len(src) / size / 3 * size
			if err := t.Fill(int64(cut), src[cut:]); err != nil {
				return err
			}
			if err := t.Fill(0, src[:cut]); err != nil {
				return err
			}
			continue
		}
		for _, p := range t.Pieces {
			src = src[copy(p, src):]
		}
		if len(src) != 0 {
			return fmt.Errorf("pool %d: %d bytes left", t.Pool, len(src))
		}
	}
	return b.Finish()
}

// roundTrip saves *v and restores it in a variable of another program.
func roundTrip[T any](t testing.TB, v *T, env *Env) *T {
	t.Helper()
	f := save(t, []Root{{"v", v}}, env)
	w := new(T)
	if err := f.load([]Root{{"v", w}}, env); err != nil {
		t.Fatalf("load: %v", err)
	}
	return w
}

// iso compares two graphs: values, nil-ness, lengths, capacities and aliasing.
type iso struct {
	ab, ba map[isoKey]uintptr
	done   map[isoKey]bool
	depth  int
}

type isoKey struct {
	addr uintptr
	t    reflect.Type
}

func isomorphic(a, b any) error {
	c := iso{make(map[isoKey]uintptr), make(map[isoKey]uintptr), make(map[isoKey]bool), 0}
	return c.values(reflect.ValueOf(a), reflect.ValueOf(b), "v")
}

// bind records that address x corresponds to y, and reports whether that was
// known.
func (c *iso) bind(x, y uintptr, t reflect.Type, path string) (bool, error) {
	if t.Size() == 0 {
		return false, nil
	}
	k, l := isoKey{x, t}, isoKey{y, t}
	if z, ok := c.ab[k]; ok && z != y {
		return false, fmt.Errorf("%s: aliasing lost", path)
	}
	if z, ok := c.ba[l]; ok && z != x {
		return false, fmt.Errorf("%s: aliasing added", path)
	}
	_, ok := c.ab[k]
	c.ab[k], c.ba[l] = y, x
	return ok, nil
}

func open(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return reflect.NewAt(v.Type(), v.Addr().UnsafePointer()).Elem()
	}
	return v
}

func (c *iso) values(a, b reflect.Value, path string) error {
	if a.IsValid() != b.IsValid() {
		return fmt.Errorf("%s: %v and %v", path, a, b)
	}
	if !a.IsValid() {
		return nil
	}
	if a.Type() != b.Type() {
		return fmt.Errorf("%s: %v and %v", path, a.Type(), b.Type())
	}
	if a.CanAddr() && b.CanAddr() {
		a, b = open(a), open(b)
		if _, err := c.bind(uintptr(a.Addr().UnsafePointer()), uintptr(b.Addr().UnsafePointer()), a.Type(), path); err != nil {
			return err
		}
	}
	if a.Type() == timeType {
		x, y := a.Interface().(time.Time), b.Interface().(time.Time)
		if !x.Equal(y) || x.Format(time.RFC3339Nano+" MST") != y.Format(time.RFC3339Nano+" MST") || x.Location().String() != y.Location().String() {
			return fmt.Errorf("%s: %v and %v", path, x, y)
		}
		return nil
	}
	switch a.Kind() {
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return fmt.Errorf("%s: %v and %v", path, a, b)
			}
			return nil
		}
		if a.Type() == locType {
			if fmt.Sprint(a) != fmt.Sprint(b) {
				return fmt.Errorf("%s: %v and %v", path, a, b)
			}
			return nil
		}
		if a.Type() == fileType {
			return nil
		}
		k := isoKey{a.Pointer(), a.Type()}
		if _, err := c.bind(a.Pointer(), b.Pointer(), a.Type().Elem(), path); err != nil || c.done[k] {
			return err
		}
		c.done[k] = true
		return c.values(a.Elem(), b.Elem(), "(*"+path+")")
	case reflect.Interface:
		return c.values(a.Elem(), b.Elem(), path+".(T)")
	case reflect.Slice:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() || a.Cap() != b.Cap() {
			return fmt.Errorf("%s: len %d cap %d, and len %d cap %d", path, a.Len(), a.Cap(), b.Len(), b.Cap())
		}
		if a.Cap() == 0 {
			return nil
		}
		if _, err := c.bind(a.Pointer(), b.Pointer(), a.Type().Elem(), path); err != nil {
			return err
		}
		if k := (isoKey{a.Pointer() + uintptr(a.Cap())<<(wordSize*6), a.Type()}); c.done[k] {
			return nil
		} else {
			c.done[k] = true
		}
		a, b = a.Slice(0, a.Cap()), b.Slice(0, b.Cap())
		if a.Type().Elem().Size() == 0 {
			return nil
		}
		fallthrough
	case reflect.Array:
		for i := range a.Len() {
			if err := c.values(a.Index(i), b.Index(i), fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case reflect.Struct:
		for i := range a.NumField() {
			if n := a.Type().Field(i).Name; n == "_" || n == "checker" {
				continue
			}
			if err := c.values(a.Field(i), b.Field(i), path+"."+a.Type().Field(i).Name); err != nil {
				return err
			}
		}
	case reflect.Map:
		if a.IsNil() != b.IsNil() || a.Len() != b.Len() {
			return fmt.Errorf("%s: maps of %d and %d", path, a.Len(), b.Len())
		}
		if a.IsNil() {
			return nil
		}
		if _, err := c.bind(a.Pointer(), b.Pointer(), a.Type(), path); err != nil {
			return err
		}
		if k := (isoKey{a.Pointer(), a.Type()}); c.done[k] {
			return nil
		} else {
			c.done[k] = true
		}
		for it := a.MapRange(); it.Next(); {
			k := it.Key()
			if k.Kind() == reflect.Pointer || k.Kind() == reflect.Interface || k.Comparable() && k.Kind() == reflect.Float64 && k.Float() != k.Float() {
				continue
			}
			w := b.MapIndex(k)
			if !w.IsValid() {
				return fmt.Errorf("%s[%v] is missing", path, k)
			}
			if err := c.values(it.Value(), w, fmt.Sprintf("%s[%v]", path, k)); err != nil {
				return err
			}
		}
	case reflect.UnsafePointer:
		// Only atomic.Pointer has such fields.
		x, y := a.UnsafePointer(), b.UnsafePointer()
		if (x == nil) != (y == nil) {
			return fmt.Errorf("%s: %v and %v", path, x, y)
		}
	case reflect.Chan, reflect.Func:
		if a.IsNil() != b.IsNil() {
			return fmt.Errorf("%s differs", path)
		}
	case reflect.Float32, reflect.Float64:
		if math.Float64bits(a.Float()) != math.Float64bits(b.Float()) {
			return fmt.Errorf("%s: %v and %v", path, a, b)
		}
	case reflect.Uintptr:
	default:
		if !a.Equal(b) {
			return fmt.Errorf("%s: %v and %v", path, a, b)
		}
	}
	return nil
}

type point struct {
	X, y  float64
	tag   uint8
	n     int32
	_     [3]byte
	empty struct{}
}

type node struct {
	Val        int
	Next, prev *node
	name       string
}

type embedded struct {
	point
	*node
	flags [2][3]bool
}

type gen[K comparable, V any] struct {
	m map[K]V
	s []V
}

type shape interface{ area() float64 }
type square struct{ a float64 }
type blob struct {
	pts []point
	p   *point
}

func (s square) area() float64 { return s.a * s.a }
func (b *blob) area() float64  { return float64(len(b.pts)) }

func values() map[string]func(t *testing.T) {
	return map[string]func(t *testing.T){
		"scalars": try(struct {
			A bool
			B int8
			C uint16
			D complex64
			E float32
			F uintptr
			G string
		}{true, -3, 60000, 1 + 2i, math.Pi, 7, "hello, 世界"}),
		"int": try(42), "string": try("x"), "empty string": try(""), "struct{}": try(struct{}{}),
		"nil slice": try([]int(nil)), "empty slice": try([]int{}), "slice": try(append(make([]int, 0, 10), 1, 2, 3)),
		"array": try([3][4]float64{{1, 2}, {3}}), "slice of array": try([][2]int16{{1, 2}, {3, 4}}),
		"rows": try([][]float64{{1, 2}, {3, 4}, nil, {}, {5}}), "zero array": try([0]*int{}),
		"empty structs": try(make([]struct{}, 5, 9)), "pointer to empty": try(&struct{}{}),
		"points":   try([]point{{X: 1, y: 2, tag: 3, n: 4}, {X: 5}}),
		"embedded": try(embedded{point{X: 1}, &node{Val: 2, name: "n"}, [2][3]bool{{true}}}),
		"nil pointers": try(struct {
			p *int
			f func()
			c chan int
			u unsafe.Pointer
			i any
			e error
			m map[string]int
		}{}),
		"interfaces": try([]any{1, "a", 2.5, nil, []int{1, 2}, map[string]int{"x": 1}, [2]string{"p", "q"}, (*int)(nil), square{3}, &blob{},
			uint8(5), int64(5), true, struct{}{}, [1]*int{new(int)}, struct{ p *int }{new(int)}, (func())(nil), map[int]int(nil), []string(nil), complex(1, 2), error(nil)}),
		"shapes":             try([]shape{square{2}, &blob{pts: make([]point, 3)}, nil, (*blob)(nil)}),
		"generic":            try(gen[string, []int]{map[string][]int{"a": {1}, "b": nil}, [][]int{{2}}}),
		"generic local":      try(gen[point, *node]{map[point]*node{{X: 1}: {Val: 1}}, nil}),
		"maps":               try(map[string]map[int]float64{"a": {1: 2, 3: 4}, "b": {}, "c": nil}),
		"map of struct keys": try(map[[2]string]point{{"a", "b"}: {X: 1}, {"c", "d"}: {X: 2}}),
		"map of any":         try(map[any]any{1: "a", "b": 2, 2.5: []int{1}, [2]any{1, "x"}: nil}),
		"set":                try(map[int]struct{}{1: {}, 2: {}}), "empty key": try(map[struct{}]int{{}: 4}), "empty both": try(map[struct{}]struct{}{{}: {}}),
		"map of pointers": try(map[int]*node{1: {Val: 1}, 2: {Val: 2}}),
		"pointer pointer": func(t *testing.T) { x := 5; p := &x; q := &p; try(&q)(t) },
		"arrays of pointers": try(struct {
			a [3]*int
			b [2][2]string
			c [2]struct {
				n int
				s []int
			}
		}{[3]*int{new(int), nil, new(int)}, [2][2]string{{"a", "b"}, {"c"}}, [2]struct {
			n int
			s []int
		}{{1, []int{2}}, {3, nil}}}),
	}
}

func try[T any](v T) func(t *testing.T) {
	return func(t *testing.T) {
		w := roundTrip(t, &v, nil)
		if err := isomorphic(&v, w); err != nil {
			t.Fatal(err)
		}
		u := roundTrip(t, w, nil)
		if err := isomorphic(&v, u); err != nil {
			t.Fatal("again:", err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for name, f := range values() {
		t.Run(name, f)
	}
}

// TestRoundTrip_Aliases restores what shares memory, so that it does so again.
func TestRoundTrip_Aliases(t *testing.T) {
	type inner struct {
		a int
		b [4]float64
	}
	type outer struct {
		in   inner
		list []inner
	}
	type all struct {
		o       *outer
		pin     *inner
		pa      *int
		pb      *float64
		tail    []float64
		whole   *[4]float64
		views   [][]int
		s       string
		sub     string
		bytes   []byte
		m1, m2  map[string]int
		e1, e2  map[string]int
		n1, n2  *node
		self    any
		i1, i2  any
		arr     [5]int
		inArr   *int
		sl      []int
		pp      **int
		nodes   []node
		pn      *node
		strs    []string
		pstr    *string
		celsius *celsius
		float   *float64
	}
	base := make([]int, 20)
	for i := range base {
		base[i] = i
	}
	o := &outer{list: make([]inner, 3)}
	text := "a long text"
	v := all{o: o, pin: &o.list[1], pa: &o.in.a, pb: &o.list[2].b[3], tail: o.list[1].b[1:3], whole: &o.list[0].b,
		views: [][]int{base[2:5:7], base[4:10], base[:1:1]}, s: text, sub: text[2:6], bytes: []byte("bytes"), m1: map[string]int{"a": 1}, e1: map[string]int{}}
	v.m2, v.e2 = v.m1, v.e1
	n := &node{Val: 1}
	n.Next = &node{Val: 2, prev: n, Next: n}
	v.n1, v.n2 = n, n.Next
	v.i1, v.i2 = n, &v.arr[2]
	v.inArr, v.sl = &v.arr[4], v.arr[1:3]
	v.pp = &v.inArr
	v.nodes = make([]node, 4, 6)
	v.nodes[:6][5].name = "beyond the length"
	v.pn = &v.nodes[2]
	v.strs = []string{text[:1], text}
	v.pstr = &v.strs[1]
	var c celsius = 20
	v.celsius, v.float = &c, (*float64)(&c)
	self := []any{nil, 1}
	self[0] = self
	v.self = self
	w := roundTrip(t, &v, nil)
	if err := isomorphic(&v, w); err != nil {
		t.Fatal(err)
	}
	w.m1["b"] = 2
	w.e1["z"] = 1
	if w.m2["b"] != 2 || w.e2["z"] != 1 || unsafe.StringData(w.sub) != (*byte)(unsafe.Add(unsafe.Pointer(unsafe.StringData(w.s)), 2)) {
		t.Error("not shared")
	}
	*w.float = 7
	if *w.celsius != 7 {
		t.Error("converted pointers not shared")
	}
	w.views[0][2] = 99
	if w.views[1][0] != 99 || cap(w.views[0]) != 5 {
		t.Error("views not shared")
	}
}

type celsius float64

// TestRoundTrip_SharedRoots restores variables that share memory. Variables
// that do so no more are refused.
func TestRoundTrip_SharedRoots(t *testing.T) {
	type state struct {
		data []int
		p    *node
		s    struct{ x, y int }
	}
	mk := func() (*state, **node, *int, *[]int, []Root) {
		s, n, d := new(state), new(*node), new([]int)
		return s, n, &s.s.y, d, []Root{{"n", n}, {"s", s}, {"y", &s.s.y}, {"d", d}}
	}
	s, n, y, d, roots := mk()
	s.data = []int{1, 2, 3}
	s.p = &node{Val: 5}
	*n, *y, *d = s.p, 9, s.data[1:]
	f := save(t, roots, nil)
	s2, n2, y2, d2, roots2 := mk()
	if err := f.load(roots2, nil); err != nil {
		t.Fatal(err)
	}
	if s2.p != *n2 || s2.p.Val != 5 || *y2 != 9 || s2.s.y != 9 || &(*d2)[0] != &s2.data[1] || s2.data[2] != 3 {
		t.Error("not shared")
	}
	other := 0
	roots2[2].Ptr = &other
	if err := f.load(roots2, nil); err == nil || err.Error() != "y: in the checkpoint the variable shares its memory with another one" {
		t.Error(err)
	}
}

// TestRoundTrip_Files restores open files. A file that the run does not know is
// refused.
func TestRoundTrip_Files(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "x")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := &Env{FileID: func(g *os.File) (int, bool) { return 0, f == g }, FileOf: func(id int) (*os.File, error) { return f, nil }}
	v := struct {
		f, g *os.File
		w    any
	}{f, nil, f}
	w := roundTrip(t, &v, env)
	if w.f != f || w.g != nil || w.w != any(f) {
		t.Errorf("%v", w)
	}
	_, err = Collect([]Root{{"v", &v}}, nil)
	want(t, err, "v.f (*os.File) cannot be saved: the file is not known to the run")
}

func want(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || err.Error() != text {
		t.Errorf("got  %v\nwant %s", err, text)
	}
}
