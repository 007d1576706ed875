//go:build linux

package serve

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// wraps are the options with which a program is linked with testdata/kill.c.
const wraps = "-Wl,--wrap=memcpy,--wrap=sendmsg,--wrap=recv,--wrap=fflush,--wrap=cairn_point"

// kill is one way to end a program, or its helper.
type kill struct {
	at      string        // KILL_AT for testdata/kill.c
	step    string        // CAIRN_STEP for the helper
	after   time.Duration // a process is killed from outside
	helper  bool          // … a helper
	random  bool          // it may come too late
	resumes bool          // the next start restores a checkpoint
}

func (k kill) String() string {
	if k.after > 0 {
		return fmt.Sprintf("after %v (helper: %v)", k.after, k.helper)
	}
	return strings.TrimSpace(k.at + " " + k.step)
}

// victim is a program that is killed and started again.
type victim struct {
	start func(ckpt, out string) *exec.Cmd
	path  string // of the program, if the command is a launcher
	want  string // what it prints, undisturbed
	file  []byte // what it writes, undisturbed
}

// undisturbed runs the program once, to know what it computes.
func (v *victim) undisturbed(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	text, err := v.start(filepath.Join(dir, "ckpt"), out).Output()
	if err != nil {
		t.Fatal(err, failure(err))
	}
	v.want = string(text)
	v.file, _ = os.ReadFile(out)
}

// survive starts the program once per kill and once more. Whenever it finishes,
// it must have computed what the undisturbed one did, and the next one starts
// from the beginning.
func (v *victim) survive(t *testing.T, kills []kill) {
	t.Helper()
	if len(kills) == 0 {
		return
	}
	dir := t.TempDir()
	ckpt, out := filepath.Join(dir, "ckpt"), filepath.Join(dir, "out")
	var printed string // by the last process, if it was killed
	finished, resumed, mustResume := 0, 0, false
	finish := func(k kill, text string) {
		t.Helper()
		if text != v.want {
			t.Errorf("%v: it printed %q, want %q", k, text, v.want)
		}
		if got, _ := os.ReadFile(out); !bytes.Equal(got, v.file) {
			t.Errorf("%v: its file has %d bytes, want %d", k, len(got), len(v.file))
		}
		os.RemoveAll(ckpt)
		os.Remove(out)
		finished++
		printed, mustResume = "", false
	}
	for i := 0; i <= len(kills); i++ {
		var k kill
		if i < len(kills) {
			k = kills[i]
		}
		steps := filepath.Join(dir, fmt.Sprint("steps-", i))
		cmd := v.start(ckpt, out)
		cmd.Env = append(cmd.Env, "KILL_AT="+k.at, "KILL_RANK=1", "CAIRN_STEP="+k.step, "CAIRN_STEP_LOG="+steps)
		if !k.random {
			cmd.Env = append(cmd.Env, "KILL_WAIT=1")
		}
		stdout, stderr, code := v.run(t, cmd, k)
		switch {
		case strings.Contains(stderr, "has finished"):
			// The one before was killed when its work was done.
			finish(k, printed)
			i-- // this one did nothing
			continue
		case strings.Contains(stderr, "restored at") || strings.Contains(stderr, "resumed at"):
			resumed++
			mustResume = false
		case mustResume && (code == 0 || strings.Contains(stderr, "started at")):
			t.Fatalf("after %v: it did not resume:\n%s", kills[i-1], stderr)
		}
		printed, mustResume = stdout, mustResume || k.resumes
		switch {
		case code == 0:
			if k.at != "" && !k.random {
				t.Errorf("%v: it was not killed:\n%s", k, stderr)
			}
			finish(k, stdout)
		case i == len(kills):
			t.Fatalf("it failed with %d:\n%s", code, stderr)
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(k.step, "=kill"), "#")
		if log, _ := os.ReadFile(steps); !k.random && !bytes.Contains(log, []byte(name)) {
			t.Errorf("%v: the helper did not reach that:\n%s", k, log)
		}
	}
	t.Logf("%d kills: resumed %d times, finished %d times", len(kills), resumed, finished)
}

// run runs a command, and kills a process of it if k says so.
func (v *victim) run(t *testing.T, cmd *exec.Cmd, k kill) (stdout, stderr string, code int) {
	t.Helper()
	var o, e bytes.Buffer
	cmd.Stdout, cmd.Stderr = &o, &e
	cmd.WaitDelay = time.Minute // a helper may have its stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if k.after > 0 {
		time.Sleep(k.after) // any moment will do
		pids := []int{cmd.Process.Pid}
		if v.path != "" {
			pids = processes(v.path)
		}
		if len(pids) > 0 {
			pid := pids[rand.N(len(pids))]
			if k.helper {
				pid = childOf(pid)
			}
			if pid > 0 {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
	cmd.Wait()
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

func childOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	child := 0
	fmt.Sscan(string(text), &child)
	return child
}

// processes returns those that run a program.
func processes(path string) (pids []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range list {
		if to, err := os.Readlink(link); err == nil && to == path {
			pid := 0
			fmt.Sscanf(link, "/proc/%d/exe", &pid)
			pids = append(pids, pid)
		}
	}
	return pids
}

// failure is what a command that failed said.
func failure(err error) string {
	if e, ok := err.(*exec.ExitError); ok {
		return string(e.Stderr)
	}
	return ""
}

// many returns random kills for the long tests: n of them, or CAIRN_KILLS per
// cent of that. Otherwise it returns none.
func many(n int, events, steps []string, atMost time.Duration) (kills []kill) {
	if os.Getenv("CAIRN_LONG") == "" {
		return nil
	}
	percent := 100
	fmt.Sscan(os.Getenv("CAIRN_KILLS"), &percent)
	n = n * percent / 100
	for range n {
		k := kill{after: 1 + rand.N(atMost), helper: rand.N(3) == 0, random: true}
		switch i := rand.N(len(events) + len(steps) + 4); {
		case i < len(events):
			k = kill{at: fmt.Sprintf("%s#%d", events[i], 1+rand.N(20)), random: true}
		case i < len(events)+len(steps):
			k = kill{step: fmt.Sprintf("%s#%d=kill", steps[i-len(events)], 1+rand.N(3)), random: true}
		}
		kills = append(kills, k)
	}
	return kills
}

// Steps of a helper at which it can be killed.
var helperSteps = []string{"copy.begin", "copy.done", "write.segment", "commit.written", "commit.published", "prune.withdrawn", "prune.removed",
	"restore.begin", "restore.loaded", "restore.done", "finish.begin", "finish.recorded", "finish.discarded"}

// TestPlain_Killed kills a C program and its helper: between points, and inside
// the copy, the commit, the restore and the end.
func TestPlain_Killed(t *testing.T) {
	v := &victim{start: func(ckpt, out string) *exec.Cmd { return program(t, "plain", ckpt, "60", "20000", "1", out) }}
	v.undisturbed(t)
	v.survive(t, []kill{
		{at: "committed#1", resumes: true},
		{at: "copy#1", resumes: true}, // the copy from the checkpoint
		{at: "copy#3", resumes: true}, // … and the next one to a checkpoint
		{at: "failed#1", step: "copy.begin#2=kill", resumes: true},
		{at: "failed#1", step: "write.segment#8=kill", resumes: true},
		{at: "failed#1", step: "commit.written#2=kill", resumes: true},
		{at: "failed#1", step: "commit.published#2=kill", resumes: true},
		{at: "failed#1", step: "prune.withdrawn=kill", resumes: true},
		{step: "restore.begin=kill", resumes: true},
		{step: "restore.loaded=kill", resumes: true},
		{at: "receive#9", resumes: true},
		{step: "copy.done#2=kill"}, // it gets another helper and finishes
		{at: "committed#2", resumes: true},
		{step: "finish.recorded=kill"}, // the next start is told that it has finished
	})
	events := []string{"point", "send", "receive", "copy", "flush", "failed", "committed"}
	v.start = func(ckpt, out string) *exec.Cmd { return program(t, "plain", ckpt, "600", "20000", "1", out) }
	if kills := many(1100, events, helperSteps, 500*time.Millisecond); kills != nil {
		v.undisturbed(t)
		v.survive(t, kills)
	}
}

// TestPlain_Terminated sends SIGTERM: the program saves, stops, and resumes.
func TestPlain_Terminated(t *testing.T) {
	v := &victim{start: func(ckpt, out string) *exec.Cmd { return program(t, "plain", ckpt, "60", "20000", "1000000", out) }}
	v.undisturbed(t)
	v.survive(t, []kill{{at: "point#20=15", resumes: true}})
}
