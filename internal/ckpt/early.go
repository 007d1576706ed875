package ckpt

import (
	"unsafe"

	"github.com/cairnrun/cairn/internal/mem"
)

// early is a run that is being sifted before a save has asked for it.
type early struct {
	of    *history // of the dataset
	run   farRun
	sieve mem.Sieve
}

// Anticipate lets devices begin with the digests that the next save will
// probably need. It is called right before the image for that save is
// collected, which the devices then need not wait for. What turns out
// otherwise is not used.
func (s *Saver) Anticipate() {
	if s.pending != nil || s.prev == nil || s.opts.MaxBases < 0 {
		return
	}
	leave := s.leaving()
	for path, h := range s.seen {
		i, ok := s.prev.byPath[path]
		if len(h.runs) == 0 || !ok || h.changed < 0 || h.changed > dense || s.early[path] != nil {
			continue
		}
		d := &s.prev.Datasets[i]
		if h.block != d.Block || len(h.dirty) != d.blocks() {
			continue
		}
		pieces := make([][]byte, len(h.spans))
		for k, sp := range h.spans {
			pieces[k] = unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&sp.addr))), sp.size)
		}
		b := newBlob(pieces)
		_, runs, err := resolve(d, &b)
		if err != nil {
			continue // the save will say so
		}
		for _, r := range runs {
			if r.at.Version == 0 || r.at.Device == nil || unwritten(h.runs, r) {
				continue
			}
			lo, hi := r.siftable(d)
			if lo == hi {
				continue
			}
			if v, err := r.at.Device.Sift(r.extent(d, lo, hi), mostChanged(d, h, leave, lo, hi)); err == nil {
				if s.early == nil {
					s.early = make(map[string][]early)
				}
				s.early[path] = append(s.early[path], early{h, r, v})
			}
		}
	}
}

// anticipated returns what Anticipate has begun for a run, nil if it has not.
// A version stands for the bytes at an address, wherever they lie; other parts
// of an array may have the same. So the dataset must be what it was then, and
// lie where it did.
func (s *Saver) anticipated(path string, h *history, r farRun) mem.Sieve {
	list := s.early[path]
	for i, e := range list {
		was, is := &e.run.at, &r.at
		if e.of == h && e.run.lo == r.lo && e.run.hi == r.hi && was.Version == is.Version && was.Device == is.Device && was.Buffer == is.Buffer && was.Off == is.Off {
			s.early[path] = append(list[:i:i], list[i+1:]...)
			return e.sieve
		}
	}
	return nil
}

// forgetEarly lets go of what Anticipate began in vain.
func (s *Saver) forgetEarly() {
	for _, list := range s.early {
		for _, e := range list {
			e.sieve.Close()
		}
	}
	clear(s.early)
}
