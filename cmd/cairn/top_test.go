//go:build linux

package main

import (
	"context"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// frameText returns a picture as text.
func frameText(rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		for _, s := range r {
			b.WriteString(s.text)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// TestTop_Frame has a run that failed after 60 of 100 seconds and lost 20.
func TestTop_Frame(t *testing.T) {
	now := time.Now()
	began := now.Add(-100 * time.Second)
	at := func(s int, e events.Event) events.Event {
		e.Time = began.Add(time.Duration(s) * time.Second)
		return e
	}
	v := &topView{state: &control.RunState{Run: "/x/sim.cairn", State: rundir.Running, Command: []string{"/bin/sim", "\x1b[31m"}, Began: began, Attempt: 2, LostNS: int64(20 * time.Second),
		Last:  &control.CheckpointState{Index: 1, Time: began.Add(40 * time.Second)},
		Ranks: []control.RankState{{Rank: 0, Host: "a", State: rundir.Running, Points: 50}, {Rank: 1, Host: "a", State: rundir.Running, Points: 100}, {Rank: 2, Host: "b", State: "ended"}}}}
	v.add([]events.Event{
		at(0, events.Event{Kind: events.Start, Text: "started"}),
		at(40, events.Event{Kind: events.Checkpoint, Text: "checkpoint 1 committed", Checkpoint: &control.CheckpointState{Index: 1, PauseNS: 2e6}}),
		at(60, events.Event{Kind: events.Failure, Text: "rank 2 was killed"}),
		at(70, events.Event{Kind: events.Start, Text: "started again"}),
		at(70, events.Event{Kind: events.Restore, Text: "restored", LostNS: int64(20 * time.Second)}),
	}, false)
	rows := v.frame(now, 100, 40)
	text := frameText(rows)
	bar := ""
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 101 {
			t.Errorf("a line of %d characters: %q", utf8.RuneCountInString(line), line)
		}
		if strings.Contains(line, "✗") {
			bar = strings.TrimSuffix(line, "\n")
		}
	}
	want := strings.Repeat("█", 40) + strings.Repeat("▒", 20) + "✗" + strings.Repeat(" ", 9) + strings.Repeat("█", 30)
	if bar != want {
		t.Errorf("the timeline is\n%s, want\n%s", bar, want)
	}
	// After a second failure, and a start in the same moment, both are shown.
	again := &topView{state: v.state}
	again.add(append(slices.Clone(v.events), at(80, events.Event{Kind: events.Failure}), at(80, events.Event{Kind: events.Start})), false)
	again.events[3].Time = again.events[2].Time // the first one was so, too
	want = strings.Repeat("█", 40) + strings.Repeat("▒", 20) + "✗" + strings.Repeat("█", 19) + "✗" + strings.Repeat("█", 19)
	if bar := frameText(again.timeline(now, 100)[:1]); bar != want+"\n" {
		t.Errorf("the timeline is\n%s, want\n%s", bar, want)
	}
	for _, part := range []string{" running ", "/x/sim.cairn", "1 min 40 s", "rank 2 was killed", "2 ranks, 50 to 100 points", "20 s", "\ufffd[31m"} {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing in\n%s", part, text)
		}
	}
	// The pause is the median: one long pause does not hide the others.
	for _, ms := range []int64{3, 2, 700, 3} {
		v.add([]events.Event{at(90, events.Event{Kind: events.Checkpoint, Checkpoint: &control.CheckpointState{PauseNS: ms * 1e6}})}, false)
	}
	if text := frameText(v.frame(now, 100, 40)); !strings.Contains(text, " 3 ms, max 700 ms ") {
		t.Errorf("another pause than 3 ms, max 700 ms:\n%s", text)
	}
	// A state that cannot be read any more stays as it was, with the reason.
	v.read, v.err = now.Add(-10*time.Second), fs.ErrNotExist
	if text := frameText(v.frame(now, 100, 40)); !strings.Contains(text, "the run cannot be read; this is how it was at "+v.read.Format(time.TimeOnly)+": file does not exist\n") || !strings.Contains(text, "1 min 30 s") {
		t.Errorf("a run that cannot be read:\n%s", text)
	}
	for _, size := range [][2]int{{1, 1}, {5, 3}, {20, 8}, {80, 24}} { // nothing breaks on small screens
		for _, r := range v.frame(now, size[0], size[1]) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(frameText([]row{r}), "\n")); n > size[0] && size[0] > 20 {
				t.Errorf("%d characters on a screen of %d", n, size[0])
			}
		}
	}
}

// TestJSON_Refused shows that commands which print no JSON say so.
func TestJSON_Refused(t *testing.T) {
	for _, name := range []string{"attach", "top", "web"} {
		cairnRun(t, name, "--json", t.TempDir()).exit(exitUsage).complains(name+": output is text", "cairn status --json")
	}
}

// TestTop steers a run by keys, on a screen that is not real.
func TestTop(t *testing.T) {
	t.Chdir(t.TempDir())
	said := &lines{}
	said.some.L = &said.mu
	ended := make(chan int, 1)
	go func() {
		ended <- run(context.Background(), []string{"run", "--run", "r.cairn", self(t), "_counter", "go"}, io.Discard, said)
	}()
	said.await("started: ")
	screen := tcell.NewSimulationScreen("UTF-8")
	if err := screen.Init(); err != nil {
		t.Fatal(err)
	}
	screen.SetSize(100, 30)
	dir, _ := filepath.Abs("r.cairn")
	c := &top{topView: topView{run: dir}, reader: events.NewReader(filepath.Join(dir, events.FileName)), news: make(chan func(), 1)}
	c.look(context.Background())()
	over := make(chan error, 1)
	go func() { over <- c.show(context.Background(), screen) }()
	screen.InjectKey(tcell.KeyRune, 'c', 0)
	said.await("committed: ")
	screen.InjectKey(tcell.KeyRune, 's', 0)
	screen.InjectKey(tcell.KeyRune, 'n', 0)
	screen.InjectKey(tcell.KeyRune, 's', 0)
	screen.InjectKey(tcell.KeyRune, 'y', 0)
	if code := <-ended; code != 75 {
		t.Errorf("the run ended with status %d", code)
	}
	screen.InjectKey(tcell.KeyRune, 'q', 0)
	if err := <-over; err != nil {
		t.Error(err)
	}
	cairnRun(t, "top", "--once").exit(exitFine).says(" stopped ", "stopped: cairn top; the same 'cairn run' command resumes the run", "timeline", "started: 1 rank")
	cairnRun(t, "top", "nothing.cairn").exit(exitFailed).complains("nothing.cairn")
}
