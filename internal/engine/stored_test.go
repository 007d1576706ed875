//go:build unix

package engine

import (
	"errors"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
)

// TestRead_VariablesOfKeptCheckpoints resumes without loading anything, and
// reads variables of the kept checkpoints one by one. Checkpoints with other
// variables follow.
func TestRead_VariablesOfKeptCheckpoints(t *testing.T) {
	disk := newDisk(t)
	var a [3]int64
	big := make([]float64, 40_000)
	p := openFS(t, disk)
	Protect(p, "a", &a)
	Protect(p, "big", &big)
	type wide [16]byte
	Protect(p, "wide", &[2]wide{{1}, {2}})
	restore(t, p, false)
	for i := range 2 {
		a[0], big[39_999] = int64(i+1), float64(i+1)
		checkpoint(t, p)
	}
	closeRun(t, p)

	other := 7
	p = openFS(t, disk)
	Protect(p, "other", &other)
	if yes, err := p.Resume(t.Context()); !yes || err != nil {
		t.Fatal(yes, err)
	}
	for index, want := range map[uint64]int64{0: 2, 1: 1, 2: 2} {
		var got [3]int64
		if err := p.Read(t.Context(), index, "a", &got); err != nil || got[0] != want {
			t.Errorf("checkpoint %d: a = %v, %v; want %d", index, got, err, want)
		}
	}
	var got []float64
	if err := p.Read(t.Context(), 1, "big", &got); err != nil || len(got) != 40_000 || got[39_999] != 1 {
		t.Errorf("big has %d elements, %v", len(got), err)
	}
	if _, dims, err := p.Stored(1, "wide"); err != nil || !slices.Equal(dims, []uint64{2}) {
		t.Errorf("wide has dimensions %v, %v", dims, err)
	}
	list, err := p.StoredVariables(1)
	if err != nil || len(list) != 3 || list[0].Name != "a" || list[1].Name != "big" || list[2].Name != "wide" {
		t.Errorf("checkpoint 1 holds %v, %v", list, err)
	} else if list[0].Elem != "int64" || !slices.Equal(list[0].Dims, []uint64{3}) || !slices.Equal(list[1].Dims, []uint64{40_000}) {
		t.Errorf("a and big are %v", list[:2])
	}
	if _, err := p.StoredVariables(77); err == nil {
		t.Error("variables of a checkpoint that is not there")
	}
	if err := p.Read(t.Context(), 1, "other", &other); !errors.Is(err, ErrMismatch) {
		t.Errorf("a variable that is not there: %v", err)
	}
	if err := p.Read(t.Context(), 1, "a", new([4]int64)); !errors.Is(err, ErrMismatch) {
		t.Errorf("another shape: %v", err)
	}
	checkpoint(t, p)
	other = 0
	if err := p.Read(t.Context(), 0, "other", &other); err != nil || other != 7 {
		t.Errorf("other = %d, %v", other, err)
	}
	until(t, "checkpoint 1 is removed after the commit of 3", func() bool {
		list, err := p.Checkpoints()
		return err == nil && slices.Equal(list, []uint64{3, 2})
	})
	p.lastCommitted = 1 // as if the run had not been told of others yet
	if err := p.Read(t.Context(), 0, "a", &a); err != nil || a[0] != 2 {
		t.Errorf("the oldest that is left: a = %v, %v", a, err)
	}
	if err := p.Read(t.Context(), 1, "a", &a); !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "there is no checkpoint 1") {
		t.Errorf("a checkpoint that was removed: %v", err)
	}
	p.lastCommitted = 3
	closeRun(t, p)
}

// TestRead_CheckpointRemoved reads a checkpoint that is removed meanwhile: what
// was found is read to the end. Without its base, the rest of it can be read.
func TestRead_CheckpointRemoved(t *testing.T) {
	disk := newDisk(t)
	same, other := make([]float64, 300_000), make([]float64, 300_000)
	p := openFS(t, disk)
	Protect(p, "same", &same)
	Protect(p, "other", &other)
	restore(t, p, false)
	for i := range 2 {
		for k := range other {
			same[k], other[k] = float64(k+1), float64(k*(i+2)+1)
		}
		checkpoint(t, p)
	}
	read := func(name string, want float64) error {
		got := make([]float64, 300_000)
		err := p.Read(t.Context(), 2, name, &got)
		if err == nil && got[299_999] != want {
			t.Errorf("%s ends with %v", name, got[299_999])
		}
		return err
	}
	if _, dims, err := p.Stored(2, "same"); err != nil || !slices.Equal(dims, []uint64{300_000}) {
		t.Fatal(dims, err)
	}
	s, err := ckpt.Open(p.dir.FS(), p.dir.File(2))
	if err != nil || len(s.Header.Bases) != 1 {
		t.Fatal("checkpoint 2 has no base:", err)
	}
	base := filepath.Join(filepath.Dir(s.Path), s.Header.Bases[0].File)
	s.Close()
	if err := p.dir.FS().Remove(base); err != nil {
		t.Fatal(err)
	}
	if err := read("same", 300_000); err != nil {
		t.Errorf("a checkpoint that was open: %v", err)
	}
	p.closeStored()
	if err := read("other", 899_998); err != nil {
		t.Errorf("what is not in the base: %v", err)
	}
	if err := read("same", 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("what is in the base: %v", err)
	}
	p.closeStored()
	if err := p.dir.FS().Remove(p.dir.File(2)); err != nil {
		t.Fatal(err)
	}
	if err := read("same", 0); !errors.Is(err, ErrMismatch) {
		t.Errorf("a checkpoint that was removed: %v", err)
	}
	closeRun(t, p)
}

// TestRead_OneVariableAlone reads variables without a look at the others, so
// that the time to read all of them, one by one, is not quadratic. Those that
// need the others are read with them.
func TestRead_OneVariableAlone(t *testing.T) {
	type node struct {
		next *node
		n    int
	}
	vars := func() map[string]any {
		return map[string]any{"array": new([3]int64), "slice": new([]float64), "rows": new([][]float32), "text": new(string), "map": new(map[string][]int), "list": new(*node), "empty": new([]int8)}
	}
	disk := newDisk(t)
	p := openFS(t, disk)
	saved := vars()
	*saved["array"].(*[3]int64) = [3]int64{1, 2, 3}
	*saved["slice"].(*[]float64) = []float64{1.5, 2.5, 4: 5}
	*saved["rows"].(*[][]float32) = [][]float32{{1, 2}, {3}, nil}
	*saved["text"].(*string) = "text"
	*saved["map"].(*map[string][]int) = map[string][]int{"a": {1}, "b": {2, 3}}
	*saved["list"].(**node) = &node{&node{nil, 2}, 1}
	*saved["empty"].(*[]int8) = []int8{}
	for name, v := range saved {
		if err := p.ProtectValue(name, v); err != nil {
			t.Fatal(err)
		}
		Protect(p, "after "+name, &[]float64{1})
	}
	whole := []float64{1, 2, 3}
	Protect(p, "whole", &whole)
	rest := whole[1:]
	Protect(p, "rest", &rest)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)

	p = openFS(t, disk)
	if yes, err := p.Resume(t.Context()); !yes || err != nil {
		t.Fatal(yes, err)
	}
	o, err := p.openStored(1)
	if err != nil {
		t.Fatal(err)
	}
	read := vars()
	for name, v := range read {
		if err := p.Read(t.Context(), 1, name, v); err != nil || !reflect.DeepEqual(v, saved[name]) {
			t.Errorf("%s is %v, %v; want %v", name, v, err, saved[name])
		}
	}
	for name, v := range vars() {
		i, err := o.find(name)
		if err != nil {
			t.Fatal(err)
		}
		one := o.img.Only(i, o.pools[i])
		if one == nil || len(one.Vars) != 1 {
			t.Fatalf("no image of %s alone", name)
		}
		err = p.loadRoots(t.Context(), o.file, one, []graph.Root{{Name: name, Ptr: v}}, nil, nil)
		if err != nil || !reflect.DeepEqual(v, saved[name]) {
			t.Errorf("%s alone is %v, %v; want %v", name, v, err, saved[name])
		}
	}
	var part []float64
	if err := p.Read(t.Context(), 1, "rest", &part); err == nil && !slices.Equal(part, rest) {
		t.Errorf("rest is %v, want an error or %v", part, rest)
	}
	closeRun(t, p)
}

// TestResume_DamagedCheckpoint takes the older of two checkpoints if the newer
// one is damaged.
func TestResume_DamagedCheckpoint(t *testing.T) {
	disk := newDisk(t)
	grid := make([]float64, 50_000)
	start := func() *Run {
		p := openFS(t, disk)
		Protect(p, "grid", &grid)
		return p
	}
	p := start()
	restore(t, p, false)
	for i := range 2 {
		for k := range grid {
			grid[k] = float64(i*len(grid) + k)
		}
		checkpoint(t, p)
	}
	closeRun(t, p)
	if err := disk.Corrupt("/run/ckpt/ckpt-00000002/rank-0000.h5", 4096+70_000, 1); err != nil {
		t.Fatal(err)
	}
	p = start()
	if yes, err := p.Resume(t.Context()); !yes || err != nil {
		t.Fatal(yes, err)
	}
	if list, err := p.Checkpoints(); err != nil || !slices.Equal(list, []uint64{1}) {
		t.Errorf("checkpoints %v, %v", list, err)
	}
	if err := p.Read(t.Context(), 0, "grid", &grid); err != nil || grid[5] != 5 {
		t.Errorf("grid[5] = %v, %v", grid[5], err)
	}
	closeRun(t, p)
}
