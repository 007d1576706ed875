package graph

import (
	"reflect"
	"testing"
	"unsafe"
)

// TestAdopt_UnchangedPools prepares for an image twice. The second Builder
// takes over the memory of unchanged pools, with its contents.
func TestAdopt_UnchangedPools(t *testing.T) {
	type state struct {
		Grown, Kept []float64
		Names       []string
		Own         []int32
	}
	roots := func(s *state) []Root {
		return []Root{{"grown", &s.Grown}, {"kept", &s.Kept}, {"names", &s.Names}, {"own", &s.Own}}
	}
	v := &state{make([]float64, 1000), []float64{1, 2, 3}, []string{"a", "bc"}, []int32{7, 8}}
	w := &state{Own: make([]int32, 2)}
	prepare := func(from *Builder) (*Builder, *Image, *Image) {
		t.Helper()
		live, err := Collect(roots(v), nil)
		if err != nil {
			t.Fatal(err)
		}
		saved := &Image{Vars: live.Vars, Types: live.Types, Regions: live.Regions}
		same := make(map[int]int)
		for i, p := range live.Pools {
			same[i] = i
			p.Pieces = nil
			saved.Pools = append(saved.Pools, p)
		}
		b, err := Prepare(roots(w), saved, nil, Options{Adopt: &Adoption{From: from, Pools: same}})
		if err != nil {
			t.Fatal(err)
		}
		return b, live, saved
	}
	fill := func(b *Builder, live *Image, all bool) {
		t.Helper()
		for _, target := range b.Targets() {
			if !all && b.Adopted(target.Pool) && target.Direct { // the addresses in tables may have changed
				continue
			}
			var src []byte
			for _, p := range live.Pools[target.Pool].Pieces {
				src = append(src, p...)
			}
			for _, p := range target.Pieces {
				src = src[copy(p, src):]
			}
		}
	}
	one, live, _ := prepare(nil)
	fill(one, live, true)
	at := make(map[int]*byte)
	for _, target := range one.Targets() {
		at[target.Pool] = unsafe.SliceData(target.Pieces[0])
	}
	v.Grown = append(v.Grown[:1000:1000], 5)
	two, live, saved := prepare(one)
	adopted := 0
	for _, target := range two.Targets() {
		if p := saved.Pools[target.Pool]; two.Adopted(target.Pool) == (p.Elem == "float64" && saved.Vars[p.Var].Name == "grown") {
			t.Errorf("pool %d, %s of %s: adopted is %v", target.Pool, p.Elem, saved.Vars[p.Var].Name, two.Adopted(target.Pool))
		}
		if two.Adopted(target.Pool) {
			adopted++
			if at[target.Pool] != unsafe.SliceData(target.Pieces[0]) {
				t.Errorf("pool %d lies elsewhere", target.Pool)
			}
		}
	}
	if adopted < 5 {
		t.Errorf("%d pools were taken over", adopted)
	}
	fill(two, live, false)
	own := &w.Own[0]
	if err := two.Finish(); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(v, w) || &w.Own[0] != own {
		t.Fatal("other values")
	}
	if err := one.Finish(); err == nil {
		t.Error("a Builder was finished whose memory belongs to another")
	}
	// A pool is not taken over if the program now has its memory elsewhere. A
	// Builder that has finished has nothing to take over.
	w.Own = make([]int32, 2)
	three, _, saved := prepare(two)
	for i := range saved.Pools {
		if three.Adopted(i) {
			t.Errorf("pool %d was taken from a state that is finished", i)
		}
	}
	w.Own = make([]int32, 2)
	four, _, saved := prepare(three)
	for i, p := range saved.Pools {
		if p.Elem == "int32" && four.Adopted(i) {
			t.Error("the program's array is another one now, and the old one was taken over")
		}
	}
}
