package coord

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// This is the model that search and random walks explore: ranks that run small
// scripts, channels of data and control messages, asks, slow copies, failing
// disks and deaths. One event changes one rank; a world shares the other ranks
// with the world that it came from.

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
	asks    []string // "1", "1!" (stop) or "1m" (move): rank 1 asks at any moment
	swap    string   // ranks that may be replaced in a move
	fail    string   // "index:rank" cannot be written
	deaths  int      // how many ranks may die, at any moment
	stuck   bool     // the program has a deadlock of its own
	saves   int      // the most checkpoints that any end has
	errs    string   // why something was called off in some end: C no cut, F finished, L lost
	moves   int      // the most moves that any end has
	offs    string   // why there was no move in some end: as errs, and S stopped

	ops [][]op
}

const (
	running  = iota
	inPoint  // waits for Continue or Stop
	blocked  // in a receive
	arriving // a destination that waits for Moved
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
	open     bool   // asked and not served
	ended    bool   // AllFinished came
	move     uint64 // Move came, Moved was not called
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
	sc       *scenario
	ranks    []*rank
	ctl      [][]string // [from*n+to], encoded
	asks     uint64     // bits of asks that are still to come
	death    int
	parts    map[uint64][]part // checkpoints that not all ranks have saved
	saves    int               // checkpoints that all have saved
	alone    int               // … of them spatial ones
	off      string            // why something was called off
	released bool              // paused ranks were released
	moveWorld
}

func newWorld(sc *scenario) *world {
	n := len(sc.scripts)
	w := &world{sc: sc, ctl: make([][]string, n*n), asks: 1<<len(sc.asks) - 1, death: sc.deaths, parts: map[uint64][]part{},
		moveWorld: moveWorld{got: make([]uint64, len(sc.asks))}}
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
	kind byte // s step, d data, c control, o copied, w written, a ask, x die, l learn of a loss, m moved, n destination
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
			// One rank notices a death; the others are told.
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
		if r.move != 0 {
			buf = append(buf, event{'m', i, 0})
			if r.status != arriving && strings.ContainsRune(w.sc.swap, rune('0'+i)) && len(r.node.lost) == 0 {
				buf = append(buf, event{'n', i, 0})
			}
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
		r.saving = append(slices.Clone(r.saving), s.Index)
		n.Copied(s.Index)
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
		if strings.HasSuffix(w.sc.asks[e.arg], "m") {
			n.AskMove(uint64(e.arg) + 1)
			break
		}
		r.open = true
		n.Ask("", strings.HasSuffix(w.sc.asks[e.arg], "!"))
	case 'm':
		id := r.move
		r.move = 0
		if r.status == arriving {
			r.status = running
		}
		if err := n.Moved(id); err != nil {
			return err
		}
	case 'n':
		return w.replace(r, e.rank)
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

// act executes the actions of the Node of rank i.
func (w *world) act(r *rank, i int) error {
	for _, a := range r.node.Take() {
		switch a := a.(type) {
		case Send:
			if a.To == i || a.To < 0 || a.To >= len(w.ranks) {
				return fmt.Errorf("rank %d sends %v to %d", i, a.Msg.Kind, a.To)
			}
			if r.move != 0 && a.Msg.Kind != KindLost {
				return fmt.Errorf("rank %d sends %v between Move and Moved", i, a.Msg.Kind)
			}
			if w.ranks[a.To].status == dead {
				continue
			}
			if a.Msg.Kind == KindRelease {
				w.released = true
				if who := w.moving(); i == 0 && !w.sc.cfg.trustWaves && w.death == w.sc.deaths && who >= 0 {
					return fmt.Errorf("false alarm: rank %d is not stuck", who)
				}
			}
			ch := w.chan_(i, a.To)
			*ch = append(slices.Clip(*ch), string(a.Msg.AppendTo(nil)))
		case Pause:
			if r.status != inPoint || r.move != 0 {
				return fmt.Errorf("rank %d: Hold outside a point", i)
			}
		case Continue:
			if r.status != inPoint || len(r.copying) > 0 || r.move != 0 {
				return fmt.Errorf("rank %d: Pass in status %d", i, r.status)
			}
			r.status = running
		case Save:
			if r.status != inPoint || r.move != 0 {
				return fmt.Errorf("rank %d: Save outside a point", i)
			}
			if i == 0 && !w.sc.cfg.Spatial && a.Index != uint64(len(r.told)) {
				return fmt.Errorf("checkpoint %d begins before the outcome of the last one", a.Index)
			}
			r.copying = []Save{a}
			r.open = r.open && a.Alone
			if err := w.saved(r, i, a); err != nil {
				return err
			}
		case Committed:
			r.told = append(slices.Clip(r.told), fmt.Sprint("C", a.Index))
		case Failed:
			r.told = append(slices.Clip(r.told), fmt.Sprint("F", a.Index))
		case CalledOff:
			r.open = false
			why := letterOf(a.Err)
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
		case Move:
			if err := w.move(r, i, a); err != nil {
				return err
			}
		case MoveOff:
			if err := w.moveOff(r, i, a); err != nil {
				return err
			}
		case AllFinished:
			r.ended = true
		}
	}
	if r.move != 0 && (r.node.Idle() || r.node.Limit() != 0) {
		return fmt.Errorf("rank %d: idle between Move and Moved", i)
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

// saved records a rank's part of a checkpoint, and checks the checkpoint when
// all have it.
func (w *world) saved(r *rank, i int, s Save) error {
	p := part{rank: i, sent: slices.Clone(r.sent), consumed: slices.Clone(r.consumed), taken: slices.Clone(r.arrived),
		cut: s.Cut, alone: s.Alone, point: s.Point, stop: s.Stop}
	w.parts = maps.Clone(w.parts)
	list := append(slices.Clip(w.parts[s.Index]), p)
	slices.SortFunc(list, func(a, b part) int { return a.rank - b.rank })
	w.parts[s.Index] = list
	for k := 1; k < len(list); k++ {
		if list[k].rank == list[k-1].rank {
			return fmt.Errorf("rank %d saved checkpoint %d twice", list[k].rank, s.Index)
		}
		if list[k].alone != list[0].alone {
			return fmt.Errorf("checkpoint %d is two saves: ranks %d and %d", s.Index, list[0].rank, list[k].rank)
		}
	}
	if len(list) < len(w.ranks) {
		return nil
	}
	delete(w.parts, s.Index)
	w.saves++
	if s.Alone {
		w.alone++
	}
	return w.checkCheckpoint(s.Index, list)
}

// checkCheckpoint checks that a checkpoint is a consistent cut with exactly the
// messages that are in flight.
func (w *world) checkCheckpoint(set uint64, parts []part) error {
	for i, a := range parts {
		if (a.alone || !w.released) && a.point != parts[0].point {
			return fmt.Errorf("checkpoint %d: ranks 0 and %d are at points %d and %d", set, i, parts[0].point, a.point)
		}
		if a.alone != parts[0].alone || a.stop != parts[0].stop {
			return fmt.Errorf("checkpoint %d: ranks 0 and %d differ in kind", set, i)
		}
		for j, b := range parts {
			if a.alone {
				continue
			}
			switch {
			case b.cut[i] != a.sent[j]:
				return fmt.Errorf("checkpoint %d: rank %d had sent %d messages to %d, whose cut is at %d", set, i, a.sent[j], j, b.cut[i])
			case b.consumed[i] > b.cut[i]:
				return fmt.Errorf("checkpoint %d: rank %d received message %d of %d, which is not sent in the checkpoint", set, j, b.consumed[i], i)
			case b.taken[i] < b.cut[i]:
				return fmt.Errorf("checkpoint %d: message %d from %d to %d is lost", set, b.cut[i], i, j)
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
		case r.status == arriving:
			return fmt.Errorf("rank %d has not arrived", i)
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
			return fmt.Errorf("ranks 0 and %d count checkpoints differently", i)
		}
	}
	if !died {
		if err := w.movesEnded(); err != nil {
			return err
		}
		if every := w.sc.cfg.Every; every > 0 && w.off == "" && !w.released && w.ranks[0].status != stopped && !w.sc.stuck {
			least := slices.MinFunc(w.ranks, func(a, b *rank) int { return int(a.points) - int(b.points) })
			if due := int(least.points / every); w.saves < due {
				return fmt.Errorf("%d checkpoints, and %d due points", w.saves, due)
			}
		}
		for set, list := range w.parts {
			if !list[0].alone || !w.released && w.off == "" {
				return fmt.Errorf("checkpoint %d: only %d ranks have it", set, len(list))
			}
		}
		if got := len(w.ranks[0].told); (got > w.saves || got < w.saves && !w.sc.cfg.Spatial) && !w.sc.stuck {
			return fmt.Errorf("%d checkpoints, %d outcomes", w.saves, got)
		}
		for a, text := range w.sc.asks {
			if strings.HasSuffix(text, "!") && w.asks>>a&1 == 0 && w.off == "" && w.ranks[0].status != stopped {
				return fmt.Errorf("ask %d to stop was made in vain", a)
			}
		}
	}
	return nil
}
