package coord

import (
	"fmt"
	"slices"
)

// result collects what the ranks of a subtree report about one checkpoint.
type result struct {
	index  uint64
	left   int // how many of this rank and its children have not reported yet
	failed bool
	rank   int
	why    string
	sums   Sums
}

// Sums show whether a message crossed a spatial checkpoint. Ranks need not send
// their totals to all others. The total of messages between two ranks is
// multiplied by a number that belongs to the pair. All products of messages
// sent are added, modulo 2⁶⁴, and all products of messages received. If the
// sums over all ranks are equal, so are the totals of every pair, except with a
// probability of about 2⁻⁶⁴.
type Sums struct{ Sent, Received uint64 }

// SumsOf returns a rank's sums. sent[i] is the number of messages that it has
// sent to rank i, and received[i] the number that it has received from rank i.
func SumsOf(rank int, sent, received []uint64) Sums {
	var s Sums
	for i, n := range sent {
		s.Sent += n * pairFactor(rank, i)
	}
	for i, n := range received {
		s.Received += n * pairFactor(i, rank)
	}
	return s
}

// pairFactor returns the number of a pair of ranks: the finalizer of
// SplitMix64. It is odd, so that all bits of a total count.
func pairFactor(from, to int) uint64 {
	x := uint64(from)<<32 | uint64(to)
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31 | 1
}

// result notes what this rank, or a child for its subtree, reports about a
// checkpoint. It sends the result up when all have reported.
func (n *Node) result(m Message) {
	if len(n.lost) > 0 || n.hasLine && m.Index < n.line {
		return
	}
	i := slices.IndexFunc(n.results, func(r result) bool { return r.index == m.Index })
	if i < 0 {
		i = len(n.results)
		n.results = append(n.results, result{index: m.Index, left: len(n.children) + 1})
	}
	r := &n.results[i]
	if m.Flags&FlagFailed != 0 && (!r.failed || m.Rank < r.rank) {
		r.failed, r.rank, r.why = true, m.Rank, m.Text
	}
	r.sums.Sent += m.Sent
	r.sums.Received += m.Received
	if r.left--; r.left > 0 {
		return
	}
	m = Message{Kind: KindSaved, Index: r.index, Sent: r.sums.Sent, Received: r.sums.Received}
	if r.failed {
		m.Flags, m.Rank, m.Text = FlagFailed, r.rank, r.why
	} else if n.root != nil && r.sums.Sent != r.sums.Received {
		m.Flags = FlagFailed | FlagUnsafe
	}
	n.results = slices.Delete(n.results, i, i+1)
	if n.root == nil {
		n.sendUp(m)
		return
	}
	m.Kind, m.Sent, m.Received = KindOutcome, 0, 0
	n.outcome(m)
}

// outcome tells the program and all ranks below the outcome of a checkpoint.
func (n *Node) outcome(m Message) {
	n.sendDown(m)
	var err error
	if m.Flags&FlagUnsafe != 0 {
		err = fmt.Errorf("coord: %w: %w: a message crosses the points of checkpoint %d", ErrNotSaved, ErrCounts, m.Index)
		n.emit(Failed{Index: m.Index, Err: err})
	} else if m.Flags&FlagFailed != 0 {
		err = fmt.Errorf("coord: %w: checkpoint %d at rank %d: %s", ErrNotSaved, m.Index, m.Rank, m.Text)
		n.emit(Failed{Index: m.Index, Err: err})
	} else {
		n.line, n.hasLine = m.Index, true
		n.results = slices.DeleteFunc(n.results, func(r result) bool { return r.index < m.Index })
		n.emit(Committed{Index: m.Index})
	}
	if r := n.root; r != nil && r.undecided && (r.index == m.Index || r.index < m.Index && err == nil) {
		r.undecided = false // this one, or a newer spatial one that was faster
	}
	if n.stopping && n.index == m.Index {
		n.stopping, n.stopped = false, true
		n.emit(Stop{Index: m.Index, Err: err})
	}
}

// Line returns the recovery line: the index of the newest checkpoint that every
// rank has. have lists the indices that each rank has. Line returns false if
// there is none.
func Line(have [][]uint64) (uint64, bool) {
	if len(have) == 0 {
		return 0, false
	}
	count := map[uint64]int{}
	for i, list := range have {
		for _, index := range list {
			if count[index] == i { // once per rank
				count[index]++
			}
		}
	}
	line, found := uint64(0), false
	for index, c := range count {
		if c == len(have) && (!found || index > line) {
			line, found = index, true
		}
	}
	return line, found
}
