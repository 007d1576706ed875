package graph

import (
	"bufio"
	"bytes"
	"container/heap"
	"container/list"
	"container/ring"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"hash/fnv"
	"io"
	"math"
	"math/big"
	"math/rand"
	randv2 "math/rand/v2"
	"os"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

type intHeap []int

func (h intHeap) Len() int           { return len(h) }
func (h intHeap) Less(i, j int) bool { return h[i] < h[j] }
func (h intHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *intHeap) Push(x any)        { *h = append(*h, x.(int)) }
func (h *intHeap) Pop() any {
	x := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return x
}

// TestStd_Random shows that restored generators of random numbers continue
// their sequences.
func TestStd_Random(t *testing.T) {
	type gens struct {
		r  *rand.Rand
		s  rand.Source
		z  *rand.Zipf
		p  *randv2.Rand
		c  *randv2.ChaCha8
		pc *randv2.PCG
	}
	pcg := randv2.NewPCG(1, 2)
	src := rand.NewSource(3)
	r := rand.New(src)
	v := gens{r, src, rand.NewZipf(r, 2, 3, 100), randv2.New(pcg), randv2.NewChaCha8([32]byte{1}), pcg}
	draw := func(g *gens) (s []uint64) {
		for range 50 {
			s = append(s, g.r.Uint64(), uint64(g.s.Int63()), g.z.Uint64(), g.p.Uint64(), g.c.Uint64(), g.pc.Uint64(), math.Float64bits(g.r.NormFloat64()))
		}
		return s
	}
	draw(&v)
	b := make([]byte, 3)
	v.c.Read(b)
	v.r.Read(b)
	w := roundTrip(t, &v, nil)
	if !reflect.DeepEqual(draw(&v), draw(w)) {
		t.Error("the sequences differ")
	}
}

func TestStandardLibrary_RoundTrip(t *testing.T) {
	f, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	env := &Env{FileID: func(g *os.File) (int, bool) { return 4, f == g }, FileOf: func(id int) (*os.File, error) {
		if id != 4 {
			return nil, errors.New("which?")
		}
		return f, nil
	}}
	type std struct {
		buf    bytes.Buffer
		bw     *bufio.Writer
		br     *bufio.Reader
		sb     strings.Builder
		i      *big.Int
		fl     *big.Float
		rat    big.Rat
		l      *list.List
		ring   *ring.Ring
		h      intHeap
		mu     sync.Mutex
		rw     *sync.RWMutex
		wg     sync.WaitGroup
		once   sync.Once
		cond   *sync.Cond
		a64    atomic.Int64
		ab     atomic.Bool
		av     atomic.Value
		ap     atomic.Pointer[node]
		apn    *node
		sm     sync.Map
		psm    *sync.Map
		sha    hash.Hash
		fnv    hash.Hash64
		re     *regexp.Regexp
		err    error
		pool   sync.Pool
		joined error
	}
	v := std{bw: bufio.NewWriter(f), br: bufio.NewReader(strings.NewReader("the quick brown fox")), i: new(big.Int).Lsh(big.NewInt(7), 300), fl: big.NewFloat(1.5), l: list.New(), ring: ring.New(3),
		rw: new(sync.RWMutex), psm: new(sync.Map), sha: sha256.New(), fnv: fnv.New64a(), re: regexp.MustCompile(`a(b+)c`), err: fmt.Errorf("x: %w", os.ErrNotExist)}
	v.joined = errors.Join(v.err, errors.New("y"))
	v.buf.WriteString("hello world")
	v.buf.ReadByte()
	v.bw.WriteString("pending ")
	v.br.ReadByte()
	v.sb.WriteString("built")
	v.rat.SetFrac64(2, 3)
	v.l.PushBack("a")
	v.l.PushFront(2)
	v.ring.Value = 5
	for _, x := range []int{5, 2, 8} {
		heap.Push(&v.h, x)
	}
	v.cond = sync.NewCond(&v.mu)
	v.cond.Signal()
	v.once.Do(func() {})
	v.wg.Add(1)
	v.wg.Done()
	v.a64.Store(9)
	v.ab.Store(true)
	v.av.Store([]string{"q"})
	v.apn = &node{Val: 3}
	v.ap.Store(v.apn)
	v.sm.Store("k", v.apn)
	v.sm.Store(2, "two")
	v.psm.Store(1.5, nil)
	v.sha.Write([]byte("abc"))
	v.fnv.Write([]byte("abc"))
	v.pool.Put(1)
	w := roundTrip(t, &v, env)
	if w.buf.String() != "ello world" || w.sb.String() != "built" || w.i.Cmp(v.i) != 0 || w.fl.Cmp(v.fl) != 0 || w.rat.Cmp(&v.rat) != 0 {
		t.Error("buffers or numbers differ")
	}
	if s, _ := w.br.ReadString('k'); s != "he quick" {
		t.Error(s)
	}
	w.sb.WriteString(" on") // panics if the self-pointer is wrong
	w.bw.WriteString("text")
	w.bw.Flush()
	if b, _ := os.ReadFile(f.Name()); string(b) != "pending text" {
		t.Errorf("%q", b)
	}
	if w.l.Len() != 2 || w.l.Front().Value != 2 || w.l.Back().Value != "a" || w.ring.Len() != 3 || w.ring.Value != 5 || heap.Pop(&w.h) != 2 {
		t.Error("containers differ")
	}
	w.once.Do(func() { t.Error("done twice") })
	w.cond.L.Lock()
	w.cond.Broadcast() // panics if the checker was copied
	w.mu.Unlock()      // the same mutex as cond.L
	w.wg.Wait()
	if w.a64.Load() != 9 || !w.ab.Load() || w.av.Load().([]string)[0] != "q" || w.ap.Load() != w.apn || w.apn.Val != 3 {
		t.Error("atomics differ")
	}
	if x, _ := w.sm.Load("k"); x != w.apn {
		t.Error("sync.Map")
	}
	if x, ok := w.psm.Load(1.5); x != nil || !ok {
		t.Error("sync.Map")
	}
	v.sha.Write([]byte("d"))
	w.sha.Write([]byte("d"))
	if !bytes.Equal(v.sha.Sum(nil), w.sha.Sum(nil)) || v.fnv.Sum64() != w.fnv.Sum64() || w.re.FindString("xabbcx") != "abbc" {
		t.Error("hashes or regexp differ")
	}
	if w.err.Error() != v.err.Error() || w.joined.Error() != v.joined.Error() || w.pool.Get() != nil {
		t.Error("errors differ")
	}
}

func TestTime_Locations(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Skip(err)
	}
	est := time.FixedZone("EST", -5*3600)
	parsed, _ := time.Parse(time.RFC3339, "2024-05-06T07:08:09.123456789+05:30")
	now := time.Now()
	v := struct {
		ts   []time.Time
		locs []*time.Location
		p    *time.Time
		m    map[time.Time]int
		any  any
		d    time.Duration
	}{ts: []time.Time{{}, now, now.UTC(), now.In(berlin), now.In(est), parsed, time.Unix(-1, 5), time.Date(-3000, 1, 1, 0, 0, 0, 0, time.UTC)},
		locs: []*time.Location{nil, time.UTC, time.Local, berlin, est, est}, any: now.In(est)}
	v.p = &v.ts[3]
	v.m = map[time.Time]int{v.ts[2].Round(0): 4}
	w := roundTrip(t, &v, nil)
	if err := isomorphic(&v, w); err != nil {
		t.Fatal(err)
	}
	if w.ts[0] != (time.Time{}) || w.ts[1].Location() != time.Local || w.ts[2].Location() != time.UTC || w.locs[1] != time.UTC ||
		w.locs[2] != time.Local || w.locs[0] != nil || w.locs[4] != w.locs[5] || w.ts[4].Location() != w.locs[4] {
		t.Error("locations differ")
	}
	if w.m[w.ts[2]] != 4 {
		t.Error("map of times")
	}
	if strings.Contains(w.ts[1].String(), "m=") {
		t.Error("monotonic reading kept")
	}
}

// TestStd_NaNKeys restores maps with keys that are not equal to themselves.
func TestStd_NaNKeys(t *testing.T) {
	v := map[float64]int{math.NaN(): 1, math.Inf(1): 3, math.Copysign(0, -1): 4}
	v[math.NaN()] = 2
	w := roundTrip(t, &v, nil)
	sum := 0
	for _, x := range *w {
		sum += x
	}
	if len(*w) != 4 || sum != 10 || (*w)[math.Inf(1)] != 3 {
		t.Error(*w)
	}
}

// model has a codec of its own.
type model struct {
	weights []float64
	scale   int
	cache   map[int]float64 // not saved
	done    chan int        // not saved
	log     *[]string
	sub     *model
}

func (m *model) CairnState(c *Coder) error {
	Field(c, "weights", &m.weights)
	Field(c, "log", &m.log)
	Field(c, "sub", &m.sub)
	n := int64(m.scale)
	Field(c, "scale", &n)
	if c.Restoring() && c.Err() == nil {
		m.scale = int(n)
		m.cache = map[int]float64{}
		for i, w := range m.weights {
			m.cache[i] = w * 2
		}
		*m.log = append(*m.log, fmt.Sprintf("restored %d", m.scale))
		if m.sub != nil && m.sub.cache == nil {
			return errors.New("the inner one comes first")
		}
	}
	return nil
}

type wrapper struct {
	model
	extra string
}

// TestCodec_RoundTrip restores values whose types have a CairnState method,
// wherever they are.
func TestCodec_RoundTrip(t *testing.T) {
	type all struct {
		log []string
		a   *model
		b   model
		m   map[string]model
		w   wrapper
		i   any
		ws  []float64
	}
	var v all
	ch := make(chan int)
	v.ws = []float64{1, 2, 3}
	v.a = &model{weights: v.ws[1:], scale: 1, done: ch, log: &v.log, sub: &model{scale: 2, log: &v.log}}
	v.b = model{scale: 3, log: &v.log, sub: v.a}
	v.m = map[string]model{"x": {scale: 4, log: &v.log, sub: v.a.sub}}
	v.w = wrapper{model{scale: 5, log: &v.log}, "kept"}
	v.i = model{scale: 6, log: &v.log}
	w := roundTrip(t, &v, nil)
	if w.a.scale != 1 || &w.a.weights[0] != &w.ws[1] || w.a.cache[1] != 6 || w.b.sub != w.a || w.m["x"].scale != 4 || w.m["x"].cache == nil ||
		w.m["x"].sub != w.a.sub || w.w.extra != "kept" || w.w.scale != 5 || w.i.(model).scale != 6 || w.b.log != &w.log {
		t.Errorf("%+v", w)
	}
	if len(w.log) != 6 || strings.Join(w.log, " ") == "" {
		t.Error(w.log)
	}
}

type versioned struct{ a, b int }

var fieldB = "b"

func (v *versioned) CairnState(c *Coder) error {
	Field(c, "a", &v.a)
	Field(c, fieldB, &v.b)
	return nil
}

// TestCodec_Errors checks the errors of wrong CairnState methods.
func TestCodec_Errors(t *testing.T) {
	f := save(t, []Root{{"v", &versioned{1, 2}}}, nil)
	fieldB = "c"
	err := f.load([]Root{{"v", new(versioned)}}, nil)
	want(t, err, `CairnState of github.com/cairnrun/cairn/internal/graph.versioned: field "c" is missing in the checkpoint`)
	fieldB = "a"
	_, err = Collect([]Root{{"v", &versioned{1, 2}}}, nil)
	want(t, err, `v: CairnState of github.com/cairnrun/cairn/internal/graph.versioned: field "a" is given twice`)
	fieldB = "b"
}

// TestStd_SharedParts restores parts of the standard library that refer to one
// another inside one struct.
func TestStd_SharedParts(t *testing.T) {
	type parts struct {
		mu     sync.RWMutex
		cond   *sync.Cond
		locker sync.Locker
		front  atomic.Pointer[list.List]
		list   list.List
		rng    *randv2.Rand
		source *randv2.ChaCha8
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
	v.source = randv2.NewChaCha8([32]byte{1})
	v.rng = randv2.New(v.source)
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

	v.locker = v.mu.RLocker() // same memory, seen as a type that cannot be named
	var refused *UnsupportedError
	if _, err := Collect([]Root{{"v", &v}}, nil); !errors.As(err, &refused) {
		t.Errorf("Collect of an RLocker: %v, want it refused", err)
	}
}
