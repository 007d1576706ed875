package coord

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The model that search and random walks explore: ranks that run small
// scripts, channels of data and control messages, asks, slow copies, failing
// disks and deaths. One event changes one rank; the other ranks of a world
// are shared with the world that it came from.

// A script is a rank's program: "p s1 r0 a p" is a point, a send to 1, a
// receive from 0, a receive from anybody, a point.
type op struct {
	kind byte // p, s, r, a
	peer int
}

func parseScript(text string) []op {
	var ops []op
	for _, w := range strings.Fields(text) {
		times := 1
		if i := strings.IndexByte(w, '*'); i >= 0 {
			fmt.Sscan(w[i+1:], &times)
			w = w[:i]
		}
		o := op{kind: w[0]}
		if len(w) > 1 {
			fmt.Sscan(w[1:], &o.peer)
		}
		for range times {
			ops = append(ops, o)
		}
	}
	return ops
}

type scenario struct {
	name    string
	scripts []string
	cfg     Config   // Arity, Every, Spatial, MaxReleases
	asks    []string // "1" or "1!" (stop): rank 1 asks at any moment
	fail    string   // "set:rank" cannot be written
	deaths  int      // how many ranks may die, at any moment
	stuck   bool     // the program has a deadlock of its own
	sets    int      // the most sets that any end has
	errs    string   // why something was called off in some end: C no cut, F finished, L lost

	ops [][]op
}

const (
	running  = iota
	inPoint  // waits for Pass or Stop
	blocked  // in a receive
	finished // the script is over
	stopped  // Stop came
	dead
)

// rank is one rank of a world. It is the Node's Counts.
type rank struct {
	node     *Node
	status   int
	pc       int
	points   uint64
	sent     []uint64
	arrived  []uint64
	consumed []uint64
	copying  []Save // at most one
	saving   []uint64
	open     bool // asked and not served
	ended    bool // AllFinished came
	told     []string

	code []byte // encode of all above
}

func (r *rank) Point() uint64 { return r.points }
func (r *rank) Peers() []int {
	var list []int
	for p := range r.sent {
		if r.sent[p]+r.arrived[p] > 0 {
			list = append(list, p)
		}
	}
	return list
}
func (r *rank) Sent(p int) uint64     { return r.sent[p] }
func (r *rank) Received(p int) uint64 { return r.arrived[p] }
func (r *rank) Totals() (s, a uint64) {
	for p := range r.sent {
		if p != r.node.cfg.Rank {
			s += r.sent[p]
			a += r.arrived[p]
		}
	}
	return s, a
}

type part struct {
	rank                  int
	sent, consumed, taken []uint64
	cut                   []uint64
	alone                 bool
	point                 uint64
	stop                  bool
}

type world struct {
	sc    *scenario
	ranks []*rank
	ctl   [][]string // [from*n+to], encoded
	asks  uint64     // bits of asks that are still to come
	death int
	parts map[uint64][]part // sets that not all ranks have saved
	sets  int               // sets that all have saved
	alone int               // … of them spatial ones
	off   string            // why something was called off
	moved bool              // held ranks were let on
}

func newWorld(sc *scenario) *world {
	n := len(sc.scripts)
	w := &world{sc: sc, ctl: make([][]string, n*n), asks: 1<<len(sc.asks) - 1, death: sc.deaths, parts: map[uint64][]part{}}
	sc.ops = nil
	for i, text := range sc.scripts {
		sc.ops = append(sc.ops, parseScript(text))
		r := &rank{sent: make([]uint64, n), arrived: make([]uint64, n), consumed: make([]uint64, n)}
		cfg := sc.cfg
		cfg.Rank, cfg.Size, cfg.Counts = i, n, zeroCounts{}
		r.node = New(cfg)
		r.node.cfg.Counts = r
		r.code = r.encode(nil)
		w.ranks = append(w.ranks, r)
	}
	return w
}

type zeroCounts struct{}

func (zeroCounts) Point() uint64              { return 0 }
func (zeroCounts) Peers() []int               { return nil }
func (zeroCounts) Sent(int) uint64            { return 0 }
func (zeroCounts) Received(int) uint64        { return 0 }
func (zeroCounts) Totals() (uint64, uint64)   { return 0, 0 }
func (w *world) chan_(from, to int) *[]string { return &w.ctl[from*len(w.ranks)+to] }

// event is something that may happen next.
type event struct {
	kind byte // s step, d data, c control, o copied, w written, a ask, x die, l learn of a loss
	rank int
	arg  int
}

func (e event) String() string { return fmt.Sprintf("%c%d.%d", e.kind, e.rank, e.arg) }

// events lists what may happen, in a fixed order.
func (w *world) events(buf []event) []event {
	n := len(w.ranks)
	for i, r := range w.ranks {
		if r.status == dead {
			continue
		}
		if r.status == running {
			o := op{kind: 'f'}
			if r.pc < len(w.sc.ops[i]) {
				o = w.sc.ops[i][r.pc]
			}
			any := false
			if o.kind == 'a' {
				for p := range n {
					if r.arrived[p] > r.consumed[p] {
						any = true
						buf = append(buf, event{'s', i, p})
					}
				}
			}
			if !any {
				buf = append(buf, event{'s', i, 0})
			}
		}
		for p := range n {
			if w.ranks[p].sent[i] > r.arrived[p] {
				buf = append(buf, event{'d', i, p})
			}
			if len(*w.chan_(p, i)) > 0 {
				buf = append(buf, event{'c', i, p})
			}
			// One rank sees a death, the others hear of it.
			if w.ranks[p].status == dead && i == w.lowest() && !slices.Contains(r.node.lost, p) {
				buf = append(buf, event{'l', i, p})
			}
		}
		if len(r.copying) > 0 {
			buf = append(buf, event{'o', i, 0})
		}
		for k := range r.saving {
			buf = append(buf, event{'w', i, k})
		}
		if w.death > 0 {
			buf = append(buf, event{'x', i, 0})
		}
	}
	for a, text := range w.sc.asks {
		if w.asks>>a&1 != 0 {
			if i := int(text[0] - '0'); w.ranks[i].status < finished {
				buf = append(buf, event{'a', i, a})
			}
		}
	}
	return buf
}

// lowest returns the first rank that lives.
func (w *world) lowest() int {
	return slices.IndexFunc(w.ranks, func(r *rank) bool { return r.status != dead })
}

// apply returns the world after an event.
func (w *world) apply(e event) (*world, error) {
	c := *w
	c.ranks = slices.Clone(w.ranks)
	c.ctl = slices.Clone(w.ctl)
	r := w.ranks[e.rank].clone()
	c.ranks[e.rank] = r
	err := c.happen(r, e)
	r.code = r.encode(nil)
	return &c, err
}

func (w *world) happen(r *rank, e event) error {
	n := r.node
	switch e.kind {
	case 's':
		w.step(r, e)
	case 'd':
		r.arrived[e.arg]++
		if r.status == blocked {
			if o := w.sc.ops[e.rank][r.pc]; o.kind == 'a' || o.peer == e.arg {
				r.status = running
				n.Unblocked()
			}
		}
	case 'c':
		ch := w.chan_(e.arg, e.rank)
		m, err := Parse([]byte((*ch)[0]))
		if err != nil {
			return err
		}
		*ch = (*ch)[1:]
		if len(*ch) == 0 {
			*ch = nil
		}
		if err := n.Receive(e.arg, m); err != nil {
			return err
		}
	case 'o':
		s := r.copying[0]
		r.copying = nil
		r.saving = append(slices.Clone(r.saving), s.Set)
		n.Copied(s.Set)
	case 'w':
		set := r.saving[e.arg]
		r.saving = slices.Delete(slices.Clone(r.saving), e.arg, e.arg+1)
		var err error
		if w.sc.fail == fmt.Sprintf("%d:%d", set, e.rank) {
			err = errors.New("disk full")
		}
		n.Saved(set, err)
	case 'a':
		w.asks &^= 1 << e.arg
		r.open = true
		n.Ask("", strings.HasSuffix(w.sc.asks[e.arg], "!"))
	case 'x':
		w.death--
		r.status = dead
		for p := range w.ranks {
			*w.chan_(p, e.rank) = nil
		}
		return nil
	case 'l':
		n.Lost(e.arg, "killed")
	}
	return w.act(r, e.rank)
}

func (w *world) step(r *rank, e event) {
	if r.pc == len(w.sc.ops[e.rank]) {
		r.status = finished
		r.node.Finished()
		return
	}
	switch o := w.sc.ops[e.rank][r.pc]; o.kind {
	case 'p':
		r.pc++
		r.points++
		if !r.node.AtPoint(r.points) {
			r.status = inPoint
		}
	case 's':
		r.pc++
		r.sent[o.peer]++
	default:
		from := o.peer
		if o.kind == 'a' {
			from = e.arg
		}
		if r.arrived[from] > r.consumed[from] {
			r.consumed[from]++
			r.pc++
			return
		}
		r.status = blocked
		if o.kind == 'a' {
			r.node.Blocked(nil)
		} else {
			r.node.Blocked([]int{o.peer})
		}
	}
}

// act carries out what the Node of rank i wants.
func (w *world) act(r *rank, i int) error {
	for _, a := range r.node.Take() {
		switch a := a.(type) {
		case Send:
			if a.To == i || a.To < 0 || a.To >= len(w.ranks) {
				return fmt.Errorf("rank %d sends %v to %d", i, a.Msg.Kind, a.To)
			}
			if w.ranks[a.To].status == dead {
				continue
			}
			if a.Msg.Kind == KindRelease {
				w.moved = true
				if who := w.moving(); i == 0 && !w.sc.cfg.hasty && w.death == w.sc.deaths && who >= 0 {
					return fmt.Errorf("false alarm: rank %d is not stuck", who)
				}
			}
			ch := w.chan_(i, a.To)
			*ch = append(slices.Clip(*ch), string(a.Msg.AppendTo(nil)))
		case Hold:
			if r.status != inPoint {
				return fmt.Errorf("rank %d: Hold outside a point", i)
			}
		case Pass:
			if r.status != inPoint || len(r.copying) > 0 {
				return fmt.Errorf("rank %d: Pass in status %d", i, r.status)
			}
			r.status = running
		case Save:
			if r.status != inPoint {
				return fmt.Errorf("rank %d: Save outside a point", i)
			}
			if i == 0 && !w.sc.cfg.Spatial && a.Set != uint64(len(r.told)) {
				return fmt.Errorf("set %d begins before the outcome of the last one", a.Set)
			}
			r.copying = []Save{a}
			r.open = r.open && a.Alone
			if err := w.saved(r, i, a); err != nil {
				return err
			}
		case Committed:
			r.told = append(slices.Clip(r.told), fmt.Sprint("C", a.Set))
		case Failed:
			r.told = append(slices.Clip(r.told), fmt.Sprint("F", a.Set))
		case CalledOff:
			r.open = false
			why := "?"
			for letter, is := range map[string]error{"C": ErrNoCut, "F": ErrFinished, "L": ErrLost} {
				if errors.Is(a.Err, is) {
					why = letter
				}
			}
			if !strings.Contains(w.sc.errs, why) {
				return fmt.Errorf("rank %d: %w", i, a.Err)
			}
			if !strings.Contains(w.off, why) {
				w.off += why
			}
		case Stop:
			if r.status != inPoint {
				return fmt.Errorf("rank %d: Stop outside a point", i)
			}
			r.status, r.open = stopped, false
			r.node.Finished()
			return w.act(r, i)
		case AllFinished:
			r.ended = true
		}
	}
	return nil
}

// moving returns a rank that is not stuck, -1 if there is none. (What rank 0
// itself does comes after its Release.)
func (w *world) moving() int {
	for i, r := range w.ranks {
		for p := range w.ranks {
			if w.ranks[p].sent[i] != r.arrived[p] {
				return i
			}
		}
		if r.status != inPoint && r.status != blocked {
			return i
		}
	}
	return -1
}

// saved notes a rank's part of a set, and checks the set when all have it.
func (w *world) saved(r *rank, i int, s Save) error {
	p := part{rank: i, sent: slices.Clone(r.sent), consumed: slices.Clone(r.consumed), taken: slices.Clone(r.arrived),
		cut: s.Cut, alone: s.Alone, point: s.Point, stop: s.Stop}
	w.parts = maps.Clone(w.parts)
	list := append(slices.Clip(w.parts[s.Set]), p)
	slices.SortFunc(list, func(a, b part) int { return a.rank - b.rank })
	w.parts[s.Set] = list
	for k := 1; k < len(list); k++ {
		if list[k].rank == list[k-1].rank {
			return fmt.Errorf("rank %d saved set %d twice", list[k].rank, s.Set)
		}
		if list[k].alone != list[0].alone {
			return fmt.Errorf("set %d is two sets: ranks %d and %d", s.Set, list[0].rank, list[k].rank)
		}
	}
	if len(list) < len(w.ranks) {
		return nil
	}
	delete(w.parts, s.Set)
	w.sets++
	if s.Alone {
		w.alone++
	}
	return w.checkSet(s.Set, list)
}

// checkSet checks that a set is a consistent cut with exactly the messages
// that are in flight.
func (w *world) checkSet(set uint64, parts []part) error {
	for i, a := range parts {
		if (a.alone || !w.moved) && a.point != parts[0].point {
			return fmt.Errorf("set %d: ranks 0 and %d are at points %d and %d", set, i, parts[0].point, a.point)
		}
		if a.alone != parts[0].alone || a.stop != parts[0].stop {
			return fmt.Errorf("set %d: ranks 0 and %d differ in kind", set, i)
		}
		for j, b := range parts {
			if a.alone {
				continue
			}
			switch {
			case b.cut[i] != a.sent[j]:
				return fmt.Errorf("set %d: rank %d had sent %d messages to %d, whose cut is at %d", set, i, a.sent[j], j, b.cut[i])
			case b.consumed[i] > b.cut[i]:
				return fmt.Errorf("set %d: rank %d received message %d of %d, which is not sent in the set", set, j, b.consumed[i], i)
			case b.taken[i] < b.cut[i]:
				return fmt.Errorf("set %d: message %d from %d to %d is lost", set, b.cut[i], i, j)
			}
		}
	}
	return nil
}

// end checks a world in which nothing more can happen.
func (w *world) end() error {
	died := w.death < w.sc.deaths
	for i, r := range w.ranks {
		switch {
		case r.status == inPoint:
			return fmt.Errorf("rank %d hangs in point %d", i, r.points)
		case r.status == blocked && !died && !w.sc.stuck:
			return fmt.Errorf("rank %d hangs in a receive", i)
		case r.open && r.status != dead:
			return fmt.Errorf("rank %d asked in vain", i)
		case r.status != dead && !died && !w.sc.stuck && !r.ended:
			return fmt.Errorf("rank %d does not know that all have finished", i)
		}
		if died {
			continue
		}
		if (r.status == stopped) != (w.ranks[0].status == stopped) {
			return fmt.Errorf("some ranks have stopped, rank %d is in status %d", i, r.status)
		}
		if !slices.Equal(r.told, w.ranks[0].told) {
			return fmt.Errorf("ranks 0 and %d were told different outcomes: %v, %v", i, w.ranks[0].told, r.told)
		}
		if r.node.next != w.ranks[0].node.next {
			return fmt.Errorf("ranks 0 and %d count sets differently", i)
		}
	}
	if !died {
		for set, list := range w.parts {
			if !list[0].alone || !w.moved && w.off == "" {
				return fmt.Errorf("set %d: only %d ranks have it", set, len(list))
			}
		}
		if got := len(w.ranks[0].told); (got > w.sets || got < w.sets && !w.sc.cfg.Spatial) && !w.sc.stuck {
			return fmt.Errorf("%d sets, %d outcomes", w.sets, got)
		}
		for a, text := range w.sc.asks {
			if strings.HasSuffix(text, "!") && w.asks>>a&1 == 0 && w.off == "" && w.ranks[0].status != stopped {
				return fmt.Errorf("ask %d to stop was made in vain", a)
			}
		}
	}
	return nil
}

func (r *rank) clone() *rank {
	c := *r
	c.sent, c.arrived, c.consumed = slices.Clone(r.sent), slices.Clone(r.arrived), slices.Clone(r.consumed)
	n := *r.node
	n.cfg.Counts = &c
	n.base, n.early = maps.Clone(n.base), maps.Clone(n.early)
	n.told, n.marks, n.snapshot = maps.Clone(n.told), maps.Clone(n.marks), maps.Clone(n.snapshot)
	n.undrained, n.results, n.lost = slices.Clone(n.undrained), slices.Clone(n.results), slices.Clone(n.lost)
	n.sum.Waits = slices.Clone(n.sum.Waits)
	if n.root != nil {
		root := *n.root
		n.root = &root
	}
	c.node = &n
	return &c
}

// encode appends everything that the future depends on.
func (w *world) encode(b []byte) []byte {
	for _, r := range w.ranks {
		b = append(b, r.code...)
	}
	for _, ch := range w.ctl {
		b = append(b, byte(len(ch)))
		for _, m := range ch {
			b = append(b, byte(len(m)))
			b = append(b, m...)
		}
	}
	b = append(b, byte(w.asks), byte(w.death), byte(w.sets), byte(w.alone), bit(w.moved))
	b = append(b, w.off...)
	for _, set := range slices.Sorted(maps.Keys(w.parts)) {
		b = append(b, byte(set), byte(len(w.parts[set])))
		for _, p := range w.parts[set] {
			b = append(b, byte(p.rank), bit(p.alone), bit(p.stop), byte(p.point))
			for _, list := range [][]uint64{p.sent, p.consumed, p.taken, p.cut} {
				b = appendList(b, list)
			}
		}
	}
	return b
}

func bit(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendList(b []byte, list []uint64) []byte {
	b = append(b, byte(len(list)))
	for _, v := range list {
		b = append(b, byte(v))
	}
	return b
}

func appendMap(b []byte, m map[int]uint64, size int) []byte {
	for p := range size {
		v, ok := m[p]
		b = append(b, bit(ok), byte(v))
	}
	return b
}

// encode: every field of Node that changes is here; TestEncodeKnowsAllFields
// fails when one is added.
func (r *rank) encode(b []byte) []byte {
	b = append(b, byte(r.status), byte(r.pc), byte(r.points), bit(r.open), bit(r.ended), byte(len(r.copying)))
	b = appendList(b, r.sent)
	b = appendList(b, r.arrived)
	b = appendList(b, r.consumed)
	b = appendList(b, r.saving)
	b = append(b, strings.Join(r.told, "")...)
	n := r.node
	for _, f := range []bool{n.held, n.blocked, n.copying, n.stopping, n.stopped, n.finished, n.asked, n.askedStop, n.over,
		n.toldFinished, n.dueSent, n.complete, n.reported, n.faulty, n.detail, n.quietSent, n.noticed, n.hasLine} {
		b = append(b, bit(f))
	}
	for _, v := range []uint64{n.epoch, n.due, n.next, n.at, n.set, n.answered, n.target, n.pollMax, n.step, n.maxPoint, n.maxNext,
		n.wave, n.line, n.mine[0], n.mine[1], n.mine[2], uint64(n.phase), uint64(n.ended), uint64(n.pollLeft + 1), uint64(n.owed),
		uint64(n.childDone), uint64(n.childQuiet), n.sent0, n.received0} {
		b = binary.AppendUvarint(b, v)
	}
	size := n.cfg.Size
	b = appendMap(b, n.base, size)
	b = appendMap(b, n.told, size)
	b = appendMap(b, n.marks, size)
	b = appendMap(b, n.snapshot, size)
	for p := range size {
		e := n.early[p]
		b = append(b, byte(e.epoch), byte(e.step), byte(e.total))
	}
	for _, list := range [][]int{n.on, n.undrained, n.lost} {
		b = append(b, byte(len(list)))
		for _, p := range list {
			b = append(b, byte(p))
		}
	}
	sum := n.sum
	sum.Kind = KindQuiet
	b = sum.AppendTo(b)
	b = append(b, byte(len(n.results)))
	for _, x := range n.results {
		b = append(b, byte(x.set), byte(x.left), bit(x.failed), byte(x.rank))
	}
	if t := n.root; t != nil {
		b = append(b, bit(t.wanted), bit(t.stop), bit(t.waveIdle), byte(t.last[0]), byte(t.last[1]),
			byte(t.releases), bit(t.undecided), byte(t.set))
	}
	return b
}
