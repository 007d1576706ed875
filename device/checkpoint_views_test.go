package device

import (
	"context"
	"testing"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/graph"
)

// TestCheckpoint_ViewsSwapped saves two views of an array that one kernel
// writes, before and after they are swapped.
func TestCheckpoint_ViewsSwapped(t *testing.T) {
	const n = 256 << 10 // elements of a view
	d := discrete(t, 0, 0)
	all := New[uint32](3, n)
	st := &state{Arrays: []*Array[uint32]{all.Rows(0, 1), all.Rows(2, 3)}}
	s := newSaver(t)
	for round := range 6 {
		v := uint32(1)
		if round > 3 {
			v = 1 << 30
		}
		must(t, d.Launch(put, Size{3 * n}, Out(all), v, n32(3*n)))
		if round > 3 {
			st.Arrays[0], st.Arrays[1] = st.Arrays[1], st.Arrays[0]
		}
		s.Prefetch()
		img, err := graph.Collect(st.roots(), nil)
		must(t, err)
		set, err := s.Save(context.Background(), img, nil, ckpt.Note{})
		must(t, err)
		res := <-s.Done()
		s.Collect(res)
		must(t, res.Err)
		back := new(state)
		must(t, s.load(set, back))
		for i, a := range st.Arrays {
			want, err := a.Read()
			must(t, err)
			got, err := back.Arrays[i].Read()
			must(t, err)
			for k := range want {
				if got[k] != want[k] {
					t.Fatalf("round %d: element %d of view %d is %d, want %d", round, k, i, got[k], want[k])
				}
			}
		}
	}
}
