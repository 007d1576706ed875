package graph

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// These are arrays on a simulated device.

type farCell[T any] struct{ V T }

func (farCell[T]) CairnCell() {}

type handled interface {
	addresses() (unsafe.Pointer, int64)
}

func init() { DescribeMemory(handled.addresses) }

type farMemory struct {
	ptr   unsafe.Pointer
	data  []byte
	taken bool
}

// farMemories counts the allocated memories.
var farMemories int

func newFarMemory(n int64) (*farMemory, error) {
	if n > 1<<20 {
		return nil, fmt.Errorf("no device has %d bytes", n)
	}
	m := &farMemory{data: make([]byte, n)}
	var err error
	m.ptr, err = mem.Reserve(m, n)
	farMemories++
	return m, err
}

func makeFar(n int64) (unsafe.Pointer, error) {
	m, err := newFarMemory(n)
	if err != nil {
		return nil, err
	}
	return m.ptr, nil
}

func (m *farMemory) free() {
	if m.data != nil {
		m.data = nil
		farMemories--
		mem.Unreserve(m.ptr)
	}
}

func (m *farMemory) Drop() {
	if !m.taken {
		m.free()
	}
}

func (m *farMemory) Shape() []uint64                              { return nil }
func (m *farMemory) Places(lo, hi int64) (p []mem.Place, _ error) { return nil, nil }
func (m *farMemory) Host(lo, hi int64) ([]byte, error)            { return m.data[lo:hi], nil }
func (m *farMemory) Target(lo, hi int64) ([]byte, error)          { return m.data[lo:hi], nil }
func (m *farMemory) Fill(off int64, p []byte) error               { copy(m.data[off:], p); return nil }

type farArray[T any] struct {
	m   *farMemory
	off int64
	n   int
}

func newFarArray[T any](t testing.TB, n int) *farArray[T] {
	m, err := newFarMemory(int64(n) * int64(unsafe.Sizeof(*new(T))))
	if err != nil {
		t.Fatal(err)
	}
	m.taken = true
	for i := range m.data {
		m.data[i] = byte(i)
	}
	return &farArray[T]{m, 0, n}
}

func (a *farArray[T]) addresses() (unsafe.Pointer, int64) {
	if a.m == nil || a.m.data == nil {
		return nil, 0
	}
	return unsafe.Add(a.m.ptr, a.off), int64(a.n) * int64(unsafe.Sizeof(*new(T)))
}

func (a *farArray[T]) CairnState(c *Coder) error {
	var cells []farCell[T]
	dims, name := []int{a.n}, "array"
	if p, _ := a.addresses(); p != nil && !c.Restoring() {
		cells = unsafe.Slice((*farCell[T])(p), a.n)
	}
	Field(c, "dims", &dims)
	Field(c, "name", &name)
	Field(c, "data", &cells)
	if !c.Restoring() || c.Err() != nil {
		return c.Err()
	}
	*a = farArray[T]{}
	if len(cells) == 0 {
		return nil
	}
	sum := 0
	for _, d := range dims { // reading memory that does not exist would be noticed
		sum += d
	}
	for _, b := range []byte(name) {
		sum += int(b)
	}
	r, off := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(cells)))
	m, ok := r.(*farMemory)
	if !ok || sum == 0 {
		return fmt.Errorf("an array of %d elements has no memory", len(cells))
	}
	m.taken = true
	*a = farArray[T]{m, off, len(cells)}
	return nil
}

type farState struct {
	A    *farArray[uint8]
	B    farArray[int]
	View farArray[uint8]
	S    string
	Ints []int
	P    *int
	Any  any
	Keys map[any]int
	Bs   []byte
}

// farFile returns the contents of a checkpoint with arrays, and the memory that
// they came from.
func farFile(t testing.TB) (*file, *farState) {
	v := &farState{A: newFarArray[uint8](t, 100), B: *newFarArray[int](t, 9), S: "text", Ints: []int{1, 2}, P: new(int), Any: [1]any{"x"}, Keys: map[any]int{"k": 1, 2: 3}, Bs: []byte("bytes")}
	v.View = farArray[uint8]{v.A.m, 10, 20}
	img, err := Collect([]Root{{"v", v}, {"B", &v.B}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range img.Pools {
		if p := &img.Pools[i]; p.Remote {
			for k, q := range p.Pieces {
				r, at := mem.FindRemote(unsafe.Pointer(unsafe.SliceData(q)))
				if p.Pieces[k], err = r.Host(at, at+int64(len(q))); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return store(t, img), v
}

func loadFar(img *Image, data [][]byte, v *farState) error {
	roots := []Root{{"v", v}, {"B", &v.B}}
	b, err := Prepare(roots, img, nil, Options{Limit: 1 << 20})
	if err != nil {
		return err
	}
	defer b.Close()
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
	Collect(roots, nil)
	return nil
}

// TestRemote_Damaged damages checkpoints with arrays. In no case may memory of
// devices be accessed through its address, and memory that no value uses must
// be freed.
func TestRemote_Damaged(t *testing.T) {
	mem.MakeRemotes(makeFar)
	seed, from := farFile(t)
	defer from.A.m.free()
	defer from.B.m.free()
	r := rand.New(rand.NewPCG(4, 2))
	refused := 0
	for i := range 3000 {
		prog := make([]byte, 12*(i%4))
		for k := range prog {
			prog[k] = byte(r.Uint32())
		}
		for k := 0; k < len(prog); k += 12 {
			v := r.Uint64()
			switch r.IntN(6) {
			case 0, 1, 2, 3:
				v %= 64
			case 4:
				v |= 1 << 63
			}
			binary.LittleEndian.PutUint64(prog[k+4:], v)
		}
		img, data := mutate(seed, prog)
		v := new(farState)
		before := farMemories
		err := loadFar(img, data, v)
		if err != nil {
			refused++
		}
		if i == 0 && (err != nil || v.View.m != v.A.m || v.A.m.data[99] != 99 || v.B.m.data[70] != 70) {
			t.Fatal(err, v)
		}
		if err == nil {
			_ = v.S + string(v.Bs) + fmt.Sprint(v.Ints, v.Any, v.Keys)
			if v.P != nil {
				*v.P++
			}
		}
		seen := make(map[*farMemory]bool)
		for _, m := range []*farMemory{v.View.m, v.B.m} {
			seen[m] = m != nil
		}
		if v.A != nil {
			seen[v.A.m] = v.A.m != nil
		}
		for m := range seen {
			if m != nil {
				m.free()
			}
		}
		if n := farMemories - before; n > 0 && err == nil {
			t.Fatalf("program %x: %d memories are left", prog, n)
		} else if n > 0 && i%4 == 0 {
			t.Fatalf("%d memories are left, %v", n, err)
		}
	}
	t.Log(refused, "refused")
}

// TestRemote_StringOnDevice has a string that lies on a device.
func TestRemote_StringOnDevice(t *testing.T) {
	mem.MakeRemotes(makeFar)
	a, s := newFarArray[uint8](t, 100), "s"
	defer a.m.free()
	img, err := Collect([]Root{{"a", a}, {"s", &s}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	far := uint64(0)
	for i := range img.Pools {
		if img.Pools[i].Remote {
			img.Pools[i].Pieces = [][]byte{a.m.data}
			for k, r := range img.Regions {
				if int(r.Pool) == i {
					far = uint64(k) + 1
				}
			}
		}
	}
	f := store(t, img)
	for i := range img.Pools {
		if p := &img.Pools[i]; p.Elem == "string" && p.Var == 1 {
			binary.LittleEndian.PutUint64(f.data[i], far)
		}
	}
	img, err = f.image()
	if err != nil {
		t.Fatal(err)
	}
	var a2 farArray[uint8]
	var s2 string
	before := farMemories
	b, err := Prepare([]Root{{"a", &a2}, {"s", &s2}}, img, nil, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, tg := range b.Targets() {
		if err := tg.Fill(0, f.data[tg.Pool]); err != nil {
			t.Fatal(err)
		}
	}
	err = b.Finish()
	b.Close()
	if !errors.Is(err, ErrInvalid) {
		t.Fatalf("a string of a device: %v", err)
	}
	if farMemories != before {
		t.Error("the memory was not given back")
	}
}
