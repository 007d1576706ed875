//go:build linux

package serve

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
)

// tracker tells the run which parts of the mirror the program has written, as
// the program reports them.
type tracker session

func (t *tracker) Watch([]byte) error   { return nil }
func (t *tracker) Unwatch(_, _ uintptr) {}
func (t *tracker) Close()               {}

// union sorts ranges and joins those that overlap.
func union(list [][2]uint64) [][2]uint64 {
	slices.SortFunc(list, func(a, b [2]uint64) int { return cmp.Compare(a[0], b[0]) })
	out := list[:0]
	for _, r := range list {
		if n := len(out); n > 0 && r[0] <= out[n-1][1] {
			out[n-1][1] = max(out[n-1][1], r[1])
		} else {
			out = append(out, r)
		}
	}
	return out
}

// Scan calls written for the parts of p that the program has written since the
// last save.
func (t *tracker) Scan(p []byte, written func(lo, hi int)) error {
	lo, ok := (*session)(t).offset(p)
	if !ok {
		return fmt.Errorf("memory at %p is not part of the mirror", p)
	}
	hi := lo + uint64(len(p))
	first := sort.Search(len(t.written), func(i int) bool { return t.written[i][1] > lo })
	for _, w := range t.written[first:] {
		if w[0] >= hi {
			break
		}
		if a, b := max(w[0], lo), min(w[1], hi); a < b {
			written(int(a-lo), int(b-lo))
		}
	}
	return nil
}
