package graph

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// In a program that is saved as a whole, a time.Timer or time.Ticker and its
// channel have one region: the stand-in of the channel. It begins with two
// elements, which are durations counted from 1970. The first is the time that
// remained until the timer fires (before 1970: it should have fired; zero: it
// is stopped or has fired). The second is the period. The values in the channel
// follow. A restart makes a new timer, and the remaining time counts from that
// moment.

var timerTypes = [2]reflect.Type{reflect.TypeFor[*time.Timer](), reflect.TypeFor[*time.Ticker]()}

const (
	timerMark = 2  // value of closed for the channel of a timer
	afterMark = 3  // value of closed for a timer that calls a function
	timerHead = 2  // elements that describe the timer
	timerLook = 12 // how many words of a timer are examined; most are private to the runtime
)

// timerWords says where the runtime keeps the fields of a timer, in words from
// its start.
type timerWords struct {
	ok           bool
	part         int // part of a timer that its channel points to
	when, period int
	channel      int
	async        bool // as before Go 1.23: channels do not know their timers
}

func timerWord(t unsafe.Pointer, n int) *int64 { return (*int64)(unsafe.Add(t, n*8)) }

// timersKnown finds the positions and tests them.
var timersKnown = sync.OnceValue(func() (k timerWords) {
	if !channelsKnown() || wordSize != 8 {
		return k
	}
	const far, farther = 1234567*time.Second + 89, 2345678*time.Second + 91
	a, b := time.NewTicker(far), time.NewTimer(farther)
	defer a.Stop()
	defer b.Stop()
	p, q := unsafe.Pointer(a), unsafe.Pointer(b)
	for i := 3; i < timerLook-3; i++ {
		if *timerWord(p, i) == int64(far) {
			k.period, k.when, k.channel = i, i-1, i+3
			break
		}
	}
	h, g := timerChan(p), timerChan(q)
	k.async = h.timer == nil
	if !k.async {
		k.part = int(uintptr(h.timer)-uintptr(p)) / 8
	}
	if k.period == 0 || k.part < 0 || k.part >= k.when || h.size != 1 || !k.is(p, h) || !k.is(q, g) || k.is(p, g) {
		return timerWords{}
	}
	// Check that both kinds use the same clock, and check a timer that is
	// stopped and then set again.
	since := *timerWord(q, k.when) - int64(farther) - (*timerWord(p, k.when) - int64(far))
	b.Stop()
	stopped := *timerWord(q, k.when) == 0
	(*time.Ticker)(q).Reset(far)
	again := *timerWord(q, k.when) - *timerWord(p, k.when)
	k.ok = since >= 0 && since < int64(time.Hour) && stopped && again >= since && again < int64(time.Hour) && *timerWord(q, k.period) == int64(far)
	return k
})

// timerChan returns the channel of a timer. C is the first field in both types.
func timerChan(t unsafe.Pointer) *hchan { return *(**hchan)(t) }

// is reports whether the runtime knows h as the channel of timer t, and t as
// the timer of h. This is not so for a copy of a timer.
//
//go:nocheckptr
func (k *timerWords) is(t unsafe.Pointer, h *hchan) bool {
	if k.async != (h.timer == nil) || !k.async && h.timer != unsafe.Add(t, k.part*8) {
		return false
	}
	return uintptr(*timerWord(t, k.channel)) == uintptr(unsafe.Pointer(h))
}

// of returns the timer of a channel, or nil.
//
//go:nocheckptr
func (k *timerWords) of(h *hchan) unsafe.Pointer {
	if h.timer == nil || !k.ok {
		return nil
	}
	return unsafe.Add(h.timer, -k.part*8)
}

// clock returns the current time of the timers' clock.
func (k *timerWords) clock() int64 {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	return *timerWord(unsafe.Pointer(t), k.when) - int64(time.Hour)
}

// state returns the elements of a stand-in that describe a timer.
func (k *timerWords) state(t unsafe.Pointer) [timerHead]time.Time {
	var left time.Time
	every := atomic.LoadInt64(timerWord(t, k.period))
	if when := atomic.LoadInt64(timerWord(t, k.when)); when > 0 {
		left = time.Unix(0, when-k.clock()).UTC()
	}
	return [timerHead]time.Time{left, time.Unix(0, max(every, 0)).UTC()}
}

// calling handles timers that call a function. Another package keeps track of
// them.
var calling struct {
	known func(*time.Timer) bool
	make  func() *time.Timer
}

// RegisterTimers registers the functions of the package that keeps track of
// timers which call a function (such timers have no channel): known reports
// whether a timer is tracked, make returns a new timer, which is set later.
// Call RegisterTimers from an init function.
func RegisterTimers(known func(*time.Timer) bool, make func() *time.Timer) {
	calling.known, calling.make = known, make
}

// TimerRemaining returns the time until a timer fires, and whether it will
// fire.
func TimerRemaining(t *time.Timer) (left time.Duration, runs bool) {
	k := timersKnown()
	if !k.ok {
		return 0, false
	}
	when := atomic.LoadInt64(timerWord(unsafe.Pointer(t), k.when))
	if when <= 0 {
		return 0, false
	}
	return time.Duration(when - k.clock()), true
}

// AsyncTimers reports whether channels do not know their timers, as before Go
// 1.23.
func AsyncTimers() bool { return timersKnown().async }

// MayBeTimer reports whether something comes from a channel, given by its
// pointer, without a send: whether it may be the channel of a timer.
func MayBeTimer(channel unsafe.Pointer) bool {
	h := (*hchan)(channel)
	if h == nil {
		return false
	}
	k := timersKnown()
	return !k.ok || !channelsKnown() || h.timer != nil || k.async && h.size == 1
}

// pushTimer records the stand-in of the timer that the variable at ptr points
// to.
func (c *Collector) pushTimer(p *plan, ptr unsafe.Pointer, i int32, at uintptr) error {
	t := *(*unsafe.Pointer)(ptr)
	if t == nil {
		return nil
	}
	k := timersKnown()
	switch h := timerChan(t); {
	case !k.ok:
		return c.refuse(p, i, at, "it is a timer, and this version of Go lays them out in a way that is not known")
	case h == nil && *(*bool)(unsafe.Add(t, wordSize)): // package time has initialized it
		if calling.known == nil || !calling.known((*time.Timer)(t)) {
			return c.refuse(p, i, at, "it is a timer that calls a function, and does not run")
		}
		one := reflect.New(p.elem.t)
		c.keep = append(c.keep, one.Interface())
		return c.stand(t, one.UnsafePointer(), p.elem, 1, viaChan, i, at)
	case h == nil:
		return c.refuse(p, i, at, "it is a timer that was not made by package time")
	case !k.is(t, h):
		return c.refuse(p, i, at, "it is the copy of a timer, or has another channel")
	default:
		return c.pushFed(p, h, t, i, at)
	}
}

// pushFed records the stand-in of a channel. t is the timer that sends to the
// channel, or nil.
func (c *Collector) pushFed(p *plan, h *hchan, t unsafe.Pointer, i int32, at uintptr) error {
	if c.made.has(uintptr(unsafe.Pointer(h)), p.elem) {
		return nil
	}
	if h.recvq.first != nil && !hasWaiters || h.sendq.first != nil {
		return c.refuse(p, i, at, "a goroutine waits for the channel")
	}
	var state []time.Time
	if t != nil {
		if c.timers == nil {
			c.timers = make(map[*hchan]bool)
		}
		c.timers[h] = true
		k := timersKnown()
		now := k.state(t)
		state = now[:]
	}
	head, n := len(state), int(h.count)
	if head > 0 && n > 0 && state[1].UnixNano() == 0 {
		state[0] = time.Time{} // it has fired, perhaps only just now
	}
	s := reflect.MakeSlice(reflect.SliceOf(p.elem.t), head+n, head+n)
	for j := range state {
		s.Index(j).Field(0).Set(reflect.ValueOf(state[j]))
	}
	for j := range n {
		v := unsafe.Add(h.buf, uintptr((h.recvx+uint(j))%h.size)*uintptr(h.elemSize))
		s.Index(head + j).Set(reflect.NewAt(p.elem.t, v).Elem())
	}
	c.keep = append(c.keep, s.Interface())
	return c.stand(unsafe.Pointer(h), s.UnsafePointer(), p.elem, uint64(head+n), viaChan, i, at)
}

// timer returns the timer that a region stands for. It is set later.
func (d *decoder) timer(p *plan, obj, size uint64) (*region, error) {
	g := &d.regs[obj-1]
	if p.elem.t != slotType(timeType) || size != 1 || g.n < timerHead || g.n > timerHead+size || g.m != nil && g.timer == nil {
		return nil, invalid("a timer of %d elements that holds %d", size, g.n)
	}
	if !timersKnown().ok {
		return nil, &MismatchError{Name: "timer", Path: "timer", Detail: "the checkpoint has a timer, and this version of Go lays them out in a way that is not known"}
	}
	if g.m == nil {
		t := time.NewTimer(time.Hour)
		t.Stop()
		g.timer = unsafe.Pointer(t)
		g.m, g.mt = unsafe.Pointer(timerChan(g.timer)), p
	}
	return g, nil
}

// calling returns the timer that a region stands for, if the timer calls a
// function.
func (d *decoder) calling(p *plan, obj uint64) (unsafe.Pointer, error) {
	g := &d.regs[obj-1]
	if p.kind != kTimer || g.n != 1 || g.m != nil || calling.make == nil {
		return nil, invalid("a timer that calls a function, in a %s", typeName(p.t))
	}
	if g.timer == nil {
		g.timer = unsafe.Pointer(calling.make())
	}
	return g.timer, nil
}

// setTimer sets the timer that a region stands for.
func (g *region) setTimer() {
	k := timersKnown()
	times := unsafe.Slice((*time.Time)(g.ptr), int(g.n))
	left, every := times[0], times[1].UnixNano()
	t := (*time.Timer)(g.timer)
	if !left.IsZero() {
		d := time.Duration(max(left.UnixNano(), 1))
		if every > 0 {
			(*time.Ticker)(g.timer).Reset(d)
			// The first interval differs from the period. If it is over
			// already, the next tick follows at once and finds the channel
			// full.
			atomic.StoreInt64(timerWord(g.timer, k.period), every)
		} else {
			t.Reset(d)
		}
	}
	ch := *(*chan time.Time)(unsafe.Pointer(&g.m))
	for _, v := range times[timerHead:] {
		select {
		case ch <- v:
		default:
		}
	}
}
