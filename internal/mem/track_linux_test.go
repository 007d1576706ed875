package mem

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestTracker_DroppedPagesCount drops pages that hold data, as allocators do
// with memory that is free: they are zero afterwards, and so they must count as
// written, once.
func TestTracker_DroppedPagesCount(t *testing.T) {
	const huge = 2 << 20
	for _, advice := range []struct {
		name string
		how  int
	}{{"small pages", unix.MADV_NOHUGEPAGE}, {"huge pages", unix.MADV_HUGEPAGE}} {
		t.Run(advice.name, func(t *testing.T) {
			tr, err := NewTracker()
			if err != nil {
				t.Skip(err)
			}
			defer tr.Close()
			all, err := unix.Mmap(-1, 0, 6*huge, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(all)
			skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(all))) % huge)
			p := all[skip:][:4*huge]
			unix.Madvise(p, advice.how) // not every kernel has huge pages
			for i := range p {
				p[i] = byte(i>>12) | 1
			}
			if err := tr.Watch(p); err != nil {
				t.Fatal(err)
			}
			scan := func() []byte {
				seen := make([]byte, len(p))
				if err := tr.Scan(p, func(lo, hi int) { fill(seen[lo:hi]) }); err != nil {
					t.Fatal(err)
				}
				return seen
			}
			scan()
			for _, drop := range [][2]int{{huge, 2 * huge}, {2*huge + 8192, 2*huge + 12288}} {
				if err := unix.Madvise(p[drop[0]:drop[1]], unix.MADV_DONTNEED); err != nil {
					t.Fatal(err)
				}
				seen := scan()
				for i := drop[0]; i < drop[1]; i += 4096 {
					if seen[i] == 0 {
						t.Fatalf("the page at %#x was dropped, and does not count as written", i)
					}
				}
				if seen[0] != 0 || seen[3*huge] != 0 {
					t.Error("pages count as written that were not touched")
				}
				sum := byte(0)
				for _, b := range p { // as a copy does
					sum |= b
				}
				for i, b := range scan() {
					if b != 0 {
						t.Fatalf("the page at %#x counts as written again (%d)", i, sum)
					}
				}
				p[drop[0]] = 7
				if seen := scan(); seen[drop[0]] == 0 {
					t.Fatalf("a write to the page at %#x after that is not seen", drop[0])
				}
			}
		})
	}
}

func fill(p []byte) {
	for i := range p {
		p[i] = 1
	}
}
