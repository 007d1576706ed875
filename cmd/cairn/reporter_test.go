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
	r := &reporter{to: &out, about: "./sim", every: time.Minute}
	r.remind() // nothing has begun
	r.say("reading")
	r.began = r.began.Add(-time.Hour)
	r.say("compiling")
	r.remind() // it was reported just now
	r.began = r.began.Add(-2 * time.Minute)
	r.since = r.began
	r.remind()
	if got, want := out.String(), "cairn: ./sim: reading\ncairn: ./sim: compiling\ncairn: ./sim: still compiling (120 s)\n"; got != want {
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
