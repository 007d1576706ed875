package device

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
)

// overwrites is a program's state, as CairnOverwritten gets it.
type overwrites struct {
	a    *Array[uint32]
	list []*overwrites
	by   map[string]Array[uint32]
}

// due says that a checkpoint is due.
func due(t *testing.T) {
	t.Helper()
	one := uint32(1)
	new(deviceCount).CairnSaving(&one)
	t.Cleanup(func() {
		saving = nil
		CairnOverwritten("")
	})
}

// TestOverwritten_LeftOut shows that a checkpoint leaves out what the program
// said, unless it has used an array since. After a restart, reading it is an
// error.
func TestOverwritten_LeftOut(t *testing.T) {
	d := discrete(t, 0, 1<<20)
	start(t, d)
	due(t)
	fill := NewKernel("", "fill", func(w *Work) {
		x := Slice[uint32](w, 0)
		for i := range x {
			x[i] = 7
		}
	})
	a, b := New[uint32](1000), New[uint32](1)
	must(t, d.Launch(fill, Size{1}, Out(a)))
	must(t, d.Launch(fill, Size{1}, Out(b)))
	h := &handles{Array: a, Roster: new(deviceCount)}
	tell := func() { CairnOverwritten(";;;0/a", &overwrites{a: a.Rows(100, 200)}) }
	reload := func() *handles {
		t.Helper()
		to, err := h.reload(t, d)
		must(t, err)
		return to
	}
	holdsAll := func(why string) {
		t.Helper()
		v, err := reload().Array.Read()
		must(t, err)
		for i, x := range v {
			if x != 7 {
				t.Fatalf("%s: element %d is %d", why, i, x)
			}
		}
	}
	tell()
	to := reload()
	if _, err := to.Array.Rows(199, 200).Read(); !errors.Is(err, errUnwritten) {
		t.Errorf("Read of what was left out: %v", err)
	}
	for _, r := range [][2]int{{0, 100}, {200, 1000}} {
		if v, err := to.Array.Rows(r[0], r[1]).Read(); err != nil || v[0] != 7 || v[len(v)-1] != 7 {
			t.Errorf("rows %v: %v", r, err)
		}
	}
	if v, err := a.Read(); err != nil || v[150] != 7 {
		t.Errorf("the array itself: %v", err)
	}

	holdsAll("after a read") // of a itself
	tell()
	must(t, d.Launch(fill, Size{1}, Out(b)))
	holdsAll("after a launch on another array")
	tell()
	a.h.m.Show(true)
	holdsAll("with slices of the host copy in the state")
	a.h.m.Show(false)
	tell()
	_, err := b.Data()
	must(t, err)
	holdsAll("after Data of another array")

	t.Setenv("CAIRN_SAVE_ALL", "1")
	saving = nil
	due(t)
	tell()
	holdsAll("with CAIRN_SAVE_ALL")
}

// TestOverwritten_FirstCaseCounts shows that CairnOverwritten takes the first
// case that holds. A case does not hold if a path is broken.
func TestOverwritten_FirstCaseCounts(t *testing.T) {
	a, b := New[uint32](4), New[uint32](8)
	all := &overwrites{list: []*overwrites{{a: a}, {a: b.Rows(2, 4)}}, by: map[string]Array[uint32]{"x": *a}}
	const name = "github.com/cairnrun/cairn/device.overwrites"
	for _, c := range []struct {
		text string
		of   any
		a, b int64 // bytes
	}{
		{";;;0/list/*/a", all, 16, 8},
		{";;;0/by/*", all, 16, 0},
		{";0/list/*/a;;0/by/*", all, 0, 0},
		{";;0/list/*/a;0/by/*", all, 16, 0},
		{";0/list/*/a;;0/by/*\n;;0/list/*/a;0/list/*/a", all, 16, 8},
		{";;0/list/*/a;0/by/*\n;;0/list/*/a;0/list/*/a", all, 16, 0}, // the first case only
		{";0/a;;0/by/*", all, 16, 0},
		{";;0/a;0/by/*", all, 0, 0},
		{"0=" + name + ";;;0/by/*", all, 16, 0},
		{"0=" + name + ";;;0/by/*", *all, 16, 0},
		{"0=main.overwrites;;;0/by/*", all, 0, 0},
		{";;;0/a/b", all, 0, 0},
		{";;;0/list", all, 0, 0},
		{";;;0/list/*/a 0/wrong", all, 0, 0},
		{";;;0/list/*/a", &overwrites{list: []*overwrites{{a: a}, nil}}, 0, 0}, // a nil pointer on the way
		{";;;0/list/*/a", &overwrites{list: []*overwrites{{a: a}, {}}}, 16, 0},
		{";;;0/list/*/a", (*overwrites)(nil), 0, 0},
		{"", all, 0, 0},
	} {
		parts := findOverwritten(c.text, []any{c.of})
		size := func(m *memory) (n int64) {
			for _, r := range parts[m] {
				n += r[1] - r[0]
			}
			return n
		}
		if x, y := size(a.h.m), size(b.h.m); x != c.a || y != c.b {
			t.Errorf("%q: %d and %d bytes, want %d and %d", c.text, x, y, c.a, c.b)
		}
	}
}

// TestDryRun shows that a dry run launches nothing, and that a checkpoint
// leaves out what its launches overwrite before they read it, in the arrays
// that may be left out.
func TestDryRun(t *testing.T) {
	d := discrete(t, 0, 1<<20)
	start(t, d)
	due(t)
	ran := 0
	k := NewKernel("", "k", func(w *Work) { ran++ })
	a, b := New[uint32](100), New[uint32](100)
	state := &overwrites{a: a, list: []*overwrites{{a: b}}}
	for _, c := range []struct {
		name, text string
		launches   func() error
		a, b       rangeSet // elements that are left out
	}{
		{"overwritten", ";;;0/a 0/list/*/a", func() error { return d.Launch(k, Size{1}, Out(a), In(b)) }, rangeSet{{0, 100}}, nil},
		{"read in the same launch", ";;;0/a 0/list/*/a", func() error { return d.Launch(k, Size{1}, In(a), Out(a)) }, nil, nil},
		{"not among the arrays", ";;;0/list/*/a", func() error { return d.Launch(k, Size{1}, Out(a), Out(b)) }, nil, rangeSet{{0, 100}}},
		{"parts", ";;;0/a 0/list/*/a", func() error {
			return errors.Join(d.Launch(k, Size{1}, Out(a.Rows(0, 20)), Out(a.Rows(30, 40))),
				d.Launch(k, Size{1}, In(a.Rows(10, 35)), Out(b)), // 20 to 30 are needed
				d.Launch(k, Size{1}, Out(a)), d.Launch(k, Size{1}, In(a), InOut(b)))
		}, rangeSet{{0, 20}, {30, 100}}, rangeSet{{0, 100}}},
		{"a launch that fails", ";;;0/a 0/list/*/a", func() error {
			if err := d.Launch(k, Size{}, Out(a)); err == nil {
				t.Error("a launch without a size succeeds")
			}
			return d.Launch(k, Size{1}, InOut(a))
		}, nil, nil},
	} {
		if !CairnDryRun(c.text, state) {
			t.Fatalf("%s: no dry run", c.name)
		}
		must(t, c.launches())
		CairnOverwritten("", state)
		must(t, d.Finish())
		if ran != 0 || dryRunning.Load() != nil {
			t.Fatalf("%s: %d kernels ran", c.name, ran)
		}
		for i, x := range []*Array[uint32]{a, b} {
			var got rangeSet
			for _, r := range x.h.m.leftOut() {
				got = append(got, [2]int64{r[0] / 4, r[1] / 4})
			}
			if want := []rangeSet{c.a, c.b}[i]; !slices.Equal(got, want) {
				t.Errorf("%s: of array %d, elements %v are left out, want %v", c.name, i, got, want)
			}
		}
	}
	if CairnDryRun("0=main.other;;;0/a", state) || dryRunning.Load() != nil {
		t.Error("a dry run for another type")
	}
	CairnOverwritten(";;;0/a", state) // without a dry run
	if len(a.h.m.leftOut()) != 1 {
		t.Error("nothing is left out without a dry run")
	}
	must(t, d.Launch(k, Size{1}, Out(a)))
	must(t, d.Finish())
	if ran == 0 {
		t.Error("no kernel runs after a dry run")
	}
}

// TestOverwritten_PartsOfBlocks shows that a checkpoint does not hold the bytes
// that are left out if a block also has others.
func TestOverwritten_PartsOfBlocks(t *testing.T) {
	d := discrete(t, 0, 1<<20)
	start(t, d)
	due(t)
	fill := NewKernel("", "fill", func(w *Work) {
		x := Slice[uint32](w, 0)
		for i := range x {
			x[i] = 0x07060504
		}
	})
	a := New[uint32](1000)
	must(t, d.Launch(fill, Size{1}, Out(a)))
	count := func() int {
		t.Helper()
		img, err := graph.Collect((&handles{Array: a, Roster: new(deviceCount)}).roots(), nil)
		must(t, err)
		s := newSaver(t)
		set, err := s.Save(context.Background(), img, nil, ckpt.Note{})
		must(t, err)
		res := <-s.Done()
		s.Collect(res)
		must(t, res.Err)
		f, err := s.dir.FS().Open(s.dir.File(set))
		must(t, err)
		defer f.Close()
		text, err := io.ReadAll(io.NewSectionReader(f, 0, 1<<30))
		must(t, err)
		return bytes.Count(text, []byte{4, 5, 6, 7})
	}
	if n := count(); n != 1000 {
		t.Errorf("the file has %d of 1000 elements", n)
	}
	CairnOverwritten(";;;0/a", &overwrites{a: a.Rows(100, 900)})
	if n := count(); n != 200 {
		t.Errorf("the file has %d elements, and 200 count", n)
	}
}
