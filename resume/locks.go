package resume

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Waits for locks. The goroutine that waits tries to lock, and sleeps until an
// unlock wakes it, or a cut does. So no goroutine waits inside the lock when
// the state is copied. A lock that is locked at a point is saved as locked; the
// goroutine that has locked it unlocks it after a restart. An unlock in code
// that is not rewritten wakes no goroutine. For such code, poll wakes the first
// goroutine that waits for a lock from time to time.

// lock is a lock and how it is to be locked. One of M and RW is set.
type lock struct {
	M    *sync.Mutex
	RW   *sync.RWMutex
	Read bool
}

func (l lock) try() bool {
	switch {
	case l.M != nil:
		return l.M.TryLock()
	case l.Read:
		return l.RW.TryRLock()
	}
	return l.RW.TryLock()
}

// block locks. A cut does not interrupt it.
func (l lock) block() {
	switch {
	case l.M != nil:
		l.M.Lock()
	case l.Read:
		l.RW.RLock()
	default:
		l.RW.Lock()
	}
}

func (l lock) address() unsafe.Pointer {
	if l.M != nil {
		return unsafe.Pointer(l.M)
	}
	return unsafe.Pointer(l.RW)
}

// locks holds the goroutines that wait for locks.
var locks = lockQueues{waiting: lockFilter{bits: &waitingLocks}, urgent: lockFilter{bits: &urgentLocks}}

// waitingLocks and urgentLocks are the bits of the filters. They are variables
// of their own, so that functions that load them can be inlined.
var waitingLocks, urgentLocks uint32

type lockQueues struct {
	waiting lockFilter // locks that goroutines wait for: an unlock wakes one
	urgent  lockFilter // locks whose queues are urgent

	sync.Mutex
	all     map[unsafe.Pointer]*lockQueue
	polling bool
}

// lockQueue holds the goroutines that wait for a lock, in their order.
type lockQueue struct {
	list   []*lockWaiter
	urgent bool // the first has waited for long: no other may lock before it does
}

type lockWaiter struct {
	g     *routine
	since time.Time
	l     lock
	q     *lockQueue
}

// lockFilter says which locks are not in a set, without a lock.
type lockFilter struct {
	bits  *uint32
	count [32]int // locks of each bit
}

func lockBit(p unsafe.Pointer) uint32 { return uint32(uint64(uintptr(p)) * 0x9e3779b97f4a7c15 >> 59) }

// may reports whether a lock may be in the set.
func (s *lockFilter) may(p unsafe.Pointer) bool {
	b := atomic.LoadUint32(s.bits)
	return b != 0 && b>>lockBit(p)&1 != 0
}

func (s *lockFilter) add(p unsafe.Pointer, n int) {
	i := lockBit(p)
	if s.count[i] += n; s.count[i] != 0 {
		atomic.StoreUint32(s.bits, *s.bits|1<<i)
	} else {
		atomic.StoreUint32(s.bits, *s.bits&^(1<<i))
	}
}

// maxBarging is how long goroutines may lock while another waits, as in package
// sync.
const maxBarging = time.Millisecond

// lockMutex is the part of Lock that is not inlined.
func lockMutex(m *sync.Mutex) {
	if run == nil {
		m.Lock()
		return
	}
	if m != nil && !locks.urgent.may(unsafe.Pointer(m)) && m.TryLock() {
		return
	}
	awaitLock(lock{M: m})
}

// LockRW stands for m.Lock().
func LockRW(m *sync.RWMutex) {
	if run == nil {
		m.Lock()
		return
	}
	if m != nil && !locks.urgent.may(unsafe.Pointer(m)) && m.TryLock() {
		return
	}
	awaitLock(lock{RW: m})
}

// RLock stands for m.RLock().
func RLock(m *sync.RWMutex) {
	if run == nil {
		m.RLock()
		return
	}
	if m != nil && !locks.urgent.may(unsafe.Pointer(m)) && m.TryRLock() {
		return
	}
	awaitLock(lock{RW: m, Read: true})
}

// unlockMutex is the part of Unlock that is not inlined.
func unlockMutex(m *sync.Mutex, unlocked bool) {
	if !unlocked {
		m.Unlock()
	}
	if locks.waiting.may(unsafe.Pointer(m)) {
		locks.wake(unsafe.Pointer(m))
	}
}

// UnlockRW stands for m.Unlock().
func UnlockRW(m *sync.RWMutex) {
	m.Unlock()
	if locks.waiting.may(unsafe.Pointer(m)) {
		locks.wake(unsafe.Pointer(m))
	}
}

// RUnlock stands for m.RUnlock().
func RUnlock(m *sync.RWMutex) {
	m.RUnlock()
	if locks.waiting.may(unsafe.Pointer(m)) {
		locks.wake(unsafe.Pointer(m))
	}
}

// UnlockAny stands for l.Unlock().
func UnlockAny(l sync.Locker) {
	switch m := l.(type) {
	case *sync.Mutex:
		Unlock(m)
	case *sync.RWMutex:
		UnlockRW(m)
	default:
		l.Unlock()
	}
}

// LockAny stands for l.Lock().
func LockAny(l sync.Locker) {
	if run == nil {
		l.Lock()
		return
	}
	switch m := l.(type) {
	case nil: // it may be called again, from its frame
		awaitLock(lock{})
	case *sync.Mutex:
		Lock(m)
	case *sync.RWMutex:
		LockRW(m)
	default:
		l.Lock()
	}
}

type lockFrame struct{ L lock }

func awaitLock(l lock) {
	w, can, f := beginWait[lockFrame]()
	if f != nil {
		l = f.L
	}
	if !can || l.M == nil && l.RW == nil {
		l.block()
		return
	}
	if f != nil && w.interrupted(&lockFrame{l}) {
		return
	}
	w.lock(l, func() any { return &lockFrame{l} })
}

// lock locks. It returns false if the function has to return instead, with the
// frame.
func (w wait) lock(l lock, frame func() any) bool {
	for !lockFor(w.g, l) {
		if w.interrupted(frame()) {
			return false
		}
	}
	return true
}

// lockFor locks. It returns false if a cut is wanted.
func lockFor(g *routine, l lock) bool {
	me := locks.join(g, l)
	for {
		if locks.mayTry(me) && l.try() {
			locks.remove(me, true)
			return true
		}
		locks.failed(me)
		<-g.wake
		if cuts.wanted.Load() {
			locks.remove(me, false)
			return false
		}
	}
}

// join adds a goroutine to those that wait for a lock.
func (s *lockQueues) join(g *routine, l lock) *lockWaiter {
	s.Lock()
	defer s.Unlock()
	if s.all == nil {
		s.all = make(map[unsafe.Pointer]*lockQueue)
	}
	q := s.all[l.address()]
	if q == nil {
		q = new(lockQueue)
		s.all[l.address()] = q
	}
	me := &lockWaiter{g, time.Now(), l, q}
	q.list = append(q.list, me)
	s.waiting.add(l.address(), 1)
	s.startPoll()
	return me
}

// mayTry reports whether a goroutine may lock before those that wait longer.
func (s *lockQueues) mayTry(me *lockWaiter) bool {
	if !s.urgent.may(me.l.address()) {
		return true
	}
	s.Lock()
	defer s.Unlock()
	return !me.q.urgent || me.q.list[0] == me
}

// failed notes that a goroutine could not lock.
func (s *lockQueues) failed(me *lockWaiter) {
	if time.Since(me.since) > maxBarging {
		s.Lock()
		defer s.Unlock()
		s.update(me.q, me.l)
	}
}

// update finds out whether a queue is urgent.
func (s *lockQueues) update(q *lockQueue, l lock) {
	is := len(q.list) > 0 && time.Since(q.list[0].since) > maxBarging
	switch {
	case is && !q.urgent:
		s.urgent.add(l.address(), 1)
	case !is && q.urgent:
		s.urgent.add(l.address(), -1)
	}
	q.urgent = is
}

// remove removes a goroutine, which has locked or unwinds. Others may be able
// to lock now.
func (s *lockQueues) remove(me *lockWaiter, locked bool) {
	s.Lock()
	defer s.Unlock()
	q := me.q
	for i, o := range q.list {
		if o == me {
			copy(q.list[i:], q.list[i+1:])
			q.list[len(q.list)-1] = nil
			q.list = q.list[:len(q.list)-1]
			break
		}
	}
	s.waiting.add(me.l.address(), -1)
	s.update(q, me.l)
	if len(q.list) == 0 {
		delete(s.all, me.l.address())
	} else if !locked || me.l.Read {
		q.list[0].g.rouse()
	}
}

// wake wakes the first goroutine that waits for a lock.
func (s *lockQueues) wake(address unsafe.Pointer) {
	s.Lock()
	defer s.Unlock()
	if q := s.all[address]; q != nil {
		q.list[0].g.rouse()
	}
}

// rouse wakes a goroutine from a wait. The goroutine then looks whether it has
// to continue or to unwind.
func (g *routine) rouse() {
	select {
	case g.wake <- struct{}{}:
	default: // it has a token
	}
}

// startPoll starts poll, if it does not run.
func (s *lockQueues) startPoll() {
	if !s.polling {
		s.polling = true
		go s.poll()
	}
}

// poll wakes goroutines whose locks may have been unlocked by code that is not
// rewritten.
func (s *lockQueues) poll() {
	for idle, pause := 0, time.Millisecond; ; {
		time.Sleep(pause)
		begun := time.Now()
		s.Lock()
		for _, q := range s.all {
			q.list[0].g.rouse()
		}
		conditions.wakeAll()
		if idle++; len(s.all) > 0 || conditions.waiting.Load() > 0 {
			idle = 0
		}
		s.polling = idle < 100
		over := !s.polling
		s.Unlock()
		if over {
			return
		}
		pause = max(min(pause+pause/8, 10*time.Millisecond), 20*time.Since(begun))
		if idle > 0 {
			pause = time.Millisecond
		}
	}
}

// conditions holds the goroutines that wait for a sync.Cond. Each has a ticket,
// as those that wait in package sync: Signal and Broadcast of any code count
// the tickets that they have called.
var conditions condQueues

type condQueues struct {
	waiting atomic.Int32

	sync.Mutex
	all map[*sync.Cond]*condQueue
}

// condQueue holds goroutines by their tickets.
type condQueue struct {
	waiting map[uint32]*routine
	woken   uint32 // those with smaller tickets were woken
}

// condWords returns the number of the next ticket, and that of the first one
// that was not called yet.
func condWords(c *sync.Cond) (next, uncalled *uint32) {
	p := unsafe.Add(unsafe.Pointer(c), condOffset)
	return (*uint32)(p), (*uint32)(unsafe.Add(p, 4))
}

var condOffset = func() uintptr {
	f, _ := reflect.TypeFor[sync.Cond]().FieldByName("notify")
	return f.Offset
}()

// condsKnown verifies the layout of sync.Cond, and what Signal does.
var condsKnown = sync.OnceValue(func() bool {
	f, ok := reflect.TypeFor[sync.Cond]().FieldByName("notify")
	if !ok || f.Type.Kind() != reflect.Struct || f.Type.NumField() < 2 {
		return false
	}
	for i, name := range []string{"wait", "notify"} {
		if w := f.Type.Field(i); w.Name != name || w.Offset != uintptr(4*i) || w.Type.Size() != 4 {
			return false
		}
	}
	c := sync.NewCond(new(sync.Mutex))
	next, uncalled := condWords(c)
	atomic.AddUint32(next, 3)
	c.Signal()
	one := atomic.LoadUint32(uncalled) == 1
	c.Broadcast()
	return one && atomic.LoadUint32(uncalled) == 3
})

// ticketCalled reports whether a ticket was called.
func ticketCalled(c *sync.Cond, ticket uint32) bool {
	_, uncalled := condWords(c)
	return int32(ticket-atomic.LoadUint32(uncalled)) < 0
}

type condFrame struct {
	C      *sync.Cond
	Ticket uint32
	Called bool // it was, when the checkpoint was taken
}

// saving is called when all goroutines stand still: one of them may have called
// the ticket after this one has arrived.
func (f *condFrame) saving() { f.Called = f.Called || ticketCalled(f.C, f.Ticket) }

// restored takes a ticket of the restored sync.Cond, which has called none.
func (f *condFrame) restored() {
	if !f.Called {
		f.Ticket = takeTicket(f.C)
	}
}

// takeTicket returns the next ticket.
func takeTicket(c *sync.Cond) uint32 {
	next, _ := condWords(c)
	return atomic.AddUint32(next, 1) - 1
}

// CondWait stands for c.Wait().
func CondWait(c *sync.Cond) {
	if run == nil || !condsKnown() {
		c.Wait()
		return
	}
	w, can, f := beginWait[condFrame]()
	if !can || f == nil && c == nil {
		c.Wait()
		return
	}
	frame := func() any { saved := *f; return &saved }
	if f == nil {
		f = &condFrame{C: c, Ticket: takeTicket(c)}
		UnlockAny(c.L)
	} else if f = frame().(*condFrame); w.interrupted(frame()) {
		return
	}
	for !f.Called {
		if f.Called = ticketFor(w.g, f.C, f.Ticket); !f.Called && w.interrupted(frame()) {
			return
		}
	}
	for !lockAgain(w.g, f.C.L) {
		if w.interrupted(frame()) {
			return
		}
	}
}

// ticketFor waits until a ticket is called. It returns false if a cut is
// wanted.
func ticketFor(g *routine, c *sync.Cond, ticket uint32) bool {
	conditions.join(g, c, ticket)
	defer conditions.remove(c, ticket)
	for !ticketCalled(c, ticket) {
		<-g.wake
		switch {
		case !cuts.wanted.Load():
		case ticketCalled(c, ticket):
			g.rouse() // the next wait is to see the cut
		default:
			return false
		}
	}
	return true
}

// lockAgain locks the lock of a sync.Cond after its wait. It returns false if a
// cut is wanted.
func lockAgain(g *routine, l sync.Locker) bool {
	switch m := l.(type) {
	case *sync.Mutex:
		return !locks.urgent.may(unsafe.Pointer(m)) && m.TryLock() || lockFor(g, lock{M: m})
	case *sync.RWMutex:
		return !locks.urgent.may(unsafe.Pointer(m)) && m.TryLock() || lockFor(g, lock{RW: m})
	}
	l.Lock()
	return true
}

// signalCond is the part of Signal that is not inlined.
func signalCond(c *sync.Cond) {
	c.Signal()
	if conditions.waiting.Load() != 0 {
		conditions.wake(c)
	}
}

// broadcastCond is the part of Broadcast that is not inlined.
func broadcastCond(c *sync.Cond) {
	c.Broadcast()
	if conditions.waiting.Load() != 0 {
		conditions.wake(c)
	}
}

func (s *condQueues) join(g *routine, c *sync.Cond, ticket uint32) {
	s.Lock()
	if s.all == nil {
		s.all = make(map[*sync.Cond]*condQueue)
	}
	q := s.all[c]
	if q == nil {
		_, uncalled := condWords(c)
		q = &condQueue{make(map[uint32]*routine), atomic.LoadUint32(uncalled)}
		s.all[c] = q
	}
	q.waiting[ticket] = g
	s.waiting.Add(1)
	s.Unlock()
	locks.Lock()
	defer locks.Unlock()
	locks.startPoll()
}

func (s *condQueues) remove(c *sync.Cond, ticket uint32) {
	s.Lock()
	defer s.Unlock()
	q := s.all[c]
	delete(q.waiting, ticket)
	s.waiting.Add(-1)
	if len(q.waiting) == 0 {
		delete(s.all, c)
	}
}

// wake wakes the goroutines whose tickets were called.
func (s *condQueues) wake(c *sync.Cond) {
	s.Lock()
	defer s.Unlock()
	if q := s.all[c]; q != nil {
		q.wake(c)
	}
}

func (s *condQueues) wakeAll() {
	s.Lock()
	defer s.Unlock()
	for c, q := range s.all {
		q.wake(c)
	}
}

func (q *condQueue) wake(c *sync.Cond) {
	_, uncalled := condWords(c)
	for end := atomic.LoadUint32(uncalled); q.woken != end; q.woken++ {
		if g := q.waiting[q.woken]; g != nil {
			g.rouse()
		}
	}
}
