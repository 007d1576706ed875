// Package mem has what Cairn does with raw memory: staging memory, digests,
// detection of zeros, the kernel's tracking of written pages, and the
// interfaces to memory on devices.
package mem

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"unsafe"
)

// SegmentSize is the size of a segment of staging memory.
const SegmentSize = 4 << 20

// Staging is memory that checkpoints are copied to, divided into segments. It
// is page-aligned, allocated eagerly, and shared with other processes if the
// system allows it.
type Staging struct {
	limit    int
	segments [][]byte
	isRing   []bool
	maps     []mapping

	mu         sync.Mutex
	free, ring chan int // the capacity of each channel is the number of its segments
}

// mapping is memory from the system.
type mapping struct {
	data []byte
	file *os.File // another process maps this file to share the memory; nil: private memory
	ring bool
}

// NewStaging returns an empty Staging that may grow to limit segments, and to
// as many segments of the ring.
func NewStaging(limit int) *Staging {
	return &Staging{limit: limit}
}

// Grow allocates segments until there are n, or as many as the limit allows.
// Only one goroutine at a time may call it, while no segment is in use or
// waited for.
func (s *Staging) Grow(n int) error { return s.grow(n, false) }

// GrowRing is Grow for the ring: separate segments that devices write to.
func (s *Staging) GrowRing(n int) error { return s.grow(n, true) }

func (s *Staging) grow(n int, ring bool) error {
	have := 0
	for _, r := range s.isRing {
		if r == ring {
			have++
		}
	}
	n = min(n, s.limit) - have
	if n <= 0 {
		return nil
	}
	m, err := mapShared(n * SegmentSize)
	if err != nil {
		return err
	}
	m.ring = ring
	s.mu.Lock()
	if ring {
		s.ring = widened(s.ring, have+n)
	} else {
		s.free = widened(s.free, have+n)
	}
	s.mu.Unlock()
	s.add(m, n)
	for i := len(s.segments) - n; i < len(s.segments); i++ {
		s.Release(i)
	}
	return nil
}

// widened returns a channel of capacity n with the content of the old one.
func widened(old chan int, n int) chan int {
	c := make(chan int, n)
	for {
		select {
		case i := <-old:
			c <- i
		default:
			return c
		}
	}
}

func (s *Staging) add(m mapping, n int) {
	s.maps = append(s.maps, m)
	for i := range n {
		s.segments = append(s.segments, m.data[i*SegmentSize:(i+1)*SegmentSize:(i+1)*SegmentSize])
		s.isRing = append(s.isRing, m.ring)
	}
}

// Attach adds n segments in memory of another process, which sent its file (see
// Files). They are not free: the other process decides when they are used. The
// Staging owns the file, unless Attach returns an error. Attach must not be
// called concurrently with other methods.
func (s *Staging) Attach(f *os.File, n int) error {
	if room := 2*s.limit - len(s.segments); n <= 0 || n > room {
		return fmt.Errorf("%d segments of staging, at most %d fit", n, room)
	}
	m, err := mapForeign(f, n*SegmentSize)
	if err != nil {
		return err
	}
	s.add(m, n)
	return nil
}

// Len returns the number of segments.
func (s *Staging) Len() int { return len(s.segments) }

// RingMaps returns the memory of the ring, one piece per mapping.
func (s *Staging) RingMaps() [][]byte {
	var out [][]byte
	for _, m := range s.maps {
		if m.ring {
			out = append(out, m.data)
		}
	}
	return out
}

// Free returns the channel of free segments, Ring that of free segments of the
// ring.
func (s *Staging) Free() <-chan int { return s.home(false) }
func (s *Staging) Ring() <-chan int { return s.home(true) }

func (s *Staging) home(ring bool) chan int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ring {
		return s.ring
	}
	return s.free
}

// Release returns a segment.
func (s *Staging) Release(i int) {
	s.mu.Lock()
	defer s.mu.Unlock() // the channels have room for all segments, so this does not block
	if s.isRing[i] {
		s.ring <- i
	} else {
		s.free <- i
	}
}

// Segment returns the memory of segment i.
func (s *Staging) Segment(i int) []byte { return s.segments[i] }

// Files returns the files that another process has to map, in this order, to
// share the segments; nil if the system does not support it.
func (s *Staging) Files() []*os.File {
	var out []*os.File
	for _, m := range s.maps {
		if m.file == nil {
			return nil
		}
		out = append(out, m.file)
	}
	return out
}

// Close frees the memory. No segment may be in use.
func (s *Staging) Close() {
	for _, m := range s.maps {
		if m.file != nil {
			unmap(m.data)
			m.file.Close()
		}
	}
	s.maps, s.segments, s.isRing = nil, nil, nil
}

var zeros [4096]byte

// IsZero reports whether p has only zeros. If it does not, IsZero stops soon
// after the first other byte.
func IsZero(p []byte) bool {
	if len(p) >= 8 && p[0]|p[7] != 0 {
		return false
	}
	for len(p) > 256 {
		if !bytes.Equal(p[:256], zeros[:256]) {
			return false
		}
		p = p[256:]
		if len(p) >= len(zeros) {
			if !bytes.Equal(p[:len(zeros)], zeros[:]) {
				return false
			}
			p = p[len(zeros):]
		}
	}
	return bytes.Equal(p, zeros[:len(p)])
}

// Aligned returns n bytes of ordinary memory at a page boundary.
func Aligned(n int) []byte {
	const page = 4096
	b := make([]byte, n+page)
	o := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & (page - 1))
	return b[o : o+n : o+n]
}

// IsAligned reports whether p begins at a page and has whole pages.
func IsAligned(p []byte) bool {
	return (uintptr(unsafe.Pointer(unsafe.SliceData(p)))|uintptr(len(p)))&4095 == 0
}
