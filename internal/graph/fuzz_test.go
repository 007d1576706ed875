package graph

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

type fuzzState struct {
	n     *node
	s     []string
	m     map[any]*node
	ms    map[string][]int
	a     any
	list  []any
	t     time.Time
	arr   [3]*int
	pts   []point
	b     []bool
	sm    sync.Map
	v     versioned
	f     *os.File
	mu    sync.Mutex
	empty []struct{}
	self  map[struct{}]struct{}
	sh    []shape
}

func fuzzSeed(t testing.TB) *file {
	v := &fuzzState{n: &node{Val: 1, name: "x"}, s: []string{"abc", "", "de"}, m: map[any]*node{1: nil, "k": {Val: 2}, [1]any{2}: nil}, ms: map[string][]int{"a": {1, 2}},
		a: square{2}, list: []any{1, 2.5, struct{ a any }{3}, &point{}}, t: time.Now(), arr: [3]*int{new(int)}, pts: make([]point, 3), b: []bool{true, false},
		v: versioned{1, 2}, empty: make([]struct{}, 4), self: map[struct{}]struct{}{{}: {}}, sh: []shape{square{1}, &blob{}}}
	v.n.Next = v.n
	v.sm.Store("k", 1)
	other := []float64{1, 2}
	return save(t, []Root{{"v", v}, {"other", &other}}, nil)
}

// mutate damages an image. prog describes the damage, in steps of 12 bytes.
func mutate(f *file, prog []byte) (*Image, [][]byte) {
	g := &file{regions: append([]uint64(nil), f.regions...), meta: append([]byte(nil), f.meta...)}
	for _, d := range f.data {
		g.data = append(g.data, append([]byte(nil), d...))
	}
	var later [][]byte
	for ; len(prog) >= 12; prog = prog[12:] {
		pos, val := int(binary.LittleEndian.Uint16(prog[1:])), binary.LittleEndian.Uint64(prog[4:])
		switch prog[0] % 8 {
		case 0:
			g.regions[pos%len(g.regions)] = val
		case 1:
			g.meta[pos%len(g.meta)] = byte(val)
		case 2, 3:
			if d := g.data[int(prog[3])%len(g.data)]; len(d) > 0 {
				d[pos%len(d)] = byte(val)
			}
		case 4, 5:
			if d := g.data[int(prog[3])%len(g.data)]; len(d) >= 8 {
				binary.LittleEndian.PutUint64(d[pos%(len(d)-7):], val)
			}
		default:
			later = append(later, prog[:12])
		}
	}
	img := new(Image)
	if json.Unmarshal(g.meta, img) != nil {
		json.Unmarshal(f.meta, img)
	}
	var err error
	if img.Regions, err = UnpackRegions(g.regions); err != nil {
		img.Regions, _ = UnpackRegions(f.regions)
	}
	for _, p := range later {
		pos, val := int(binary.LittleEndian.Uint16(p[1:])), binary.LittleEndian.Uint64(p[4:])
		if len(img.Pools) == 0 || len(img.Vars) == 0 {
			break
		}
		pool, v := &img.Pools[pos%len(img.Pools)], &img.Vars[pos%len(img.Vars)]
		switch p[3] % 8 {
		case 0:
			pool.Count = val
		case 1:
			pool.Nth = int(val)
		case 2:
			pool.Owner = int(val)
		case 3:
			pool.Var = int(val)
		case 4:
			pool.Form.Size = int(val)
		case 5:
			v.Region = val
		case 6:
			v.Off = val
		case 7:
			v.Data = val
		}
	}
	return img, g.data
}

func tryDamaged(t testing.TB, f *file, prog []byte) error {
	img, data := mutate(f, prog)
	v, other := new(fuzzState), make([]float64, 2)
	b, err := Prepare([]Root{{"v", v}, {"other", &other}}, img, nil, Options{Limit: 1 << 20})
	if err != nil {
		return err
	}
	for _, tg := range b.Targets() {
		if tg.Pool >= len(data) {
			break
		}
		size := img.Pools[tg.Pool].Form.Size
		n := min(len(data[tg.Pool]), int(img.Pools[tg.Pool].Bytes())) / size * size
		if err := tg.Fill(0, data[tg.Pool][:n]); err != nil {
			return err
		}
	}
	if err := b.Finish(); err != nil {
		return err
	}
	// An accepted image must be sound enough to be collected.
	Collect([]Root{{"v", v}, {"other", &other}}, nil)
	return nil
}

// FuzzPrepare restores images that were changed in any way: there is no panic,
// and no invalid pointer.
func FuzzPrepare(f *testing.F) {
	seed := fuzzSeed(f)
	for k := range 16 {
		f.Add(append([]byte{byte(k), 3, 0, byte(k / 2)}, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f))
	}
	f.Fuzz(func(t *testing.T, prog []byte) { tryDamaged(t, seed, prog) })
}

// TestPrepare_Damaged does what FuzzPrepare does, with fixed random changes.
func TestPrepare_Damaged(t *testing.T) {
	seed := fuzzSeed(t)
	if err := tryDamaged(t, seed, nil); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	bad := 0
	for i := range stressed(500, 5000) {
		prog := make([]byte, 12*(1+i%3))
		for k := range prog {
			prog[k] = byte(r.Uint32())
		}
		for k := 0; k < len(prog); k += 12 {
			v := r.Uint64()
			switch r.IntN(5) {
			case 0, 1, 2:
				v %= 64
			case 3:
				v |= 1 << 63
			}
			binary.LittleEndian.PutUint64(prog[k+4:], v)
		}
		if err := tryDamaged(t, seed, prog); err != nil {
			bad++
			if !errors.Is(err, ErrInvalid) && !isMismatch(err) && !strings.Contains(err.Error(), "zone") && !strings.Contains(err.Error(), "does not fit") && !strings.Contains(err.Error(), "CairnState") {
				t.Errorf("%v", err)
			}
		}
		if i%1000 == 0 {
			runtime.GC()
		}
	}
	t.Log(bad, "refused")
}

func isMismatch(err error) bool {
	var m *MismatchError
	return errors.As(err, &m)
}

// TestPrepare_HostileSizes shows that sizes which no checkpoint can have are
// refused, and take no memory.
func TestPrepare_HostileSizes(t *testing.T) {
	x := []int{1}
	f := save(t, []Root{{"x", &x}}, nil)
	for _, n := range []uint64{1 << 20, 1 << 40, 1 << 60, 1 << 63, 1<<64 - 1} {
		img, _ := f.image()
		last := len(img.Regions) - 1
		img.Regions[last].Count = n
		img.Pools[len(img.Pools)-1].Count = n
		var ms, after runtime.MemStats
		runtime.ReadMemStats(&ms)
		_, err := Prepare([]Root{{"x", &x}}, img, nil, Options{Limit: 1 << 16})
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrInvalid) || after.TotalAlloc-ms.TotalAlloc > 1<<20 {
			t.Error(n, err)
		}
	}
}

// TestPrepare_HostileTypes shows that types which cannot be are refused, and
// take no memory.
func TestPrepare_HostileTypes(t *testing.T) {
	x := []any{1}
	f := save(t, []Root{{"x", &x}}, nil)
	for _, name := range []string{"[1000000000]int", "[100000000000000000]int", strings.Repeat("*", 60000) + "int", strings.Repeat("[1000]", 50) + "int",
		"map[[]int]int", "map[", "map[int", "[", "[x]int", "no.Such", "map[[100000000000]uint8][100000000000]uint8", "[0]int", "interface {}", ""} {
		img, _ := f.image()
		img.Types[0].Name = name
		if err := restore(img, f.data, []Root{{"x", &x}}, nil, Options{Limit: 1 << 20}); err == nil {
			t.Errorf("%.50s is fine", name)
		}
		r := newResolver(nil, nil)
		typ, err := r.resolve(name)
		if err != nil {
			continue
		}
		// With a correct description, the wrong sizes must be detected.
		img.Types[0].Type = describeType(typ)
		if err := restore(img, f.data, []Root{{"x", &x}}, nil, Options{Limit: 1 << 20}); err == nil {
			t.Errorf("%.50s is fine", name)
		}
	}
}
