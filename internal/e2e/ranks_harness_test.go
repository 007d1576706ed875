//go:build linux

package e2e

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/client"
)

// program builds one of the programs that ranks run.
func program(t *testing.T, name string) string {
	t.Helper()
	if name == "flight" || name == "last" || name == "token" || name == "wander" || name == "traveller" || name == "emigrant" || name == "sweep" || name == "crew" || name == "lanes" {
		return build(t, "./internal/e2e/testdata/"+name, runtime.GOARCH)
	}
	return build(t, "./examples/"+name, runtime.GOARCH)
}

// runOf is a run of several ranks: its directory, and how it is started.
type runOf struct {
	t       *testing.T
	root    string   // directory for everything
	command []string // the program and its arguments
}

// newRun makes the directory of a run.
func newRun(t *testing.T, command ...string) *runOf {
	t.Helper()
	return &runOf{t: t, root: t.TempDir(), command: command}
}

func (r *runOf) run() string         { return filepath.Join(r.root, "run") }
func (r *runOf) checkpoints() string { return filepath.Join(r.run(), "ckpt") }
func (r *runOf) out() string         { return filepath.Join(r.root, "out.txt") }

// output returns the content of -o FILE.
func (r *runOf) output() string {
	r.t.Helper()
	b, err := os.ReadFile(r.out())
	if err != nil {
		r.t.Fatal(err)
	}
	return string(b)
}

// supervisor is a running 'cairn run'.
type supervisor struct {
	t      *testing.T
	run    string
	cmd    *exec.Cmd
	cancel context.CancelFunc

	mu    sync.Mutex
	more  chan struct{} // closed and replaced when there are more lines
	lines []string      // lines on stderr
	over  bool
	err   error // result of Wait
}

// start starts 'cairn run' with flags in addition to those for directories.
func (r *runOf) start(flags ...string) *supervisor { return r.startIn(nil, flags...) }

// startIn does the same with variables added to the environment.
func (r *runOf) startIn(env []string, flags ...string) *supervisor {
	r.t.Helper()
	args := append([]string{"run", "--run", r.run(), "-o", r.out()}, flags...)
	return begin(r.t, r.run(), env, append(append(append([]string{build(r.t, "./cmd/cairn", runtime.GOARCH)}, args...), r.command[0], "--"), r.command[1:]...)...)
}

// begin starts a command and follows its messages on stderr.
func begin(t *testing.T, run string, env []string, argv ...string) *supervisor {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	s := &supervisor{t: t, run: run, cancel: cancel, more: make(chan struct{})}
	s.cmd = exec.CommandContext(ctx, argv[0], argv[1:]...)
	s.cmd.Env = append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "UCX_LOG_LEVEL=error")
	s.cmd.Env = append(s.cmd.Env, env...)
	s.cmd.Cancel = func() error { return s.cmd.Process.Signal(syscall.SIGQUIT) } // the goroutine dump shows where it hangs
	s.cmd.WaitDelay = patience                                                   // for its children that still exist
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, write
	err = s.cmd.Start()
	write.Close()
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.mu.Lock()
			s.lines = append(s.lines, lines.Text())
			close(s.more)
			s.more = make(chan struct{})
			s.mu.Unlock()
		}
		err := s.cmd.Wait()
		s.mu.Lock()
		s.over, s.err = true, err
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		read.Close()
	}()
	t.Cleanup(func() {
		s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(patience / 6):
			s.cmd.Process.Kill()
			<-ended
		}
		cancel()
	})
	return s
}

// said returns how many lines there are, and whether more may come.
func (s *supervisor) said() (n int, more <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lines), s.more, s.over
}

// text returns all messages.
func (s *supervisor) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// sees waits for a line from number from on that contains the text, and returns
// the number after it. It returns false if the command ends first.
func (s *supervisor) sees(from int, text string) (int, bool) {
	s.t.Helper()
	return s.seesWithin(patience, from, text)
}

// seesWithin is sees for what takes longer.
func (s *supervisor) seesWithin(limit time.Duration, from int, text string) (int, bool) {
	s.t.Helper()
	late := time.After(limit)
	for {
		s.mu.Lock()
		for ; from < len(s.lines); from++ {
			if strings.Contains(s.lines[from], text) {
				s.mu.Unlock()
				return from + 1, true
			}
		}
		over, more := s.over, s.more
		s.mu.Unlock()
		if over {
			return from, false
		}
		select {
		case <-more:
		case <-late:
			s.cmd.Process.Signal(syscall.SIGQUIT)
			s.t.Fatalf("it did not say %q:\n%s", text, s.text())
		}
	}
}

// awaits waits for a line with the text. It must come.
func (s *supervisor) awaits(text string) {
	s.t.Helper()
	if _, ok := s.sees(0, text); !ok {
		s.t.Fatalf("it ended and did not say %q:\n%s", text, s.text())
	}
}

// ends waits for the end and returns the exit status, or -1 if the command was
// killed.
func (s *supervisor) ends() int {
	s.t.Helper()
	s.sees(0, "\x00")
	if s.err != nil {
		var exit *exec.ExitError
		if !errors.As(s.err, &exit) {
			s.t.Fatalf("%v\n%s", s.err, s.text())
		}
		return exit.ExitCode()
	}
	return 0
}

// finishes waits for the end, which must be successful.
func (s *supervisor) finishes() {
	s.t.Helper()
	if code := s.ends(); code != 0 {
		s.t.Fatalf("exit status %d:\n%s", code, s.text())
	}
}

// state returns the supervisor's state, or nil if no supervisor answers.
func (s *supervisor) state() *control.RunState {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	st, err := client.Read(ctx, s.run)
	if err != nil {
		return nil
	}
	return st
}

// reaches waits until every rank has passed so many points.
func (s *supervisor) reaches(points uint64) bool {
	s.t.Helper()
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(2 * time.Millisecond) {
		if _, _, over := s.said(); over {
			return false
		}
		if st := s.state(); st != nil && len(st.Ranks) > 0 {
			least := st.Ranks[0].Points
			for _, r := range st.Ranks {
				least = min(least, r.Points)
			}
			if least >= points {
				return true
			}
		}
	}
	s.t.Fatalf("the ranks did not get to point %d:\n%s", points, s.text())
	return false
}

// stops makes the run save and stop, by 'cairn stop'.
func (s *supervisor) stops() {
	s.t.Helper()
	out, code := cairnTool(s.t, "stop", s.run)
	if code != 0 {
		s.t.Fatalf("cairn stop: exit status %d: %s\n%s", code, out, s.text())
	}
	if code := s.ends(); code != exitStopped {
		s.t.Fatalf("exit status %d after cairn stop:\n%s", code, s.text())
	}
}

// parentOf returns the parent of a process, or 0 if the process is gone.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(f[1])
	return ppid
}

// runs reports whether a process runs a program.
func runs(pid int, program string) bool {
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && exe == program
}

// undisturbed runs a command of n ranks to its end under cairn run, without
// checkpoints, and returns the content of -o FILE.
func undisturbed(t *testing.T, n int, command ...string) string {
	t.Helper()
	r := newRun(t, command...)
	r.start("-n", strconv.Itoa(n), "--every", "1h").finishes()
	return r.output()
}

// launcherNamed returns an environment in which mpirun is a given one.
func launcherNamed(t *testing.T, name string) []string {
	t.Helper()
	dir := t.TempDir()
	// Not a link: MPICH's mpirun looks for its parts relative to the path by
	// which it was called.
	if err := os.WriteFile(filepath.Join(dir, "mpirun"), []byte("#!/bin/sh\nexec "+name+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
}

// oneLine fails the test unless exactly one line contains the first part, and
// that line contains all parts.
func oneLine(t *testing.T, text string, parts ...string) string {
	t.Helper()
	found := ""
	for line := range strings.Lines(text) {
		if strings.Contains(line, parts[0]) {
			if found != "" {
				t.Fatalf("%q is in more than one line:\n%s", parts[0], text)
			}
			found = line
		}
	}
	if found == "" {
		t.Fatalf("%q is in no line of:\n%s", parts[0], text)
	}
	must(t, found, parts...)
	return found
}

// sameOutput compares two outputs.
func sameOutput(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Fatalf("the output differs from that of an undisturbed run: %s", firstDifference([]byte(got), []byte(want)))
	}
	if !strings.ContainsAny(want, "0123456789") {
		t.Fatalf("the output tells nothing: %q", want)
	}
}
