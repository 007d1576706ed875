package main

import (
	"strings"
	"testing"
	"time"
)

// TestReporter_Silence shows that work without messages is reported as in
// progress after a while.
func TestReporter_Silence(t *testing.T) {
	var out strings.Builder
	r := &reporter{to: &out, about: "./sim", every: time.Minute}
	began := time.Now()
	r.remind(began) // nothing has begun
	r.say("compiling")
	r.remind(began) // it was reported just now
	r.since = r.since.Add(-2 * time.Minute)
	r.remind(began.Add(-2 * time.Minute))
	if got, want := out.String(), "cairn: ./sim: compiling\ncairn: ./sim: still compiling (120 s)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestReporter_Quiet(t *testing.T) {
	var out strings.Builder
	r := &reporter{to: &out, quiet: true, about: "./sim", every: time.Nanosecond}
	stop := r.start()
	r.say("compiling")
	r.say("WARNING: nothing is saved")
	stop()
	if got, want := out.String(), "cairn: ./sim: WARNING: nothing is saved\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
