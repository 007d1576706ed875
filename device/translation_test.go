package device

import "testing"

// TestTranslation_32BitIndexes shows which launches compute indexes with 32
// bits.
func TestTranslation_32BitIndexes(t *testing.T) {
	k := &Translation{Entry: "f", AnyGroup: "any", Most: [3]int{0, 16, 0}, Params: []Param{
		{Type: "float64", Size: 8, Array: true}, {Type: "int64", Size: 8}, {Type: "float32", Size: 4, Array: true, Local: true}}}
	const most = maxSmall
	for _, c := range []struct {
		global, local [3]int
		elements      int64
		want          variant
	}{
		{[3]int{100, 1, 1}, [3]int{}, 100, variant{"f", true}},
		{[3]int{most, 1, 1}, [3]int{}, most, variant{"f", true}},
		{[3]int{most + 1, 1, 1}, [3]int{}, 100, variant{"f", false}},
		{[3]int{1, most, 1}, [3]int{1, 1, 1}, 100, variant{"f", false}},
		{[3]int{1, 1, most - 8}, [3]int{8, 8, 8}, 100, variant{"f", true}},
		{[3]int{1, 1, most - 7}, [3]int{8, 8, 8}, 100, variant{"f", false}},
		{[3]int{100, 1, 1}, [3]int{}, most + 1, variant{"f", false}},
		{[3]int{100, 1, 1}, [3]int{}, 1 << 40, variant{"f", false}},
		{[3]int{64, 64, 64}, [3]int{64, 16, 1}, 100, variant{"f", true}},
		{[3]int{64, 64, 64}, [3]int{16, 17, 1}, 100, variant{"any", true}},
		{[3]int{64, 64, 1 << 40}, [3]int{16, 17, 1}, 100, variant{"any", false}},
	} {
		args := []any{Arg{lo: 1 << 20, hi: 1<<20 + 8*c.elements, mode: reads}, int64(1) << 50, Arg{local: 1 << 40}}
		if got := k.variant(c.global, c.local, args); got != c.want {
			t.Errorf("%v in groups of %v, %d elements: %v, want %v", c.global, c.local, c.elements, got, c.want)
		}
	}
}

// TestTranslation_Groups shows that groups extend only in dimensions over which
// the kernel has loops. Other items would do the same work again.
func TestTranslation_Groups(t *testing.T) {
	k := &Translation{Groups: true, Dims: [3]bool{true, false, true}}
	for _, c := range []struct {
		local [3]int
		right bool
	}{{[3]int{8, 1, 1}, true}, {[3]int{8, 1, 4}, true}, {[3]int{8, 4, 1}, false}} {
		if err := k.check([3]int{100, 1, 1}, c.local, nil); (err == nil) != c.right {
			t.Errorf("groups of %v: %v", c.local, err)
		}
	}
}
