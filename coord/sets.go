package coord

import (
	"fmt"
	"slices"
)

// result gathers what the ranks of a subtree say about one set.
type result struct {
	set    uint64
	left   int // how many of this rank and its children have not said yet
	failed bool
	rank   int
	why    string
}

// result takes in what this rank, or a child for its subtree, says about a
// set, and passes it on when all have said.
func (n *Node) result(m Message) {
	if len(n.lost) > 0 || n.hasLine && m.Set < n.line {
		return
	}
	i := slices.IndexFunc(n.results, func(r result) bool { return r.set == m.Set })
	if i < 0 {
		i = len(n.results)
		n.results = append(n.results, result{set: m.Set, left: len(n.children) + 1})
	}
	r := &n.results[i]
	if m.Flags&FlagFailed != 0 && (!r.failed || m.Rank < r.rank) {
		r.failed, r.rank, r.why = true, m.Rank, m.Text
	}
	if r.left--; r.left > 0 {
		return
	}
	m = Message{Kind: KindSaved, Set: r.set}
	if r.failed {
		m.Flags, m.Rank, m.Text = FlagFailed, r.rank, r.why
	}
	n.results = slices.Delete(n.results, i, i+1)
	if n.root == nil {
		n.sendUp(m)
		return
	}
	m.Kind = KindOutcome
	n.outcome(m)
}

// outcome tells the program and all below what became of a set.
func (n *Node) outcome(m Message) {
	n.sendDown(m)
	var err error
	if m.Flags&FlagFailed != 0 {
		err = fmt.Errorf("coord: %w: set %d at rank %d: %s", ErrNotSaved, m.Set, m.Rank, m.Text)
		n.emit(Failed{Set: m.Set, Err: err})
	} else {
		n.line, n.hasLine = m.Set, true
		n.results = slices.DeleteFunc(n.results, func(r result) bool { return r.set < m.Set })
		n.emit(Committed{Set: m.Set})
	}
	if r := n.root; r != nil && r.undecided && (r.set == m.Set || r.set < m.Set && err == nil) {
		r.undecided = false // or a newer, spatial set was faster
	}
	if n.stopping && n.set == m.Set {
		n.stopping, n.stopped = false, true
		n.emit(Stop{Set: m.Set, Err: err})
	}
}

// Line returns the newest set that every rank has, given what each has: the
// recovery line. It is false if there is none.
func Line(have [][]uint64) (uint64, bool) {
	if len(have) == 0 {
		return 0, false
	}
	count := map[uint64]int{}
	for i, list := range have {
		for _, set := range list {
			if count[set] == i { // once per rank
				count[set]++
			}
		}
	}
	line, found := uint64(0), false
	for set, c := range count {
		if c == len(have) && (!found || set > line) {
			line, found = set, true
		}
	}
	return line, found
}

// Garbage returns which of the sets that a rank has may be removed, in ascending
// order: all but those above the line and the newest keep up to it. The line
// itself always stays.
func Garbage(have []uint64, line uint64, keep int) []uint64 {
	list := slices.Compact(slices.Sorted(slices.Values(have)))
	end, _ := slices.BinarySearch(list, line+1)
	if line+1 == 0 {
		end = len(list)
	}
	return list[:max(0, end-max(keep, 1))]
}

// Consistent checks a spatial set by the totals that all ranks saved with it:
// sent[i][j] is what rank i had sent to j, received[j][i] what j had received
// from i. The error wraps ErrCounts and names the first pair that differs.
func Consistent(sent, received [][]uint64) error {
	if len(sent) != len(received) {
		return fmt.Errorf("coord: %w: totals sent of %d ranks, received of %d", ErrCounts, len(sent), len(received))
	}
	for i := range sent {
		if len(sent[i]) != len(sent) || len(received[i]) != len(sent) {
			return fmt.Errorf("coord: %w: rank %d of %d saved totals for %d and %d peers",
				ErrCounts, i, len(sent), len(sent[i]), len(received[i]))
		}
	}
	for i := range sent {
		for j, s := range sent[i] {
			if r := received[j][i]; s != r {
				return fmt.Errorf("coord: %w: rank %d had sent %d messages to rank %d, which had received %d: "+
					"a message crosses the point, so it is not safe to save there without draining; "+
					"move the point or do without spatial coordination", ErrCounts, i, s, j, r)
			}
		}
	}
	return nil
}
