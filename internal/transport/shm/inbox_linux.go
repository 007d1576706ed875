package shm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/vfs"
)

// Offsets in the head of an inbox.
const (
	offReady    = 0
	offNonce    = 8
	offRings    = 24
	offRingSize = 32
	offInbox    = 40
	offSleeping = 1024
	offTable    = 2048
)

// readyWord is in the head of an inbox that is complete: "cairnshm", as a
// number, and the version of the layout.
const readyWord = 0x636169726e736802

// bell wakes a rank that sleeps.
type bell struct {
	sleeping *uint64 // 0: awake, 1: asleep, 2: asleep and the bell was rung
	fd       int     // the FIFO
	one      []byte  // the byte that is written
}

// ring wakes the rank if it sleeps. The caller has stored the data before.
func (b *bell) ring() {
	if atomic.LoadUint64(b.sleeping) == 1 && atomic.CompareAndSwapUint64(b.sleeping, 1, 2) {
		unix.Write(b.fd, b.one)
	}
}

// layout describes where things are in an inbox.
type layout struct{ rings, ring, page uint64 }

func up(n, to uint64) uint64 { return (n + to - 1) / to * to }

func (l layout) head() uint64       { return up(offTable+4*l.rings, l.page) }
func (l layout) stride() uint64     { return up(l.page+l.ring, l.page) }
func (l layout) at(i uint64) uint64 { return l.head() + i*l.stride() }
func (l layout) size() uint64       { return l.at(l.rings) }
func validRing(n uint64) bool       { return n >= minRing && n <= maxRing && n&(n-1) == 0 }
func (l layout) cut(m []byte) (control, data []byte) {
	return m[:l.page:l.page], m[l.page : l.page+l.ring : l.page+l.ring]
}

// ringFor returns the size of a ring for a number of peers.
func ringFor(peers int) uint64 {
	switch {
	case peers <= 8:
		return 256 << 10
	case peers < 32:
		return 128 << 10
	case peers < 96:
		return 64 << 10
	}
	return 32 << 10
}

// inbox is the memory of a rank that its peers write into.
type inbox struct {
	path  string
	nonce [16]byte
	names []string // names for the peers
	layout
	m  []byte
	fd int // descriptor of the bell
}

// makeInbox creates the files of a link. c is the address of its driver; from
// are the addresses of the ranks that write into the inbox.
func makeInbox(c *address, from []*address, ring uint64) (_ *inbox, err error) {
	b := &inbox{fd: -1, layout: layout{uint64(len(from)), ring, uint64(os.Getpagesize())}}
	rand.Read(b.nonce[:])
	b.path = c.inbox(b.nonce)
	small := ring == 0
	if small {
		b.ring = ringFor(len(from))
	}
	fd, err := unix.Open(b.path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("shm: cannot make %s: %w", b.path, err)
	}
	defer unix.Close(fd)
	defer func() {
		if err != nil {
			b.unlink()
			b.close()
		}
	}()
	// Reserve the memory now. Otherwise a full /dev/shm would end the program
	// with SIGBUS at the first access to a page.
	for {
		err = unix.Fallocate(fd, 0, 0, int64(b.size()))
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = unix.Ftruncate(fd, int64(b.size()))
		}
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err == nil || !errors.Is(err, unix.ENOSPC) || !small || b.ring <= 2*minRing {
			break
		}
		b.ring /= 2
		unix.Ftruncate(fd, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("shm: no %d KiB for messages in %s: %w (make it larger, or set Options.Dir)", b.size()>>10, filepath.Dir(b.path), err)
	}
	if err = unix.Ftruncate(fd, int64(b.size())); err == nil {
		b.m, err = unix.Mmap(fd, 0, int(b.size()), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	}
	if err != nil {
		return nil, fmt.Errorf("shm: cannot map %s: %w", b.path, err)
	}
	if err = unix.Mkfifo(b.path+".bell", 0o600); err == nil {
		b.fd, err = openBell(b.path)
	}
	if err != nil {
		return nil, fmt.Errorf("shm: cannot make the bell of %s: %w", b.path, err)
	}
	copy(b.m[offNonce:], c.nonce[:])
	copy(b.m[offInbox:], b.nonce[:])
	*word(b.m, offRings), *word(b.m, offRingSize) = b.rings, b.ring
	for i, p := range from {
		*rankAt(b.m, uint64(i)) = p.rank
	}
	atomic.StoreUint64(word(b.m, offReady), readyWord)
	for _, p := range from {
		name := c.name(p)
		if err = os.Link(b.path, name); err != nil {
			return nil, fmt.Errorf("shm: cannot name the inbox for rank %d: %w", p.rank, err)
		}
		b.names = append(b.names, name)
	}
	return b, nil
}

// openBell opens a FIFO for reading and writing, so that there is always a
// reader.
func openBell(path string) (int, error) {
	path += ".bell"
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		unix.Close(fd)
		return -1, errors.Join(err, fmt.Errorf("%s is not a FIFO", path))
	}
	return fd, nil
}

// rankAt returns the field with the rank that writes into ring i.
func rankAt(m []byte, i uint64) *uint32 {
	return (*uint32)(unsafe.Pointer(&m[offTable+4*i:][:4][0]))
}

// sub returns the control page and the data of ring i.
func (b *inbox) sub(i int) (control, data []byte) {
	at := b.at(uint64(i))
	return b.cut(b.m[at : at+b.stride()])
}

func (b *inbox) unlink() {
	for _, name := range b.names {
		unix.Unlink(name)
	}
	unix.Unlink(b.path)
	unix.Unlink(b.path + ".bell")
}

func (b *inbox) close() {
	if b.m != nil {
		unix.Munmap(b.m)
		b.m = nil
	}
	if b.fd >= 0 {
		unix.Close(b.fd)
		b.fd = -1
	}
}

// sendRing is the part of a peer's inbox that a rank maps.
type sendRing struct {
	layout
	nonce       [16]byte // nonce of the inbox
	front, back []byte   // the head, and one ring with its control page
	fd          int      // the peer's bell
}

// errNotYet says that a peer's inbox is not complete.
var errNotYet = errors.New("its inbox is not there yet")

// openSendRing maps the ring that the driver with address me writes into. It is
// in an inbox of the driver with address c.
func openSendRing(c, me *address) (_ *sendRing, err error) {
	path := c.name(me)
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, errNotYet
	}
	if err != nil {
		return nil, fmt.Errorf("cannot open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("cannot stat %s: %w", path, err)
	}
	page := uint64(os.Getpagesize())
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Uid != uint32(os.Geteuid()) || st.Mode&0o077 != 0 {
		return nil, fmt.Errorf("%s is not a private file of this user", path)
	}
	if uint64(st.Size) < page {
		return nil, errNotYet
	}
	b := &sendRing{fd: -1}
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	const rw, shared = unix.PROT_READ | unix.PROT_WRITE, unix.MAP_SHARED | unix.MAP_POPULATE
	if b.front, err = unix.Mmap(fd, 0, int(page), rw, shared); err != nil {
		return nil, fmt.Errorf("cannot map %s: %w", path, err)
	}
	if atomic.LoadUint64(word(b.front, offReady)) != readyWord {
		return nil, errNotYet
	}
	if [16]byte(b.front[offNonce:]) != c.nonce {
		return nil, fmt.Errorf("%s is of another run", path)
	}
	copy(b.nonce[:], b.front[offInbox:])
	b.layout = layout{*word(b.front, offRings), *word(b.front, offRingSize), page}
	if b.rings > 1<<20 || !validRing(b.ring) || b.size() != uint64(st.Size) {
		return nil, fmt.Errorf("%s: %w", path, ErrCorrupt)
	}
	if b.head() > page {
		m, err := unix.Mmap(fd, 0, int(b.head()), rw, shared)
		if err != nil {
			return nil, fmt.Errorf("cannot map %s: %w", path, err)
		}
		unix.Munmap(b.front)
		b.front = m
	}
	for i := range b.rings {
		if *rankAt(b.front, i) != me.rank {
			continue
		}
		if b.back, err = unix.Mmap(fd, int64(b.at(i)), int(b.stride()), rw, shared); err != nil {
			return nil, fmt.Errorf("cannot map %s: %w", path, err)
		}
		if atomic.LoadUint64(word(b.back, offAttached)) != 0 {
			return nil, errNotYet // made by a Connect that was given up; there will be another
		}
		if b.fd, err = openBell(c.inbox(b.nonce)); err != nil {
			return nil, fmt.Errorf("cannot open the bell of its inbox: %w", err)
		}
		return b, nil
	}
	return nil, fmt.Errorf("it was not given the address of rank %d", me.rank)
}

func (b *sendRing) close() {
	for _, m := range [][]byte{b.front, b.back} {
		if m != nil {
			unix.Munmap(m)
		}
	}
	if b.fd >= 0 {
		unix.Close(b.fd)
	}
	b.front, b.back, b.fd = nil, nil, -1
}

// startOf returns the start time of a process in the kernel's units. process is
// the name of a directory in /proc.
func startOf(process string) (uint64, error) {
	b, err := os.ReadFile("/proc/" + process + "/stat")
	if err != nil {
		return 0, err
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 20 {
		return 0, fmt.Errorf("/proc/%s/stat has too few fields", process)
	}
	return strconv.ParseUint(f[19], 10, 64)
}

// sweep removes files of any run whose processes have ended.
func sweep(dir, pidns string) {
	names, _ := filepath.Glob(filepath.Join(vfs.QuoteGlob(dir), "cairn-*"))
	for _, name := range names {
		f := strings.Split(strings.TrimSuffix(filepath.Base(name), ".bell"), "-")
		if len(f) < 6 {
			continue
		}
		f = f[len(f)-4:] // the name of the run may contain dashes
		if f[0] != pidns {
			continue
		}
		pid, err1 := strconv.Atoi(f[1])
		start, err2 := strconv.ParseUint(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			continue
		}
		if now, err := startOf(strconv.Itoa(pid)); err == nil && now == start || err != nil && !errors.Is(err, os.ErrNotExist) {
			continue
		}
		os.Remove(name)
	}
}
