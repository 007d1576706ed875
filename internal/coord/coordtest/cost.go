// Package coordtest measures what the protocols of package coord cost, by
// simulation. It is for tests and benchmarks.
package coordtest

import (
	"cmp"

	"github.com/cairnrun/cairn/internal/coord"
)

// Cost is what one coordinated checkpoint takes, in control messages.
type Cost struct {
	Rounds     int // message delays from the request until all ranks know the outcome
	Paused     int // most message delays from a rank's Pause to its Save
	Depth      int // of the tree of ranks
	Messages   int // all control messages
	Bookmarks  int // those between peers
	MaxPerRank int // most messages that one rank sent and received
	Bytes      int // encoded
}

// Simulate returns the cost of a checkpoint that one rank asks for, among n
// ranks, each of which has exchanged a message with each of its peers. Every
// message takes one unit of time. Copying and writing take none. An arity of 0
// means coord's default.
func Simulate(n, arity int, peers func(rank int) []int) Cost {
	type letter struct {
		from, to int
		m        coord.Message
	}
	const target = 2 // all ranks have passed point 1
	var cost Cost
	var mail []letter
	load := make([]int, n)
	paused := make([]int, n)
	nodes := make([]*coord.Node, n)
	atTarget := make([]bool, n)
	known := 0
	ranks := make([]simulated, n)
	carry := func(i int) {
		for again := true; again; {
			again = false
			for _, a := range nodes[i].Take() {
				switch a := a.(type) {
				case coord.Send:
					mail = append(mail, letter{i, a.To, a.Msg})
				case coord.Pause:
					paused[i] = cost.Rounds
				case coord.Save:
					cost.Paused = max(cost.Paused, cost.Rounds-paused[i])
					nodes[i].Saved(a.Index, nil)
					again = true
				case coord.Committed:
					known++
				}
			}
		}
	}
	for i := range nodes {
		nodes[i] = coord.New(coord.Config{Rank: i, Size: n, Arity: arity, Counts: &ranks[i]})
		ranks[i] = simulated{peers: peers(i), point: target - 1}
	}
	arity = cmp.Or(arity, coord.DefaultArity)
	for i := n - 1; i > 0; i = (i - 1) / arity {
		cost.Depth++
	}
	nodes[n-1].Ask("simulated", false)
	carry(n - 1)
	var buf []byte
	for len(mail) > 0 && known < n {
		cost.Rounds++
		now := mail
		mail = nil
		touched := make([]bool, n)
		for _, l := range now {
			cost.Messages++
			if l.m.Kind == coord.KindBookmark {
				cost.Bookmarks++
			}
			buf = l.m.AppendTo(buf[:0])
			cost.Bytes += len(buf)
			load[l.from]++
			load[l.to]++
			if err := nodes[l.to].Receive(l.from, l.m); err != nil {
				panic(err) // a mistake in package coord
			}
			touched[l.to] = true
		}
		for i, n := range nodes {
			if !touched[i] {
				continue
			}
			if n.Pulling() && !atTarget[i] { // it knows the target
				atTarget[i] = true
				ranks[i].point = target
				n.AtPoint(target)
			}
			carry(i)
		}
	}
	for _, l := range load {
		cost.MaxPerRank = max(cost.MaxPerRank, l)
	}
	return cost
}

// simulated implements coord.Counts for a rank that has exchanged one message
// with each of its peers.
type simulated struct {
	peers []int
	point uint64
}

func (s *simulated) Point() uint64       { return s.point }
func (s *simulated) Peers() []int        { return s.peers }
func (s *simulated) Sent(int) uint64     { return 1 }
func (s *simulated) Received(int) uint64 { return 1 }
func (s *simulated) Totals() (sent, received uint64) {
	return uint64(len(s.peers)), uint64(len(s.peers))
}
