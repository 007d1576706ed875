package ckpt

import (
	"slices"
	"unsafe"
)

// history is what a Saver remembers of a dataset between saves.
type history struct {
	spans   []span
	block   int64
	changed float64     // share of blocks that differed last time; -1: unknown
	watched bool        // the kernel tracks writes to it …
	armed   bool        // … and has been asked once
	dirty   []bool      // blocks written since the previous checkpoint, as far as scanned
	rest    int         // saves to let pass before watching it again
	runs    []Placement // what was on devices when the previous checkpoint was saved
}

type span struct{ addr, size uintptr }

const (
	// minWatch is the smallest piece of memory worth tracking.
	minWatch = 256 << 10
	// sparse is the share of changed blocks below which tracking pays, dense
	// the one above which it is given up, and copying at once beats digesting first.
	sparse, dense = 0.25, 0.5
)

// forget ends the tracking of datasets that are gone or lie elsewhere now,
// before any is begun: memory has one history, else what one scan takes
// another one would miss.
func (s *Saver) forget(l *Layout) {
	at := make(map[string]int, len(l.Datasets))
	for i := range l.Datasets {
		if l.Datasets[i].Chunk != nil {
			at[l.Datasets[i].Path] = i
		}
	}
	for path, h := range s.seen {
		i, ok := at[path]
		if ok && h.block == l.Datasets[i].Block && len(h.dirty) == l.Datasets[i].NumBlocks() && slices.Equal(h.spans, spansOf(l.Memory[i].Pieces)) {
			continue
		}
		s.unwatch(h)
		if h.dirty = nil; !ok {
			delete(s.seen, path)
		}
	}
}

func spansOf(pieces [][]byte) []span {
	out := make([]span, len(pieces))
	for i, p := range pieces {
		out[i] = span{addrOf(p), uintptr(len(p))}
	}
	return out
}

func addrOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// scan brings h.dirty up to date and returns how many blocks are set, or -1
// when the kernel does not know. It starts and ends tracking by what was seen.
func (s *Saver) scan(d *Dataset, h *history, b *Memory) int {
	if s.tracker == nil || len(b.Pieces) == 0 || d.Size/int64(len(b.Pieces)) < minWatch {
		return -1
	}
	if !h.watched {
		if h.rest > 0 {
			h.rest--
			return -1
		}
		if h.changed < 0 || h.changed > sparse {
			return -1
		}
		h.watched = true
		for _, p := range b.Pieces {
			if s.tracker.Watch(p) != nil {
				s.unwatch(h)
				h.rest = 1 << 20
				return -1
			}
		}
	}
	known := h.armed
	var base int64
	for _, p := range b.Pieces {
		err := s.tracker.Scan(p, func(lo, hi int) {
			for k := (base + int64(lo)) / d.Block; k*d.Block < base+int64(hi); k++ {
				h.dirty[k] = true
			}
		})
		if err != nil {
			s.unwatch(h)
			h.rest = 1 << 20
			return -1
		}
		base += int64(len(p))
	}
	h.armed = true
	if !known {
		return -1
	}
	n := 0
	for _, v := range h.dirty {
		if v {
			n++
		}
	}
	if float64(n) > dense*float64(len(h.dirty)) {
		s.unwatch(h)
		h.rest = 8
	}
	return n
}

// unwatch ends tracking: from now on every block may have been written.
func (s *Saver) unwatch(h *history) {
	if h.watched {
		for _, sp := range h.spans {
			s.tracker.Unwatch(sp.addr, sp.size)
		}
	}
	h.watched, h.armed = false, false
}
