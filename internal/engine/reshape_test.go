//go:build unix

package engine

import (
	"errors"
	"reflect"
	"slices"
	"testing"

	"github.com/cairnrun/cairn/internal/vfs/vfstest"
)

// saveOne saves one variable in a new directory.
func saveOne[T any](t *testing.T, v T) *vfstest.Mem {
	t.Helper()
	disk := newDisk(t)
	p := openFS(t, disk)
	Protect(p, "v", &v)
	restore(t, p, false)
	checkpoint(t, p)
	closeRun(t, p)
	return disk
}

// loadOne restores it, saves it again, and restores that.
func loadOne[T any](t *testing.T, disk *vfstest.Mem, v *T) error {
	t.Helper()
	p := openFS(t, disk)
	Protect(p, "v", v)
	yes, err := p.Restore(t.Context())
	if err != nil {
		p.Close()
		return err
	}
	if !yes {
		t.Error("nothing was restored")
	}
	checkpoint(t, p)
	closeRun(t, p)
	var again T
	p = openFS(t, disk)
	Protect(p, "v", &again)
	restore(t, p, true)
	closeRun(t, p)
	if !reflect.DeepEqual(again, *v) {
		t.Errorf("%v was saved, and %v restored", *v, again)
	}
	return nil
}

// reshaped saves a value of one type, and restores it as one of another.
func reshaped[From, To any](t *testing.T, from From, want To) {
	t.Helper()
	var got To
	if err := loadOne(t, saveOne(t, from), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%T as %T: %v, %v; want %v", from, want, got, err, want)
	}
}

// TestRestore_ArrayAndSlice restores slices as arrays and arrays as slices.
func TestRestore_ArrayAndSlice(t *testing.T) {
	type pair struct{ A, B float32 }
	reshaped(t, []float64{1, 2, 3}, [3]float64{1, 2, 3})
	reshaped(t, [3]float64{1, 2, 3}, []float64{1, 2, 3})
	reshaped(t, [][]int32{{1, 2, 3}, {4, 5, 6}}, [2][3]int32{{1, 2, 3}, {4, 5, 6}})
	reshaped(t, [2][3]int32{{1, 2, 3}, {4, 5, 6}}, [][]int32{{1, 2, 3}, {4, 5, 6}})
	reshaped(t, [2][3]bool{{true, false, true}}, [][3]bool{{true, false, true}, {}})
	reshaped(t, [][3]bool{{true, false, true}, {}}, [2][3]bool{{true, false, true}})
	reshaped(t, [2]pair{{1, 2}, {3, 4}}, []pair{{1, 2}, {3, 4}})
	reshaped(t, append(make([]uint8, 0, 50), 7, 8, 9), [3]uint8{7, 8, 9})
	reshaped(t, [1]complex128{1i}, []complex128{1i})
	large := make([]float64, 100_000)
	for i := range large {
		large[i] = float64(i)
	}
	reshaped(t, large, [100_000]float64(large))
	reshaped(t, [100_000]float64(large), slices.Clone(large))

	// A slice of the right length keeps its memory.
	mine := make([]float64, 3)
	kept := mine
	if err := loadOne(t, saveOne(t, [3]float64{1, 2, 3}), &mine); err != nil || kept[2] != 3 {
		t.Errorf("%v, %v: the slice has other memory", kept, err)
	}
}

// TestRestore_ArrayAndSliceMismatch refuses other lengths and other elements.
func TestRestore_ArrayAndSliceMismatch(t *testing.T) {
	for _, err := range []error{
		loadOne(t, saveOne(t, []float64{1, 2, 3}), new([4]float64)),
		loadOne(t, saveOne(t, [][]float64{{1, 2}, {3}, {4, 5, 6}}), new([3][2]float64)),
		loadOne(t, saveOne(t, [][]float64{{1, 2}}), new([2][1]float64)),
		loadOne(t, saveOne(t, [3]float64{1, 2, 3}), new([]float32)),
		loadOne(t, saveOne(t, [3]float64{1, 2, 3}), new([][]float64)),
		loadOne(t, saveOne(t, []float32{1, 2, 3}), new([3]int32)),
		loadOne(t, saveOne(t, []*int{new(int)}), new([1]*int)),
	} {
		if !errors.Is(err, ErrMismatch) {
			t.Errorf("another shape: %v", err)
		}
	}
}
