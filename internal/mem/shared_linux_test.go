package mem

import (
	"errors"
	"os"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestStaging_Shared maps the staging memory a second time, as another process
// would.
func TestStaging_Shared(t *testing.T) {
	s := NewStaging(2)
	defer s.Close()
	if err := s.Grow(2); err != nil {
		t.Fatal(err)
	}
	files := s.Files()
	if len(files) != 1 {
		t.Skip("no shared memory here")
	}
	m, err := unix.Mmap(int(files[0].Fd()), 0, 2*SegmentSize, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	s.Segment(1)[5] = 42
	if m[SegmentSize+5] != 42 {
		t.Fatal("what is written into a segment is not seen through the other mapping")
	}
}

// TestStaging_Attach shares staging memory as a helper does. It must refuse
// memory whose size could change.
func TestStaging_Attach(t *testing.T) {
	s := NewStaging(3)
	defer s.Close()
	if err := s.Grow(2); err != nil {
		t.Fatal(err)
	}
	if len(s.Files()) != 1 {
		t.Skip("no shared memory here")
	}
	dup := func(f *os.File) *os.File {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		return os.NewFile(uintptr(fd), "copy")
	}
	h := NewStaging(3)
	defer h.Close()
	if err := h.Attach(dup(s.Files()[0]), 2); err != nil {
		t.Fatal(err)
	}
	if h.Len() != 2 || len(h.Free()) != 0 {
		t.Errorf("%d segments, %d of them free", h.Len(), len(h.Free()))
	}
	s.Segment(1)[7] = 42
	if h.Segment(1)[7] != 42 {
		t.Error("what one side writes the other does not see")
	}
	if unix.Ftruncate(int(s.Files()[0].Fd()), 0) == nil {
		t.Error("shared memory can be made smaller")
	}
	for _, n := range []int{0, -1, 5, 1} { // too few, too many, and not the size of the file
		f := dup(s.Files()[0])
		if err := h.Attach(f, n); err == nil {
			t.Errorf("%d more segments were attached", n)
		}
		f.Close()
	}
	fd, err := unix.MemfdCreate("open", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	open := os.NewFile(uintptr(fd), "open")
	defer open.Close()
	open.Truncate(SegmentSize)
	if err := h.Attach(open, 1); err == nil {
		t.Error("memory that may shrink was attached")
	}
}

// TestStaging_Ring shows that the ring has separate segments, and gets them
// back.
func TestStaging_Ring(t *testing.T) {
	s := NewStaging(3)
	defer s.Close()
	if err := errors.Join(s.Grow(2), s.GrowRing(2), s.Grow(9), s.GrowRing(9)); err != nil {
		t.Fatal(err)
	}
	if s.Len() != 6 || len(s.Free()) != 3 || len(s.Ring()) != 3 || len(s.RingMaps()) != 2 {
		t.Fatal(s.Len(), len(s.Free()), len(s.Ring()), len(s.RingMaps()))
	}
	i, j := <-s.Free(), <-s.Ring()
	s.Release(j)
	s.Release(i)
	if len(s.Free()) != 3 || len(s.Ring()) != 3 {
		t.Error(len(s.Free()), len(s.Ring()))
	}
	inRing := func(p []byte) bool {
		for _, m := range s.RingMaps() {
			lo := uintptr(unsafe.Pointer(&m[0]))
			if at := uintptr(unsafe.Pointer(&p[0])); at >= lo && at < lo+uintptr(len(m)) {
				return true
			}
		}
		return false
	}
	if inRing(s.Segment(i)) || !inRing(s.Segment(j)) {
		t.Error("a segment is in the wrong memory")
	}
}
