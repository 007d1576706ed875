package mem

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestShared maps the staging memory once more, as another process would.
func TestShared(t *testing.T) {
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
