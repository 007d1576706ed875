package coord

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// ErrState is wrapped by the errors of Import: the bytes are not the result of
// Export by a Node of this version and rank.
var ErrState = errors.New("bad state of a coordination node")

// stateVersion is the first byte of a state.
const stateVersion = 2

// Flags of a state.
const (
	stateSpatial byte = 1 << iota
	stateAsked
	stateAskedStop
	stateLine
	stateWanted // of the root, as the next one
	stateStop
	stateFailed byte = 1 // of a result
)

// Export returns the state of this Node for Import in another process. It may
// be called between Move and Moved, after Take. Otherwise, or if a rank was
// lost, it returns nil. If the other Node is used, this one must not be used
// any more.
func (n *Node) Export() []byte {
	if n.moving == 0 || len(n.lost) > 0 || len(n.out) > 0 {
		return nil
	}
	// The round is over, and the program is at a point. So of the fields for
	// the round and the program, only the marks can be set, by bookmarks that
	// arrived early.
	var flags byte
	set := func(is bool, flag byte) {
		if is {
			flags |= flag
		}
	}
	set(n.cfg.Spatial, stateSpatial)
	set(n.asked, stateAsked)
	set(n.askedStop, stateAskedStop)
	set(n.hasLine, stateLine)
	if r := n.root; r != nil {
		set(r.wanted, stateWanted)
		set(r.stop, stateStop)
	}
	b := []byte{stateVersion, flags}
	for _, v := range []uint64{uint64(n.cfg.Rank), uint64(n.cfg.Size), uint64(n.cfg.Arity), n.cfg.Every,
		n.moving, n.epoch, n.due, n.next, n.line, n.sent0, n.received0} {
		b = binary.AppendUvarint(b, v)
	}
	base := maps.Clone(n.base)
	maps.DeleteFunc(base, func(p int, total uint64) bool { return p == n.cfg.Rank || total == 0 })
	b = appendTotals(b, base)
	b = appendTotals(b, n.marks)
	early := maps.Clone(n.early)
	maps.DeleteFunc(early, func(_ int, m bookmark) bool { return m.epoch < n.epoch })
	b = binary.AppendUvarint(b, uint64(len(early)))
	for _, p := range slices.Sorted(maps.Keys(early)) {
		m := early[p]
		for _, v := range []uint64{uint64(p), m.epoch, m.step, m.total} {
			b = binary.AppendUvarint(b, v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(n.results)))
	for _, x := range n.results {
		var failed byte
		if x.failed {
			failed = stateFailed
		}
		b = append(b, failed)
		for _, v := range []uint64{x.index, uint64(x.left), x.sums.Sent, x.sums.Received, uint64(x.rank)} {
			b = binary.AppendUvarint(b, v)
		}
		b = appendText(b, x.why)
	}
	if r := n.root; r != nil {
		b = appendText(b, r.reason)
		b = binary.AppendUvarint(b, uint64(len(r.moves)))
		for _, id := range r.moves {
			b = binary.AppendUvarint(b, id)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(n.queue)))
	for _, l := range n.queue {
		b = binary.AppendUvarint(b, uint64(l.from))
		m := l.m.AppendTo(nil)
		b = binary.AppendUvarint(b, uint64(len(m)))
		b = append(b, m...)
	}
	return b
}

func appendTotals(b []byte, totals map[int]uint64) []byte {
	b = binary.AppendUvarint(b, uint64(len(totals)))
	for _, p := range slices.Sorted(maps.Keys(totals)) {
		b = binary.AppendUvarint(b, uint64(p))
		b = binary.AppendUvarint(b, totals[p])
	}
	return b
}

func appendText(b []byte, text string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// Import returns a Node that continues from the state of another one. It is
// between Move and Moved. cfg.Counts must continue from the predecessor's
// counts. Import uses Rank, Size, Counts and MaxReleases of cfg; the rest comes
// from state. Counts.Point may be one too low until the program has entered the
// point of Move again. The error wraps ErrState. Like New, Import panics if cfg
// is invalid.
func Import(cfg Config, state []byte) (*Node, error) {
	p := &stateParser{parser: parser{b: state, is: ErrState}}
	if v := p.byte("version"); p.err == nil && v != stateVersion {
		p.fail("version %d, this program knows %d", v, stateVersion)
	}
	p.size = cfg.Size
	flags := p.byte("flags")
	p.require(flags <= stateStop|(stateStop-1), "unknown flags")
	p.require(flags&stateAskedStop == 0 || flags&stateAsked != 0, "a stop without a request")
	rank, size, arity := p.number("rank"), p.number("size"), p.number("arity")
	if rank != uint64(cfg.Rank) || size != uint64(cfg.Size) {
		p.fail("it is of rank %d of %d, and this is rank %d of %d", rank, size, cfg.Rank, cfg.Size)
	}
	p.require(arity >= 1 && arity <= maxRank, "the arity of the tree")
	cfg.Every, cfg.Spatial = p.number("points between checkpoints"), flags&stateSpatial != 0
	if p.err == nil {
		cfg.Arity = int(arity)
	}
	n := newNode(cfg)
	for _, v := range []*uint64{&n.moving, &n.epoch, &n.due, &n.next, &n.line, &n.sent0, &n.received0} {
		*v = p.number("number")
	}
	p.require(n.moving > 0 && n.epoch > 1, "no move is under way")
	n.setDue(n.due)
	n.asked, n.askedStop = flags&stateAsked != 0, flags&stateAskedStop != 0
	n.hasLine = flags&stateLine != 0
	p.require(n.hasLine || n.line == 0, "an index of a recovery line that does not exist")
	n.newStep(0)
	n.base = p.totals(cfg.Rank)
	for _, total := range n.base {
		p.require(total > 0, "a total of 0")
	}
	marks := p.totals(cfg.Rank)
	for _, q := range slices.Sorted(maps.Keys(marks)) {
		n.mark(q, marks[q])
	}
	last := -1
	for range p.length("early bookmarks", 4) {
		q := p.peer(cfg.Rank, &last)
		m := bookmark{p.number("epoch"), p.number("step"), p.number("total")}
		p.require(m.epoch > n.epoch || m.epoch == n.epoch && m.step > 0, "an early bookmark that is not early")
		n.early[q] = m
	}
	p.results(n)
	p.root(n, flags)
	p.queue(n)
	p.require(len(p.b) == 0, "bytes too many")
	if p.err != nil {
		return nil, p.err
	}
	return n, nil
}

// stateParser reads the parts of a state.
type stateParser struct {
	parser
	size int
}

func (p *stateParser) require(is bool, what string) {
	if !is {
		p.fail("%s", what)
	}
}

// peer reads a rank other than this one, larger than the last.
func (p *stateParser) peer(rank int, last *int) int {
	q := p.rank()
	p.require(q > *last && q < p.size && q != rank, "ranks out of order")
	*last = q
	return q
}

func (p *stateParser) totals(rank int) map[int]uint64 {
	totals := map[int]uint64{}
	last := -1
	for range p.length("totals", 2) {
		q := p.peer(rank, &last)
		totals[q] = p.number("total")
	}
	return totals
}

func (p *stateParser) results(n *Node) {
	for range p.length("results", 7) {
		failed := p.byte("flags")
		p.require(failed <= stateFailed, "unknown flags")
		x := result{index: p.number("index"), failed: failed != 0}
		left := p.number("ranks that have not reported")
		p.require(left >= 1 && left <= uint64(len(n.children)), "a result with a wrong number of missing reports")
		x.sums = Sums{p.number("sum of messages"), p.number("sum of messages")}
		x.left, x.rank, x.why = int(min(left, maxRank)), p.rank(), p.text()
		p.require(x.rank < p.size && (x.failed || x.rank == 0 && x.why == ""), "a failure of no rank, or a reason without a failure")
		p.require(!slices.ContainsFunc(n.results, func(y result) bool { return y.index == x.index }), "two results for one checkpoint")
		n.results = append(n.results, x)
		if p.err != nil {
			return
		}
	}
}

func (p *stateParser) root(n *Node, flags byte) {
	r := n.root
	if r == nil {
		p.require(flags&(stateWanted|stateStop) == 0, "requests at another rank than 0")
		return
	}
	r.wanted, r.stop = flags&stateWanted != 0, flags&stateStop != 0
	r.reason = p.text()
	p.require(r.wanted || !r.stop && r.reason == "", "a checkpoint that was not requested")
	for range p.length("moves", 1) {
		id := p.number("move")
		p.require(id > 0 && !slices.Contains(r.moves, id), "moves with no id or twice the same")
		r.moves = append(r.moves, id)
		if p.err != nil {
			return
		}
	}
}

func (p *stateParser) queue(n *Node) {
	for range p.length("messages", 3) {
		from, size := p.rank(), p.length("message", 1)
		if p.err != nil {
			return
		}
		m, err := Parse(p.b[:size])
		if err != nil {
			p.fail("%v", err)
			return
		}
		p.b = p.b[size:]
		own := from == n.cfg.Rank && (m.Kind == KindAsk || m.Kind == KindAskMove && m.Move > 0)
		why := n.wrongWay(from, m)
		switch {
		case own:
		case from >= p.size || m.Rank >= p.size || m.Kind == KindLost:
			p.fail("%v from rank %d cannot wait", m.Kind, from)
		case why != "":
			p.fail("%v from rank %d: %s", m.Kind, from, why)
		}
		n.queue = append(n.queue, queuedMessage{from, m})
	}
}
