package graph

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"strconv"
	"testing"
)

// randomNode connects the parts of random graphs.
type randomNode struct {
	L, R *randomNode
	v    any
	s    []*randomNode
	m    map[string]*randomNode
	f    [2]float32
	in   []float64
	pf   *float64
	b    bool
	str  string
}

// randomGraph makes types and values of them that share memory.
type randomGraph struct {
	*rand.Rand
	seen map[reflect.Type][]reflect.Value // addressable values that may be pointed to
	left int                              // how many values may still be made
}

func newRandomGraph(r *rand.Rand, size int) *randomGraph {
	return &randomGraph{r, make(map[reflect.Type][]reflect.Value), size}
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// typ returns a random type.
func (g *randomGraph) typ(depth int) reflect.Type {
	if depth == 0 || g.IntN(5) == 0 {
		return pick(g.Rand,
			reflect.TypeFor[bool](),
			reflect.TypeFor[int8](),
			reflect.TypeFor[int](),
			reflect.TypeFor[uint16](),
			reflect.TypeFor[uint64](),
			reflect.TypeFor[float32](),
			reflect.TypeFor[float64](),
			reflect.TypeFor[complex64](),
			reflect.TypeFor[complex128](),
			reflect.TypeFor[string](),
			reflect.TypeFor[any](),
			reflect.TypeFor[*randomNode](),
			reflect.TypeFor[point](),
			reflect.TypeFor[embedded](),
			reflect.TypeFor[shape](),
		)
	}
	switch g.IntN(6) {
	case 0:
		return reflect.PointerTo(g.typ(depth - 1))
	case 1:
		return reflect.SliceOf(g.typ(depth - 1))
	case 2:
		return reflect.ArrayOf(1+g.IntN(3), g.typ(depth-1))
	case 3:
		key := pick(g.Rand,
			reflect.TypeFor[int](),
			reflect.TypeFor[string](),
			reflect.TypeFor[[2]uint8](),
			reflect.TypeFor[float64](),
			reflect.TypeFor[bool](),
			reflect.TypeFor[struct {
				A int8
				B string
			}](),
		)
		return reflect.MapOf(key, g.typ(depth-1))
	default:
		var fields []reflect.StructField
		for i := range 1 + g.IntN(5) {
			fields = append(fields, reflect.StructField{Name: "F" + strconv.Itoa(i), Type: g.typ(depth - 1)})
		}
		return reflect.StructOf(fields)
	}
}

// note records v and its parts as targets for pointers.
func (g *randomGraph) note(v reflect.Value) {
	const most = 50
	t := v.Type()
	if len(g.seen[t]) < most {
		g.seen[t] = append(g.seen[t], v)
	} else {
		g.seen[t][g.IntN(most)] = v
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if t.Field(i).Name != "_" {
				g.note(open(v.Field(i)))
			}
		}
	case reflect.Array:
		for i := range v.Len() {
			g.note(v.Index(i))
		}
	}
}

// pointer returns a pointer to a new value or to a recorded one.
func (g *randomGraph) pointer(t reflect.Type, depth int) reflect.Value {
	if seen := g.seen[t]; len(seen) > 0 && g.IntN(2) == 0 {
		return pick(g.Rand, seen...).Addr()
	}
	n := reflect.New(t)
	g.note(n.Elem())
	g.fill(n.Elem(), depth-1)
	return n
}

// fill gives v a random value.
func (g *randomGraph) fill(v reflect.Value, depth int) {
	if g.left--; g.left < 0 || depth < 0 {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(g.IntN(2) == 0)
	case reflect.Int8, reflect.Int, reflect.Int32:
		v.SetInt(int64(g.Uint64()) >> g.IntN(64))
	case reflect.Uint8, reflect.Uint16, reflect.Uint64:
		v.SetUint(g.Uint64() >> g.IntN(64))
	case reflect.Float32, reflect.Float64:
		v.SetFloat(pick(g.Rand, math.NaN(), math.Inf(1), 0, math.Copysign(0, -1), g.NormFloat64()))
	case reflect.Complex64, reflect.Complex128:
		v.SetComplex(complex(g.NormFloat64(), 1))
	case reflect.String:
		v.SetString(g.text(v.Type()))
	case reflect.Pointer:
		if g.IntN(6) > 0 {
			v.Set(g.pointer(v.Type().Elem(), depth))
		}
	case reflect.Slice:
		g.fillSlice(v, depth)
	case reflect.Array:
		for i := range v.Len() {
			g.fill(v.Index(i), depth-1)
		}
	case reflect.Map:
		g.fillMap(v, depth)
	case reflect.Interface:
		g.fillInterface(v, depth)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "_" {
				g.fill(open(v.Field(i)), depth-1)
			}
		}
	}
}

// text returns a new string, or (a part of) one that was seen.
func (g *randomGraph) text(t reflect.Type) string {
	if seen := g.seen[t]; len(seen) > 0 && g.IntN(2) == 0 {
		s := pick(g.Rand, seen...).String()
		if len(s) > 2 && g.IntN(2) == 0 {
			s = s[1:]
		}
		return s
	}
	b := make([]byte, g.IntN(12))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return string(b)
}

// fillSlice sets v to nil, an empty slice, a part of a slice that was seen, or
// a new slice.
func (g *randomGraph) fillSlice(v reflect.Value, depth int) {
	t := v.Type()
	switch k := g.IntN(6); {
	case k == 0:
	case k == 1:
		v.Set(reflect.MakeSlice(t, 0, 0))
	case k < 4 && len(g.seen[t]) > 0:
		s := pick(g.Rand, g.seen[t]...)
		if s.Cap() > 1 {
			lo := g.IntN(s.Cap())
			hi := lo + g.IntN(s.Cap()-lo)
			end := hi + g.IntN(s.Cap()-hi)
			s = s.Slice3(lo, hi, end)
		}
		v.Set(s)
	default:
		n := g.IntN(6)
		s := reflect.MakeSlice(t, n+g.IntN(3), n+3)
		v.Set(s)
		for i := range s.Len() {
			g.note(s.Index(i))
			g.fill(s.Index(i), depth-1)
		}
	}
}

// fillMap sets v to nil, a map that was seen, or a new one. It contains at most
// one NaN key: two cannot be distinguished.
func (g *randomGraph) fillMap(v reflect.Value, depth int) {
	t := v.Type()
	if g.IntN(6) == 0 {
		return
	}
	if seen := g.seen[t]; len(seen) > 0 && g.IntN(3) == 0 {
		v.Set(pick(g.Rand, seen...))
		return
	}
	v.Set(reflect.MakeMap(t))
	nans := 0
	for range g.IntN(5) {
		key := reflect.New(t.Key()).Elem()
		g.fill(key, 3)
		if key.Kind() == reflect.Float64 && math.IsNaN(key.Float()) {
			if nans++; nans > 1 {
				continue
			}
		}
		elem := reflect.New(t.Elem()).Elem()
		g.fill(elem, depth-1)
		v.SetMapIndex(key, elem)
	}
}

func (g *randomGraph) fillInterface(v reflect.Value, depth int) {
	if v.NumMethod() > 0 {
		if g.IntN(2) == 0 {
			v.Set(reflect.ValueOf(square{2}))
		} else {
			v.Set(g.pointer(reflect.TypeFor[blob](), depth))
		}
		return
	}
	switch g.IntN(6) {
	case 0:
	case 1:
		v.Set(g.pointer(reflect.TypeFor[randomNode](), depth))
	default:
		elem := reflect.New(pick(g.Rand,
			reflect.TypeFor[int](),
			reflect.TypeFor[string](),
			reflect.TypeFor[[]*randomNode](),
			reflect.TypeFor[[1]*randomNode](),
			reflect.TypeFor[struct{ P *float64 }](),
			reflect.TypeFor[map[string]*randomNode](),
			reflect.TypeFor[[1]map[string]*randomNode](),
			reflect.TypeFor[point](),
			reflect.TypeFor[[]any](),
			reflect.TypeFor[*any](),
			reflect.TypeFor[**int](),
			reflect.TypeFor[[3]string](),
			reflect.TypeFor[func()](),
		)).Elem()
		g.fill(elem, depth-1)
		v.Set(elem)
	}
}

// tryRandom saves the random state of a seed and restores it twice: into
// variables that were used before, and from a machine of the other byte order.
// It reports whether the state could be saved.
func tryRandom(t *testing.T, seed uint64) bool {
	t.Helper()
	g := newRandomGraph(rand.New(rand.NewPCG(seed, 7)), 3000)
	var roots, used, fresh []Root
	for i := range 1 + g.IntN(3) {
		name := fmt.Sprint("r", i)
		typ := g.typ(4)
		roots = append(roots, Root{name, reflect.New(typ).Interface()})
		fresh = append(fresh, Root{name, reflect.New(typ).Interface()})
		w := reflect.New(typ)
		if g.IntN(2) == 0 {
			newRandomGraph(g.Rand, 100).fill(w.Elem(), 5)
		}
		used = append(used, Root{name, w.Interface()})
	}
	for _, r := range roots {
		v := reflect.ValueOf(r.Ptr).Elem()
		g.note(v)
		g.fill(v, 8)
	}
	var c Collector
	img, err := c.Collect(roots, nil)
	if refused := new(UnsupportedError); errors.As(err, &refused) {
		return false
	}
	if err != nil {
		t.Errorf("seed %d: Collect: %v", seed, err)
		return false
	}
	f := store(t, img)
	text := imageText(f)
	again, err := c.Collect(roots, nil)
	if err != nil {
		t.Errorf("seed %d: Collect again: %v", seed, err)
		return false
	}
	if imageText(store(t, again)) != text {
		t.Errorf("seed %d: two images of the same state differ", seed)
	}
	saved, err := f.image()
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return false
	}
	compareRandom(t, fmt.Sprintf("seed %d", seed), saved, f.data, text, roots, used)
	foreign, data := emigrate(t, f, false)
	compareRandom(t, fmt.Sprintf("seed %d, of another machine", seed), foreign, data, text, roots, fresh)
	return true
}

// compareRandom restores an image and compares the result with what was saved:
// as a graph, and by the image of the result.
func compareRandom(t *testing.T, name string, img *Image, data [][]byte, text string, roots, into []Root) {
	t.Helper()
	if err := restore(img, data, into, nil, Options{Limit: 1 << 30}); err != nil {
		t.Errorf("%s: restore: %v", name, err)
		return
	}
	var want, got []any
	for i := range roots {
		want = append(want, roots[i].Ptr)
		got = append(got, into[i].Ptr)
	}
	if err := isomorphic(&want, &got); err != nil {
		t.Errorf("%s: %v", name, err)
	}
	if imageText(save(t, into, nil)) != text {
		t.Errorf("%s: the image of the restored state is another one", name)
	}
}

// tryRandoms tries n seeds from first on, until several have failed.
func tryRandoms(t *testing.T, first, n uint64) {
	t.Helper()
	saved, tried := 0, 0
	for seed := first; seed < first+n; seed++ {
		tried++
		if tryRandom(t, seed) {
			saved++
		}
		if t.Failed() {
			return
		}
	}
	if saved < tried*9/10 {
		t.Errorf("only %d of %d states could be saved", saved, tried)
	}
}

// stressed returns few, or many if CAIRN_LONG is set.
func stressed(few, many uint64) uint64 {
	if os.Getenv("CAIRN_LONG") != "" {
		return many
	}
	return few
}

// TestRoundTrip_RandomGraphs saves and restores values of random types that
// share memory in random ways.
func TestRoundTrip_RandomGraphs(t *testing.T) {
	tryRandoms(t, 0, stressed(400, 50_000))
}

// TestRoundTrip_RandomGraphsDuringGC does the same while the garbage collector
// runs all the time. Restored memory must be reachable and have the right type.
func TestRoundTrip_RandomGraphsDuringGC(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	stop := make(chan struct{})
	stopped := make(chan struct{})
	defer func() {
		close(stop)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				runtime.GC()
			}
		}
	}()
	tryRandoms(t, 1_000_000, stressed(50, 5000))
}
