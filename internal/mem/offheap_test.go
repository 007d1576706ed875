package mem

import "testing"

// TestOffHeap appends to a list outside of the heap, several times from the
// beginning.
func TestOffHeap(t *testing.T) {
	var r OffHeap[uint32]
	defer r.Close()
	for round := range 3 {
		r.Reset()
		for i := range uint32(100000) {
			if len(r.S) == cap(r.S) {
				r.GrowOne()
			}
			r.S = append(r.S, i)
		}
		for i, v := range r.S {
			if v != uint32(i) {
				t.Fatalf("round %d: element %d is %d", round, i, v)
			}
		}
		if round == 1 {
			r.Drop()
		}
	}
	for _, n := range []int{10, 50000, 10} {
		for i, v := range r.Grow(n) {
			if v != 0 {
				t.Fatalf("element %d of %d is %d", i, n, v)
			}
			r.S[i] = 1
		}
	}
}
