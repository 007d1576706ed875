package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// envCase is in the environment of all processes of a case.
	envCase = "CAIRN_FAULTS_CASE"
	// envBegins names a file. A program appends a line to it when it starts
	// from its beginning.
	envBegins = "FAULTS_BEGINS"
	// patience is how long nothing may change before a case counts as hanging.
	patience = 60 * time.Second
)

// start is a started command of a case.
type start struct {
	t   *faultCase
	cmd *exec.Cmd

	mu    sync.Mutex
	lines []string // lines of its stderr
	more  chan struct{}
	done  chan struct{}
	state *os.ProcessState
}

var committed = regexp.MustCompile(`(?:set|checkpoint) (\d+) committed`)

// launch starts a command in the case's working directory, with input as its
// standard input. Its standard output is discarded.
func (t *faultCase) launch(input io.Reader, env []string, argv ...string) (*start, error) {
	s := &start{t: t, more: make(chan struct{}), done: make(chan struct{})}
	s.cmd = exec.Command(argv[0], argv[1:]...)
	s.cmd.Dir = t.work()
	s.cmd.Env = append(append(os.Environ(), t.name, envBegins+"="+t.file("begins"), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"), env...)
	s.cmd.Stdin = input
	s.cmd.WaitDelay = patience
	// It has a process group of its own, so that Ctrl-C affects only the
	// campaign.
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	s.cmd.Stderr = write
	err = s.cmd.Start()
	write.Close()
	if err != nil {
		read.Close()
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		lines := bufio.NewScanner(read)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			s.take(lines.Text())
		}
		read.Close()
	}()
	go func() {
		s.cmd.Wait()
		select { // read its last lines; other processes may still have the pipe open
		case <-ended:
		case <-time.After(2 * time.Second):
		}
		s.mu.Lock()
		s.state = s.cmd.ProcessState
		s.mu.Unlock()
		close(s.done)
	}()
	return s, nil
}

// take handles a line.
func (s *start) take(line string) {
	if m := committed.FindStringSubmatch(line); m != nil {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		s.t.committed(n)
	}
	if s.t.verbose {
		s.t.say("case %d: | %s", s.t.n, line)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
	close(s.more)
	s.more = make(chan struct{})
}

// committed records that a checkpoint is safe.
func (t *faultCase) committed(n uint64) {
	begun := t.begins()
	t.mu.Lock()
	defer t.mu.Unlock()
	if n > t.safe {
		t.safe, t.begun = n, begun
	}
}

// begins returns how often the program has started from its beginning.
func (t *faultCase) begins() int {
	text, _ := os.ReadFile(t.file("begins"))
	return bytes.Count(text, []byte("\n"))
}

// text returns all lines.
func (s *start) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

// count returns how many lines match.
func (s *start) count(what *regexp.Regexp) (n int) {
	for line := range strings.SplitSeq(s.text(), "\n") {
		if what.MatchString(line) {
			n++
		}
	}
	return n
}

// over reports whether the command has ended.
func (s *start) over() bool {
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// sees waits until n lines match. It returns false if the command ends before
// that.
func (s *start) sees(what *regexp.Regexp, n int) (bool, error) {
	watch := s.t.watch()
	for {
		s.mu.Lock()
		more := s.more
		s.mu.Unlock()
		if s.count(what) >= n {
			return true, nil
		}
		select {
		case <-more:
		case <-s.done:
			return s.count(what) >= n, nil
		case <-time.After(time.Second):
			if err := watch.look(s); err != nil {
				return false, err
			}
		}
	}
}

// pause waits for a time. It returns false if the command ends before that.
func (s *start) pause(d time.Duration) bool {
	select {
	case <-s.done:
		return false
	case <-time.After(d):
		return true
	}
}

// end waits for the end of the command.
func (s *start) end() error {
	watch := s.t.watch()
	for {
		select {
		case <-s.done:
			return nil
		case <-time.After(time.Second):
			if err := watch.look(s); err != nil {
				return err
			}
		}
	}
}

// exit returns the exit status, or -1 if the command was killed.
func (s *start) exit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state.ExitCode()
}

// watch detects that nothing changes any more.
type watch struct {
	t     *faultCase
	mark  string
	since time.Time
}

func (t *faultCase) watch() *watch { return &watch{t: t, since: time.Now()} }

// look returns an error if nothing has changed for too long.
func (w *watch) look(s *start) error {
	if err := w.t.ctx.Err(); err != nil {
		return err
	}
	mark := w.t.mark()
	if s != nil {
		s.mu.Lock()
		mark += fmt.Sprint(len(s.lines))
		s.mu.Unlock()
	}
	if mark != w.mark {
		w.mark, w.since = mark, time.Now()
	}
	if time.Since(w.since) < patience {
		return nil
	}
	said := ""
	if s != nil {
		said = ": " + tail(s.text())
	}
	if w.t.keep {
		for _, p := range w.t.processes() {
			syscall.Kill(p.pid, syscall.SIGQUIT) // the goroutine dump shows where it hangs
		}
		time.Sleep(time.Second)
	}
	return judged(hang, "nothing moved for %v%s", patience, said)
}

// mark returns a text that changes when anything is written.
func (t *faultCase) mark() string {
	n, size := 0, int64(0)
	filepath.WalkDir(t.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		n++
		if st, err := e.Info(); err == nil {
			size += st.Size() + st.ModTime().UnixNano()%1e9
		}
		return nil
	})
	return fmt.Sprintf("%d %d ", n, size)
}

// tail returns the end of a text, in one line.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-6):], " | ")
}

// process is one of the case's processes.
type process struct {
	pid  int
	role string // supervisor, helper, rank or other
}

// processes returns the case's processes.
func (t *faultCase) processes() (out []process) {
	list, _ := os.ReadDir("/proc")
	for _, e := range list {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !hasVariable(env, t.name) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		argv := strings.Split(string(line), "\x00")
		exe, err := os.Readlink(filepath.Join("/proc", e.Name(), "exe"))
		if err != nil {
			continue
		}
		p := process{pid, "other"}
		switch name := filepath.Base(exe); {
		case strings.HasPrefix(name, "cairn") && len(argv) > 1 && argv[1] == "run":
			p.role = "supervisor"
		case strings.HasPrefix(name, "cairn") && len(argv) > 1 && argv[1] == "_host":
			p.role = "helper"
		case strings.HasPrefix(name, t.prog.source):
			p.role = "rank"
		}
		out = append(out, p)
	}
	return out
}

func hasVariable(env []byte, variable string) bool {
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == variable {
			return true
		}
	}
	return false
}

// strike sends a signal to a process of a role, or to all processes, and
// returns those that it hit. If there are several ranks or helpers, it hits
// one.
func (t *faultCase) strike(role string, sig syscall.Signal) (hit []int) {
	var of []process
	for _, p := range t.processes() {
		if role == "all" || p.role == role {
			of = append(of, p)
		}
	}
	if role != "all" && len(of) > 1 {
		k := t.r.IntN(len(of))
		of = of[k : k+1]
	}
	for _, p := range of {
		if syscall.Kill(p.pid, sig) == nil {
			hit = append(hit, p.pid)
		}
	}
	return hit
}

// strikeAll kills until no process is left, including those that were being
// started meanwhile.
func (t *faultCase) strikeAll() error {
	w := t.watch()
	for {
		left := 0
		for _, p := range t.processes() {
			syscall.Kill(p.pid, syscall.SIGKILL)
			left++
		}
		if left == 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond)
		if time.Since(w.since) > patience {
			return errors.New("processes cannot be killed")
		}
	}
}

// end removes what a case has left, and reports what it should not have left.
func (t *faultCase) end(well bool) (left string) {
	if t.kind.simulated() {
		return ""
	}
	var found []process
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(20 * time.Millisecond) {
		if found = t.processes(); len(found) == 0 {
			break
		}
		if t.ctx.Err() != nil || !well {
			break
		}
	}
	if len(found) > 0 && well {
		left = fmt.Sprintf("a minute after the end processes are left: %v", found)
	}
	if err := t.strikeAll(); err != nil {
		left = err.Error()
	}
	return left
}
