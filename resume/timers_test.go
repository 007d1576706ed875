package resume_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// timers are timers that a program may hold.
type timers struct {
	Ticker  *time.Ticker
	C       <-chan time.Time // channel of Ticker
	Timer   *time.Timer
	After   <-chan time.Time
	Stopped *time.Timer
	Quiet   *time.Ticker // stopped
	Late    *time.Timer  // fired, and not received
	Done    *time.Timer  // fired and received
	Full    *time.Ticker // with a tick in its channel
	Any     any          // the same as Timer
	None    *time.Timer
}

// put puts a tick into the channel of a timer, as if it had fired while the
// program waited for something else.
func put(c <-chan time.Time, v time.Time) { *(*chan time.Time)(unsafe.Pointer(&c)) <- v }

const period = 300 * time.Millisecond

func newTimers() *timers {
	v := &timers{Ticker: time.NewTicker(period), Timer: time.NewTimer(time.Hour), Stopped: time.NewTimer(time.Hour),
		Quiet: time.NewTicker(time.Hour), Late: time.NewTimer(1), Done: time.NewTimer(1), Full: time.NewTicker(time.Hour)}
	v.C, v.Any = v.Ticker.C, v.Timer
	v.Stopped.Stop()
	v.Quiet.Stop()
	<-v.Done.C
	put(v.Full.C, time.Unix(1, 2))
	<-time.After(period * 2 / 3)
	return v
}

// now receives a tick without waiting.
func now(c <-chan time.Time) (time.Time, bool) {
	select {
	case v := <-c:
		return v, true
	default:
		return time.Time{}, false
	}
}

// TestTimers restores timers and tickers that run, are stopped, or have fired.
func TestTimers(t *testing.T) {
	v := newTimers()
	async := os.Getenv("GODEBUG") == "asynctimerchan=1"
	if !async {
		v.After = time.After(period)
	}
	w := saveAndLoad(t, v)
	after := time.Now()
	if w.Ticker.C != w.C || w.Any != any(w.Timer) || w.None != nil {
		t.Error("what was one timer is two")
	}
	if first := <-w.C; !async {
		// A tick has the time at which it was due.
		if d := first.Sub(after); d > period/3 {
			t.Errorf("the first tick comes after %v, there were less than %v left", d, period/3)
		}
		if d := (<-w.Ticker.C).Sub(first); d < period*2/3 || d > period*4/3 {
			t.Errorf("the second tick comes after another %v, not %v", d, period)
		}
		<-w.After
	} else {
		<-w.Ticker.C
	}
	for name, c := range map[string]<-chan time.Time{"running": w.Timer.C, "stopped": w.Stopped.C, "stopped ticker": w.Quiet.C, "received": w.Done.C} {
		if _, ok := now(c); ok {
			t.Errorf("the %s timer has gone off", name)
		}
	}
	<-w.Late.C
	if _, ok := now(w.Late.C); ok {
		t.Error("a timer goes off twice")
	}
	if tick, ok := now(w.Full.C); !ok || !tick.Equal(time.Unix(1, 2)) {
		t.Error("a tick in the channel is lost:", tick)
	}
	if _, ok := now(w.Full.C); ok {
		t.Error("there is a second tick in the channel")
	}
	if w.Stopped.Stop() || w.Done.Stop() || w.Late.Stop() || !w.Timer.Stop() {
		t.Error("timers are not stopped, or running, that were so")
	}
	w.Stopped.Reset(1)
	<-w.Stopped.C
	w.Quiet.Reset(1)
	<-w.Quiet.C
	w.Full.Reset(1)
	<-w.Full.C
	<-w.Full.C
	for _, s := range []*time.Ticker{w.Ticker, w.Quiet, w.Full, v.Ticker, v.Full} {
		s.Stop()
	}
}

// TestTimers_Async does the same with timers as they were before Go 1.23.
func TestTimers_Async(t *testing.T) {
	cmd := exec.Command(os.Args[0], "-test.run=^(TestTimers|TestTimers_Refused)$", "-test.count=1")
	cmd.Env = append(os.Environ(), "GODEBUG=asynctimerchan=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestTimers_Refused shows that a timer that calls a function cannot be saved,
// nor can the copy of a timer.
func TestTimers_Refused(t *testing.T) {
	refused := func(why string, v any) {
		t.Helper()
		err := save(t, open(t, t.TempDir()), &v)
		if err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%T: %v", v, err)
		}
	}
	f := time.AfterFunc(time.Hour, func() {})
	defer f.Stop()
	refused("calls a function", f)
	whole := time.NewTimer(time.Hour)
	defer whole.Stop()
	part := struct {
		t    time.Timer
		more [14]int64
	}{t: *whole}
	refused("copy of a timer", &part.t)
	refused("not made by package time", new(time.Timer))
	if os.Getenv("GODEBUG") == "asynctimerchan=1" {
		refused("before 1.23", time.After(time.Hour))
	}
}
