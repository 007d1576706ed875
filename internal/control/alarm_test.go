package control

import (
	"testing"
	"time"
)

// TestAlarm_Set checks alarms of the Go runtime and of the system: each rings
// once, not before its time, and can be set again.
func TestAlarm_Set(t *testing.T) {
	rung := make(chan time.Time, 10)
	a := NewAlarm(func() { rung <- time.Now() })
	defer a.Close()
	for _, d := range []time.Duration{time.Millisecond, shortAlarm, time.Millisecond, shortAlarm + 1} {
		a.Set(time.Hour)
		begun := time.Now()
		a.Set(d)
		if at := <-rung; at.Sub(begun) < d {
			t.Errorf("an alarm after %v rang after %v", d, at.Sub(begun))
		}
	}
	a.Set(shortAlarm)
	a.Stop()
	a.Set(time.Millisecond)
	<-rung
	if len(rung) != 0 {
		t.Error("an alarm rang that was stopped, or more than once")
	}
}
