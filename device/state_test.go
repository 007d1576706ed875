package device

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/driver/faulty"
	"github.com/cairnrun/cairn/internal/driver/host"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// state is the state of a program with arrays.
type state struct {
	Arrays []*Array[uint32]
	View   *Array[uint32] // rows 3…9 of the first
	Value  Array[uint32]  // not behind a pointer
	Zero   Array[float64]
	Const  *Array[complex128]
	Group  *Group
	Step   int
}

func (s *state) roots() []graph.Root { return []graph.Root{{Name: "state", Ptr: s}} }

// saver saves states in memory.
type saver struct {
	*ckpt.Saver
	dir *store.Dir
}

func newSaver(t testing.TB) *saver {
	dir, err := store.Create(vfstest.NewMem(), "/ckpt", 0)
	must(t, err)
	s, err := ckpt.NewSaver(dir, nil, ckpt.Options{})
	must(t, err)
	t.Cleanup(func() { s.Close(); dir.Close() })
	return &saver{s, dir}
}

// save begins a checkpoint. wait waits until it is written.
func (s *saver) save(st *state) (set uint64, wait func() error, err error) {
	img, err := graph.Collect(st.roots(), nil)
	if err != nil {
		return 0, nil, err
	}
	set, err = s.Save(context.Background(), img, nil, ckpt.Note{})
	if err != nil {
		return 0, nil, err
	}
	return set, func() error {
		res := <-s.Done()
		s.Collect(res)
		return res.Err
	}, nil
}

func (s *saver) load(set uint64, st *state) error {
	f, err := ckpt.Open(s.dir.FS(), s.dir.File(set))
	if err != nil {
		return err
	}
	defer f.Close()
	img, err := f.Image()
	if err != nil {
		return err
	}
	return f.Load(context.Background(), img, st.roots(), nil, nil, nil)
}

// newState makes a state, and models of its arrays.
func newState(devs []*Device) (*state, []*model) {
	ms := models()
	st := &state{Group: NewGroup(devs...), Const: NewConstant[complex128](7)}
	for _, m := range ms[:4] {
		st.Arrays = append(st.Arrays, m.a)
	}
	st.Value = *ms[4].a
	ms[4].a = &st.Value
	st.View = st.Arrays[0].Rows(3, 9)
	return st, ms
}

// TestCheckpoint_Arrays saves arrays that are in several places, continues at
// once, and restores every checkpoint, into new variables and in place.
func TestCheckpoint_Arrays(t *testing.T) {
	devs := mixed(t)
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 3))
	st, ms := newState(devs)
	c, err := st.Const.Data()
	must(t, err)
	c[6] = 1i
	s := newSaver(t)
	for round := range 12 {
		run := func(n int) {
			for range n {
				if err := step(r, devs, ms); err != nil {
					t.Fatalf("seed %d, round %d: %v", seed, round, err)
				}
			}
		}
		run(20)
		st.Step = round
		var want [][]uint32
		for _, m := range ms {
			want = append(want, slices.Clone(m.want))
		}
		set, wait, err := s.save(st)
		if err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		run(20)
		must(t, wait())
		var back *state
		if back = new(state); round%2 == 0 {
			back, _ = newState(devs[:2])
			for i, a := range back.Arrays {
				if i != 1 {
					a.Prefer(devs[2+i%(len(devs)-2)])
				}
			}
			back.Value.Prefer(devs[3])
			must(t, devs[2].Launch(put, Size{10}, Out(back.Arrays[0].Rows(1, 3)), uint32(1), n32(10)))
		}
		must(t, s.load(set, back))
		if back.Step != round || back.Group.Len() != len(devs) || back.Group.At(len(devs)-1) == nil || back.Zero.Len() != 0 {
			t.Fatalf("round %d: %+v", round, back)
		}
		for i, m := range ms {
			a := &back.Value
			if i < 4 {
				a = back.Arrays[i]
			}
			p, err := a.Read()
			if err != nil || !slices.Equal(p, want[i]) || !slices.Equal(a.Dims(), m.a.Dims()) {
				t.Fatalf("seed %d, round %d, array %d: %v %v, want %v", seed, round, i, p, err, want[i])
			}
			must(t, a.h.m.sound())
		}
		// The view is still a view, and constants are constant.
		must(t, devs[r.IntN(len(devs))].Launch(put, Size{30}, Out(back.View), uint32(77), n32(30)))
		if p, err := back.Arrays[0].Read(); err != nil || p[15] != 77 || p[44] != 106 || p[14] != want[0][14] {
			t.Fatalf("round %d: the view is none: %v, %v", round, p, err)
		}
		if p, err := back.Const.Read(); err != nil || p[6] != 1i || !back.Const.constant {
			t.Fatal(p, err)
		}
	}
}

// TestRollback_DeviceLost loses a device at every call in turn, also during a
// checkpoint. A rollback to the last checkpoint, on the remaining devices,
// gives the right result.
func TestRollback_DeviceLost(t *testing.T) {
	for _, kind := range []faulty.Kind{faulty.Lost, faulty.Late} {
		seed := rand.Uint64()
		for n := 2; ; n += 1 + n/12 {
			f := &faulty.Fault{At: n, Kind: kind}
			bad := use1(t, faulty.Wrap(host.New(host.Options{Workers: 1, Discrete: true}), f))
			devs := []*Device{bad, bad, discrete(t, 1, 0)}
			st, ms := newState(devs)
			st.Arrays[2].Prefer(bad)
			s := newSaver(t)
			var last uint64
			var want [][]uint32
			for round := 0; round < 4; round++ {
				r := rand.New(rand.NewPCG(seed, uint64(round)))
				err := func() error {
					for range 8 {
						if err := step(r, devs, ms); err != nil {
							return err
						}
					}
					st.Step = round
					var now [][]uint32
					for _, m := range ms {
						now = append(now, slices.Clone(m.want))
					}
					set, wait, err := s.save(st)
					if err == nil {
						err = wait()
					}
					if err == nil {
						last, want = set, now
					}
					return err
				}()
				if err == nil {
					continue
				}
				if !errors.Is(err, ErrLost) {
					t.Fatalf("seed %d, %v at call %d, %s: %v", seed, kind, n, f.Name(n), err)
				}
				if last == 0 {
					break // there is nothing to go back to
				}
				if bad.Err() == nil {
					bad.Finish()
				}
				devs = devs[2:]
				if err := s.load(last, st); err != nil {
					t.Fatalf("seed %d, %v at call %d, %s: %v", seed, kind, n, f.Name(n), err)
				}
				for i, m := range ms {
					m.want = slices.Clone(want[i])
					if i < 4 {
						m.a = st.Arrays[i]
					}
					if p, err := m.a.Read(); err != nil || !slices.Equal(p, m.want) {
						t.Fatalf("seed %d, %v at call %d, %s: array %d: %v %v, want %v", seed, kind, n, f.Name(n), i, p, err, m.want)
					}
				}
				round = st.Step
			}
			if f.Calls() < n {
				break
			}
		}
	}
}

// TestRestore_InPlace shows that a restored variable that is an array of the
// same size keeps its memory and its preferences.
func TestRestore_InPlace(t *testing.T) {
	d := discrete(t, 0, 0)
	a := New[uint32](50, 2)
	a.Prefer(d)
	must(t, d.Launch(put, Size{100}, Out(a), uint32(5), n32(100)))
	roots := []graph.Root{{Name: "a", Ptr: a}}
	s := newSaver(t)
	img, err := graph.Collect(roots, nil)
	must(t, err)
	set, err := s.Save(context.Background(), img, nil, ckpt.Note{})
	must(t, err)
	res := <-s.Done()
	s.Collect(res)
	must(t, res.Err)
	before, _ := a.addresses()
	p, err := a.Data()
	must(t, err)
	clear(p)
	f, err := ckpt.Open(s.dir.FS(), s.dir.File(set))
	must(t, err)
	defer f.Close()
	img, err = f.Image()
	must(t, err, f.Load(context.Background(), img, roots, nil, nil, nil))
	after, n := a.addresses()
	if before != after || n != 400 {
		t.Errorf("at %p before, %d bytes at %p now", before, n, after)
	}
	if in, _ := d.Moved(); in != 400 {
		t.Errorf("%d bytes went to the device that was preferred", in)
	}
	if p, err = a.Read(); err != nil || p[99] != 104 {
		t.Error(p, err)
	}
}

// heap returns a slice that does not move, unlike those on a stack.
func heap[T any](n int) []T {
	p := make([]T, n)
	kept = append(kept, p)
	return p
}

var kept []any

// TestRestore_Raw shows that raw memory gets its values back, or that the
// restore returns an error.
func TestRestore_Raw(t *testing.T) {
	type owner struct {
		A Array[uint32]
		P *Array[uint32]
	}
	memory := heap[uint32](10)
	raw := func() *Array[uint32] {
		a, err := rawOn[uint32](nil, uintptr(unsafe.Pointer(&memory[0])), []int{10})
		must(t, err)
		return a
	}
	s := newSaver(t)
	save := func(o *owner) uint64 {
		img, err := graph.Collect([]graph.Root{{Name: "o", Ptr: o}}, nil)
		must(t, err)
		set, err := s.Save(context.Background(), img, nil, ckpt.Note{})
		must(t, err)
		res := <-s.Done()
		s.Collect(res)
		must(t, res.Err)
		return set
	}
	load := func(set uint64, o *owner) error {
		f, err := ckpt.Open(s.dir.FS(), s.dir.File(set))
		must(t, err)
		defer f.Close()
		img, err := f.Image()
		must(t, err)
		return f.Load(context.Background(), img, []graph.Root{{Name: "o", Ptr: o}}, nil, nil, nil)
	}
	memory[3] = 7
	o := &owner{A: *raw()}
	set := save(o)
	memory[3] = 8
	must(t, load(set, o))
	if memory[3] != 7 {
		t.Errorf("the memory has %d, want 7", memory[3])
	}
	if err := load(set, new(owner)); err == nil || !strings.Contains(err.Error(), "made with Raw") {
		t.Errorf("into an array that is not raw: %v", err)
	}
	o = &owner{P: raw()}
	if err := load(save(o), o); err == nil || !strings.Contains(err.Error(), "made with Raw") {
		t.Errorf("behind a pointer: %v", err)
	}
	runtime.KeepAlive(memory)
}
