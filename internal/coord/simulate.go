package coord

// Cost is what one coordinated set takes, counted in control messages.
type Cost struct {
	Rounds     int // message delays from the ask until all know the outcome
	Paused     int // … of them while a rank is held: from its Pause to its Save, at most
	Depth      int // of the tree of ranks
	Messages   int // control messages in all
	Bookmarks  int // … of them between peers
	MaxPerRank int // most messages that one rank sent and received
	Bytes      int // encoded
}

// Simulate counts what a set costs that one rank asks for, among n ranks of
// which each has exchanged a message with each of its peers. Every
// message takes one round; copying and writing take none. It is for
// benchmarks and tests.
func Simulate(n, arity int, peers func(rank int) []int) Cost {
	type letter struct {
		from, to int
		m        Message
	}
	var cost Cost
	var mail []letter
	load := make([]int, n)
	paused := make([]int, n)
	nodes := make([]*Node, n)
	known := 0
	ranks := make([]simulated, n)
	carry := func(i int) {
		for again := true; again; {
			again = false
			for _, a := range nodes[i].Take() {
				switch a := a.(type) {
				case Send:
					mail = append(mail, letter{i, a.To, a.Msg})
				case Pause:
					paused[i] = cost.Rounds
				case Save:
					cost.Paused = max(cost.Paused, cost.Rounds-paused[i])
					nodes[i].Saved(a.Index, nil)
					again = true
				case Committed:
					known++
				}
			}
		}
	}
	for i := range nodes {
		nodes[i] = New(Config{Rank: i, Size: n, Arity: arity, Counts: &ranks[i]})
		ranks[i] = simulated{peers: peers(i), point: 1}
	}
	for i := n - 1; i > 0; i = nodes[i].parent {
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
			if l.m.Kind == KindBookmark {
				cost.Bookmarks++
			}
			buf = l.m.AppendTo(buf[:0])
			cost.Bytes += len(buf)
			load[l.from]++
			load[l.to]++
			if err := nodes[l.to].Receive(l.from, l.m); err != nil {
				panic(err) // a mistake in this package
			}
			touched[l.to] = true
		}
		for i, n := range nodes {
			if touched[i] && n.phase == phaseTargeted && n.at == 0 {
				ranks[i].point = n.target
				n.AtPoint(n.target)
			}
			if touched[i] {
				carry(i)
			}
		}
	}
	for _, l := range load {
		cost.MaxPerRank = max(cost.MaxPerRank, l)
	}
	return cost
}

// simulated is the Counts of a rank that has exchanged one message with each
// of its peers.
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
