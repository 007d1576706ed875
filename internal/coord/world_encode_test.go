package coord

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

func (r *rank) clone() *rank {
	c := *r
	c.sent, c.arrived, c.consumed = slices.Clone(r.sent), slices.Clone(r.arrived), slices.Clone(r.consumed)
	n := *r.node
	n.cfg.Counts = &c
	n.base, n.early = maps.Clone(n.base), maps.Clone(n.early)
	n.told, n.marks, n.snapshot = maps.Clone(n.told), maps.Clone(n.marks), maps.Clone(n.snapshot)
	n.undrained, n.results, n.lost = slices.Clone(n.undrained), slices.Clone(n.results), slices.Clone(n.lost)
	n.sum.Waits, n.queue = slices.Clone(n.sum.Waits), slices.Clone(n.queue)
	if n.root != nil {
		root := *n.root
		root.moves = slices.Clone(root.moves)
		n.root = &root
	}
	c.node = &n
	return &c
}

// encode appends everything that later events depend on.
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
	b = append(b, byte(w.asks), byte(w.death), byte(w.saves), byte(w.alone), bit(w.released))
	b = append(b, w.off...)
	b = w.moveWorld.encode(b)
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

// encode: every field of Node that changes is here; TestEncode_AllFields
// fails when one is added.
func (r *rank) encode(b []byte) []byte {
	b = append(b, byte(r.status), byte(r.pc), byte(r.points), bit(r.open), bit(r.ended), byte(len(r.copying)), byte(r.move))
	b = appendList(b, r.sent)
	b = appendList(b, r.arrived)
	b = appendList(b, r.consumed)
	b = appendList(b, r.saving)
	b = append(b, strings.Join(r.told, "")...)
	n := r.node
	for _, f := range []bool{n.paused, n.blocked, n.copying, n.stopping, n.stopped, n.finished, n.asked, n.askedStop, n.over,
		n.toldFinished, n.dueSent, n.complete, n.reported, n.faulty, n.detail, n.quietSent, n.noticed, n.hasLine, n.awaitWrites} {
		b = append(b, bit(f))
	}
	for _, v := range []uint64{n.epoch, n.due, n.next, n.at, n.index, n.answered, n.target, n.pollMax, n.step, n.maxPoint, n.maxNext,
		n.wave, n.line, n.mine[0], n.mine[1], n.mine[2], uint64(n.phase), uint64(n.ended), uint64(n.pollLeft + 1), uint64(n.owed),
		uint64(n.childDone), uint64(n.childQuiet), n.sent0, n.received0, uint64(n.writing), n.moving} {
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
		b = append(b, byte(x.index), byte(x.left), bit(x.failed), byte(x.rank))
	}
	b = append(b, byte(len(n.queue)))
	for _, l := range n.queue {
		b = l.m.AppendTo(append(b, byte(l.from)))
	}
	if t := n.root; t != nil {
		b = appendList(append(b, bit(t.move), bit(t.passed)), t.moves)
		b = append(b, bit(t.wanted), bit(t.stop), bit(t.waveIdle), byte(t.last[0]), byte(t.last[1]),
			byte(t.releases), bit(t.undecided), byte(t.index))
	}
	return b
}
