//go:build cairn_runtime && cairn_goroutines && go1.26 && !go1.27 && !race && !msan && !asan && (amd64 || arm64)

package resume

import (
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// message has pointers to memory that is checked when it is received.
type message struct {
	n    *int
	self *message
	text string
}

// TestWakeChannel_Exchange interrupts goroutines that exchange values, all the
// time, while other goroutines select on the same channels, channels are closed,
// timers expire, stacks grow and shrink, and garbage is collected. Each value
// must be received once.
func TestWakeChannel_Exchange(t *testing.T) {
	if tryPlainWaits(); !plainWaits {
		t.Fatal("the Go runtime's channels are not as expected")
	}
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
		begin(func(*routine) {
			defer senders.Done()
			for k := range values {
				p := &message{n: new(int), text: strconv.Itoa(i*values + k)}
				*p.n, p.self = i*values+k, p
				want.Add(int64(*p.n))
				deeper(k%200, func() { To(c).BareSend(p) })
				for Interrupted() {
					interrupted.Add(1)
					f := operands[sendFrame[*message]]()
					To(f.C).BareSend(f.V)
				}
			}
		})
		begin(func(*routine) {
			for k := 0; ; k++ {
				var p *message
				var ok bool
				deeper(k%200, func() { p, ok = BareRecvOK(c) })
				for Interrupted() {
					interrupted.Add(1)
					if p != nil || ok {
						t.Error("an interrupted receive has a value")
					}
					p, ok = BareRecvOK(operands[recvFrame[*message]]().C)
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
	if n := int64(pairs * values); received.Load() != n || sum.Load() != want.Load() {
		t.Errorf("%d values were received, with the sum %d; %d were sent, with the sum %d", received.Load(), sum.Load(), n, want.Load())
	}
	if interruptedNow != 0 {
		t.Errorf("%d goroutines are counted as interrupted", interruptedNow)
	}
	if interrupted.Load() == 0 {
		t.Error("no wait was interrupted")
	}
	t.Logf("%d values, %d interrupted waits, %d rounds of wakes", received.Load(), interrupted.Load(), wakes)
}

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
