//go:build cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64)

package resume

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// A goroutine that waits with a plain send or receive is woken here as close
// wakes it, by the Go runtime's own data. So a wait costs what it costs in the
// plain program: a select with a second channel takes twice as long.
//
// What the runtime guarantees, and this relies on: a waiting goroutine is in the
// channel's queue with its sudog, which is added and removed with the channel's
// lock held. The lock is released only when the goroutine is parked. Whoever
// removes the sudog, and nobody else, makes the goroutine runnable. After that
// the goroutine reads success, and requires elem to be nil:
//
//   - a receive returns the zero value and success as ok; so false is what it
//     returns after close;
//   - a send returns if success is true. The value was not received by anybody,
//     since that is done by whoever removes the sudog.
//
// In both cases woken tells the goroutine that its operation has not taken
// place. A value that is sent, a close, or a timer that expires at the same time
// finds the sudog removed, or removes it first, and then it is not found here.
// The garbage collector sees all writes of pointers, because the types below
// have pointers where those of the runtime have, and stack shrinking takes the
// same lock.

// chanHeader is the runtime's hchan.
type chanHeader struct {
	qcount   uint
	dataqsiz uint
	buf      unsafe.Pointer
	elemsize uint16
	closed   uint32
	timer    unsafe.Pointer
	elemtype unsafe.Pointer
	sendx    uint
	recvx    uint
	recvq    chanQueue
	sendq    chanQueue
	bubble   unsafe.Pointer
	lock     uintptr
}

type chanQueue struct{ first, last *chanWaiter }

// chanWaiter is the runtime's sudog.
type chanWaiter struct {
	g           uintptr
	next        *chanWaiter
	prev        *chanWaiter
	elem        tracedPointer
	acquiretime int64
	releasetime int64
	ticket      uint32
	isSelect    bool
	success     bool
	waiters     uint16
	parent      *chanWaiter
	waitlink    *chanWaiter
	waittail    *chanWaiter
	c           tracedPointer
}

type tracedPointer struct {
	vp unsafe.Pointer
	vu uintptr
}

//go:linkname lockRuntime runtime.lock
func lockRuntime(l *uintptr)

//go:linkname unlockRuntime runtime.unlock
func unlockRuntime(l *uintptr)

//go:linkname readyRuntime runtime.goready
func readyRuntime(g uintptr, traceskip int)

//go:linkname clearRuntime runtime.typedmemclr
func clearRuntime(elemtype, p unsafe.Pointer)

// remove takes a waiter out of its queue.
func (q *chanQueue) remove(s *chanWaiter) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		q.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		q.last = s.prev
	}
	s.next, s.prev = nil, nil
}

// wakeChannel wakes the goroutines whose bare waits are for a channel.
func wakeChannel(channel unsafe.Pointer) {
	c := (*chanHeader)(channel)
	var list [64]uintptr // memory is not to be allocated while c is locked
	for more := true; more; {
		n := 0
		lockRuntime(&c.lock)
		for s := c.recvq.first; s != nil && n < len(list); {
			next := s.next
			if r := s.bareWait(channel); r != nil {
				r.woken = true
				c.recvq.remove(s)
				if s.elem.vp != nil {
					clearRuntime(c.elemtype, s.elem.vp)
				}
				s.elem = tracedPointer{}
				s.success = false
				list[n] = s.g
				n++
			}
			s = next
		}
		for s := c.sendq.first; s != nil && n < len(list); {
			next := s.next
			if r := s.bareWait(channel); r != nil {
				r.woken = true
				c.sendq.remove(s)
				s.elem = tracedPointer{}
				s.success = true
				list[n] = s.g
				n++
			}
			s = next
		}
		unlockRuntime(&c.lock)
		for _, g := range list[:n] { // not while c is locked, because of stack shrinking
			readyRuntime(g, 1)
		}
		more = n == len(list)
	}
}

// bareWait returns the control block of a goroutine in a bare wait for a
// channel, which is locked; otherwise nil. A goroutine sets channel before its
// bare wait, and clears it after, so the sudog is that of the bare wait.
func (s *chanWaiter) bareWait(channel unsafe.Pointer) *routine {
	if s.isSelect {
		return nil
	}
	if r := blocksOf.find(s.g); r != nil && r.channel == channel {
		return r
	}
	return nil
}

// The first word of a mutex is 0 if it is unlocked, and 1 if it is locked and
// nothing waits inside of it. The following two functions are inlined.

// BareLock stands for m.Lock().
func BareLock(m *sync.Mutex) {
	if atomic.LoadUint32(&urgentLocks) != 0 || !atomic.CompareAndSwapInt32((*int32)(unsafe.Pointer(m)), 0, 1) {
		bareLockMutex(m)
	}
}

// Unlock stands for m.Unlock().
func Unlock(m *sync.Mutex) {
	unlocked := atomic.CompareAndSwapInt32((*int32)(unsafe.Pointer(m)), 1, 0)
	if !unlocked || atomic.LoadUint32(&waitingLocks) != 0 {
		unlockMutex(m, unlocked)
	}
}

// plainWaits says that wakeChannel works with this Go runtime.
var plainWaits bool

// tryPlainWaits verifies the layout of the runtime's data, and tries wakeChannel.
func tryPlainWaits() {
	plainWaits = layoutKnown() && tryWake()
}

func layoutKnown() bool {
	made := make(chan uint16, 7)
	made <- 1
	made <- 2
	<-made
	c := *(**chanHeader)(unsafe.Pointer(&made))
	if c.qcount != 1 || c.dataqsiz != 7 || c.elemsize != 2 || c.closed != 0 || c.timer != nil || c.sendx != 2 || c.recvx != 1 ||
		c.recvq != (chanQueue{}) || c.sendq != (chanQueue{}) || c.bubble != nil || c.lock != 0 || c.buf == nil || c.elemtype == nil {
		return false
	}
	close(made)
	return c.closed == 1 && c.qcount == 1
}

// tryWake wakes a goroutine that receives, and one that sends.
func tryWake() bool {
	ok := make(chan bool, 2)
	in, out := make(chan *int), make(chan *int)
	try := func(c chan *int, wait func(r *routine) bool) {
		r := new(routine)
		r.register()
		defer r.unregister()
		r.channel = *(*unsafe.Pointer)(unsafe.Pointer(&c))
		ok <- wait(r)
	}
	go try(in, func(r *routine) bool {
		v, received := <-in
		return r.woken && v == nil && !received
	})
	go try(out, func(r *routine) bool {
		out <- new(int)
		return r.woken
	})
	for _, p := range []struct {
		c chan *int
		q func(*chanHeader) chanQueue
	}{{in, func(c *chanHeader) chanQueue { return c.recvq }}, {out, func(c *chanHeader) chanQueue { return c.sendq }}} {
		channel := *(*unsafe.Pointer)(unsafe.Pointer(&p.c))
		c := (*chanHeader)(channel)
		var q chanQueue
		for begun := time.Now(); q.first == nil; runtime.Gosched() {
			if time.Since(begun) > 10*time.Second {
				return false
			}
			lockRuntime(&c.lock)
			q = p.q(c)
			unlockRuntime(&c.lock)
		}
		s := q.first // its goroutine is parked
		if s != q.last || s.next != nil || s.prev != nil || s.isSelect || s.elem.vp == nil || uintptr(s.elem.vp) != s.elem.vu ||
			s.c.vp != channel || s.c.vu != uintptr(channel) || s.waitlink != nil || blocksOf.find(s.g) == nil {
			return false
		}
		wakeChannel(channel)
		if !<-ok || c.recvq != (chanQueue{}) || c.sendq != (chanQueue{}) {
			return false
		}
	}
	return true
}

// interruptBareWaits ends the bare waits for channels.
func (c *cutState) interruptBareWaits() {
	if !plainWaits {
		return
	}
	seen := make(map[unsafe.Pointer]bool)
	for g := range c.all {
		if channel := getPointer(&g.channel); channel != nil && !seen[channel] {
			seen[channel] = true
			wakeChannel(channel)
		}
	}
}
