package ckpt

import (
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// prefetch is a run that is being diffed before a save has asked for it.
type prefetch struct {
	of   *history // of the dataset
	run  Placement
	diff mem.Diff
}

// Prefetch lets devices begin with the digests that the next save will
// probably need. It is called right before the image for that save is
// collected, which the devices then need not wait for. What turns out
// otherwise is not used.
func (s *Saver) Prefetch() {
	if s.pending != nil || s.prev == nil || s.opts.MaxBases < 0 {
		return
	}
	leave := s.compaction()
	for path, h := range s.seen {
		i, ok := s.prev.byPath[path]
		if len(h.runs) == 0 || !ok || h.changed < 0 || h.changed > dense || s.prefetches[path] != nil {
			continue
		}
		d := &s.prev.Datasets[i]
		if h.block != d.Block || len(h.dirty) != d.NumBlocks() {
			continue
		}
		pieces := make([][]byte, len(h.spans))
		for k, sp := range h.spans {
			pieces[k] = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&sp.addr))), sp.size)
		}
		b := NewMemory(pieces)
		_, runs, err := Resolve(d, &b)
		if err != nil {
			continue // the save will say so
		}
		for _, r := range runs {
			if r.Place.Version == 0 || r.Place.Device == nil || unwritten(h.runs, r) {
				continue
			}
			lo, hi := r.diffable(d)
			if lo == hi {
				continue
			}
			if v, err := r.Place.Device.Diff(r.extent(d, lo, hi), mostChanged(d, h, leave, lo, hi)); err == nil {
				if s.prefetches == nil {
					s.prefetches = make(map[string][]prefetch)
				}
				s.prefetches[path] = append(s.prefetches[path], prefetch{h, r, v})
			}
		}
	}
}

// prefetched returns what Prefetch has begun for a run, nil if it has not.
// A version stands for the bytes at an address, wherever they lie; other parts
// of an array may have the same. So the dataset must be what it was then, and
// lie where it did.
func (s *Saver) prefetched(path string, h *history, r Placement) mem.Diff {
	list := s.prefetches[path]
	for i, e := range list {
		was, is := &e.run.Place, &r.Place
		if e.of == h && e.run.Lo == r.Lo && e.run.Hi == r.Hi && was.Version == is.Version && was.Device == is.Device && was.Buffer == is.Buffer && was.Off == is.Off {
			s.prefetches[path] = append(list[:i:i], list[i+1:]...)
			return e.diff
		}
	}
	return nil
}

// dropPrefetched lets go of what Prefetch began in vain.
func (s *Saver) dropPrefetched() {
	for _, list := range s.prefetches {
		for _, e := range list {
			e.diff.Close()
		}
	}
	clear(s.prefetches)
}
