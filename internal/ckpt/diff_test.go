package ckpt

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/graph"
	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// TestDiff_MovedArrays compares arrays that are at other places of their
// dataset in the second checkpoint, because another one has grown or vanished
// before them. They are compared by their names.
func TestDiff_MovedArrays(t *testing.T) {
	type array struct {
		name   string
		start  uint64
		values []float64
	}
	a := func(name string, start uint64, values ...float64) array { return array{name, start, values} }
	for _, v := range []struct {
		name          string
		first, second []array
		want          []string
	}{
		{"in place", []array{a("a", 0, 1, 2), a("b", 2, 3, 4)}, []array{a("a", 0, 1, 2), a("b", 2, 3, 9)}, []string{"b 1 of 2 at 1 by 5"}},
		{"swapped", []array{a("a", 0, 1, 2), a("b", 2, 3, 4)}, []array{a("b", 0, 3, 4), a("a", 2, 1, 2)}, nil},
		{"swapped and changed", []array{a("a", 0, 1, 2), a("b", 2, 3, 4)}, []array{a("b", 0, 3, 4), a("a", 2, 1, 5)}, []string{"a 1 of 2 at 1 by 3"}},
		{"another one grew", []array{a("a", 0, 1, 2), a("b", 2, 3, 4)}, []array{a("a", 0, 1, 2, 8), a("b", 3, 3, 6)}, []string{"b 1 of 2 at 1 by 2", "grid shape [4] in the first checkpoint, [5] in the second"}},
		{"the rest", []array{a("a", 0, 1, 2), a("", 2, 3, 4)}, []array{a("a", 0, 1, 2), a("", 2, 3, 5)}, []string{"grid 1 of 2 at 3 by 1"}},
		{"several blocks", []array{a("a", 0, 1), a("b", 1, make([]float64, 20000)...)}, []array{a("b", 0, append(make([]float64, 19999), 7)...), a("a", 20000, 1)}, []string{"b 1 of 20000 at 19999 by 7"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			grid := func(list []array) (all []float64) {
				for _, x := range list {
					all = append(all, x.values...)
				}
				return slices.Clip(all)
			}
			state := ckpttest.Sample(0)
			state.Grid = grid(v.first)
			fsys := vfstest.NewMem()
			dir := save(t, fsys, Options{}, state, func() { state.Grid = grid(v.second) })
			open := func(index uint64, list []array) *File {
				f, err := Open(fsys, dir.File(index))
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { f.Close() })
				i := slices.IndexFunc(f.Header.Datasets, func(d Dataset) bool { return d.Var == "grid" && d.Pool >= 0 && len(d.Dims) > 0 })
				for _, x := range list {
					if x.name != "" {
						f.Header.Names = append(f.Header.Names, graph.Name{Name: x.name, Pool: f.Header.Datasets[i].Pool, Start: x.start, Dims: []uint64{uint64(len(x.values))}})
					}
				}
				return f
			}
			list, err := Diff(ctx, open(1, v.first), open(2, v.second), nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range list {
				text := fmt.Sprintf("%s %d of %d at %d by %g", d.Var, d.Differ, d.Values, d.First, d.MaxAbs)
				if d.Detail != "" {
					text = d.Var + " " + d.Detail
				}
				if strings.HasPrefix(d.Path, "MemBlocks/") { // others are tables of references
					got = append(got, text)
				}
			}
			if !slices.Equal(got, v.want) {
				t.Errorf("%q, want %q", got, v.want)
			}
		})
	}
}
