package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// leaveName is the file in the run's folder that lists hosts to be left.
const leaveName = "leave"

// Leave moves all ranks off the hosts that RUN/leave lists: one in each line,
// and after a blank the host to go to, if it is not to be chosen. What can't
// be done is told by events. Any goroutine may call it, at any time.
func (s *Supervisor) Leave() {
	list, err := readLeave(s.dir.file(leaveName))
	s.post(func() {
		if err != nil {
			s.say("no host is left: %v", err)
			return
		}
		for _, l := range list {
			s.leave(l.from, l.to, "as "+leaveName+" says")
		}
	})
}

type leaving struct{ from, to string }

// readLeave reads a list of hosts to be left.
func readLeave(path string) (out []leaving, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; write the names of hosts to be left into it, one in each line", err)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	for n := 1; in.Scan(); n++ {
		line, _, _ := strings.Cut(in.Text(), "#")
		words := strings.Fields(line)
		switch len(words) {
		case 0:
		case 1:
			out = append(out, leaving{from: words[0]})
		case 2:
			out = append(out, leaving{words[0], words[1]})
		default:
			return nil, fmt.Errorf("%s:%d: %d words; a line is HOST, or HOST TARGET", path, n, len(words))
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("%s names none; write names of hosts into it, one in each line", path)
	}
	return out, nil
}

// leave lets all ranks leave a host, which nobody waits for.
func (s *Supervisor) leave(from, to, why string) {
	same := func(q *request) bool { return q.host == from }
	if slices.ContainsFunc(s.queue, same) || s.move != nil && same(s.move.q) {
		s.say("host %s is about to be left already", from)
		return
	}
	s.say("host %s is to be left, %s", from, why)
	s.ask(&request{host: from, to: to, how: control.Move{Rounds: DefaultRounds}, tries: 1})
}

// toLeave takes in what a helper says of the command that watches its host.
func (h *host) toLeave(m *control.Message) {
	if m.Error != "" {
		h.s.say("host %s: %s", h.title(), m.Error)
		return
	}
	if slices.ContainsFunc(h.s.hosts, func(x *host) bool { return x.leaves && x.title() == h.title() }) {
		return // there may be several helpers of one host
	}
	h.leaves = true
	h.s.leave(h.title(), "", "as --leave-when says there")
}

// leaveWhen runs a command every so often that tells whether this host is to
// be left, and passes that on, once.
func (h *helper) leaveWhen(w *control.LeaveWhen) {
	// The command's PDEATHSIG comes when the thread that forked it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	tick := time.NewTicker(max(w.Every, time.Millisecond))
	defer tick.Stop()
	told := make(map[string]bool)
	for {
		select {
		case <-tick.C:
		case <-h.gone:
			return
		}
		leave, err := runLeave(w)
		if leave {
			h.up.send(&control.Message{Kind: control.Leave})
			return
		}
		if err != nil && !told[err.Error()] {
			told[err.Error()] = true
			h.up.send(&control.Message{Kind: control.Leave, Error: err.Error()})
		}
	}
}

// runLeave runs the command once; it may take as long as the time between two.
func runLeave(w *control.LeaveWhen) (leave bool, err error) {
	cmd := exec.Command("/bin/sh", "-c", w.Command)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, envSupervisor+"=") })
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("--leave-when: %w", err)
	}
	pid := cmd.Process.Pid
	ended := make(chan struct{})
	late := make(chan bool, 1)
	go func() {
		t := time.NewTimer(w.Every)
		defer t.Stop()
		select {
		case <-ended:
			late <- false
		case <-t.C:
			syscall.Kill(-pid, syscall.SIGKILL)
			late <- true
		}
	}()
	ending(pid) // not reaped: its number is still ours
	close(ended)
	killed := <-late
	err = cmd.Wait()
	switch code := cmd.ProcessState.ExitCode(); {
	case err == nil:
		return true, nil
	case killed:
		return false, fmt.Errorf("--leave-when: %s did not end within %s and was killed", quote(w.Command), timeText(w.Every))
	case code == 126 || code == 127:
		return false, fmt.Errorf("--leave-when: %s can't be run: the shell ended with status %d; the host is not watched", quote(w.Command), code)
	}
	return false, nil
}
