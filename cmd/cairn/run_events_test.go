//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/events"
)

// TestRun_Events runs a program that dies once, and expects its history in the
// run directory, in a file, and in the hands of a command.
func TestRun_Events(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "go", "")
	hook := `cat >>hook.jsonl; echo "$CAIRN_EVENT $CAIRN_EVENT_RUN" >>hook.txt`
	cairnRun(t, "run", "-q", "--every-points", "10", "--events", "all.jsonl", "--on-event", hook, "--run", "r", self(t), "_counter", "go").exit(exitFine)
	read := func(name string) (list []events.Event) {
		t.Helper()
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for s := bufio.NewScanner(f); s.Scan(); {
			var e events.Event
			d := json.NewDecoder(strings.NewReader(s.Text()))
			d.DisallowUnknownFields()
			if err := d.Decode(&e); err != nil {
				t.Fatalf("%s: %q: %v", name, s.Text(), err)
			}
			if e.Version != events.Version || e.Seq != uint64(len(list)+1) || e.Time.IsZero() || e.Text == "" {
				t.Errorf("%s: event %d is %+v", name, len(list)+1, e)
			}
			list = append(list, e)
		}
		return list
	}
	list := read("r/" + events.FileName)
	if a, b := read("all.jsonl"), read("hook.jsonl"); len(a) != len(list) || len(b) != len(list) {
		t.Errorf("the run has %d events, --events wrote %d, and the command got %d", len(list), len(a), len(b))
	}
	dir, _ := filepath.Abs("r")
	if text, _ := os.ReadFile("hook.txt"); !strings.HasPrefix(string(text), "start "+dir+"\n") || strings.Count(string(text), "\n") != len(list) {
		t.Errorf("the command found %q in its environment", text)
	}
	byKind := make(map[events.Kind][]events.Event)
	for _, e := range list {
		byKind[e.Kind] = append(byKind[e.Kind], e)
	}
	for kind, count := range map[events.Kind]int{events.Start: 2, events.Failure: 1, events.Wait: 1, events.Restore: 1, events.End: 1} {
		if len(byKind[kind]) != count {
			t.Fatalf("%d events %q, want %d", len(byKind[kind]), kind, count)
		}
	}
	if e := byKind[events.Start][1]; e.Attempt != 2 || e.Ranks != 1 || len(e.Hosts) != 1 || e.Hosts[0] != "localhost" || e.LostNS != 0 {
		t.Errorf("the second start is %+v", e)
	}
	if e := byKind[events.Failure][0]; e.Attempt != 1 || e.Status != 7 || e.Rank == nil || *e.Rank != 0 || e.Host != "localhost" {
		t.Errorf("the failure is %+v", e)
	}
	saved := byKind[events.Checkpoint]
	if len(saved) == 0 || saved[0].Checkpoint == nil || saved[0].Checkpoint.Index == 0 || saved[0].Checkpoint.State == 0 {
		t.Errorf("the checkpoints are %+v", saved)
	}
	// Ten points are repeated at most; that is a time.
	if e := byKind[events.Restore][0]; e.Index == 0 || e.LostNS <= 0 {
		t.Errorf("the restore is %+v", e)
	}
	if e := list[len(list)-1]; e.Kind != events.End || e.State != "finished" || e.Status != 0 {
		t.Errorf("the last event is %+v", e)
	}

	// Another run in the directory has a history of its own.
	cairnRun(t, "run", "-q", "--run", "r", "true").exit(exitFine)
	if again := read("r/" + events.FileName); len(again) >= len(list) {
		t.Errorf("the history of the second run has %d events", len(again))
	}
}

// TestRun_EventsStdout has events on stdout, and nothing else.
func TestRun_EventsStdout(t *testing.T) {
	t.Chdir(t.TempDir())
	r := cairnRun(t, "run", "-q", "--events", "-", "echo", "hidden").exit(exitFine)
	if strings.Contains(r.out, "hidden") || !strings.Contains(r.out, `"event":"start"`) || !strings.Contains(r.out, `"state":"finished"`) {
		t.Errorf("%q", r.out)
	}
	cairnRun(t, "run", "--json", "--events", "-", "true").exit(exitUsage).complains("both want stdout")
	cairnRun(t, "run", "--events", "no/such/file", "true").exit(exitUsage).complains("--events", "no such file")
}

// TestRun_EventHookFails has a command that always fails. The run does not
// care, and reports it once.
func TestRun_EventHookFails(t *testing.T) {
	t.Chdir(t.TempDir())
	r := cairnRun(t, "run", "--on-event", "echo no mail today >&2; exit 3", "echo", "fine")
	if r.code != exitFine || r.out != "fine\n" || strings.Count(r.errors, "no mail today") != 1 || !strings.Contains(r.errors, `--on-event: the command failed for the event "`) {
		t.Errorf("%q %q", r.out, r.errors)
	}
}

// TestRun_EventsReaderGone has a reader of events that leaves. The run does not
// care.
func TestRun_EventsReaderGone(t *testing.T) {
	t.Chdir(t.TempDir())
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	cmd := exec.Command(self(t), "_main", "run", "--events", "-", "true")
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = w, &said
	if err := cmd.Run(); err != nil || !strings.Contains(said.String(), "--events: events cannot be written any more") {
		t.Errorf("%v: %s", err, said.String())
	}
	w.Close()
}
