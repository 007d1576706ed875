package mem

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapShared returns n bytes of shared memory, faulted in.
func mapShared(n int) (mapping, error) {
	fd, err := unix.MemfdCreate("cairn-staging", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return mapping{data: Aligned(n)}, nil // private memory is enough within one process
	}
	f := os.NewFile(uintptr(fd), "cairn-staging")
	var m []byte
	if err = unix.Ftruncate(fd, int64(n)); err == nil {
		m, err = unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err == nil {
		if err = populate(m); err != nil {
			unix.Munmap(m)
		}
	}
	if err != nil {
		f.Close()
		return mapping{}, fmt.Errorf("no memory for %d MiB of staging: %w (set a smaller memory bound)", n>>20, err)
	}
	// A process that maps the file must be able to rely on its size. Within one
	// process that does not matter.
	unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	return mapping{data: m, file: f}, nil
}

// populate faults memory in, with several threads and in pieces, because no
// other thread of the process can map memory during one call.
func populate(m []byte) error {
	const piece = 16 << 20
	pieces := (len(m) + piece - 1) / piece
	errs := make([]error, min(pieces, runtime.GOMAXPROCS(0), 8))
	var next atomic.Int64
	var wg sync.WaitGroup
	for w := range errs {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < pieces && errs[w] == nil; i = int(next.Add(1)) - 1 {
				errs[w] = populatePiece(m[i*piece : min(len(m), (i+1)*piece)])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func populatePiece(p []byte) error {
	for {
		switch err := unix.Madvise(p, unix.MADV_POPULATE_WRITE); err {
		case unix.EINTR, unix.EAGAIN:
		case unix.EINVAL: // before Linux 5.14
			for i := 0; i < len(p); i += 4096 {
				p[i] = 0
			}
			return nil
		default:
			return err
		}
	}
}

// mapForeign maps n bytes that another process made with mapShared. It refuses
// a file whose size may change: touching memory beyond the end of its file
// would kill this process.
func mapForeign(f *os.File, n int) (mapping, error) {
	fd := int(f.Fd())
	var st unix.Stat_t
	var fs unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &st), unix.Fstatfs(fd, &fs)); err != nil {
		return mapping{}, fmt.Errorf("shared staging: %w", err)
	}
	const fixed = unix.F_SEAL_SHRINK
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&fixed != fixed || fs.Type != unix.TMPFS_MAGIC {
		return mapping{}, errors.New("shared staging: not memory of a fixed size")
	}
	if st.Size != int64(n) {
		return mapping{}, fmt.Errorf("shared staging: %d bytes, not %d", st.Size, n)
	}
	m, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return mapping{}, fmt.Errorf("shared staging: %w", err)
	}
	return mapping{data: m, file: f}, nil
}

func unmap(m []byte) { unix.Munmap(m) }

// Total returns how much memory the machine has.
func Total() int64 {
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) != nil {
		return 1 << 42
	}
	return int64(si.Totalram) * int64(si.Unit)
}

// reserve reserves n bytes of address space.
func reserve(n int) (unsafe.Pointer, error) {
	p, err := unix.MmapPtr(-1, 0, nil, uintptr(pageUp(n)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("no address space for %d bytes: %w", n, err)
	}
	return p, nil
}

func unreserve(p unsafe.Pointer, n int) { unix.MunmapPtr(p, uintptr(pageUp(n))) }

func pageUp(n int) int { return (max(n, 1) + 4095) &^ 4095 }
