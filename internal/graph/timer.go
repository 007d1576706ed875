package graph

import (
	"reflect"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Timers of a program that is saved as a whole. A time.Timer or time.Ticker and
// its channel have one region: the stand-in of the channel. Two elements of it,
// times counted from 1970, come first. One is what was left until the timer
// goes off (before 1970: it should have; zero: it is stopped, or has gone off),
// the other its period. What is in the channel comes after them. A new timer is
// made of that, and what was left counts from then on.

var timerTypes = [2]reflect.Type{reflect.TypeFor[*time.Timer](), reflect.TypeFor[*time.Ticker]()}

const (
	timerMark = 2  // what closed says of the channel of a timer
	afterMark = 3  // … of a timer that calls a function
	timerHead = 2  // elements that tell of the timer
	timerLook = 12 // words of a timer that are looked at, most of them the runtime's own
)

// timerWords is where the runtime has what it knows of a timer, in words from
// its beginning.
type timerWords struct {
	ok           bool
	part         int // what a channel points to
	when, period int
	channel      int
	async        bool // as before Go 1.23: channels do not know their timers
}

func timerWord(t unsafe.Pointer, n int) *int64 { return (*int64)(unsafe.Add(t, n*8)) }

// timersKnown finds that out, and tries it.
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
	// Both kinds go by the same clock; one that is stopped; and set again.
	since := *timerWord(q, k.when) - int64(farther) - (*timerWord(p, k.when) - int64(far))
	b.Stop()
	stopped := *timerWord(q, k.when) == 0
	(*time.Ticker)(q).Reset(far)
	again := *timerWord(q, k.when) - *timerWord(p, k.when)
	k.ok = since >= 0 && since < int64(time.Hour) && stopped && again >= since && again < int64(time.Hour) && *timerWord(q, k.period) == int64(far)
	return k
})

// timerChan is the channel of a timer; C comes first in both kinds.
func timerChan(t unsafe.Pointer) *hchan { return *(**hchan)(t) }

// is reports whether h is the channel that the runtime knows of timer t, and the
// other way round. Not so for a copy of a timer.
//
//go:nocheckptr
func (k *timerWords) is(t unsafe.Pointer, h *hchan) bool {
	if k.async != (h.timer == nil) || !k.async && h.timer != unsafe.Add(t, k.part*8) {
		return false
	}
	return uintptr(*timerWord(t, k.channel)) == uintptr(unsafe.Pointer(h))
}

// of is the timer of a channel, nil if it has none.
//
//go:nocheckptr
func (k *timerWords) of(h *hchan) unsafe.Pointer {
	if h.timer == nil || !k.ok {
		return nil
	}
	return unsafe.Add(h.timer, -k.part*8)
}

// clock is the time that timers go by.
func (k *timerWords) clock() int64 {
	t := time.NewTimer(time.Hour)
	defer t.Stop()
	return *timerWord(unsafe.Pointer(t), k.when) - int64(time.Hour)
}

// state is what the first elements of a stand-in say of a timer.
func (k *timerWords) state(t unsafe.Pointer) [timerHead]time.Time {
	var left time.Time
	every := atomic.LoadInt64(timerWord(t, k.period))
	if when := atomic.LoadInt64(timerWord(t, k.when)); when > 0 {
		left = time.Unix(0, when-k.clock()).UTC()
	}
	return [timerHead]time.Time{left, time.Unix(0, max(every, 0)).UTC()}
}

// calling are timers that call a function: others keep account of them.
var calling struct {
	known func(*time.Timer) bool
	make  func() *time.Timer
}

// RegisterTimers says who keeps account of timers that call a function (they
// have no channel): which are known, and how one is made, to be set later. It
// is called from an init function.
func RegisterTimers(known func(*time.Timer) bool, make func() *time.Timer) {
	calling.known, calling.make = known, make
}

// TimerRemaining says how long it is until a timer goes off, and whether it
// will.
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
	case h == nil && *(*bool)(unsafe.Add(t, wordSize)): // package time has made it
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

// pushFed records the stand-in of a channel that a timer feeds, or that none
// does: t is nil.
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
		state[0] = time.Time{} // it has gone off, perhaps since it was looked at
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

// calling returns the timer that a region stands for, of those that call a
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
			// The first time is another than the others. Should it have come by
			// now, the next one follows at once, and finds the channel full.
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
