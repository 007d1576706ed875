package device

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/cairnrun/cairn/internal/graph"
)

// HostCopy returns the address and size of the host copy, or nil if there is
// none.
func (m *memory) HostCopy() (unsafe.Pointer, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host == nil || m.raw != nil {
		return nil, 0
	}
	return unsafe.Pointer(unsafe.SliceData(m.host)), m.size
}

// Show notes whether the program's state holds slices of the host copy.
func (m *memory) Show(shown bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.inState = shown
}

// hostCopy is the host copy of a whole memory. Slices that Data and Read
// returned are parts of it. A checkpoint holds it if the program still has such
// slices, so that they are parts of the array after a restart, too.
type hostCopy[T any] struct {
	Data  []T
	Valid [][2]int64 // ranges of bytes that were valid there
}

// find saves or restores a's host copy, if there is one to be saved.
func (h *hostCopy[T]) find(a *Array[T], c *graph.Coder) {
	if c.Restoring() {
		if c.Has("host") {
			graph.Field(c, "host", h)
		}
		return
	}
	m, err := a.lock()
	if err != nil {
		return
	}
	defer m.mu.Unlock()
	if !m.inState || m.host == nil || m.size%int64(unsafe.Sizeof(*new(T))) != 0 {
		return
	}
	m.awaitLaunches(nil, 0, m.size, false)
	h.Data = a.elements(m.host)
	for _, s := range m.spans {
		if s.host {
			h.Valid = append(h.Valid, [2]int64{s.lo, s.hi})
		}
	}
	graph.Field(c, "host", h)
}

// adopt makes restored memory the host copy of m.
func (h *hostCopy[T]) adopt(m *memory) error {
	if h.Data == nil {
		return nil
	}
	host := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(h.Data))), len(h.Data)*int(unsafe.Sizeof(*new(T))))
	if int64(len(host)) != m.size {
		return fmt.Errorf("an array of %d bytes has %d in host memory", m.size, len(host))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if unsafe.SliceData(host) == unsafe.SliceData(m.host) {
		return nil // another view has done it
	}
	for _, s := range m.spans {
		if s.host {
			copy(host[s.lo:s.hi], m.host[s.lo:s.hi])
		}
	}
	m.host, m.wraps, m.exposed = slices.Clip(host), nil, true // the program may write there
	for _, v := range h.Valid {
		if v[0] < 0 || v[0] > v[1] || v[1] > m.size {
			return fmt.Errorf("bytes %d to %d of an array of %d", v[0], v[1], m.size)
		}
		if err := m.claimHost(v[0], v[1]); err != nil {
			return err
		}
	}
	return nil
}
