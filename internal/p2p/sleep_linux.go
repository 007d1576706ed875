package p2p

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// sleeper lets goroutines wait until there may be something to do. One of them
// sleeps on the descriptors of all links. The others wait for it.
type sleeper struct {
	mu          sync.Mutex // guards event against concurrent close
	event       int        // an eventfd that wakes the sleeping goroutine
	asleep      bool
	wakePending atomic.Bool
	others      []chan struct{}
	backoff     time.Duration // time between two polls of a link without a descriptor
}

func (s *sleeper) init() error {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("eventfd: %w", err)
	}
	s.event = fd
	return nil
}

func (s *sleeper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.event >= 0 {
		unix.Close(s.event)
		s.event = -1
	}
}

// wake ends the current or next sleep. Any goroutine may call it.
func (s *sleeper) wake() {
	if s.wakePending.Swap(true) {
		return
	}
	s.mu.Lock() // the descriptor may be closed, and its number reused
	defer s.mu.Unlock()
	if s.event < 0 {
		return
	}
	one := [8]byte{1, 1, 1, 1, 1, 1, 1, 1}
	unix.Write(s.event, one[:])
}

// broadcast wakes all waiting goroutines, because their conditions may have
// changed. The lock is held.
func (s *sleeper) broadcast() {
	if s.asleep {
		s.wake()
	}
	for _, c := range s.others {
		close(c)
	}
	s.others = s.others[:0]
}

// sleep waits until there may be something to do. The lock is held, and
// released meanwhile.
func (s *sleeper) sleep(e *Engine) {
	if s.asleep {
		c := make(chan struct{})
		s.others = append(s.others, c)
		e.mu.Unlock()
		<-c
		e.lock()
		return
	}
	fds := make([]unix.PollFd, 1, 4)
	fds[0] = unix.PollFd{Fd: int32(s.event), Events: unix.POLLIN}
	timeout := time.Second // a missed wake-up costs at most this much time
	armed := 0
	ready := true
	for _, l := range e.links {
		if !l.Arm() {
			l.Disarm()
			ready = false
			break
		}
		armed++
		if fd := l.FD(); fd >= 0 {
			fds = append(fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
		} else {
			s.backoff = min(max(2*s.backoff, 5*time.Microsecond), time.Millisecond)
			timeout = s.backoff
		}
	}
	if ready {
		s.asleep = true
		e.mu.Unlock()
		ts := unix.NsecToTimespec(int64(timeout))
		n, _ := unix.Ppoll(fds, &ts, nil)
		e.lock()
		s.asleep = false
		if n > 0 {
			s.backoff = 0
		}
		if fds[0].Revents != 0 {
			var buf [8]byte
			unix.Read(s.event, buf[:])
			s.wakePending.Store(false) // reset it last: a caller of wake before that is noticed, because the caller of sleep checks its condition again
		}
	}
	for _, l := range e.links[:min(armed, len(e.links))] { // they may be closed by now
		l.Disarm()
	}
	for _, c := range s.others { // one of them sleeps next
		close(c)
	}
	s.others = s.others[:0]
}
