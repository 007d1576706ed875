//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/events"
	"github.com/cairnrun/cairn/internal/supervise"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestMain makes the test binary the helper that 'cairn run' starts, and a
// program to be run.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hostName {
		os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "_main" {
		os.Args = append(os.Args[:1], os.Args[2:]...)
		main()
	}
	if len(os.Args) > 1 && os.Args[1] == "_cairn" {
		os.Exit(run(context.Background(), os.Args[2:], os.Stdout, os.Stderr))
	}
	if len(os.Args) > 1 && os.Args[1] == "_counter" {
		if err := counter(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "_talker" {
		if err := talker(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if len(os.Args) > 1 && os.Args[1] == "_ring" {
		if err := ring(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dir, err := os.MkdirTemp("", "cairn-cache-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildCache = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// buildCache is the cache of 'cairn build' that the tests share.
var buildCache string

// counter counts to 200 and prints each number. It waits at 100 until a file
// exists, and dies at 150 once.
func counter(args []string) error {
	ctx := context.Background()
	p, err := cairn.Open(ctx, cairn.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	i := 0
	cairn.Protect(p, "i", &i)
	if _, err := p.Restore(ctx); err != nil {
		return err
	}
	for ; i < 200; i++ {
		if err := p.Point(ctx); err != nil {
			return err
		}
		if i == 100 {
			for !exists(args[0]) {
				if err := p.Point(ctx); err != nil {
					if errors.Is(err, cairn.ErrStopped) {
						return nil
					}
					return err
				}
				time.Sleep(time.Millisecond)
			}
		}
		fmt.Println(i)
		if once := args[0] + ".once"; i == 150 && !exists(once) {
			os.WriteFile(once, nil, 0o600)
			os.Exit(7)
		}
	}
	p.Finish()
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// lines is a writer that others may wait on.
type lines struct {
	mu   sync.Mutex
	some sync.Cond
	b    bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.some.Broadcast()
	return l.b.Write(p)
}

func (l *lines) await(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !strings.Contains(l.b.String(), text) {
		l.some.Wait()
	}
}

// self returns the program under test, as an argument.
func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRun(t *testing.T) {
	t.Chdir(t.TempDir())
	r := cairnRun(t, "run", "-q", "-n", "2", "sh", "-c", "echo out $CAIRN_RANK $0 $1; echo err >&2", "a", "-n")
	if r.code != 0 || !strings.Contains(r.out, "[0] out 0 a -n\n") || !strings.Contains(r.out, "[1] out 1 a -n\n") || strings.Count(r.errors, "err\n") != 2 {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if r := cairnRun(t, "run", "-q", "-n", "2", "--no-prefix", "echo", "--", "x"); r.code != 0 || r.out != "x\nx\n" {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if r := cairnRun(t, "run", "-q", "-n2", "--transport", "shm,tcp-reopen", "--no-prefix", "echo", "x"); r.code != 0 || r.out != "x\nx\n" {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if r := cairnRun(t, "run", "echo", "one"); r.code != 0 || r.out != "one\n" || !strings.Contains(r.errors, "cairn: started: 1 rank on localhost:1\n") || !strings.HasSuffix(r.errors, "cairn: finished\n") {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if r := cairnRun(t, "run", "-q", "-n", "3", "-o", "all", "sh", "-c", "echo $CAIRN_RANK"); r.code != 0 || r.out != "" {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if got, _ := os.ReadFile("all"); string(got) != "0\n1\n2\n" {
		t.Errorf("%q", got)
	}
	if r := cairnRun(t, "run", "-q", "--rank-output", "files", "echo", "kept"); r.code != 0 || r.out != "" {
		t.Errorf("%d %q %q", r.code, r.out, r.errors)
	}
	if got, _ := os.ReadFile("files/rank-0000.out"); string(got) != "kept\n" {
		t.Errorf("%q", got)
	}
	cairnRun(t, "run", "-q", "--retries", "0", "sh", "-c", "exit 5").exit(5).complains("failed: rank 0 on localhost ended with status 5")
	cairnRun(t, "run", "-q", "--fresh", "--retries", "0", "sh", "-c", "kill -9 $$").exit(128 + 9)
	// Another command may replace only a run that failed before its first
	// point.
	cairnRun(t, "run", "-q", "sh", "-c", "exit 6").exit(exitFailed).complains("it was started as", "--fresh")
	cairnRun(t, "run", "-q", "--fresh", "sh", "-c", "exit 8").exit(8)
	cairnRun(t, "run", "-q", "sh", "-c", "exit 6").exit(6).complains("ended with status 6 before its first point, twice: not tried again")
	write(t, "own", "#!/bin/sh\nexit 2\n")
	if err := os.Chmod("own", 0o700); err != nil {
		t.Fatal(err)
	}
	const late = " was passed to the program; to pass it to cairn run, write it before the program"
	for _, flag := range []string{"--every=1s", "-every", "-n"} {
		cairnRun(t, "run", "-q", "./own", flag, "1s").exit(2).complains("before its first point, twice: not tried again", flag+late)
	}
	if r := cairnRun(t, "run", "./own", "--every", "1s"); r.code != 2 || !strings.HasSuffix(r.errors, "--every"+late+": cairn run --every … PROGRAM\n") {
		t.Errorf("%d %q", r.code, r.errors)
	}
	if r := cairnRun(t, "run", "./own", "--steps", "1s"); r.code != 2 || strings.Contains(r.errors, late) {
		t.Errorf("%d %q", r.code, r.errors)
	}
	write(t, "sh.cairn/ckpt/ckpt-00000001/rank-0000.h5", "")
	cairnRun(t, "run", "-q", "sh", "-c", "exit 7").exit(exitFailed).complains("it was started as", "exit 6' (failed)", "--fresh")
	doc := decode[control.RunState](cairnRun(t, "run", "-q", "--json", "--fresh", "sh", "-c", "echo x").exit(exitFine))
	if doc.State != rundir.Finished || doc.Run == "" || doc.Attempt != 1 {
		t.Errorf("%+v", doc)
	}
}

// TestRun_OddNames has run directories whose names are patterns.
func TestRun_OddNames(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"r[1", "r[1]", "r*", `r\`, "r?"} {
		if r := cairnRun(t, "run", "--run", name, "echo", name); r.code != exitFine || r.out != name+"\n" {
			t.Errorf("%q: %d %q %q", name, r.code, r.out, r.errors)
		}
	}
}

func TestRun_Usage(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "used/notes", "")
	write(t, "left/lock", "")
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, dir := range []string{"left", "empty", "new"} {
			cairnRun(t, "run", "-q", "--run", dir, "true").exit(exitFine)
		}
	}
	for _, c := range []struct{ args, want string }{
		{"run", "an argument is missing"},
		{"run -n", "-n needs a value"},
		{"run --from= true", "--from is empty"},
		{"run -n -2 true", "at least one rank"},
		{"run -n 0 true", "at least one rank"},
		{"run -n0 true", "at least one rank"},
		{"run -n x true", "\"x\" is not a value for -n, which takes a whole number"},
		{"run -nx true", "unknown flag -nx"},
		{"run --transport tpc true", "there is no transport \"tpc\" (did you mean tcp or mpi?); there are shm, tcp, mpi, tcp-reopen"},
		{"run --transport shm, true", "there is no transport"},
		{"run --hosts a:x true", "no number of slots"},
		{"run --hosts ,a true", "names no host"},
		{"run -n 9 --hosts a:2,b:2 true", "9 ranks, but the hosts have room for 4"},
		{"run --grace -1s true", "is negative"},
		{"run --retries -1 true", "is negative"},
		{"run --every-points 0 true", `"0" is not a number of points, 1 or more`},
		{"run -o /missing/out true", "/missing: no such file or directory"},
		{"run --every 10 true", `--every: "10" is not a duration such as 10m`},
		{"run --lancher srun true", "did you mean --launcher?"},
		{"run ./nothing", "give the path of a program"},
		{"run .", "is a directory"},
		{"run --run used/notes true", "--run used/notes: this is a file; name a directory"},
		{"run --run used/notes/run true", "this is a file; name a directory"},
		{"run --run used true", "this directory holds other files (notes) and no run; name one that is empty or does not exist, such as used/run.cairn"},
		{"status", "no run directory"},
		{"stop a b", "too many"},
	} {
		r := cairnRun(t, strings.Fields(c.args)...).exit(exitUsage).complains(c.want)
		if c.args == "run -n" && !strings.Contains(r.errors, "needs a value") {
			t.Error(r.errors)
		}
	}
	for _, cmd := range []string{"status", "checkpoint", "stop"} {
		cairnRun(t, cmd, "nothing").exit(exitFailed).complains("no such file")
	}
	os.MkdirAll("x.cairn", 0o700)
	cairnRun(t, "stop").exit(exitFailed).complains("not a run directory; name the directory that 'cairn run' made")
	os.MkdirAll("y.cairn", 0o700)
	cairnRun(t, "status").exit(exitUsage).complains("x.cairn, y.cairn")
	if help := cairnRun(t, "help").exit(exitFine); strings.Contains(help.out, "_host") {
		t.Error("the helper is in the help")
	}
	cairnRun(t, "run", "--help").exit(exitFine).says("-n, --ranks N", "75  stopped", "--launcher NAME", "(default 10)", "(default 3", "else 1m0s)", "(default: never)", "--oversubscribe")
}

// TestRun_FlagsBehindProgram shows that everything after PROGRAM belongs to the
// program, even if it looks like a flag.
func TestRun_FlagsBehindProgram(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "sim", "#!/bin/sh\nprintf '<%s>' \"$@\"\necho\n")
	if err := os.Chmod("sim", 0o700); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-n 1 ./sim -x --every 3":             "<-x><--every><3>",
		"-n1 ./sim -json --json -q -h":        "<-json><--json><-q><-h>",
		"-retries=0 ./sim -- -n 7 -- run":     "<-n><7><--><run>",
		"--retries 0 -- ./sim --version help": "<--version><help>",
		"./sim --no-such-flag list --run r":   "<--no-such-flag><list><--run><r>",
		"--remote-cairn -json ./sim -o x":     "<-o><x>",
	} {
		cairnRun(t, append([]string{"run", "-q", "--fresh"}, strings.Fields(args)...)...).exit(exitFine).says(want + "\n")
	}
}

// TestRun_KilledAndStopped runs a program that uses Cairn: status, checkpoint,
// Ctrl-C, resume, a failure, and the output of an undisturbed run at the end.
func TestRun_KilledAndStopped(t *testing.T) {
	t.Chdir(t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	args := []string{"run", "--run", "c.cairn", "--every", "1h", "-o", "result", self(t), "_counter", gate}
	var out, errs lines
	errs.some.L = &errs.mu
	out.some.L = &out.mu
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- run(ctx, args, &out, &errs) }()
	errs.await("started")
	set := decode[control.CheckpointState](cairnRun(t, "checkpoint", "--json").exit(exitFine))
	if set.Index != 1 || set.State == 0 {
		t.Errorf("%+v", set)
	}
	st := decode[control.RunState](cairnRun(t, "status", "--json").exit(exitFine))
	if st.State != rundir.Running || len(st.Ranks) != 1 || !st.Ranks[0].Cairn || st.Last == nil || st.Last.Index != 1 {
		t.Errorf("%+v", st)
	}
	cairnRun(t, "status").exit(exitFine).says("state       running", "checkpoint  1, ", "localhost")
	cairnRun(t, args...).exit(exitFailed).complains("another supervisor runs this run")
	cancel() // as Ctrl-C does
	if c := <-code; c != supervise.StoppedStatus {
		t.Fatalf("exit code %d\n%s", c, errs.b.String())
	}
	cairnRun(t, "status", "c.cairn").exit(exitFine).says("state       stopped: interrupted", "\nended       ", "checkpoint  2, ")
	write(t, gate, "")
	errs.b.Reset()
	if c := run(t.Context(), args, &out, &errs); c != 0 {
		t.Fatalf("exit code %d\n%s", c, errs.b.String())
	}
	for _, text := range []string{"restored checkpoint 2", "ended with status 7", "finished"} {
		if !strings.Contains(errs.b.String(), text) {
			t.Errorf("no %q: %s", text, errs.b.String())
		}
	}
	var want strings.Builder
	for i := range 200 {
		fmt.Fprintln(&want, i)
	}
	if got, _ := os.ReadFile("result"); string(got) != want.String() {
		t.Errorf("%q", got)
	}
	cairnRun(t, "status").exit(exitFine).says("state       finished")
}

// brokenPipe is a stdout that is not read.
type brokenPipe struct{ writes int }

func (b *brokenPipe) Write([]byte) (int, error) {
	b.writes++
	return 0, &os.PathError{Op: "write", Path: "|1", Err: syscall.EPIPE}
}

// TestRun_StdoutUnread shows that the run continues when nobody reads its
// stdout, and says so once. The output is in the run directory.
func TestRun_StdoutUnread(t *testing.T) {
	t.Chdir(t.TempDir())
	var out brokenPipe
	var errs bytes.Buffer
	if code := run(t.Context(), []string{"run", "--live", "sh", "-c", "echo a; echo b; echo c"}, &out, &errs); code != 0 || out.writes != 1 {
		t.Errorf("exit code %d, %d writes", code, out.writes)
	}
	if text := errs.String(); strings.Count(text, "nobody reads stdout any more") != 1 || !strings.HasSuffix(text, "cairn: finished\n") {
		t.Errorf("%q", text)
	}
	if got, _ := os.ReadFile("sh.cairn/output/rank-0000.out"); string(got) != "a\nb\nc\n" {
		t.Errorf("%q", got)
	}
}

// TestScreen_BrokenPipe has a real pipe whose reader ends. SIGPIPE must not end
// the supervisor.
func TestScreen_BrokenPipe(t *testing.T) {
	t.Chdir(t.TempDir())
	gate := filepath.Join(t.TempDir(), "gate")
	cmd := exec.Command(self(t), "_cairn", "run", "--live", "sh", "-c", "echo a; while ! test -e "+gate+"; do sleep 0.01; done; echo b; echo c")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, 2)); err != nil {
		t.Error(err)
	}
	out.Close()
	write(t, gate, "")
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, errs.String())
	}
	if got, _ := os.ReadFile("sh.cairn/output/rank-0000.out"); string(got) != "a\nb\nc\n" || !strings.HasSuffix(errs.String(), "cairn: finished\n") {
		t.Errorf("%q, %s", got, errs.String())
	}
}

func TestStatusLine(t *testing.T) {
	now := time.Now()
	st := control.RunState{State: rundir.Running, Ranks: []control.RankState{{Points: 12}, {Points: 10}},
		Last: &control.CheckpointState{Index: 3, Time: now.Add(-5 * time.Second), State: 1 << 20, Written: 1 << 10, PauseNS: 2_950_000}}
	if got, want := statusLine(&st, now, 79), "running · 2 ranks · checkpoint 3, 5 s ago · point 10 · 1.0 MiB, 1.0 KiB written"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	st.Ranks[1].Loop = &control.Loop{Where: "main.go:7", Done: 199, Total: 500}
	if got, want := statusLine(&st, now, 79), "running · 2 ranks · checkpoint 3, 5 s ago · loop main.go:7 at 39 % · point 10"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	st.Ranks[1].Ends = now.Add(90 * time.Second)
	if got, want := statusLine(&st, now, 105), "running · 2 ranks · checkpoint 3, 5 s ago · loop main.go:7 at 39 %, about 1 min 30 s left · point 10"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	st.Ranks[1].Loop = nil
	st.Began, st.LostNS = now.Add(-100*time.Second), int64(20*time.Second)
	all := "running · 2 ranks · 1 min 40 s · checkpoint 3, 5 s ago · 20 s lost · point 10 · 1.0 MiB, 1.0 KiB written, paused 2.95 ms"
	if got := statusLine(&st, now, 130); got != all {
		t.Errorf("%q, want %q", got, all)
	}
	st.Unsaved = &control.Unsaved{Since: time.Date(2026, 11, 19, 4, 53, 32, 0, time.Local), Count: 2}
	if got, want := statusLine(&st, now, 102), "running · 2 ranks · 1 min 40 s · checkpoint 3, 5 s ago · checkpoints fail since 04:53:32 · 20 s lost"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	st.Unsaved = nil
	for width := range 130 { // what does not fit is omitted completely
		got := statusLine(&st, now, width)
		if utf8.RuneCountInString(got) > max(width, len("running")) || !strings.HasPrefix(got, "running") {
			t.Errorf("%d: %q", width, got)
		}
		for part := range strings.SplitSeq(got, " · ") {
			if !strings.Contains(" · "+all+" · ", " · "+part+" · ") && !strings.HasPrefix("1.0 MiB, 1.0 KiB written, paused 2.95 ms,", part+",") {
				t.Errorf("%d: %q has a part %q", width, got, part)
			}
		}
	}
	var b bytes.Buffer
	c := &call{stdout: &output{w: &b}, stderr: &b}
	s := newScreen(c, false, false)
	s.terminal = true
	s.event(supervise.Event{Event: events.Event{Time: now, Kind: events.Start, Text: "started"}, Run: st})
	s.line(1, 1, []byte("hello"), func(bool) {})
	s.close(t.Context())
	for part := range strings.SplitSeq(b.String(), "\n") {
		parts := strings.Split(part, "\r")
		if last := parts[len(parts)-1]; last != "cairn: started" && last != "[1] hello" && last != "" {
			t.Errorf("a line ends as %q", last)
		}
	}
}
