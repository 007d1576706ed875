package ckpt

import (
	"slices"
	"unsafe"
)

// Tracker tells which parts of watched memory were written since the last scan;
// see mem.Tracker.
type Tracker interface {
	Watch(p []byte) error
	Scan(p []byte, written func(lo, hi int)) error
	Unwatch(addr, size uintptr)
	Close()
}

// history is what a Saver remembers about a dataset.
type history struct {
	spans   []span
	block   int64
	changed float64     // share of blocks that changed last time; -1: unknown
	watched bool        // the kernel tracks writes to it
	armed   bool        // it was scanned once: the next scan reports writes
	dirty   []bool      // blocks written since the previous checkpoint, as far as known
	rest    int         // number of saves to skip before it is watched again
	runs    []Placement // what was on devices at the previous checkpoint
}

type span struct{ addr, size uintptr }

const (
	// minWatch is the smallest piece of memory that is worth tracking.
	minWatch = 256 << 10
	// Tracking begins if a smaller share of blocks than sparse changes. It ends
	// above dense; there, copying is faster than digesting first.
	sparse, dense = 0.25, 0.5
)

// forget ends the tracking of datasets that are gone or have moved. It must do
// so before others begin: each scan resets what the kernel has recorded, so
// memory must not belong to two histories.
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

// scan updates h.dirty and returns how many blocks are dirty, or -1 if the
// kernel does not know. It begins and ends tracking depending on that.
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

// unwatch ends tracking: from then on any block may have been written.
func (s *Saver) unwatch(h *history) {
	if h.watched {
		for _, sp := range h.spans {
			s.tracker.Unwatch(sp.addr, sp.size)
		}
	}
	h.watched, h.armed = false, false
}
