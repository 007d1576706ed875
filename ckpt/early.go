package ckpt

import (
	"unsafe"

	"github.com/zeebo/xxh3"

	"github.com/cairnrun/cairn/internal/mem"
)

// window is digests of consecutive blocks that a device computes.
type window struct {
	lo   int // the first block, in the extent
	wait func() ([]xxh3.Uint128, error)
}

const (
	// leastWindow is the number of blocks below which a window does not pay,
	// mostWindows how many an extent is cut into.
	leastWindow = 4 << 10
	mostWindows = 8
)

// digestWindows starts to digest an extent, in windows.
func digestWindows(dev mem.Device, at mem.Extent) (list []window, err error) {
	blocks := at.Blocks()
	n := max(1, min(blocks/leastWindow, mostWindows))
	for i := range n {
		lo, hi := blocks*i/n, blocks*(i+1)/n
		part := at
		part.Off += int64(lo) * at.Block
		part.Len = min(int64(hi-lo)*at.Block, at.Len-int64(lo)*at.Block)
		wait, err := dev.Digests([]mem.Extent{part})
		if err != nil {
			dropWindows(list)
			return nil, err
		}
		list = append(list, window{lo, wait})
	}
	return list, nil
}

// dropWindows waits for what nobody wants.
func dropWindows(list []window) {
	for _, w := range list {
		w.wait() // an error comes again
	}
}

// early is a run that is being digested before a save has asked for it.
type early struct {
	of      *history // of the dataset
	run     farRun
	windows []window
}

// Anticipate lets devices begin with the digests that the next save will
// probably need. It is called right before the image for that save is
// collected, which the devices then need not wait for. What turns out
// otherwise is not used.
func (s *Saver) Anticipate() {
	if s.pending != nil || s.prev == nil || s.opts.MaxBases < 0 {
		return
	}
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
			at := mem.Extent{Buffer: r.at.Buffer, Off: r.at.Off, Len: r.at.Len, Block: d.Block}
			if w, err := digestWindows(r.at.Device, at); err == nil {
				if s.early == nil {
					s.early = make(map[string][]early)
				}
				s.early[path] = append(s.early[path], early{h, r, w})
			}
		}
	}
}

// anticipated returns what Anticipate has begun for a run, nil if it has not.
// A version stands for the bytes at an address, wherever they lie; other parts
// of an array may have the same. So the dataset must be what it was then.
func (s *Saver) anticipated(path string, h *history, r farRun) []window {
	list := s.early[path]
	for i, e := range list {
		if e.of == h && e.run.lo == r.lo && e.run.hi == r.hi && e.run.at.Version == r.at.Version && e.run.at.Device == r.at.Device {
			s.early[path] = append(list[:i:i], list[i+1:]...)
			return e.windows
		}
	}
	return nil
}

// forgetEarly lets go of what Anticipate began in vain.
func (s *Saver) forgetEarly() {
	for _, list := range s.early {
		for _, e := range list {
			dropWindows(e.windows)
		}
	}
	clear(s.early)
}
