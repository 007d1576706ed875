//go:build cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64)

package resume

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnrun/cairn/internal/engine"
)

// usePlainWaits makes waits those of a program with a run.
func usePlainWaits(t *testing.T) {
	run = new(engine.Run)
	t.Cleanup(func() { run = nil })
	if tryPlainWaits(); !plainWaits {
		t.Fatal("the Go runtime's channels are not as expected")
	}
}

// bareSendOrOwn sends by BareSend, or as functions do that send in a loop.
func bareSendOrOwn[T any](r *routine, s Sender[T], v T, own bool) (interrupted bool) {
	if !own || !r.Waits(s.Channel()) {
		return s.BareSend(v)
	}
	s.C <- v
	return r.Waited() && s.InterruptSend(v)
}

// bareRecvOrOwn receives in these two ways.
func bareRecvOrOwn[T any](r *routine, c <-chan T, own bool) (T, bool) {
	v, ok, c := ReceivingOK(c)
	if !own || !r.Waits(Address(c)) {
		return BareRecvOK(c)
	}
	v, ok = <-c
	if r.Waited() {
		InterruptRecv(c)
	}
	return v, ok
}

// message has pointers to memory that is checked when it is received.
type message struct {
	n    *int
	self *message
	text string
}

// TestWakeChannel_Exchange interrupts goroutines that exchange values, and
// select, all the time, while other goroutines select on the same channels,
// channels are closed, timers expire, stacks grow and shrink, and garbage is
// collected. Each value must be received once.
func TestWakeChannel_Exchange(t *testing.T) {
	usePlainWaits(t)
	values := 2000
	if os.Getenv("CAIRN_LONG") != "" {
		values = 20_000
	}
	const pairs = 50
	var interrupted, received atomic.Int64
	var sum, want atomic.Int64
	var users, others, helpers sync.WaitGroup
	over := make(chan struct{})
	channels := make([]chan *message, pairs/5)
	for i := range channels {
		channels[i] = make(chan *message, i%3)
	}
	begin := func(f func(r *routine)) {
		users.Go(func() {
			r := &routine{wake: make(chan struct{}, 1)}
			r.register()
			defer r.unregister()
			f(r)
		})
	}
	var senders sync.WaitGroup
	for i := range pairs {
		c := channels[i%len(channels)]
		senders.Add(1)
		begin(func(r *routine) {
			defer senders.Done()
			for k := range values {
				p := &message{n: new(int), text: strconv.Itoa(i*values + k)}
				*p.n, p.self = i*values+k, p
				want.Add(int64(*p.n))
				var again bool
				deeper(k%200, func() { again = bareSendOrOwn(r, To(c), p, k%2 == 0) })
				for again {
					interrupted.Add(1)
					f := operands[sendFrame[*message]]()
					again = bareSendOrOwn(r, To(f.C), f.V, k%2 == 0)
				}
			}
		})
		begin(func(r *routine) {
			for k := 0; ; k++ {
				var p *message
				var ok bool
				deeper(k%200, func() { p, ok = bareRecvOrOwn(r, c, k%2 == 0) })
				for Interrupted() {
					interrupted.Add(1)
					if p != nil || ok {
						t.Error("an interrupted receive has a value")
					}
					p, ok = bareRecvOrOwn(r, operands[recvFrame[*message]]().C, k%2 == 0)
				}
				if !ok {
					return
				}
				check(t, p)
				received.Add(1)
				sum.Add(int64(*p.n))
			}
		})
	}
	var selected atomic.Int64
	for i := range len(channels) {
		a, b := channels[i], channels[(i+3)%len(channels)]
		senders.Add(1)
		begin(func(r *routine) {
			defer senders.Done()
			for k := range values {
				p := &message{n: new(int), text: strconv.Itoa((pairs+i)*values + k)}
				*p.n, p.self = (pairs+i)*values+k, p
				want.Add(int64(*p.n))
				send, never := To(a).Case(p), CaseRecv[*message](make(chan *message, 1))
				for again := true; again; {
					n := 0
					g := Waiter()
					g.SelectsTwo(1, send.Channel(), never.Channel())
					deeper(k%200, func() {
						select {
						case send.C <- send.V:
						case never.V, never.OK = <-never.C:
							n = 1
						}
					})
					if again = g.Woken(); again {
						interrupted.Add(1)
					} else if n != 0 {
						t.Error("the wrong case was chosen")
					}
				}
			}
		})
		begin(func(*routine) {
			for k := 0; a != nil || b != nil; k++ {
				n, x, y := 0, CaseRecv(a), CaseRecv(b)
				g := Waiter()
				g.SelectsTwo(0, x.Channel(), y.Channel())
				deeper(k%200, func() {
					select {
					case x.V, x.OK = <-x.C:
					case y.V, y.OK = <-y.C:
						n = 1
					}
				})
				if g.Woken() {
					interrupted.Add(1)
					if x.V != nil || y.V != nil {
						t.Error("an interrupted select has a value")
					}
					continue
				}
				if n == 1 {
					x = y
				}
				switch {
				case x.OK:
					check(t, x.V)
					selected.Add(1)
					received.Add(1)
					sum.Add(int64(*x.V.n))
				case n == 0:
					a = nil
				default:
					b = nil
				}
			}
		})
	}
	for i := range len(channels) { // these are not to be interrupted
		a, b := channels[i], channels[(i+1)%len(channels)]
		others.Go(func() {
			for a != nil || b != nil {
				var p *message
				var ok bool
				select {
				case p, ok = <-a:
					if !ok {
						a = nil
					}
				case p, ok = <-b:
					if !ok {
						b = nil
					}
				}
				if ok {
					check(t, p)
					received.Add(1)
					sum.Add(int64(*p.n))
				}
			}
		})
		others.Go(func() {
			for p := range channels[i] {
				check(t, p)
				received.Add(1)
				sum.Add(int64(*p.n))
			}
		})
	}
	var ticks atomic.Pointer[<-chan time.Time]
	stop := make(chan struct{})
	timed := make(chan struct{})
	users.Go(func() {
		r := new(routine)
		r.register()
		defer r.unregister()
		defer close(timed)
		for {
			select {
			case <-stop:
				return
			default:
			}
			c := time.After(100 * time.Microsecond)
			ticks.Store(&c)
			v := BareRecv(c)
			for Interrupted() {
				v = BareRecv(operands[recvFrame[time.Time]]().C)
			}
			if v.IsZero() {
				t.Error("a timer's channel has no time")
			}
			c = time.After(100 * time.Microsecond)
			ticks.Store(&c)
			for again := true; again; {
				x, never := CaseRecv(c), CaseRecv[int](make(chan int))
				g := Waiter()
				g.SelectsTwo(0, x.Channel(), never.Channel())
				select {
				case x.V = <-x.C:
				case <-never.C:
				}
				if again = g.Woken(); !again && x.V.IsZero() {
					t.Error("a timer's channel has no time in a select")
				}
			}
		}
	})
	wakes := 0
	helpers.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			wakes++
			for _, c := range channels {
				wakeChannel(*(*unsafe.Pointer)(unsafe.Pointer(&c)))
			}
			if c := ticks.Load(); c != nil {
				wakeChannel(*(*unsafe.Pointer)(unsafe.Pointer(c)))
			}
			runtime.Gosched()
		}
	})
	helpers.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
				runtime.GC()
			}
		}
	})
	senders.Wait()
	close(stop)
	<-timed
	for _, c := range channels {
		close(c)
	}
	users.Wait()
	others.Wait()
	close(over)
	helpers.Wait()
	if n := int64((pairs + len(channels)) * values); received.Load() != n || sum.Load() != want.Load() {
		t.Errorf("%d values were received, with the sum %d; %d were sent, with the sum %d", received.Load(), sum.Load(), n, want.Load())
	}
	if interruptedNow != 0 {
		t.Errorf("%d goroutines are counted as interrupted", interruptedNow)
	}
	if interrupted.Load() == 0 {
		t.Error("no wait was interrupted")
	}
	t.Logf("%d values (%d selected), %d interrupted waits, %d rounds of wakes", received.Load(), selected.Load(), interrupted.Load(), wakes)
}

// TestSelects_Closed has a select that panics: what it leaves behind must not
// let a cut interrupt other selects.
func TestSelects_Closed(t *testing.T) {
	usePlainWaits(t)
	r := &routine{wake: make(chan struct{}, 1)}
	open, closed, second := make(chan int), make(chan int), make(chan int)
	woken := make(chan int)
	close(closed)
	go func() {
		r.register()
		defer r.unregister()
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a select that sends to a closed channel does not panic")
				}
			}()
			recv, send := CaseRecv(open), To(closed).Case(1)
			if !r.Selects(1, send.Channel(), recv.Channel()) {
				t.Error("a select with one channel to send to does not wait plainly")
			}
			select {
			case <-recv.C:
			case send.C <- send.V:
			}
		}()
		if r.SelectsTwo(2, To(open).Case(1).Channel(), To(closed).Case(1).Channel()) {
			t.Error("a select with two channels to send to waits plainly: it may panic because of either")
		}
		select { // of a library
		case n := <-open:
			woken <- n
		case n := <-second:
			woken <- n
		}
	}()
	c := *(**chanHeader)(unsafe.Pointer(&open))
	for waits := false; !waits; runtime.Gosched() {
		lockRuntime(&c.lock)
		waits = c.recvq.first != nil
		unlockRuntime(&c.lock)
	}
	for _, p := range []unsafe.Pointer{r.channel, r.selecting, unsafe.Pointer(c)} {
		if p != nil {
			wakeChannel(p)
		}
	}
	if r.inBareSelect() {
		t.Error("the goroutine is found in its bare select, which has ended")
	}
	open <- 7
	if n := <-woken; n != 7 {
		t.Errorf("the select has received %d", n)
	}
}

// TestWakeCond_Queue interrupts goroutines that wait for two sync.Conds, all
// the time, while others wait for the same ones in package sync. No signal may
// be lost.
func TestWakeCond_Queue(t *testing.T) {
	usePlainWaits(t)
	values := 3000
	if os.Getenv("CAIRN_LONG") != "" {
		values = 100_000
	}
	const workers = 6 // each of those that put and get; one of three waits in package sync
	var mu sync.Mutex
	space, notEmpty := sync.NewCond(&mu), sync.NewCond(&mu)
	var list []int
	var interrupted atomic.Int64
	wait := func(r *routine, c *sync.Cond) {
		if r == nil {
			c.Wait()
			return
		}
		for again := BareCondWait(c); again; {
			interrupted.Add(1)
			f := operands[condFrame]()
			f.Called = f.Called || awaitTicket(r, f.C, f.Ticket)
			again = !(f.Called && lockAgain(r, f.C.L)) && r.interruptNow(f)
		}
	}
	var users, helpers sync.WaitGroup
	begin := func(plain bool, f func(r *routine)) {
		users.Go(func() {
			if plain {
				f(nil)
				return
			}
			r := &routine{wake: make(chan struct{}, 1)}
			r.register()
			defer r.unregister()
			f(r)
		})
	}
	over := make(chan struct{})
	helpers.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			for _, c := range []*sync.Cond{space, notEmpty} {
				wakeCond(unsafe.Add(unsafe.Pointer(c), condOffset))
			}
			runtime.Gosched()
		}
	})
	sum := 0
	for w := range workers {
		begin(w%3 == 0, func(r *routine) {
			for range values {
				mu.Lock()
				for len(list) == 0 {
					wait(r, notEmpty)
				}
				sum += list[0]
				list = list[1:]
				Signal(space)
				mu.Unlock()
			}
		})
	}
	for interrupted.Load() == 0 { // they wait, and there is nothing to get yet
		runtime.Gosched()
	}
	for w := range workers {
		begin(w%3 == 0, func(r *routine) {
			for k := range values {
				mu.Lock()
				for len(list) == 2 {
					wait(r, space)
				}
				list = append(list, w*values+k)
				Signal(notEmpty)
				mu.Unlock()
			}
		})
	}
	users.Wait()
	close(over)
	helpers.Wait()
	if n := workers * values; sum != n*(n-1)/2 {
		t.Errorf("the sum is %d, not %d", sum, n*(n-1)/2)
	}
	if interruptedNow != 0 {
		t.Errorf("%d goroutines are counted as interrupted", interruptedNow)
	}
	t.Logf("%d values, %d interrupted waits", workers*values, interrupted.Load())
}

// TestBlockedForEver_Unsaved has goroutines that receive where they cannot be
// saved. A timer wakes the first one.
func TestBlockedForEver_Unsaved(t *testing.T) {
	usePlainWaits(t)
	timer := time.NewTimer(time.Hour)
	c := make(chan time.Time)
	for _, test := range []struct {
		c    <-chan time.Time
		want bool
	}{{timer.C, false}, {c, true}} {
		r := &routine{savedGoroutine: savedGoroutine{F: func() { RecvOK(test.c) }, Whole: true}, wake: make(chan struct{}, 1)}
		cuts.add(r)
		r.launch()
		address, found := fmt.Sprintf("%p", r), false
		for ; !found; runtime.Gosched() {
			for _, s := range traces(stackTraces()) {
				if found = s.state == "chan receive" && s.routine == address; found {
					if got := blockedForEver(s, r); got != test.want {
						t.Errorf("blocked for ever: %v, not %v", got, test.want)
					}
					break
				}
			}
		}
	}
	timer.Reset(0)
	close(c)
}

// TestMutex_Layout shows that sync.Mutex is in memory as runtime_known.go
// assumes.
func TestMutex_Layout(t *testing.T) {
	var m sync.Mutex
	state := (*int32)(unsafe.Pointer(&m))
	free := *state == 0
	m.Lock()
	locked := *state == 1
	Unlock(&m)
	if unsafe.Sizeof(m) != 8 || !free || !locked || *state != 0 {
		t.Error("sync.Mutex is not as expected")
	}
	BareLock(&m)
	if m.TryLock() {
		t.Error("a locked mutex could be locked")
	}
	m.Unlock()
	defer func() {
		if recover() == nil {
			t.Error("a nil mutex could be locked")
		}
	}()
	BareLock(nil)
}

func check(t *testing.T, p *message) {
	if p.self != p || p.text != strconv.Itoa(*p.n) {
		t.Errorf("a value has arrived damaged: %v", *p)
	}
}

// deeper calls f with a larger stack.
func deeper(n int, f func()) {
	var space [256]byte
	if n == 0 {
		f()
		return
	}
	deeper(n-1, f)
	runtime.KeepAlive(&space)
}

// TestCreators_AsInTraces compares the creators of goroutines in all states
// with those that stack traces name.
func TestCreators_AsInTraces(t *testing.T) {
	findCreatorOffset()
	if creatorOffset == 0 {
		t.Fatal("the creator of a goroutine was not found")
	}
	inTraces := func() map[string]int {
		known, _ := parseTraces(stackTraces())
		names := make(map[string]int)
		for _, g := range known {
			if g.creator == unknownCreator {
				g.creator = "" // of the runtime
			}
			names[g.creator]++
		}
		return names
	}
	// Creators in the runtime have a name, which stack traces omit.
	trim := func(names map[string]int) map[string]int {
		for name, n := range names {
			if strings.HasPrefix(name, "runtime.") {
				delete(names, name)
				names[""] += n
			}
		}
		return names
	}
	release, wg, started := make(chan struct{}), sync.WaitGroup{}, make(chan struct{})
	var once sync.Mutex
	once.Lock()
	waits := []func(){
		func() { <-release },
		func() {
			select {
			case <-release:
			case <-time.After(time.Hour):
			}
		},
		func() { once.Lock(); once.Unlock() },
		func() {
			for {
				select {
				case <-release:
					return
				default:
					runtime.Gosched()
				}
			}
		},
	}
	for range 300 {
		for _, wait := range waits[:3] {
			wg.Go(func() { started <- struct{}{}; wait() })
			go func() { started <- struct{}{}; wait() }()
			<-started
			<-started
		}
		go func() { started <- struct{}{} }() // it ends
		<-started
	}
	wg.Go(func() { started <- struct{}{}; waits[3]() })
	<-started
	time.AfterFunc(0, func() { started <- struct{}{}; <-release })
	<-started
	func() {
		type big struct {
			next *big
			n    int
		}
		runtime.SetFinalizer(new(big), func(*big) { started <- struct{}{}; <-release })
	}()
	for ran := false; !ran; { // a finalizer that runs the program's code
		runtime.GC()
		select {
		case <-started:
			ran = true
		default:
		}
	}
	var got, want map[string]int
	for range 1000 { // some goroutines may still be ending
		if got, want = trim(creators()), inTraces(); maps.Equal(got, want) {
			break
		}
		runtime.Gosched()
	}
	if !maps.Equal(got, want) {
		t.Errorf("creators %v, in stack traces %v", got, want)
	}
	if got["time.goFunc"] != 1 || got["sync.(*WaitGroup).Go"] != 901 {
		t.Errorf("creators are missing in %v", got)
	}
	if onlyHarmless() {
		t.Error("goroutines of the program count as harmless")
	}
	close(release)
	once.Unlock()
	wg.Wait()
}
