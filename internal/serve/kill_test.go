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

	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// wraps are the options with which a program is linked with testdata/kill.c.
const wraps = "-Wl,--wrap=memcpy,--wrap=cairn__copy_stream,--wrap=sendmsg,--wrap=recv,--wrap=fflush,--wrap=cairn_point"

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
	ranks int    // 0 means a single process, without a launcher
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
// from the beginning. After each kill it must resume if there is a checkpoint.
func (v *victim) survive(t *testing.T, kills []kill) {
	t.Helper()
	v.surviveSome(t, kills, len(kills))
}

// surviveSome is survive that ends after enough kills have hit a process.
func (v *victim) surviveSome(t *testing.T, kills []kill, enough int) {
	t.Helper()
	dir := t.TempDir()
	ckpt, out := filepath.Join(dir, "ckpt"), filepath.Join(dir, "out")
	var printed string // by the last process, if it was killed
	starts, hits, finished, resumed, mustResume := 0, 0, 0, 0, false
	finish := func(k kill, text string) {
		t.Helper()
		if text != v.want {
			t.Errorf("WRONG after %v: it printed %q, want %q", k, text, v.want)
		}
		if got, _ := os.ReadFile(out); !bytes.Equal(got, v.file) {
			t.Errorf("WRONG after %v: its file has %d bytes, want %d", k, len(got), len(v.file))
		}
		os.RemoveAll(ckpt)
		os.Remove(out)
		finished++
		printed, mustResume = "", false
	}
	var last kill
	for i, done := 0, false; !done; i++ {
		var k kill
		if done = i == len(kills) || hits >= enough; !done {
			k = kills[i]
		}
		steps := filepath.Join(dir, fmt.Sprint("steps-", i))
		mustResume = mustResume || v.committed(t, ckpt)
		cmd := v.start(ckpt, out)
		cmd.Env = append(cmd.Env, "KILL_AT="+k.at, "KILL_RANK=1", "CAIRN_STEP="+k.step, "CAIRN_STEP_LOG="+steps)
		if !k.random {
			cmd.Env = append(cmd.Env, "KILL_WAIT=1")
		}
		stdout, stderr, code, hit := v.run(t, cmd, k, ckpt)
		starts++
		switch {
		case strings.Contains(stderr, "has finished"):
			// The one before was killed when its work was done.
			finish(k, printed)
			i, done = i-1, false // this one did nothing
			continue
		case strings.Contains(stderr, "restored at") || strings.Contains(stderr, "resumed at"):
			resumed++
			mustResume = false
		case mustResume && (code == 0 || strings.Contains(stderr, "started at")):
			t.Fatalf("LOST after %v: it did not resume:\n%s", last, stderr)
		}
		log, _ := os.ReadFile(steps)
		name, count := k.stepCount()
		if !done && (hit || code != 0 || count > 0 && bytes.Count(log, []byte(name+" ")) >= count) {
			hits++
		}
		if k.random && v.ranks == 0 && code > 0 && k.step == "" && !k.helper {
			t.Errorf("%v: it was not killed, and failed with %d:\n%s", k, code, stderr)
		}
		if stdout != "" || strings.Contains(stderr, "ed at") { // else it was killed before it looked whether the run has finished
			printed = stdout
		}
		mustResume, last = mustResume || k.resumes, k
		switch {
		case code == 0:
			if k.at != "" && !k.random {
				t.Errorf("%v: it was not killed:\n%s", k, stderr)
			}
			finish(k, stdout)
		case done:
			t.Fatalf("LOST after %v: it failed with %d:\n%s", last, code, stderr)
		}
		if !k.random && !bytes.Contains(log, []byte(name)) {
			t.Errorf("%v: the helper did not reach that:\n%s", k, log)
		}
	}
	t.Logf("%d kills in %d starts: resumed %d times, finished %d times", hits, starts, resumed, finished)
}

// committed reports whether there is a checkpoint of all ranks, of a run that
// has not ended.
func (v *victim) committed(t *testing.T, ckpt string) bool {
	t.Helper()
	if _, err := os.Stat(filepath.Join(ckpt, "end")); err == nil {
		return false
	}
	list, err := store.Members(vfs.OS(), ckpt)
	if err != nil {
		t.Fatal(err)
	}
	for _, ranks := range list {
		if len(ranks) >= max(v.ranks, 1) {
			return true
		}
	}
	return false
}

// run runs a command, and kills a process of it if k says so. It reports
// whether it has killed a helper.
func (v *victim) run(t *testing.T, cmd *exec.Cmd, k kill, ckpt string) (stdout, stderr string, code int, hit bool) {
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
				hit = syscall.Kill(pid, syscall.SIGKILL) == nil && k.helper
			}
		}
	}
	hung := make(chan bool, 1)
	timer := time.AfterFunc(hangTime, func() {
		_, err := os.Stat(filepath.Join(ckpt, "end"))
		hung <- err != nil // otherwise MPICH's launcher may wait for a rank that was killed in MPI_Finalize
		for _, pid := range processes(v.path) {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		cmd.Process.Kill()
	})
	cmd.Wait()
	if !timer.Stop() && <-hung {
		t.Fatalf("HANG after %v:\n%s", k, e.String())
	}
	stdout, _, _ = strings.Cut(o.String(), mpichSays)
	return stdout, e.String(), cmd.ProcessState.ExitCode(), hit
}

// hangTime is how long a run of a victim may take.
const hangTime = 5 * time.Minute

// mpichSays begins what MPICH's launcher adds to stdout when a rank was killed.
const mpichSays = "\n===================================================================================\n=   BAD TERMINATION"

// stepCount returns the step of a helper and how often it is reached before the
// helper is killed; 0: it is not.
func (k kill) stepCount() (name string, count int) {
	if k.step == "" {
		return "", 0
	}
	name, number, _ := strings.Cut(strings.TrimSuffix(k.step, "=kill"), "#")
	if fmt.Sscan(number, &count); count == 0 {
		count = 1
	}
	return name, count
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

// surviveMany survives random kills in the long tests: n that hit a process, or
// CAIRN_KILLS per cent of that.
func (v *victim) surviveMany(t *testing.T, n int, events []string, atMost time.Duration) {
	t.Helper()
	if os.Getenv("CAIRN_LONG") == "" {
		return
	}
	percent := 100
	fmt.Sscan(os.Getenv("CAIRN_KILLS"), &percent)
	n = max(n*percent/100, 1)
	var kills []kill
	for range 4 * n {
		kills = append(kills, randomKill(events, atMost))
	}
	v.surviveSome(t, kills, n)
}

// randomKill kills at an event of the program, at a step of its helper, at
// both, or after a time if atMost is not 0. Few of them are late in a run: the
// others would not hit if a run is short.
func randomKill(events []string, atMost time.Duration) kill {
	count := func(most int) int { return 1 + rand.N(1<<rand.N(most)) }
	step := func() string {
		name, n := helperSteps[rand.N(len(helperSteps))], 1
		if !strings.HasPrefix(name, "restore.") && !strings.HasPrefix(name, "finish.") {
			n = count(5)
		}
		return fmt.Sprintf("%s#%d=kill", name, n)
	}
	switch i := rand.N(10); {
	case i < 4:
		switch event := events[rand.N(len(events))]; event {
		case "failed":
			return kill{at: "failed#1", step: step(), random: true}
		case "committed":
			return kill{at: fmt.Sprintf("committed#%d", count(4)), random: true}
		default:
			return kill{at: fmt.Sprintf("%s#%d", event, count(7)), random: true}
		}
	case i < 7 || atMost == 0:
		return kill{step: step(), random: true}
	default:
		return kill{after: 1 + rand.N(atMost), helper: rand.N(3) == 0, random: true}
	}
}

// Steps of a helper at which it can be killed.
var helperSteps = []string{"copy.begin", "copy.done", "write.segment", "commit.written", "commit.published", "prune.withdrawn", "prune.removed",
	"restore.begin", "restore.loaded", "restore.done", "finish.begin", "finish.recorded", "finish.discarded"}

// TestC_Killed kills a C program and its helper: between points, and inside the
// copy, the commit, the restore and the end.
func TestC_Killed(t *testing.T) {
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
	if os.Getenv("CAIRN_LONG") != "" {
		v.undisturbed(t)
	}
	v.surviveMany(t, 1100, events, 500*time.Millisecond)
}

// TestC_Terminated sends SIGTERM: the program saves, stops, and resumes.
func TestC_Terminated(t *testing.T) {
	v := &victim{start: func(ckpt, out string) *exec.Cmd { return program(t, "plain", ckpt, "60", "20000", "1000000", out) }}
	v.undisturbed(t)
	v.survive(t, []kill{{at: "point#20=15", resumes: true}})
}
