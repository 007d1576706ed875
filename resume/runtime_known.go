//go:build cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64)

package resume

import (
	"reflect"
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
// What the runtime guarantees, and this relies on: a waiting goroutine is in
// the channel's queue with its sudog, which is added and removed with the
// channel's lock held. The lock is released only when the goroutine is parked.
// Whoever removes the sudog, and nobody else, makes the goroutine runnable.
// After that the goroutine reads success, and requires elem to be nil:
//
//   - a receive returns the zero value and success as ok; so false is what it
//     returns after close;
//   - a send returns if success is true. The value was not received by anybody,
//     since that is done by whoever removes the sudog.
//
// In both cases woken tells the goroutine that its operation has not taken
// place. A value that is sent, a close, or a timer that expires at the same
// time finds the sudog removed, or removes it first, and then it is not found
// here. The garbage collector sees all writes of pointers, because the types
// below have pointers where those of the runtime have, and stack shrinking
// takes the same lock.
//
// A goroutine in a select has a sudog in the queue of each of its channels.
// Whoever sets selectDone of the goroutine, and nobody else, wakes it. So such
// a goroutine is woken by the runtime's own functions, as if a value were sent
// to it, or received from it.
//
// A goroutine that waits for a sync.Cond has a sudog in its list, and a ticket.
// Whoever removes the sudog, with the list's lock held, wakes the goroutine. If
// its ticket is called after that, CondWait finds this out.

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

// dequeueRuntime takes a waiter from a queue. For a select, it returns nil if
// another goroutine wakes the waiter.
//
//go:linkname dequeueRuntime runtime.(*waitq).dequeue
func dequeueRuntime(q *chanQueue) *chanWaiter

// sendRuntime gives the value at ep to a waiter that receives, unlocks, and
// wakes it. recvRuntime takes the value of one that sends.
//
//go:linkname sendRuntime runtime.send
func sendRuntime(c *chanHeader, s *chanWaiter, ep unsafe.Pointer, unlock func(), skip int)

//go:linkname recvRuntime runtime.recv
func recvRuntime(c *chanHeader, s *chanWaiter, ep unsafe.Pointer, unlock func(), skip int)

// condList is the runtime's notifyList.
type condList struct {
	wait   uint32
	notify uint32
	lock   uintptr
	head   *chanWaiter
	tail   *chanWaiter
}

//go:linkname waitRuntime sync.runtime_notifyListWait
func waitRuntime(l *condList, ticket uint32)

// awaitTicket waits until a ticket is called. It returns false if a cut is
// wanted.
func awaitTicket(g *routine, c *sync.Cond, ticket uint32) bool {
	if !plainWaits {
		return ticketFor(g, c, ticket)
	}
	l := unsafe.Add(unsafe.Pointer(c), condOffset)
	setPointer(&g.cond, l)
	called := false
	if !cuts.wanted.Load() {
		waitRuntime((*condList)(l), ticket)
		called = !g.woken
		g.woken = false
	}
	setPointer(&g.cond, nil)
	return called
}

// wakeCond wakes the goroutines that wait in a list.
func wakeCond(list unsafe.Pointer) {
	l := (*condList)(list)
	var woken [64]uintptr
	for more := true; more; {
		n := 0
		lockRuntime(&l.lock)
		for before, s := (*chanWaiter)(nil), l.head; s != nil && n < len(woken); {
			next := s.next
			r := blocksOf.find(s.g)
			if r == nil || r.cond != list {
				before, s = s, next
				continue
			}
			r.woken = true
			if before != nil {
				before.next = next
			} else {
				l.head = next
			}
			if next == nil {
				l.tail = before
			}
			s.next = nil
			woken[n] = s.g
			n++
			s = next
		}
		unlockRuntime(&l.lock)
		for _, g := range woken[:n] {
			readyRuntime(g, 1)
		}
		more = n == len(woken)
	}
}

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
	w := selectWaker{c: c, unlock: func() { unlockRuntime(&c.lock) }}
	for w.wake() {
	}
}

// selectWaker wakes goroutines whose bare selects have a channel. All memory
// that wake needs is allocated before.
type selectWaker struct {
	c      *chanHeader
	one    chanQueue
	none   chanHeader // an unbuffered channel, whose receive takes no value from c
	unlock func()
}

// wake wakes one goroutine. It returns false if there is none.
func (w *selectWaker) wake() bool {
	c := w.c
	lockRuntime(&c.lock)
	for s := c.recvq.first; s != nil; {
		next := s.next
		if r := s.bareSelect(c); r != nil && w.claim(&c.recvq, s) {
			r.woken = true
			if s.elem.vp != nil {
				clearRuntime(c.elemtype, s.elem.vp)
			}
			s.elem = tracedPointer{}
			sendRuntime(c, s, nil, w.unlock, 1)
			return true
		}
		s = next
	}
	for s := c.sendq.first; s != nil; {
		next := s.next
		if r := s.bareSelect(c); r != nil && w.claim(&c.sendq, s) {
			r.woken = true
			recvRuntime(&w.none, s, nil, w.unlock, 1)
			return true
		}
		s = next
	}
	unlockRuntime(&c.lock)
	return false
}

// claim takes a waiter out of its queue. It returns false if another goroutine
// wakes it.
func (w *selectWaker) claim(q *chanQueue, s *chanWaiter) bool {
	q.remove(s)
	w.one = chanQueue{s, s}
	return dequeueRuntime(&w.one) != nil
}

// bareSelect returns the control block of a goroutine in a bare select that has
// the channel c, which is locked; otherwise nil.
func (s *chanWaiter) bareSelect(c *chanHeader) *routine {
	if !s.isSelect {
		return nil
	}
	if r := blocksOf.find(s.g); r != nil && r.selecting == unsafe.Pointer(c) {
		return r
	}
	return nil
}

// inBareSelect reports whether a goroutine waits in a bare select.
func (g *routine) inBareSelect() (is bool) {
	c := (*chanHeader)(getPointer(&g.selecting))
	if c == nil {
		return false
	}
	lockRuntime(&c.lock)
	for _, q := range []*chanQueue{&c.recvq, &c.sendq} {
		for s := q.first; s != nil && !is; s = s.next {
			is = s.bareSelect(c) == g
		}
	}
	unlockRuntime(&c.lock)
	return is
}

// inBareReceive reports whether a goroutine receives in a bare wait.
func (g *routine) inBareReceive() (is bool) {
	channel := getPointer(&g.channel)
	if channel == nil {
		return false
	}
	c := (*chanHeader)(channel)
	lockRuntime(&c.lock)
	for s := c.recvq.first; s != nil && !is; s = s.next {
		is = s.bareWait(channel) == g
	}
	unlockRuntime(&c.lock)
	return is
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
// nothing waits inside of it. The following functions are inlined. For
// urgentLocks a plain read suffices, because the next operation is atomic.

// inOrder says that the processor does not read a variable before an atomic
// operation that precedes the read.
const inOrder = runtime.GOARCH == "amd64"

// Lock stands for m.Lock().
func Lock(m *sync.Mutex) {
	if m == nil || urgentLocks != 0 || !atomic.CompareAndSwapInt32((*int32)(unsafe.Pointer(m)), 0, 1) {
		lockMutex(m)
	}
}

// Barging reports whether any goroutine may lock before those that wait, so
// that TryLock may be tried.
func Barging() bool { return urgentLocks == 0 }

// TryLock stands for m.TryLock().
func TryLock(m *sync.Mutex) bool {
	return atomic.CompareAndSwapInt32((*int32)(unsafe.Pointer(m)), 0, 1)
}

// Unlock stands for m.Unlock().
func Unlock(m *sync.Mutex) {
	unlocked := atomic.CompareAndSwapInt32((*int32)(unsafe.Pointer(m)), 1, 0)
	if !unlocked || inOrder && waitingLocks != 0 || !inOrder && atomic.LoadUint32(&waitingLocks) != 0 {
		unlockMutex(m, unlocked)
	}
}

// condData is sync.Cond. Signal and Broadcast have nothing to do if no
// goroutine waits: then the numbers of the list are equal. Package sync
// initializes the checker, and reports copies.
type condData struct {
	locker  [2]uintptr
	wait    uint32 // these are the list
	notify  uint32
	others  [3]uintptr
	checker uintptr // its own address, once the sync.Cond was used
}

// calls reports whether a goroutine may wait. For notify a plain read suffices:
// it follows an atomic one, and an older value is a smaller one.
func (c *condData) calls() bool {
	return c.checker != uintptr(unsafe.Pointer(&c.checker)) || atomic.LoadUint32(&c.wait) != c.notify
}

// Signal stands for c.Signal().
func Signal(c *sync.Cond) {
	if (*condData)(unsafe.Pointer(c)).calls() {
		signalCond(c)
	}
}

// Broadcast stands for c.Broadcast().
func Broadcast(c *sync.Cond) {
	if (*condData)(unsafe.Pointer(c)).calls() {
		broadcastCond(c)
	}
}

// plainWaits says that wakeChannel works with this Go runtime.
var plainWaits bool

// tryPlainWaits verifies the layout of the runtime's data, tries wakeChannel,
// and finds out where goroutines have their creators.
func tryPlainWaits() {
	plainWaits = layoutKnown() && tryWake() && tryWakeCond()
	findCreatorOffset()
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

// tryWake wakes goroutines that receive, send, and select.
func tryWake() bool {
	for _, t := range []struct {
		sends, selects bool
		wait           func(c, other chan *int) (woken bool)
	}{
		{false, false, func(c, _ chan *int) bool {
			v, ok := <-c
			return v == nil && !ok
		}},
		{true, false, func(c, _ chan *int) bool {
			c <- new(int)
			return true
		}},
		{false, true, func(c, other chan *int) bool {
			v, ok := new(int), false
			select {
			case v, ok = <-c:
			case other <- v:
				return false
			}
			return v == nil && ok
		}},
		{true, true, func(c, other chan *int) bool {
			select {
			case c <- new(int):
				return true
			case <-other:
				return false
			}
		}},
	} {
		c, other, ended := make(chan *int), make(chan *int), make(chan bool, 1)
		channel := *(*unsafe.Pointer)(unsafe.Pointer(&c))
		go func() {
			r := new(routine)
			if r.channel = channel; t.selects {
				r.channel, r.selecting = nil, channel
			}
			r.register()
			defer r.unregister()
			ended <- t.wait(c, other) && r.woken
		}()
		if !tryWakeOne((*chanHeader)(channel), *(**chanHeader)(unsafe.Pointer(&other)), t.sends, t.selects, ended) {
			return false
		}
	}
	return true
}

// tryWakeOne wakes the goroutine that waits for c, when it does.
func tryWakeOne(c, other *chanHeader, sends, selects bool, ended <-chan bool) bool {
	var q chanQueue
	for begun := time.Now(); q.first == nil; runtime.Gosched() {
		if time.Since(begun) > 10*time.Second {
			return false
		}
		lockRuntime(&c.lock)
		if q = c.recvq; sends {
			q = c.sendq
		}
		unlockRuntime(&c.lock)
	}
	s := q.first // its goroutine is parked
	if s != q.last || s.next != nil || s.prev != nil || s.isSelect != selects || s.elem.vp == nil || uintptr(s.elem.vp) != s.elem.vu ||
		s.c.vp != unsafe.Pointer(c) || s.c.vu != uintptr(unsafe.Pointer(c)) || blocksOf.find(s.g) == nil {
		return false
	}
	if !selects && s.waitlink != nil {
		return false
	}
	wakeChannel(unsafe.Pointer(c))
	return <-ended && c.recvq == chanQueue{} && c.sendq == chanQueue{} && other.recvq == chanQueue{} && other.sendq == chanQueue{}
}

// tryWakeCond wakes a goroutine that waits for a sync.Cond, among others.
func tryWakeCond() bool {
	field, ok := reflect.TypeFor[sync.Cond]().FieldByName("notify")
	if !ok || field.Type.Size() != unsafe.Sizeof(condList{}) || field.Offset != unsafe.Offsetof(condData{}.wait) || !condsKnown() {
		return false
	}
	c := sync.NewCond(new(sync.Mutex))
	used := (*condData)(unsafe.Pointer(c))
	if c.Signal(); used.calls() {
		return false
	}
	l := (*condList)(unsafe.Add(unsafe.Pointer(c), condOffset))
	ended := make(chan bool, 3)
	wait := func(r *routine) {
		r.register()
		defer r.unregister()
		waitRuntime(l, takeTicket(c))
		ended <- r.woken
	}
	for n := range 3 { // one after the other, so that their order is known
		r := new(routine)
		if n == 1 {
			r.cond = unsafe.Pointer(l)
		}
		go wait(r)
		for begun, waits := time.Now(), false; !waits; runtime.Gosched() {
			if time.Since(begun) > 10*time.Second {
				return false
			}
			lockRuntime(&l.lock)
			waits = l.tail != nil && l.tail.ticket == uint32(n) && l.tail.next == nil && blocksOf.find(l.tail.g) == r
			unlockRuntime(&l.lock)
		}
	}
	wakeCond(unsafe.Pointer(l))
	if !<-ended || l.head == nil || l.head.next != l.tail || l.tail == nil || l.tail.next != nil || l.wait != 3 || l.notify != 0 {
		return false
	}
	c.Broadcast()
	return !<-ended && !<-ended && l.head == nil && l.tail == nil && l.notify == 3
}

// bareWaits are what goroutines wait for in bare waits.
type bareWaits struct{ channels, conds map[unsafe.Pointer]bool }

// bareWaits returns the bare waits of now.
func (c *cutState) bareWaits() bareWaits {
	w := bareWaits{make(map[unsafe.Pointer]bool), make(map[unsafe.Pointer]bool)}
	if !plainWaits {
		return w
	}
	for g := range c.all {
		if list := getPointer(&g.cond); list != nil {
			w.conds[list] = true
		}
		for _, p := range []*unsafe.Pointer{&g.channel, &g.selecting} {
			if channel := getPointer(p); channel != nil {
				w.channels[channel] = true
			}
		}
	}
	return w
}

// interrupt ends the bare waits. If the cut has ended meanwhile, they begin
// again.
func (w bareWaits) interrupt() {
	for list := range w.conds {
		wakeCond(list)
	}
	for channel := range w.channels {
		wakeChannel(channel)
	}
}

// With many goroutines, their stack traces take seconds. Which function has
// started a goroutine is enough to know that it does not prevent a checkpoint,
// and the runtime keeps that in a field of each goroutine.

//go:linkname forEachRuntime runtime.forEachGRace
func forEachRuntime(f func(g uintptr))

// isSystemRuntime reports whether the traces of all goroutines omit g.
//
//go:linkname isSystemRuntime runtime.isSystemGoroutine
func isSystemRuntime(g uintptr, fixed bool) bool

//go:linkname statusRuntime runtime.readgstatus
func statusRuntime(g uintptr) uint32

// The states of goroutines that do not exist. A collection that looks at a
// goroutine adds statusScan.
const (
	statusIdle      = 0
	statusDead      = 6
	statusDeadExtra = 11
	statusScan      = 0x1000
)

// creatorOffset is where a goroutine has the place of its go statement; 0:
// unknown.
var creatorOffset uintptr

// findCreatorOffset compares the words of two goroutines with the functions
// that have started them.
func findCreatorOffset() {
	const limit = 512 // the runtime's g has 440 bytes
	words := func(start func(func())) (list [limit / 8]uintptr) {
		done := make(chan bool)
		start(func() {
			g := currentG()
			for i := range list {
				list[i] = *(*uintptr)(unsafe.Pointer(g + uintptr(i)*8))
			}
			close(done)
		})
		<-done
		return list
	}
	creatorOffset = 0
	first, second := words(startFirst), words(startSecond)
	for i := range first {
		if creatorName(first[i]) != ownPackage+"startFirst" || creatorName(second[i]) != ownPackage+"startSecond" {
			continue
		}
		if creatorOffset != 0 {
			creatorOffset = 0
			return
		}
		creatorOffset = uintptr(i) * 8
	}
}

//go:noinline
func startFirst(f func()) { go f() }

//go:noinline
func startSecond(f func()) { go f() }

// creatorName returns the name of the function with the go statement at pc.
func creatorName(pc uintptr) string {
	if f := runtime.FuncForPC(pc - 1); pc > 1 && f != nil {
		return f.Name()
	}
	return ""
}

// creators returns the functions that have started the goroutines besides this
// one, as stack traces name them, and how many each has started; nil: unknown.
func creators() map[string]int {
	if creatorOffset == 0 {
		return nil
	}
	own := currentG()
	places := make(map[uintptr]int)
	var launch uintptr // the go statement of routines, which are many
	routines := 0
	forEachRuntime(func(g uintptr) {
		if g == own {
			return
		}
		switch statusRuntime(g) &^ statusScan {
		case statusIdle, statusDead, statusDeadExtra:
			return
		}
		pc := *(*uintptr)(unsafe.Pointer(g + creatorOffset))
		if pc == launch && pc != 0 {
			routines++
			return
		}
		if isSystemRuntime(g, false) {
			return
		}
		if places[pc]++; places[pc] == 1 && creatorName(pc) == routineCreator {
			launch = pc
		}
	})
	names := make(map[string]int)
	if launch != 0 {
		places[launch] += routines
	}
	for pc, n := range places {
		names[creatorName(pc)] += n
	}
	return names
}
