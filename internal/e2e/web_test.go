//go:build linux

package e2e

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
	"github.com/cairnrun/cairn/internal/web"
)

// TestWeb_Browser opens the page of a run in a real browser, kills a rank, asks
// for a checkpoint and stops the run with the page's buttons, and expects that
// the page shows all of that.
func TestWeb_Browser(t *testing.T) {
	onlyLong(t)
	b := newBrowser(t)
	heat := build(t, "./examples/heat", "")
	r := newRun(t, heat, "-n", "600", "-steps", "100000000", "-check", "200")
	s := r.start("-n", "6", "--every", "2s", "--http", "localhost:0")
	s.awaits("watch this run at ")
	url := regexp.MustCompile(`http://\S+`).FindString(s.text())
	b.open(url, 1280, "light")
	b.await(`document.getElementById("state").textContent === "running"`)
	b.await(`run.checkpoints.length >= 2 && document.querySelectorAll(".cell.running").length === 6`)
	b.await(`document.getElementById("output").textContent.includes("residual")`)
	if got := b.eval(`location.href`); got != strconv.Quote(url[:len(url)-len(regexp.MustCompile(`#.*`).FindString(url))]) {
		t.Errorf("the page's address is %s, and still has the token", got)
	}

	rank := s.state().Ranks[2]
	if err := syscall.Kill(rank.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	b.await(`document.getElementById("failures").textContent === "1" && run.attempts.length === 2`)
	// The end of another rank, which misses its neighbour, may be known first.
	b.await(`/rank \d on localhost (was killed by signal 9|ended with status)/.test(document.getElementById("log").textContent)`)
	b.await(`run.attempts[1].from > 0 && run.lost > 0 && document.getElementById("lost").textContent !== "none"`)
	b.await(`document.querySelectorAll(".cell.running").length === 6`)

	before := b.eval(`run.state.last.index`)
	b.eval(`document.getElementById("checkpoint").click()`)
	b.await(fmt.Sprintf(`run.checkpoints.some(c => c.index > %s && c.reason === "web page")`, before))
	for _, v := range []struct {
		width  int
		scheme string
	}{{1280, "light"}, {1280, "dark"}, {390, "light"}, {390, "dark"}} {
		b.open(url, v.width, v.scheme)
		b.await(`run.checkpoints.length > 2 && run.drawMs`)
		if got := b.eval(`document.documentElement.scrollWidth <= innerWidth`); got != "true" {
			t.Errorf("at %d pixels the page is wider than the window: %s", v.width, b.eval(`document.documentElement.scrollWidth`))
		}
		b.await(`document.getElementById("output").textContent.includes("residual")`)
		b.shoot(fmt.Sprintf("run-%d-%s", v.width, v.scheme))
	}

	// The page says that 'cairn run' was killed, and continues with the next
	// one.
	if err := s.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.ends()
	b.await(`document.getElementById("state").textContent === "not connected" && document.title.startsWith("not connected") && document.getElementById("buttons").hidden`)
	b.await(`document.getElementById("alert").textContent.startsWith("No connection since ")`)
	b.shoot("run-gone")
	average := b.eval(`run.gaps / run.between < 4000`)
	s = r.start("-n", "6", "--every", "2s", "--http", regexp.MustCompile(`[0-9.]+:\d+`).FindString(url))
	s.awaits("watch this run at ")
	b.await(`document.getElementById("state").textContent === "running" && document.getElementById("alert").hidden`)
	if average != "true" {
		t.Errorf("checkpoints every 2 s come every %s ms on average", b.eval(`run.gaps / run.between`))
	}
	url = regexp.MustCompile(`http://\S+`).FindString(s.text())
	b.open("about:blank", 1280, "light")
	b.open(url, 1280, "light")
	b.await(`document.getElementById("state").textContent === "running" && !document.getElementById("buttons").hidden`)
	b.eval(`document.getElementById("stop").click()`)
	b.await(`document.getElementById("dialog").open`)
	b.eval(`document.getElementById("dialogYes").click()`)
	b.await(`document.getElementById("state").textContent === "stopped" || document.getElementById("state").textContent === "stopping"`)
	b.await(`/^Stopped: web page\. The same/.test(document.getElementById("alert").textContent) && document.getElementById("alert").className === "expected" || document.getElementById("link").textContent !== "live"`)
	if code := s.ends(); code != 75 {
		t.Errorf("the run ended with status %d:\n%s", code, s.text())
	}
}

// TestWeb_ManyRanksAndCheckpoints shows a run with 10,000 checkpoints and 1,000
// ranks, and checks that the browser draws it and takes an update. The time is
// reported, not checked: it depends on the machine.
func TestWeb_ManyRanksAndCheckpoints(t *testing.T) {
	onlyLong(t)
	b := newBrowser(t)
	dir := filepath.Join(t.TempDir(), "large.cairn")
	d, err := rundir.Open(dir, t.TempDir(), vfs.Access{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	began := time.Now().Add(-48 * time.Hour)
	rec := &rundir.Record{ID: "x", Command: []string{"/bin/sim"}, Ranks: 1000, State: rundir.Running, Began: began, Attempt: 40, CheckpointDir: filepath.Join(dir, "ckpt"), RequestedDir: filepath.Join(dir, "ckpt"), Output: filepath.Join(dir, "output")}
	if err := d.Write(rec); err != nil {
		t.Fatal(err)
	}
	f, err := events.OpenFile(filepath.Join(dir, events.FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at, attempt := began, 0
	add := func(e events.Event) {
		t.Helper()
		at = at.Add(17 * time.Second)
		e.Time, e.Attempt = at, attempt
		if err := f.Append(&e); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 10000 {
		if i%250 == 0 {
			if attempt++; attempt > 1 {
				add(events.Event{Kind: events.Failure, Text: "host n017 is lost"})
			}
			add(events.Event{Kind: events.Start, Ranks: 1000, Text: "started"})
			if attempt > 1 {
				add(events.Event{Kind: events.Restore, Index: uint64(i), LostNS: int64(11 * time.Second), Text: "restored"})
			}
		}
		add(events.Event{Kind: events.Checkpoint, Text: "committed", Checkpoint: &control.CheckpointState{Index: uint64(i + 1), Time: at, State: 8 << 30, Written: int64(i%900) << 20, PauseNS: int64(1+i%40) * 1e6, TookNS: 3e9}})
	}
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	s := web.New(dir, "", true)
	defer s.Close()
	go web.Serve(l, s)
	b.open("http://"+l.Addr().String()+"/", 1280, "light")
	b.await(`run.checkpoints.length === 10000 && run.attempts.length === 40 && document.querySelectorAll(".cell").length === 1000`)
	b.shoot("large-1280-light")
	// The state of all ranks changes, and a checkpoint comes.
	b.eval(`(() => { globalThis.points = setInterval(() => run.state.ranks.forEach(r => { r.points += 1 + r.rank % 7; r.state = "running"; r.host = "n" + String(r.rank >> 3).padStart(3, "0"); }), 20); return 1; })()`)
	b.await(`document.querySelectorAll(".cell.running").length === 1000`)
	b.shoot("large-1280-hosts")
	add(events.Event{Kind: events.Checkpoint, Text: "committed", Checkpoint: &control.CheckpointState{Index: 10001, Time: at, State: 8 << 30, PauseNS: 2e6, TookNS: 3e9}})
	b.await(`run.checkpoints.length === 10001`)
	b.eval(`(() => { globalThis.times = []; setInterval(() => { run.state.ranks.forEach(r => { r.points += 1 + r.rank % 7; }); draw(); times.push(run.drawMs); }, 100); return 1; })()`)
	b.await(`times.length > 30`)
	t.Logf("taking an update took %s ms; drawing it: median and quartiles of 30, in ms: %s", b.eval(`run.takeMs`), b.eval(`(t => [t[15], t[7], t[22]])(times.slice(0, 30).sort((a, b) => a - b))`))
	if os.Getenv("CAIRN_PICTURES") != "" {
		b.open("http://"+l.Addr().String()+"/", 390, "dark")
		b.await(`run.checkpoints.length === 10001`)
		b.shoot("large-390-dark")
	}
}
