package coord

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// moveWorld is what a world knows about its moves.
type moveWorld struct {
	got  []uint64     // per ask: bits of the ranks that got its Move
	gone uint64       // bits of the asks that got MoveOff
	offs string       // why
	cut  []movePaused // of the Move that not all ranks have got yet
}

// movePaused is a rank when the root says Move.
type movePaused struct {
	points        uint64
	sent, arrived []uint64
	told          []string // to the root
}

func letterOf(err error) string {
	for letter, is := range map[string]error{"C": ErrNoCut, "F": ErrFinished, "L": ErrLost, "S": ErrStops} {
		if errors.Is(err, is) {
			return letter
		}
	}
	return "?"
}

// move checks, when a rank gets Move, that all ranks are paused in a consistent
// cut and that no message is in flight. It also checks that all ranks get the
// same Move.
func (w *world) move(r *rank, i int, a Move) error {
	if r.status != inPoint || r.move != 0 || len(r.copying)+len(r.saving) > 0 {
		return fmt.Errorf("rank %d: Move %d in status %d, writing %v", i, a.ID, r.status, r.saving)
	}
	if a.Point != r.points {
		return fmt.Errorf("rank %d: Move at point %d, it is in %d", i, a.Point, r.points)
	}
	k := int(a.ID) - 1
	if i == 0 {
		if w.cut != nil {
			return fmt.Errorf("Move %d before all had the one before", a.ID)
		}
		for j, s := range w.ranks {
			if s.status != inPoint && s.status != dead || j > 0 && !s.node.paused || len(s.copying)+len(s.saving) > 0 {
				return fmt.Errorf("Move %d: rank %d is in status %d, held %v, writing %v", a.ID, j, s.status, s.node.paused, s.saving)
			}
			if s.points != r.points && !w.released {
				return fmt.Errorf("Move %d: ranks 0 and %d are at points %d and %d", a.ID, j, r.points, s.points)
			}
			for p, t := range w.ranks {
				if t.sent[j] != s.arrived[p] {
					return fmt.Errorf("Move %d: %d messages from %d to %d are on their way", a.ID, t.sent[j]-s.arrived[p], p, j)
				}
			}
			w.cut = append(slices.Clip(w.cut), movePaused{s.points, slices.Clone(s.sent), slices.Clone(s.arrived), r.told})
		}
	}
	if w.cut == nil || w.got[k]>>i&1 != 0 || w.gone>>k&1 != 0 && w.death == w.sc.deaths {
		return fmt.Errorf("rank %d: Move %d comes from nowhere", i, a.ID)
	}
	c := w.cut[i]
	if r.points != c.points || !slices.Equal(r.sent, c.sent) || !slices.Equal(r.told, c.told) {
		return fmt.Errorf("rank %d: Move %d: at point %d, sent %v, told %v; when it began %+v", i, a.ID, r.points, r.sent, r.told, c)
	}
	for p, v := range r.arrived {
		if v < c.arrived[p] || r.consumed[p] > c.arrived[p] {
			return fmt.Errorf("rank %d: Move %d: %d messages arrived and %d were received from %d; when it began %+v",
				i, a.ID, v, r.consumed[p], p, c)
		}
	}
	r.move = a.ID
	w.got = slices.Clone(w.got)
	w.got[k] |= 1 << i
	if w.got[k] == 1<<len(w.ranks)-1 {
		w.cut = nil
	}
	return nil
}

func (w *world) moveOff(r *rank, i int, a MoveOff) error {
	k, why := int(a.ID)-1, letterOf(a.Err)
	if w.asks>>k&1 != 0 {
		return fmt.Errorf("rank %d: MoveOff %d was not asked for", i, a.ID)
	}
	if !strings.Contains(w.sc.offs, why) {
		return fmt.Errorf("rank %d: no move: %w", i, a.Err)
	}
	w.offs = addLetters(w.offs, why)
	if why == "L" { // also between Move and Moved
		w.gone |= 1 << k
		return nil
	}
	if w.gone>>k&1 != 0 || w.got[k] != 0 || i != 0 && i != int(w.sc.asks[k][0]-'0') {
		return fmt.Errorf("rank %d: MoveOff %d, which ranks %b have got", i, a.ID, w.got[k])
	}
	w.gone |= 1 << k
	return nil
}

// replace puts a destination in a rank's place, which will enter the same point
// again.
func (w *world) replace(r *rank, i int) error {
	state := r.node.Export()
	cfg := Config{Rank: i, Size: len(w.ranks), Counts: zeroCounts{}, MaxReleases: w.sc.cfg.MaxReleases, trustWaves: w.sc.cfg.trustWaves}
	n, err := Import(cfg, state)
	if err != nil {
		return fmt.Errorf("rank %d: %w", i, err)
	}
	if again := n.Export(); !bytes.Equal(again, state) {
		return fmt.Errorf("rank %d: exported %x, imported %x", i, state, again)
	}
	n.cfg.Counts = r
	// The destination knows all that the source knew, except this.
	was := r.clone()
	was.node.at, was.node.index = 0, 0
	maps.DeleteFunc(was.node.base, func(_ int, total uint64) bool { return total == 0 })
	if was.node.root != nil {
		was.node.root.index = 0
	}
	r.node = n
	if !bytes.Equal(was.encode(nil), r.encode(nil)) {
		return fmt.Errorf("rank %d: exported %+v, imported %+v", i, *was.node, *n)
	}
	r.status = arriving
	r.pc--
	r.points--
	return nil
}

// moves returns how many moves reached all ranks.
func (w *world) moves() int {
	n := 0
	for _, bits := range w.got {
		if bits == 1<<len(w.ranks)-1 {
			n++
		}
	}
	return n
}

// movesEnded checks that every AskMove has led to Move on all ranks or to
// MoveOff.
func (w *world) movesEnded() error {
	for k, text := range w.sc.asks {
		if !strings.HasSuffix(text, "m") || w.asks>>k&1 != 0 {
			continue
		}
		if off := w.gone>>k&1 != 0; off != (w.got[k] == 0) || !off && w.got[k] != 1<<len(w.ranks)-1 {
			return fmt.Errorf("AskMove %d: off %v, Move on ranks %b", k+1, off, w.got[k])
		}
	}
	for i, r := range w.ranks {
		if len(r.node.queue) > 0 {
			return fmt.Errorf("rank %d has messages that nobody has looked at", i)
		}
	}
	return nil
}

func (w *moveWorld) encode(b []byte) []byte {
	b = appendList(b, w.got)
	b = append(b, byte(w.gone), byte(len(w.cut)))
	b = append(b, w.offs...)
	for _, c := range w.cut {
		b = append(appendList(appendList(b, c.sent), c.arrived), byte(c.points), byte(len(c.told)))
	}
	return b
}
