package graph

import (
	"slices"
	"sort"
)

// span is the memory from address lo up to hi.
type span struct{ lo, hi uintptr }

// spanSet is a set of spans that do not overlap. The time to add a span hardly
// grows with their number.
type spanSet struct {
	runs [][]span // in order of addresses; none is empty
}

// runLength is the maximum number of spans in a run of a spanSet.
const runLength = 512

// add adds a span. If the span overlaps another one, add does nothing and
// reports false.
func (s *spanSet) add(sp span) bool {
	i := sort.Search(len(s.runs), func(i int) bool { return s.runs[i][0].lo > sp.lo }) - 1
	if i < 0 {
		if len(s.runs) == 0 {
			s.runs = [][]span{{sp}}
			return true
		}
		i = 0
	}
	run := s.runs[i]
	k := sort.Search(len(run), func(k int) bool { return run[k].lo >= sp.lo })
	if k > 0 && run[k-1].hi > sp.lo {
		return false
	}
	if k < len(run) {
		if run[k].lo < sp.hi {
			return false
		}
	} else if i+1 < len(s.runs) && s.runs[i+1][0].lo < sp.hi {
		return false
	}
	run = slices.Insert(run, k, sp)
	s.runs[i] = run
	if len(run) > runLength {
		half := slices.Clone(run[runLength/2:])
		s.runs[i] = run[:runLength/2]
		s.runs = slices.Insert(s.runs, i+1, half)
	}
	return true
}
