package graph

import (
	"bufio"
	"container/list"
	"errors"
	"fmt"
	"io"
	"math/big"
	"math/rand/v2"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/hdf5"
)

// codecMap is a map with a codec: an interface holds it as a single word.
type codecMap map[string]int

func (m *codecMap) CairnState(c *Coder) error {
	n := map[string]int(*m)
	Field(c, "m", &n)
	*m = n
	return nil
}

// codecPointer is a struct of one pointer with a codec: an interface holds
// it, too, as a single word.
type codecPointer struct{ p *int }

func (m *codecPointer) CairnState(c *Coder) error {
	v := 0
	if m.p != nil {
		v = *m.p
	}
	Field(c, "v", &v)
	m.p = &v
	return nil
}

// codecKey is a comparable value with a codec.
type codecKey struct{ n int }

func (k *codecKey) CairnState(c *Coder) error {
	Field(c, "n", &k.n)
	return nil
}

// codecLoop refers to itself, directly and through a map whose keys have
// codecs.
type codecLoop struct {
	m    map[any]*codecLoop
	me   *codecLoop
	name string
}

func (l *codecLoop) CairnState(c *Coder) error {
	Field(c, "m", &l.m)
	Field(c, "me", &l.me)
	Field(c, "name", &l.name)
	return nil
}

// TestCodecsInInterfaces restores values with a codec that an interface holds
// as the pointer they are.
func TestCodecsInInterfaces(t *testing.T) {
	x := 7
	v := []any{codecMap{"a": 1}, codecPointer{&x}, struct{ q codecPointer }{codecPointer{&x}}}
	w := *roundTrip(t, &v, nil)
	if m := w[0].(codecMap); len(m) != 1 || m["a"] != 1 {
		t.Errorf("a map was restored as %v", m)
	}
	if p := w[1].(codecPointer); p.p == nil || *p.p != 7 {
		t.Errorf("a struct of one pointer was restored as %v", p)
	}
	if s := w[2].(struct{ q codecPointer }); s.q.p == nil || *s.q.p != 7 {
		t.Errorf("a struct that holds it was restored as %v", s)
	}
	m := map[any]any{1: codecMap{"a": 1}}
	if got := (*roundTrip(t, &m, nil))[1].(codecMap); len(got) != 1 || got["a"] != 1 {
		t.Errorf("a map in a map was restored as %v", got)
	}
}

// TestCodecKeys restores maps whose keys have codecs: entries can be put in
// only after the codecs of their keys have run.
func TestCodecKeys(t *testing.T) {
	keys := map[codecKey]int{{1}: 1, {2}: 2}
	if got := *roundTrip(t, &keys, nil); !reflect.DeepEqual(got, keys) {
		t.Errorf("restored %v, want %v", got, keys)
	}
	boxed := map[any]int{codecKey{1}: 1, [1]codecKey{{2}}: 2}
	if got := *roundTrip(t, &boxed, nil); !reflect.DeepEqual(got, boxed) {
		t.Errorf("restored %v, want %v", got, boxed)
	}
	loop := &codecLoop{name: "loop"}
	loop.me = loop
	loop.m = map[any]*codecLoop{codecKey{4}: loop}
	if got := *roundTrip(t, &loop, nil); got.me != got || len(got.m) != 1 || got.m[codecKey{4}] != got || got.name != "loop" {
		t.Errorf("restored %+v", got)
	}
	var sm sync.Map
	sm.Store(codecKey{1}, codecKey{2})
	if got, ok := roundTrip(t, &sm, nil).Load(codecKey{1}); !ok || got != (codecKey{2}) {
		t.Errorf("a sync.Map holds %v", got)
	}
}

// TestForeignWords gives a big.Int of a machine with 32-bit words to this
// one: it must have its value or be refused, not take each word for a larger
// one.
func TestForeignWords(t *testing.T) {
	if reflect.TypeFor[big.Word]().Size() != 8 {
		t.Skip("words have 32 bits on this machine, too")
	}
	v := new(big.Int).Lsh(big.NewInt(3), 64) // the words 0 and 3
	f := save(t, []Root{{"v", v}}, nil)
	img, err := f.image()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for i := range img.Pools {
		if img.Pools[i].Elem != "math/big.Word" {
			continue
		}
		found = true
		img.Pools[i].Form = hdf5.Type{Class: hdf5.Uint, Size: 4}
		var words []byte
		for k := 0; k < len(f.data[i]); k += 8 {
			words = append(words, f.data[i][k:k+4]...)
		}
		f.data[i] = words
	}
	if !found {
		t.Fatal("the image has no pool of words")
	}
	w := new(big.Int)
	err = restore(img, f.data, []Root{{"v", w}}, nil, Options{})
	if want := new(big.Int).Lsh(big.NewInt(3), 32); err == nil && w.Cmp(want) != 0 {
		t.Errorf("restored %v without an error, want %v", w, want)
	}
}

// imageText is all that a file holds, to compare files.
func imageText(f *file) string {
	var b strings.Builder
	b.Write(f.meta)
	fmt.Fprint(&b, f.regions)
	for _, d := range f.data {
		b.Write(d)
	}
	return b.String()
}

// TestSameImageTwice collects maps of all sorts of keys again and again: what
// did not change must give the same bytes, or differential sets grow.
func TestSameImageTwice(t *testing.T) {
	type structKey struct {
		a any
		b int
	}
	pointers := map[*int]int{}
	anys := map[any]int{}
	complexes := map[complex128]int{}
	times := map[time.Time]int{}
	structs := map[structKey]int{}
	var syncInts, syncMixed sync.Map
	for i := range 50 {
		pointers[new(int)] = i
		anys[i] = i
		complexes[complex(float64(i), 0)] = i
		times[time.Unix(int64(i), 0)] = i
		structs[structKey{i, i}] = i
		syncInts.Store(int32(i), i)
		syncMixed.Store(i, i)
		syncMixed.Store(fmt.Sprint(i), i)
	}
	for name, v := range map[string]any{
		"map[*int]int":              &pointers,
		"map[any]int":               &anys,
		"map[complex128]int":        &complexes,
		"map[time.Time]int":         &times,
		"map[structKey]int":         &structs,
		"sync.Map of int32":         &syncInts,
		"sync.Map of int or string": &syncMixed,
	} {
		t.Run(name, func(t *testing.T) {
			first := imageText(save(t, []Root{{"v", v}}, nil))
			for range 5 {
				if imageText(save(t, []Root{{"v", v}}, nil)) != first {
					t.Fatal("two images of the same value differ")
				}
			}
		})
	}
}

// TestCollectorFreesMemory shows that a Collector, which lives as long as the
// run, does not keep alive what the program has let go since.
func TestCollectorFreesMemory(t *testing.T) {
	var c Collector
	freed := make(chan struct{})
	v := new(struct{ p []float64 })
	v.p = make([]float64, 1<<20)
	runtime.SetFinalizer(&v.p[0], func(*float64) { close(freed) })
	if _, err := c.Collect([]Root{{"v", v}}, nil); err != nil {
		t.Fatal(err)
	}
	v.p = nil
	for deadline := time.Now().Add(2 * time.Second); ; {
		runtime.GC()
		select {
		case <-freed:
		case <-time.After(10 * time.Millisecond):
			if time.Now().After(deadline) {
				t.Fatal("the Collector keeps memory that the program no longer has")
			}
			continue
		}
		break
	}
	runtime.KeepAlive(&c)
	runtime.KeepAlive(v)
}

// TestManyFields collects and restores a struct of 65536 fields.
func TestManyFields(t *testing.T) {
	const depth = 15
	typ := reflect.TypeFor[struct {
		P *int
		N int
	}]()
	for range depth {
		typ = reflect.StructOf([]reflect.StructField{{Name: "A", Type: typ}, {Name: "B", Type: typ}})
	}
	last := func(v reflect.Value) reflect.Value {
		for range depth {
			v = v.FieldByName("B")
		}
		return v
	}
	v := reflect.New(typ)
	x := 5
	last(v.Elem()).Field(0).Set(reflect.ValueOf(&x))
	last(v.Elem()).Field(1).SetInt(6)
	f := save(t, []Root{{"v", v.Interface()}}, nil)
	w := reflect.New(typ)
	if err := f.load([]Root{{"v", w.Interface()}}, nil); err != nil {
		t.Fatal(err)
	}
	leaf := last(w.Elem())
	if leaf.Field(0).IsNil() || leaf.Field(0).Elem().Int() != 5 || leaf.Field(1).Int() != 6 {
		t.Errorf("the last field was restored as %v", leaf)
	}
}

// TestStdParts restores parts of the standard library that refer to one
// another inside one struct.
func TestStdParts(t *testing.T) {
	type parts struct {
		mu     sync.RWMutex
		cond   *sync.Cond
		locker sync.Locker
		front  atomic.Pointer[list.List]
		list   list.List
		rng    *rand.Rand
		source *rand.ChaCha8
		text   strings.Builder
		lines  *bufio.Reader
		err    error
	}
	var v parts
	v.cond = sync.NewCond(&v.mu)
	v.cond.Broadcast()
	v.locker = &v.mu
	v.list.PushBack(1)
	v.front.Store(&v.list)
	v.source = rand.NewChaCha8([32]byte{1})
	v.rng = rand.New(v.source)
	v.rng.Uint32()
	v.text.WriteString("x")
	v.lines = bufio.NewReader(strings.NewReader("line1\nline2"))
	if _, err := v.lines.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	v.err = errors.Join(os.ErrNotExist, io.EOF)

	w := roundTrip(t, &v, nil)
	if got, want := w.rng.Uint64(), v.rng.Uint64(); got != want {
		t.Errorf("the generator gives %d, want %d", got, want)
	}
	if got, want := w.source.Uint64(), v.source.Uint64(); got != want {
		t.Errorf("its source gives %d, want %d: they are no longer one", got, want)
	}
	if w.cond.L != sync.Locker(&w.mu) || w.locker != sync.Locker(&w.mu) {
		t.Error("the condition and the locker have another mutex than the struct")
	}
	if w.front.Load() != &w.list || w.list.Len() != 1 {
		t.Error("the atomic pointer does not point to the list")
	}
	w.cond.Broadcast()      // panics if it was copied
	w.text.WriteString("y") // panics if it was copied
	if w.text.String() != "xy" {
		t.Errorf("the text is %q", w.text.String())
	}
	if line, err := w.lines.ReadString('\n'); line != "line2" || err != io.EOF {
		t.Errorf("the reader gives %q, %v", line, err)
	}
	if !errors.Is(w.err, os.ErrNotExist) || !errors.Is(w.err, io.EOF) {
		t.Errorf("the joined error %v has other parts", w.err)
	}

	v.locker = v.mu.RLocker() // the same memory as a type that can't be named
	var refused *UnsupportedError
	if _, err := Collect([]Root{{"v", &v}}, nil); !errors.As(err, &refused) {
		t.Errorf("Collect of an RLocker: %v, want it refused", err)
	}
}

// TestOddZones restores times in fixed zones that have the names of others.
func TestOddZones(t *testing.T) {
	for _, zone := range []*time.Location{
		time.FixedZone("UTC", 3600),
		time.FixedZone("UTC", 0),
		time.FixedZone("Local", 0),
		time.FixedZone("Europe/Berlin", 7),
		time.FixedZone("", 0),
	} {
		v := time.Unix(1e9, 5).In(zone)
		w := *roundTrip(t, &v, nil)
		_, want := v.Zone()
		if _, got := w.Zone(); got != want || !w.Equal(v) || w.String() != v.String() {
			t.Errorf("restored %v with offset %d, want %v with offset %d", w, got, v, want)
		}
	}
}
