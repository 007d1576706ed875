//go:build linux

package serve

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"golang.org/x/sys/unix"
)

// extent is a part of the mirror that is mapped.
type extent struct {
	lo, hi uint64
	mem    []byte
}

// extend maps further parts of the mirror.
func (s *session) extend(c *cursor) error {
	for c.Left() > 0 && !c.Bad() {
		lo, hi := c.U64(), c.U64()
		st, err := s.mirror.Stat()
		if err == nil && (c.Bad() || lo >= hi || hi > uint64(st.Size()) || lo%4096 != 0 || hi%4096 != 0) {
			err = fmt.Errorf("%w: memory from %d to %d", errProtocol, lo, hi)
		}
		var mem []byte
		if err == nil {
			mem, err = unix.Mmap(int(s.mirror.Fd()), int64(lo), int(hi-lo), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		}
		if err != nil {
			return errors.Join(s.fail(err), err)
		}
		e := extent{lo, hi, mem}
		s.extents = slices.Insert(s.extents, sort.Search(len(s.extents), func(i int) bool { return s.extents[i].lo > lo }), e)
		s.mapped = slices.Insert(s.mapped, sort.Search(len(s.mapped), func(i int) bool { return s.mapped[i].address() > e.address() }), e)
	}
	return nil
}

func (e *extent) address() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(e.mem))) }

// memory returns bytes of the mirror.
func (s *session) memory(at, n uint64) (unsafe.Pointer, error) {
	if i := sort.Search(len(s.extents), func(i int) bool { return s.extents[i].lo > at }) - 1; i >= 0 {
		if e := &s.extents[i]; at < e.hi && n <= e.hi-at {
			return unsafe.Pointer(&e.mem[at-e.lo]), nil
		}
	}
	return nil, fmt.Errorf("%w: %d bytes at %d", errProtocol, n, at)
}

// offset is the inverse of memory.
func (s *session) offset(p []byte) (at uint64, ok bool) {
	addr := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
	i := sort.Search(len(s.mapped), func(i int) bool { return s.mapped[i].address() > addr }) - 1
	if i < 0 || addr-s.mapped[i].address()+uintptr(len(p)) > uintptr(len(s.mapped[i].mem)) {
		return 0, false
	}
	return s.mapped[i].lo + uint64(addr-s.mapped[i].address()), true
}

// inMirror reports whether memory is part of the mirror, in which the program
// changes nothing while a checkpoint is being written.
func (s *session) inMirror(p []byte) bool {
	_, ok := s.offset(p)
	return ok
}
