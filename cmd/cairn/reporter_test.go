package main

import (
	"strings"
	"testing"
	"time"
)

// TestReporter_Silence shows that work without messages is reported as in
// progress after a while, with the time since it began.
func TestReporter_Silence(t *testing.T) {
	var out strings.Builder
	r := &reporter{to: &out, about: "./sim", soon: time.Minute, every: time.Hour}
	r.remind() // nothing has begun
	ago := func(began, since time.Duration) {
		r.began, r.since = time.Now().Add(-began), time.Now().Add(-since)
		r.remind()
	}
	r.step("listing")
	ago(2*time.Minute, 2*time.Minute) // a new part
	r.say("reading")
	r.began = r.began.Add(-time.Hour)
	r.say("compiling")
	r.remind() // it was reported just now
	ago(2*time.Hour, 2*time.Hour)
	r.step("linking")
	ago(3*time.Hour, time.Second)
	ago(3*time.Hour, 2*time.Minute)
	ago(3*time.Hour, 3*time.Minute) // the same part
	ago(4*time.Hour, time.Hour)
	if got, want := out.String(), "cairn: ./sim: still listing (120 s)\ncairn: ./sim: reading\ncairn: ./sim: compiling\ncairn: ./sim: still compiling (7200 s)\n"+
		"cairn: ./sim: still linking (10800 s)\ncairn: ./sim: still linking (14400 s)\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestReporter_Quiet shows that -q leaves out progress, but no warning.
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
