package resume

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Bare waits. To store frames and to announce a call before each wait costs
// more than many waits. So a function of the program first waits without that.
// If a cut is wanted meanwhile, the wait ends without an effect, and keeps its
// operands. Then the function stores its frame and waits as waits.go describes:
//
//	v, ok := BareRecvOK(c)
//	if Interrupted() {
//		store the frame
//		v, ok = RecvOK[T](nil) // for the channel of the bare wait
//		...
//	}
//
// The functions without results report themselves whether they were
// interrupted.

// interruptedNow is how many goroutines have been interrupted, and have not
// asked for it yet.
var interruptedNow int32

// Interrupted reports whether the bare wait that has just returned was
// interrupted. Then the function that stands for the same operation is called.
// A plain read suffices: this goroutine itself has written the variable.
func Interrupted() bool {
	if raceDetector {
		return atomic.LoadInt32(&interruptedNow) != 0 && interruptedHere()
	}
	return interruptedNow != 0 && interruptedHere()
}

func interruptedHere() bool {
	g := current()
	if g == nil || !g.cutShort {
		return false
	}
	g.cutShort = false
	atomic.AddInt32(&interruptedNow, -1)
	return true
}

// interrupt ends a bare wait. frame has its operands.
func (g *routine) interrupt(frame any) {
	g.operands, g.cutShort = frame, true
	atomic.AddInt32(&interruptedNow, 1)
}

// interruptNow ends a bare wait that reports this itself.
func (g *routine) interruptNow(frame any) bool {
	g.operands = frame
	return true
}

// operands returns the frame of the bare wait before this one, or nil.
func operands[T any]() *T {
	g := current()
	if g == nil || g.operands == nil {
		return nil
	}
	f := g.operands.(*T)
	g.operands = nil
	return f
}

// BareRecv stands for <-c.
func BareRecv[T any](c <-chan T) T {
	if run == nil {
		return <-c
	}
	v, _ := bareRecv(c)
	return v
}

// BareRecvOK stands for v, ok := <-c.
func BareRecvOK[T any](c <-chan T) (v T, ok bool) {
	if run == nil {
		v, ok = <-c
		return v, ok
	}
	return bareRecv(c)
}

func bareRecv[T any](c <-chan T) (v T, ok bool) {
	if c != nil {
		select {
		case v, ok = <-c:
			return v, ok
		default:
		}
	}
	g := current()
	switch {
	case g == nil:
		v, ok = <-c
		return v, ok
	case c == nil:
		g.interrupt(&recvFrame[T]{c})
		return v, false
	}
	setPointer(&g.channel, *(*unsafe.Pointer)(unsafe.Pointer(&c)))
	if plainWaits {
		if !cuts.wanted.Load() {
			v, ok = <-c
			setPointer(&g.channel, nil)
			if !g.woken {
				return v, ok
			}
			g.woken = false
		}
		setPointer(&g.channel, nil)
		g.interrupt(&recvFrame[T]{c})
		return v, false
	}
	for {
		select {
		case v, ok = <-c:
			setPointer(&g.channel, nil)
			return v, ok
		case <-g.wake:
			if cuts.wanted.Load() {
				setPointer(&g.channel, nil)
				g.interrupt(&recvFrame[T]{c})
				return v, false
			}
		}
	}
}

// BareSend stands for c <- v.
func (s Sender[T]) BareSend(v T) (interrupted bool) {
	if run == nil {
		s.C <- v
		return false
	}
	return bareSend(s.C, v)
}

func bareSend[T any](c chan<- T, v T) (interrupted bool) {
	if c != nil {
		select {
		case c <- v:
			return false
		default:
		}
	}
	g := current()
	switch {
	case g == nil:
		c <- v
		return false
	case c == nil:
		return g.interruptNow(&sendFrame[T]{c, v})
	}
	if plainWaits {
		setPointer(&g.channel, *(*unsafe.Pointer)(unsafe.Pointer(&c)))
		if !cuts.wanted.Load() {
			c <- v
			setPointer(&g.channel, nil)
			if !g.woken {
				return false
			}
			g.woken = false
		}
		setPointer(&g.channel, nil)
		return g.interruptNow(&sendFrame[T]{c, v})
	}
	for {
		select {
		case c <- v:
			return false
		case <-g.wake:
			if cuts.wanted.Load() {
				return g.interruptNow(&sendFrame[T]{c, v})
			}
		}
	}
}

// A function that sends or receives in a loop looks up the control block once,
// and does so in its own statement, if a cut can wake it:
//
//	w := Waiter()
//	for {
//		v, ok, c := ReceivingOK(c)
//		if !w.Waits(Address(c)) {
//			v, ok = BareRecvOK(c)
//		} else {
//			v, ok = <-c
//			if w.Waited() {
//				InterruptRecv(c)
//			}
//		}
//		if Interrupted() {
//			...

// Waiter returns the control block of this goroutine, for Waits.
func Waiter() *routine {
	if !plainWaits {
		return nil
	}
	return current()
}

// Waits is called before a send or receive. It returns false if that is to be
// done by BareSend or BareRecv.
func (g *routine) Waits(channel unsafe.Pointer) bool {
	if g == nil || channel == nil || cuts.wanted.now != 0 {
		return false
	}
	g.channel = channel // a cut that begins now looks at it again and again
	return true
}

// Waited ends what Waits has begun. It reports whether a cut has woken the
// goroutine; then nothing was sent or received.
func (g *routine) Waited() bool {
	g.channel = nil
	return g.woken
}

// InterruptRecv ends a receive that a cut has woken.
func InterruptRecv[T any](c <-chan T) {
	g := current()
	g.woken = false
	g.interrupt(&recvFrame[T]{c})
}

// InterruptSend ends a send that a cut has woken. It returns true.
func (s Sender[T]) InterruptSend(v T) bool {
	g := current()
	g.woken = false
	return g.interruptNow(&sendFrame[T]{s.C, v})
}

// Channel returns c as a channel to receive from. Receiving and ReceivingOK
// return it after zero values for the results.
func Channel[T any](c <-chan T) <-chan T                       { return c }
func Receiving[T any](c <-chan T) (v T, _ <-chan T)            { return v, c }
func ReceivingOK[T any](c <-chan T) (v T, ok bool, _ <-chan T) { return v, false, c }

// Address returns the address of a channel, for Waits.
func Address[T any](c <-chan T) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&c)) }

// Channel returns the address of the channel, for Waits.
func (s Sender[T]) Channel() unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&s.C)) }

// Value returns what is sent, and that the send was not interrupted.
func (s Sender[T]) Value(v T) (_ T, interrupted bool) { return v, false }

// A select statement without a default waits as the program's own, if a cut can
// wake it:
//
//	w := Waiter()
//	i, s := 0, Selected{}
//	if !w.SelectsTwo(0, a.Channel(), b.Channel()) {
//		i, s = BareSelect(a, b)
//	} else {
//		select {
//		case a.V, a.OK = <-a.C:
//		case b.V, b.OK = <-b.C:
//			i = 1
//		}
//		if w.Woken() {
//			InterruptSelect(a, b)
//		}
//	}

// SelectsTwo is Selects for two channels.
func (g *routine) SelectsTwo(sends int, a, b unsafe.Pointer) bool {
	first := a
	if first == nil {
		first = b
	}
	if g == nil || first == nil || sends != 0 || cuts.wanted.now != 0 {
		return g.Selects(sends, a, b)
	}
	setPointer(&g.receives[0], a)
	setPointer(&g.receives[1], b)
	set(&g.cases, 2)
	setPointer(&g.selecting, first)
	return true
}

// Selects is called before a select statement with these channels; the first
// ones are those that it sends to. It returns false if that is to be done by
// BareSelect.
func (g *routine) Selects(sends int, channels ...unsafe.Pointer) bool {
	if g == nil || len(channels) > len(g.receives) {
		return false
	}
	// Of several channels that it sends to, one may be closed. The statement
	// panics, and leaves selecting as it is. That does no harm if it is the
	// channel that is closed, because nothing waits for that any more.
	var first unsafe.Pointer
	for i, c := range channels {
		switch {
		case c == nil:
		case first == nil:
			first = c
		case i < sends && c != first:
			return false
		}
		if i < sends {
			c = nil
		}
		setPointer(&g.receives[i], c)
	}
	if first == nil { // nothing can wake it
		return false
	}
	set(&g.cases, uint32(len(channels)))
	setPointer(&g.selecting, first)
	if cuts.wanted.Load() {
		setPointer(&g.selecting, nil)
		return false
	}
	return true
}

// Woken ends what Selects has begun. It reports whether a cut has woken the
// goroutine; then no case was chosen.
func (g *routine) Woken() bool {
	setPointer(&g.selecting, nil)
	woken := g.woken
	g.woken = false
	return woken
}

// InterruptSelect ends a bare select that a cut has woken.
func InterruptSelect(list ...CaseOf) { current().interrupt(&selectFrame{pendingCases(list)}) }

// BareSelect stands for a select statement without a default.
func BareSelect(list ...CaseOf) (int, Selected) {
	cases := pendingCases(list)
	if i := tryCases(cases); i >= 0 {
		return i, Selected{cases[i]}
	}
	g := current()
	if g == nil {
		return selectAny(cases)
	}
	if i := awaitCases(g, cases); i >= 0 {
		return i, Selected{cases[i]}
	}
	g.interrupt(&selectFrame{cases})
	return -1, Selected{}
}

// A function that locks a mutex tries that first in its own code:
//
//	if (!Barging() || !TryLock(m)) && BareLock(m) {
//		store the frame
//		...

// BareLock stands for m.Lock().
func BareLock(m *sync.Mutex) (interrupted bool) {
	return (m == nil || locks.urgent.may(unsafe.Pointer(m)) || !m.TryLock()) && bareLock(lock{M: m})
}

// BareLockRW stands for m.Lock().
func BareLockRW(m *sync.RWMutex) (interrupted bool) {
	return (m == nil || locks.urgent.may(unsafe.Pointer(m)) || !m.TryLock()) && bareLock(lock{RW: m})
}

// BareRLock stands for m.RLock().
func BareRLock(m *sync.RWMutex) (interrupted bool) {
	return (m == nil || locks.urgent.may(unsafe.Pointer(m)) || !m.TryRLock()) && bareLock(lock{RW: m, Read: true})
}

// BareLockAny stands for l.Lock().
func BareLockAny(l sync.Locker) (interrupted bool) {
	switch m := l.(type) {
	case *sync.Mutex:
		return BareLock(m)
	case *sync.RWMutex:
		return BareLockRW(m)
	}
	l.Lock()
	return false
}

func bareLock(l lock) (interrupted bool) {
	g := current()
	if g == nil || l.M == nil && l.RW == nil {
		l.block()
		return false
	}
	return !lockFor(g, l) && g.interruptNow(&lockFrame{l})
}

// BareCondWait stands for c.Wait().
func BareCondWait(c *sync.Cond) (interrupted bool) {
	g := current()
	if run == nil || g == nil || c == nil || !plainWaits && !condsKnown() {
		c.Wait()
		return false
	}
	ticket := takeTicket(c)
	UnlockAny(c.L)
	called := awaitTicket(g, c, ticket)
	return !(called && lockAgain(g, c.L)) && g.interruptNow(&condFrame{c, ticket, called})
}
