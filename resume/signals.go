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

// What a program asks of package os/signal it asks of the functions here instead.
// They hand on what arrives, and know who waits for it: that is saved, and asked
// for again after a restart. No signal comes into a channel while that is saved.
//
// Some signals are Cairn's as well. SIGUSR1 goes to both. SIGTERM lets a program
// save and stop, so the first one is not handed on: a program that ends when it
// gets one would do so before its next point, as if its work were done. The second
// one is.

// numSignals is more than the number of any signal.
const numSignals = 65

// mask is a set of signals.
type mask [2]uint64

func (m *mask) has(n int) bool { return m[n/64]>>(n%64)&1 != 0 }
func (m *mask) add(o mask)     { m[0] |= o[0]; m[1] |= o[1] }
func (m *mask) drop(o mask)    { m[0] &^= o[0]; m[1] &^= o[1] }

// maskOf is the set of some signals; of none, of all.
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

// listening is what the program has asked for.
type listening struct {
	To       []listener
	Contexts []*derived // of NotifyContext, that were not stopped
	Ignored  mask
}

var signals struct {
	sync.Mutex
	listening
	asked  mask                   // what os/signal was asked to send
	in     chan os.Signal         // … here, all but
	own    map[int]chan os.Signal // … those that Cairn listens for
	passed bool                   // the first SIGTERM was there
	held   bool                   // the state may be copied: the lock is held
}

// ours is the set of the signals that are Cairn's too.
var ours = maskOf(ownSignals...)

var term = maskOf(syscall.SIGTERM)

// waiting is how many signals may wait to be handed on.
const waiting = 64

// listen begins to look at signals. It is called when the program first asks for
// some.
var listen = sync.OnceFunc(func() {
	s := &signals
	s.in, s.own = make(chan os.Signal, waiting), make(map[int]chan os.Signal)
	for _, sig := range ownSignals {
		c := make(chan os.Signal, waiting)
		s.own[int(sig.(syscall.Signal))] = c
		go hand(c)
	}
	go hand(s.in)
	s.Lock()
	defer s.Unlock()
	heed()
})

func hand(in <-chan os.Signal) {
	for sig := range in {
		dispatch(sig)
	}
}

// dispatch hands a signal on to all who wait for it.
func dispatch(sig os.Signal) {
	s := &signals
	s.Lock()
	defer s.Unlock()
	one := maskOf(sig)
	if one == term && !s.passed {
		s.passed = true
		if s.Ignored[0]&term[0] != 0 {
			signal.Ignore(sig)
		} else if wanted := s.wanted(); wanted[0]&term[0] != 0 {
			say("the program saves at its next point and stops; a second %v is its own", sig)
		}
		heed()
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

// wanted is what somebody waits for.
func (l *listening) wanted() (m mask) {
	for _, to := range l.To {
		m.add(to.Want)
	}
	for _, c := range l.Contexts {
		m.add(maskOf(c.signals...))
	}
	return m
}

// heed makes os/signal send what is wanted, and no more.
func heed() {
	s := &signals
	want := s.wanted()
	if !s.passed {
		want.add(term) // the first one has to be known
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
			signal.Reset(sig) // nobody else listens
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
	listen()
	s := &signals
	s.Lock()
	defer s.Unlock()
	// The type that the program has made it of, so that the state has one channel.
	both := *(*chan os.Signal)(unsafe.Pointer(&c))
	m := maskOf(sigs...)
	i := slices.IndexFunc(s.To, func(l listener) bool { return l.C == both })
	if i < 0 {
		i = len(s.To)
		s.To = append(s.To, listener{C: both})
	}
	s.To[i].Want.add(m)
	s.Ignored.drop(m)
	heed()
}

// StopNotify stands for signal.Stop.
func StopNotify(c chan<- os.Signal) {
	if run == nil {
		signal.Stop(c)
		return
	}
	listen()
	s := &signals
	s.Lock()
	defer s.Unlock()
	both := *(*chan os.Signal)(unsafe.Pointer(&c))
	s.To = slices.DeleteFunc(s.To, func(l listener) bool { return l.C == both })
	heed()
}

// forgo takes signals from all who wait for them.
func forgo(m mask) {
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
	s.Contexts = slices.DeleteFunc(s.Contexts, func(c *derived) bool { return len(c.signals) == 0 })
}

// Ignore stands for signal.Ignore.
func Ignore(sigs ...os.Signal) {
	if run == nil {
		signal.Ignore(sigs...)
		return
	}
	listen()
	s := &signals
	s.Lock()
	defer s.Unlock()
	m := maskOf(sigs...)
	forgo(m)
	s.Ignored.add(m)
	ignore(m)
	heed()
}

// ignore lets the system ignore signals, but those that Cairn listens for.
func ignore(m mask) {
	if signals.passed {
		ours := ours
		ours.drop(term)
		m.drop(ours)
	} else {
		m.drop(ours)
	}
	m.each(func(sig os.Signal, _ mask) { signal.Ignore(sig) })
}

// Ignored stands for signal.Ignored.
func Ignored(sig os.Signal) bool {
	if n, ok := sig.(syscall.Signal); run != nil && ok && n >= 0 && n < numSignals && ours.has(int(n)) {
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
	listen()
	s := &signals
	s.Lock()
	defer s.Unlock()
	m := maskOf(sigs...)
	forgo(m)
	s.Ignored.drop(m)
	heed()
	m.drop(ours)
	m.each(func(sig os.Signal, _ mask) { signal.Reset(sig) })
}

// hold keeps signals, and timers that call functions, from the state, which may be
// copied, and takes note of them. It comes before it is looked whether goroutines
// live: a timer that has gone off before is one of these.
func hold() {
	if !signals.held {
		signals.Lock()
		signals.held = true
	}
	saved.Signals, saved.Timers, saved.Waits = signals.listening, noteAfters(), nil
}

// free is the end of that.
func free() {
	freeFinalizers()
	if signals.held {
		saved.Signals, saved.Timers, saved.Waits = listening{}, nil, nil // what the program drops is not to be kept
		signals.held = false
		signals.Unlock()
	}
}

// restore asks for the signals of a set, and for no others that the start of the
// program may have asked for.
func (l *listening) restore() {
	if len(l.To) == 0 && len(l.Contexts) == 0 && l.Ignored == (mask{}) && signals.in == nil {
		return
	}
	listen()
	s := &signals
	s.Lock()
	defer s.Unlock()
	gone := s.Ignored
	gone.drop(l.Ignored)
	gone.drop(ours)
	gone.each(func(sig os.Signal, _ mask) { signal.Reset(sig) })
	s.listening = *l
	ignore(s.Ignored)
	heed()
	*l = listening{}
}

// signalError is why NotifyContext's contexts end: as that of os/signal, but one
// that can be saved.
type signalError string

func (s signalError) Error() string { return string(s) }

func (s signalError) Is(target error) bool { return target == context.Canceled }
