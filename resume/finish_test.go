package resume_test

import (
	"strings"
	"testing"
)

// TestFinish_Killed kills an unsupervised program at each step of its end. When
// it is started again, it must complete the end and return its status, but not
// run again. A new run needs consent.
func TestFinish_Killed(t *testing.T) {
	path := build(t, "./testdata/cases")
	for _, c := range []struct {
		name   string
		status int
	}{{"append", 0}, {"exit", 7}} {
		want := newProgram(t, path, c.name)
		if code, _, text := want.start(); code != c.status {
			t.Fatal(code, text)
		}
		for _, every := range []string{"CAIRN_EVERY=1h", "CAIRN_EVERY_POINTS=2"} {
			for _, step := range []string{"finish.begin", "finish.recorded", "finish.discarded"} {
				t.Run(c.name+" "+every+" "+step, func(t *testing.T) {
					p := newProgram(t, path, c.name)
					p.env = []string{"CAIRN_DIR=ck", every}
					if code, killed, text := p.start("CAIRN_STEP=" + step + "=kill"); !killed {
						t.Fatalf("not killed: status %d: %s", code, text)
					}
					for n := range 2 {
						code, _, text := p.start()
						if code != c.status {
							t.Fatalf("start %d: status %d: %s", n, code, text)
						}
						if told := strings.Contains(text, "the run in ") && strings.Contains(text, "CAIRN_FRESH=1"); told != (n > 0 || step != "finish.begin") {
							t.Errorf("start %d said: %s", n, text)
						}
						p.same(want)
					}
				})
			}
		}
	}
}

// TestFinish_StartOver starts a finished program again with consent, several
// times and with kills.
func TestFinish_StartOver(t *testing.T) {
	path := build(t, "./testdata/cases")
	want := newProgram(t, path, "queens")
	want.start()
	p := newProgram(t, path, "queens")
	p.env = []string{"CAIRN_DIR=ck"}
	if code, _, text := p.start(); code != 0 {
		t.Fatal(code, text)
	}
	for range 2 {
		if _, killed, text := p.start("CAIRN_FRESH=1", "CAIRN_KILL_AT=5"); !killed {
			t.Fatal("it did not start over:", text)
		}
		if code, _, text := p.start(); code != 0 {
			t.Fatal(code, text)
		}
		p.same(want)
	}
	// An unfinished run is discarded, too; its changes of files stay.
	q := newProgram(t, path, "append")
	q.env = []string{"CAIRN_DIR=ck", "CAIRN_EVERY_POINTS=2"}
	if code, _, text := q.start("DIE=1"); code != 9 {
		t.Fatal(code, text)
	}
	for _, step := range []string{"discard.recorded=kill", "none=kill"} {
		q.start("CAIRN_FRESH=1", "CAIRN_STEP="+step)
	}
	if n := strings.Count(q.files()["lines"], "line 0\n"); n != 2 {
		t.Errorf("line 0 is there %d times; once by the run that was discarded and once by the other one: %q", n, q.files()["lines"])
	}
}
