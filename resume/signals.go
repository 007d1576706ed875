package resume

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"unsafe"
)

// These functions stand for those of package os/signal. They forward signals to
// the program and record its subscriptions. A checkpoint has these, and a
// restart makes them again. No signal comes into a channel while the state is
// copied.
//
// Some signals are Cairn's as well. SIGUSR1 goes to both. SIGTERM lets a
// program save and stop, so the first one is not forwarded: a program that ends
// when it gets one would do so before its next point, as if its work were done.
// The second one is forwarded, except under a supervisor: schedulers send more
// than one, and the supervisor kills a program that does not stop in time.

// numSignals is more than the number of any signal.
const numSignals = 65

// mask is a set of signals.
type mask [2]uint64

func (m *mask) has(n int) bool { return m[n/64]>>(n%64)&1 != 0 }
func (m *mask) add(o mask)     { m[0] |= o[0]; m[1] |= o[1] }
func (m *mask) drop(o mask)    { m[0] &^= o[0]; m[1] &^= o[1] }

// maskOf returns a set of signals; without arguments, that of all.
func maskOf(sigs ...os.Signal) (m mask) {
	if len(sigs) == 0 {
		return mask{^uint64(0), 1<<(numSignals-64) - 1}
	}
	for _, s := range sigs {
		if n, ok := s.(syscall.Signal); ok && n >= 0 && n < numSignals {
			m[n/64] |= 1 << (n % 64)
		}
	}
	return m
}

// each calls f for the signals of m.
func (m mask) each(f func(s os.Signal, one mask)) {
	for n := range numSignals {
		if m.has(n) {
			f(syscall.Signal(n), maskOf(syscall.Signal(n)))
		}
	}
}

// listener is a channel that signals go to.
type listener struct {
	C    chan os.Signal
	Want mask
}

// subscriptions are what the program has asked for.
type subscriptions struct {
	To       []listener
	Contexts []*savedContext // of NotifyContext, that were not stopped
	Ignored  mask
}

var signals struct {
	sync.Mutex
	subscriptions
	asked  mask                   // signals that os/signal sends
	in     chan os.Signal         // to this channel, all but
	own    map[int]chan os.Signal // those that Cairn listens for, each to its own
	passed bool                   // the first SIGTERM was received
	held   bool                   // the lock is held: the state may be copied
}

// ownMask is the set of signals that are Cairn's, too.
var ownMask = maskOf(ownSignals...)

var term = maskOf(syscall.SIGTERM)

// maxPending is how many signals may wait to be forwarded.
const maxPending = 64

// startListening begins to receive signals. It is called when the program first
// subscribes.
var startListening = sync.OnceFunc(func() {
	s := &signals
	s.in, s.own = make(chan os.Signal, maxPending), make(map[int]chan os.Signal)
	for _, sig := range ownSignals {
		c := make(chan os.Signal, maxPending)
		s.own[int(sig.(syscall.Signal))] = c
		go forward(c)
	}
	go forward(s.in)
	s.Lock()
	defer s.Unlock()
	updateNotify()
})

func forward(in <-chan os.Signal) {
	for sig := range in {
		dispatch(sig)
	}
}

// dispatch forwards a signal to all subscribers.
func dispatch(sig os.Signal) {
	s := &signals
	s.Lock()
	defer s.Unlock()
	one := maskOf(sig)
	if one == term && !s.passed {
		if s.passed = !supervised; supervised {
			return
		}
		if s.Ignored[0]&term[0] != 0 {
			signal.Ignore(sig)
		} else if wanted := s.wanted(); wanted[0]&term[0] != 0 {
			warn("the program saves at its next point and stops; a second %v goes to the program", sig)
		}
		updateNotify()
		return
	}
	n := int(sig.(syscall.Signal))
	for i := range s.To {
		if l := &s.To[i]; l.Want.has(n) {
			select {
			case l.C <- sig:
			default: // as os/signal does
			}
		}
	}
	for _, c := range s.Contexts {
		if m := maskOf(c.signals...); m.has(n) {
			c.signaled(sig)
		}
	}
}

// wanted is the set of signals with a subscriber.
func (l *subscriptions) wanted() (m mask) {
	for _, to := range l.To {
		m.add(to.Want)
	}
	for _, c := range l.Contexts {
		m.add(maskOf(c.signals...))
	}
	return m
}

// updateNotify makes os/signal send what is wanted, and no more.
func updateNotify() {
	s := &signals
	want := s.wanted()
	if !s.passed {
		want.add(term) // the first one is Cairn's
	}
	begin, end := want, s.asked
	begin.drop(s.asked)
	end.drop(want)
	begin.each(func(sig os.Signal, one mask) {
		if c := s.own[int(sig.(syscall.Signal))]; c != nil {
			signal.Notify(c, sig)
		} else {
			signal.Notify(s.in, sig)
		}
	})
	end.each(func(sig os.Signal, one mask) {
		if c := s.own[int(sig.(syscall.Signal))]; c != nil {
			signal.Stop(c)
		} else if !s.Ignored.has(int(sig.(syscall.Signal))) {
			signal.Reset(sig) // there is no other subscriber
		}
	})
	s.asked = want
}

// Notify stands for signal.Notify.
func Notify(c chan<- os.Signal, sigs ...os.Signal) {
	if run == nil || c == nil {
		signal.Notify(c, sigs...)
		return
	}
	startListening()
	s := &signals
	s.Lock()
	defer s.Unlock()
	// The type that the program has given it, so that the state has one
	// channel.
	both := *(*chan os.Signal)(unsafe.Pointer(&c))
	m := maskOf(sigs...)
	i := slices.IndexFunc(s.To, func(l listener) bool { return l.C == both })
	if i < 0 {
		i = len(s.To)
		s.To = append(s.To, listener{C: both})
	}
	s.To[i].Want.add(m)
	s.Ignored.drop(m)
	updateNotify()
}

// StopNotify stands for signal.Stop.
func StopNotify(c chan<- os.Signal) {
	if run == nil {
		signal.Stop(c)
		return
	}
	startListening()
	s := &signals
	s.Lock()
	defer s.Unlock()
	both := *(*chan os.Signal)(unsafe.Pointer(&c))
	s.To = slices.DeleteFunc(s.To, func(l listener) bool { return l.C == both })
	updateNotify()
}

// unsubscribe removes signals from all subscriptions.
func unsubscribe(m mask) {
	s := &signals
	for i := range s.To {
		s.To[i].Want.drop(m)
	}
	for _, c := range s.Contexts {
		if len(c.signals) == 0 {
			c.signals = nil
			maskOf().each(func(sig os.Signal, _ mask) { c.signals = append(c.signals, sig) })
		}
		c.signals = slices.DeleteFunc(slices.Clone(c.signals), func(sig os.Signal) bool {
			n, ok := sig.(syscall.Signal)
			return !ok || n < 0 || n >= numSignals || m.has(int(n))
		})
	}
	s.To = slices.DeleteFunc(s.To, func(l listener) bool { return l.Want == mask{} })
	s.Contexts = slices.DeleteFunc(s.Contexts, func(c *savedContext) bool { return len(c.signals) == 0 })
}

// Ignore stands for signal.Ignore.
func Ignore(sigs ...os.Signal) {
	if run == nil {
		signal.Ignore(sigs...)
		return
	}
	startListening()
	s := &signals
	s.Lock()
	defer s.Unlock()
	m := maskOf(sigs...)
	unsubscribe(m)
	s.Ignored.add(m)
	ignore(m)
	updateNotify()
}

// ignore lets the system ignore signals, except those that Cairn listens for.
func ignore(m mask) {
	if signals.passed {
		ours := ownMask
		ours.drop(term)
		m.drop(ours)
	} else {
		m.drop(ownMask)
	}
	m.each(func(sig os.Signal, _ mask) { signal.Ignore(sig) })
}

// Ignored stands for signal.Ignored.
func Ignored(sig os.Signal) bool {
	if n, ok := sig.(syscall.Signal); run != nil && ok && n >= 0 && n < numSignals && ownMask.has(int(n)) {
		signals.Lock()
		defer signals.Unlock()
		return signals.Ignored.has(int(n))
	}
	return signal.Ignored(sig)
}

// ResetSignals stands for signal.Reset.
func ResetSignals(sigs ...os.Signal) {
	if run == nil {
		signal.Reset(sigs...)
		return
	}
	startListening()
	s := &signals
	s.Lock()
	defer s.Unlock()
	m := maskOf(sigs...)
	unsubscribe(m)
	s.Ignored.drop(m)
	updateNotify()
	m.drop(ownMask)
	m.each(func(sig os.Signal, _ mask) { signal.Reset(sig) })
}

// pauseEvents saves the signals and the timers that call functions, and keeps
// them from changing the state while it is copied. Call it before the search
// for goroutines: the function of a timer that fired earlier runs on one of
// them.
func pauseEvents() {
	if !signals.held {
		signals.Lock()
		signals.held = true
	}
	saved.Signals, saved.Timers, saved.Waiters = signals.subscriptions, saveTimers(), nil
}

// resumeEvents undoes pauseEvents.
func resumeEvents() {
	unlockFinalizers()
	if signals.held {
		saved.Signals, saved.Timers, saved.Waiters = subscriptions{}, nil, nil // so that the program can free them
		signals.held = false
		signals.Unlock()
	}
}

// restore subscribes to the signals of a checkpoint, and to no others that the
// start of the program may have asked for.
func (l *subscriptions) restore() {
	if len(l.To) == 0 && len(l.Contexts) == 0 && l.Ignored == (mask{}) && signals.in == nil {
		return
	}
	startListening()
	s := &signals
	s.Lock()
	defer s.Unlock()
	gone := s.Ignored
	gone.drop(l.Ignored)
	gone.drop(ownMask)
	gone.each(func(sig os.Signal, _ mask) { signal.Reset(sig) })
	s.subscriptions = *l
	ignore(s.Ignored)
	updateNotify()
	*l = subscriptions{}
}

// signalError is the cause of canceled contexts of NotifyContext, like that of
// os/signal. It can be saved.
type signalError string

func (s signalError) Error() string { return string(s) }

func (s signalError) Is(target error) bool { return target == context.Canceled }
