package shm

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/transport"
	"golang.org/x/sys/unix"
)

// Driver is a rank's transport.Driver.
type Driver struct {
	o    Options
	dir  string
	me   address
	word *[16]byte // a copy of the nonce, which peers read to test Pull
}

// Open returns the driver of a rank, and removes what crashes of the same
// run left. It makes no files.
func Open(o Options) (*Driver, error) {
	if strings.ContainsAny(o.Run, "/\x00") || len(o.Run) > 128 {
		return nil, fmt.Errorf("shm: the run's name %q is not part of a file name; give one without slashes, up to 128 bytes", o.Run)
	}
	if o.Ring != 0 && !validRing(uint64(o.Ring)) {
		return nil, fmt.Errorf("shm: a ring of %d bytes; its size must be a power of two between %d and %d", o.Ring, minRing, maxRing)
	}
	d := &Driver{o: o, dir: o.Dir, word: new([16]byte)}
	if d.dir == "" {
		d.dir = "/dev/shm"
		if st, err := os.Stat(d.dir); err != nil || !st.IsDir() {
			d.dir = os.TempDir()
		}
	}
	dir, err := filepath.Abs(d.dir)
	if err != nil {
		return nil, fmt.Errorf("shm: %w", err)
	}
	d.dir = dir
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return nil, fmt.Errorf("shm: cannot use the directory %s: %w (set Options.Dir)", dir, err)
	}
	pid := os.Getpid()
	start, err := startOf(strconv.Itoa(pid))
	// An emulator shows its program a different /proc than other processes see.
	// Peers would consider this process dead.
	if err == nil {
		var seen uint64
		if seen, err = startOf(fmt.Sprintf("%d/task/%d", pid, pid)); err == nil && seen != start {
			err = errors.New("what /proc says of it is not so: it is emulated")
		}
	}
	if err != nil {
		return nil, fmt.Errorf("shm: cannot tell when this process started: %w (is /proc there?)", err)
	}
	ns, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, fmt.Errorf("shm: cannot tell the PID namespace: %w (is /proc there?)", err)
	}
	ns = strings.Trim(strings.TrimPrefix(ns, "pid:"), "[]")
	d.me = address{
		order: hostOrder(), page: uint32(os.Getpagesize()),
		rank: uint32(o.Rank), uid: uint32(os.Geteuid()), pid: uint32(pid), start: start,
		dev: uint64(st.Dev), //nolint:unconvert // it has 32 bits on some architectures
		ino: st.Ino, host: o.Host, pidns: ns,
	}
	if !o.NoPull {
		d.me.word = uint64(uintptr(unsafe.Pointer(d.word)))
		allowPull()
	}
	rand.Read(d.me.nonce[:])
	*d.word = d.me.nonce
	d.me.path = filepath.Join(dir, fmt.Sprintf("cairn-%s-%s-%d-%d-%s", o.Run, ns, pid, start, hex.EncodeToString(d.me.nonce[:])))
	sweep(dir, ns)
	return d, nil
}

// allowPull makes process_vm_readv work for the peers if Yama's ptrace_scope is
// 1, as on Ubuntu. Then only ancestors may read a process, and the processes
// that it permits. A process can permit one other process and its descendants.
// allowPull permits the parent, which is the launcher if that starts the ranks
// itself. So the peers may read, and only processes that the launcher has
// started. If there is a shell in between, Pull does not work, and frames go
// through the rings. allowPull never permits all processes
// (PR_SET_PTRACER_ANY).
func allowPull() {
	if b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope"); err == nil && strings.TrimSpace(string(b)) == "1" {
		unix.Prctl(unix.PR_SET_PTRACER, uintptr(os.Getppid()), 0, 0, 0)
	}
}

// Name returns "shm".
func (d *Driver) Name() string { return "shm" }

// Address says how the files of this driver are named.
func (d *Driver) Address() []byte { return d.me.encode() }

// Reaches reports whether the address is of a process on the same host, of the
// same user, in the same PID namespace, with the same directory, and that sees
// memory in the same way.
func (d *Driver) Reaches(b []byte) bool {
	c, err := decodeAddress(b)
	return err == nil && d.me.reaches(&c)
}

// Close does nothing: links hold everything.
func (d *Driver) Close() error { return nil }

// Connect makes the inbox and waits until it is connected with all peers.
func (d *Driver) Connect(ctx context.Context, addresses [][]byte, h transport.Handler) (transport.Link, error) {
	if d.o.Size != 0 && len(addresses) > d.o.Size {
		return nil, fmt.Errorf("shm: %d addresses for a run of %d ranks", len(addresses), d.o.Size)
	}
	l := &Link{d: d, h: h, rank: d.o.Rank, peers: make([]*peer, len(addresses)), epoll: -1}
	var from []*address
	for r, b := range addresses {
		if b == nil || r == d.o.Rank {
			continue
		}
		c, err := decodeAddress(b)
		if err != nil || !d.me.reaches(&c) || c.rank != uint32(r) {
			return nil, fmt.Errorf("shm: rank %d cannot be reached from rank %d with the address it gave; ask Reaches first", r, d.o.Rank)
		}
		p := &peer{rank: r, address: c, pidfd: -1}
		l.peers[r] = p
		l.live = append(l.live, p)
		from = append(from, &p.address)
	}
	err := l.open(from)
	if err == nil {
		err = l.connectPeers(ctx)
	}
	if l.inbox != nil {
		l.inbox.unlink()
	}
	if err != nil {
		l.free()
		return nil, err
	}
	l.eager = int(l.inbox.ring) / 16
	for _, p := range l.live {
		l.eager = min(l.eager, len(p.w.data)/16)
	}
	return l, nil
}

// open creates the files and descriptors of this rank.
func (l *Link) open(from []*address) (err error) {
	if l.inbox, err = makeInbox(&l.d.me, from, uint64(l.d.o.Ring)); err != nil {
		return err
	}
	l.sleeping = word(l.inbox.m, offSleeping)
	for i, p := range l.live {
		control, data := l.inbox.sub(i)
		p.in = control
		p.r = newReader(control, data)
	}
	if l.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err == nil {
		err = l.watch(l.inbox.fd, -1)
	}
	if err != nil {
		return fmt.Errorf("shm: cannot wait for peers: %w", err)
	}
	return nil
}

func (l *Link) watch(fd, tag int) error {
	return unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(tag)})
}

// connectPeers waits until every peer is connected in both directions.
func (l *Link) connectPeers(ctx context.Context) error {
	pause := 20 * time.Microsecond
	for {
		var missing error
		for _, p := range l.live {
			err := l.connectPeer(p)
			if err == nil {
				continue
			}
			err = fmt.Errorf("shm: rank %d cannot connect to rank %d: %w", l.rank, p.rank, err)
			if !errors.Is(err, errNotYet) {
				return err
			}
			missing = err
		}
		if missing == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", missing, context.Cause(ctx))
		case <-time.After(pause):
		}
		pause = min(2*pause, time.Millisecond)
	}
}

// connectPeer continues to connect one peer. It returns nil when the peer is
// connected, and errNotYet if it must be called again.
func (l *Link) connectPeer(p *peer) error {
	if p.pidfd < 0 {
		fd, err := unix.PidfdOpen(int(p.address.pid), 0)
		switch {
		case errors.Is(err, unix.ESRCH):
			return ErrDied
		case err != nil:
			return fmt.Errorf("cannot watch its process %d: %w (Linux 5.3 is needed)", p.address.pid, err)
		}
		p.pidfd = fd
		// Another process may have this number by now.
		if start, err := startOf(strconv.Itoa(int(p.address.pid))); err != nil || start != p.address.start {
			return ErrDied
		}
		if err := l.watch(fd, p.rank); err != nil {
			return fmt.Errorf("cannot watch its process %d: %w", p.address.pid, err)
		}
	}
	if p.out == nil {
		out, err := openSendRing(&p.address, &l.d.me)
		if err != nil {
			if errors.Is(err, errNotYet) && p.died() {
				return ErrDied
			}
			return err
		}
		p.out = out
		control, data := out.cut(out.back)
		p.bell = bell{word(out.front, offSleeping), out.fd, []byte{0}}
		p.w = newWriter(control, data, p.bell)
		p.blocked, p.gone = word(control, offBlocked), word(control, offGone)
		p.pull = !l.d.o.NoPull && p.tryPull()
		copy(control[offAttacher:], l.inbox.nonce[:])
		atomic.StoreUint64(word(control, offAttached), 1)
		p.bell.ring()
	}
	if atomic.LoadUint64(word(p.in, offAttached)) == 0 {
		if p.died() {
			return ErrDied
		}
		return errNotYet
	}
	if [16]byte(p.in[offAttacher:]) != p.out.nonce {
		// The peer gave up the Connect that made this inbox, and has made
		// another one.
		p.out.close()
		p.out = nil
		return errNotYet
	}
	return nil
}

// died reports whether the peer's process has ended.
func (p *peer) died() bool {
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// tryPull reads the word that the address names, and reports whether that
// worked.
func (p *peer) tryPull() bool {
	if p.address.word == 0 {
		return false
	}
	var got [16]byte
	return p.readMemory(got[:], p.address.word) == nil && got == p.address.nonce
}

// readMemory reads memory of the peer's process.
func (p *peer) readMemory(buf []byte, addr uint64) error {
	for len(buf) > 0 {
		n := min(len(buf), 1<<30)
		local := []unix.Iovec{{Base: &buf[0]}}
		local[0].SetLen(n)
		remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: n}}
		got, err := unix.ProcessVMReadv(int(p.address.pid), local, remote, 0)
		if err != nil {
			return err
		}
		if got <= 0 {
			return unix.EFAULT
		}
		buf, addr = buf[got:], addr+uint64(got)
	}
	return nil
}

// free frees everything that belongs to one peer, and tells the peer.
func (p *peer) free() {
	if p.out != nil {
		atomic.StoreUint64(p.gone, 1)
		p.bell.ring()
		p.out.close()
		p.out = nil
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd) // this also removes it from epoll
		p.pidfd = -1
	}
}

// free frees everything, and tells the connected peers.
func (l *Link) free() {
	for _, p := range l.peers {
		if p == nil {
			continue
		}
		p.free()
	}
	if l.epoll >= 0 {
		unix.Close(l.epoll)
	}
	if l.inbox != nil {
		l.inbox.close()
	}
	l.live, l.closed = nil, true
}
