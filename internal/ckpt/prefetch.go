package ckpt

import (
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// prefetch is a diff that was started before the save that needs it.
type prefetch struct {
	of   *history // history of the dataset
	run  Placement
	diff mem.Diff
}

// Prefetch lets devices start the diffs that the next save will probably need.
// Call it right before the image for that save is collected, so that both
// happen at the same time. Diffs that do not match the image are not used.
//
// The pause that Paused returns does not include the kernels that run now.
func (s *Saver) Prefetch() {
	s.pausing = startPause()
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
			continue // Save reports the error
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

// prefetched returns the diff that Prefetch started for a run, or nil. A
// version identifies the content at an address, wherever it is; other parts of
// an array may have the same version. So the dataset must be the same as then,
// and in the same place.
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

// dropPrefetched ends the prefetched diffs that were not used.
func (s *Saver) dropPrefetched() {
	for _, list := range s.prefetches {
		for _, e := range list {
			e.diff.Close()
		}
	}
	clear(s.prefetches)
}
