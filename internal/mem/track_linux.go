package mem

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Tracker asks the kernel which pages were written since the last time. It uses
// userfaultfd in asynchronous write-protect mode and the PAGEMAP_SCAN ioctl,
// which Linux 6.7 and later have. It needs no privilege. It does not see writes
// of devices to pinned memory.
type Tracker struct {
	uffd    int
	pagemap *os.File
	vec     []pageRegion // buffer for the result of a scan; nil: no scan yet
}

// From linux/userfaultfd.h and linux/fs.h.
const (
	uffdUserModeOnly  = 1
	uffdAPI           = 0xaa
	uffdWPUnpopulated = 1 << 13
	uffdWPAsync       = 1 << 15
	uffdModeWP        = 1 << 1
	uffdioAPI         = 0xc018aa3f
	uffdioRegister    = 0xc020aa00
	uffdioUnregister  = 0x8010aa01
	pagemapScan       = 0xc0606610
	scanWPMatching    = 1 << 0
	scanCheckWPAsync  = 1 << 1
	pageIsWPAllowed   = 1 << 0
	pageIsWritten     = 1 << 1
	pageIsPresent     = 1 << 3
)

type uffdioAPIArg struct{ api, features, ioctls uint64 }

type uffdioRegisterArg struct{ start, length, mode, ioctls uint64 }

type pageRegion struct{ start, end, categories uint64 }

type pmScanArg struct {
	size, flags, start, end, walkEnd                               uint64
	vec, vecLen, maxPages                                          uint64
	categoryInverted, categoryMask, categoryAnyofMask, returnMask_ uint64
}

// changed fills in which pages a scan reports: those that were written, and
// those that are not there. A huge page that the program has dropped (see
// madvise) leaves a hole, and not all kernels count it as written.
func (a *pmScanArg) changed() {
	a.size = uint64(unsafe.Sizeof(*a))
	a.categoryInverted, a.categoryAnyofMask = pageIsPresent, pageIsPresent|pageIsWritten
	a.returnMask_ = pageIsWPAllowed // the same for all, so that neighbors are one region
}

// NewTracker returns a Tracker, or the reason why this kernel has none.
func NewTracker() (*Tracker, error) {
	fd, _, e := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserModeOnly, 0, 0)
	if e != 0 {
		return nil, fmt.Errorf("no userfaultfd: %w", e)
	}
	t := &Tracker{uffd: int(fd)}
	api := uffdioAPIArg{api: uffdAPI, features: uffdWPUnpopulated | uffdWPAsync}
	err := ioctl(t.uffd, uffdioAPI, unsafe.Pointer(&api))
	if err == nil {
		t.pagemap, err = os.Open("/proc/self/pagemap")
	}
	if err == nil { // an empty scan shows whether the kernel has the call
		var arg pmScanArg
		arg.changed()
		err = ioctl(int(t.pagemap.Fd()), pagemapScan, unsafe.Pointer(&arg))
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("no asynchronous write tracking (Linux 6.7 has it): %w", err)
	}
	return t, nil
}

// Close ends all tracking.
func (t *Tracker) Close() {
	unix.Close(t.uffd)
	if t.pagemap != nil {
		t.pagemap.Close()
	}
}

func ioctl(fd int, req uintptr, arg unsafe.Pointer) error {
	for {
		_, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
		if e == 0 {
			return nil
		}
		if e != unix.EINTR && e != unix.EAGAIN {
			return e
		}
	}
}

// pages returns the whole pages within size bytes at addr. The pages at the
// edges may belong to other watched memory, too, whose Scan would reset them.
// They are not tracked and always count as written.
func pages(addr, size uintptr) (start, end uint64) {
	page := uintptr(os.Getpagesize())
	start, end = uint64((addr+page-1)&^(page-1)), uint64((addr+size)&^(page-1))
	return start, max(start, end)
}

func addrOf(p []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(p))) }

// Watch begins to track p. Until the first Scan all of it counts as written.
func (t *Tracker) Watch(p []byte) error {
	start, end := pages(addrOf(p), uintptr(len(p)))
	if start == end {
		return nil
	}
	if shared, err := isShared(start, end); shared || err != nil {
		return errors.Join(err, errors.New("memory that others may write to cannot be tracked"))
	}
	arg := uffdioRegisterArg{start: start, length: end - start, mode: uffdModeWP}
	return ioctl(t.uffd, uffdioRegister, unsafe.Pointer(&arg))
}

// isShared reports whether some of the memory is a shared mapping. The kernel
// would not see writes through another mapping.
func isShared(start, end uint64) (bool, error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(maps)) {
		var lo, hi uint64
		var perms string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &lo, &hi, &perms); err != nil {
			return false, err
		}
		if lo < end && start < hi && strings.HasSuffix(perms, "s") {
			return true, nil
		}
	}
	return false, nil
}

// Unwatch ends the tracking of the memory at addr, so that writes have no extra
// cost any more. The memory may be unmapped already.
func (t *Tracker) Unwatch(addr, size uintptr) {
	start, end := pages(addr, size)
	if start == end {
		return
	}
	r := [2]uint64{start, end - start}
	ioctl(t.uffd, uffdioUnregister, unsafe.Pointer(&r))
}

// Scan calls written for the parts of p, as offsets, that were written since
// the last Scan, in order. After an error all of p must count as written. Pages
// that were never touched count as written until they are read, as a copy does.
func (t *Tracker) Scan(p []byte, written func(lo, hi int)) error {
	base := uint64(addrOf(p))
	start, end := pages(addrOf(p), uintptr(len(p)))
	if start == end {
		written(0, len(p))
		return nil
	}
	if start > base {
		written(0, int(start-base))
	}
	if end < base+uint64(len(p)) {
		defer written(int(end-base), len(p))
	}
	if t.vec == nil {
		t.vec = make([]pageRegion, 4096)
	}
	for start < end {
		arg := pmScanArg{
			flags: scanWPMatching | scanCheckWPAsync,
			start: start, end: end,
			vec: uint64(uintptr(unsafe.Pointer(&t.vec[0]))), vecLen: uint64(len(t.vec)),
		}
		arg.changed()
		n, _, e := unix.Syscall(unix.SYS_IOCTL, t.pagemap.Fd(), pagemapScan, uintptr(unsafe.Pointer(&arg)))
		if e == unix.EINTR {
			continue
		}
		if e != 0 {
			return fmt.Errorf("scan of written pages: %w", e)
		}
		for _, r := range t.vec[:n] {
			lo, hi := max(r.start, base), min(r.end, base+uint64(len(p)))
			if lo < hi {
				written(int(lo-base), int(hi-base))
			}
		}
		if arg.walkEnd <= start {
			return fmt.Errorf("scan of written pages stopped at %#x", start)
		}
		start = arg.walkEnd
	}
	return nil
}
