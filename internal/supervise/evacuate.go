//go:build linux

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
			s.leave(&request{host: l.from, to: l.to, by: byFile}, "as "+leaveName+" says")
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
		for _, w := range words {
			if !hostName(w) {
				return nil, fmt.Errorf("%s:%d: %q is no host", path, n, w)
			}
		}
		switch {
		case len(words) == 0:
		case len(words) == 1:
			out = append(out, leaving{from: words[0]})
		case len(words) > 2:
			return nil, fmt.Errorf("%s:%d: %d words; a line is HOST, or HOST TARGET", path, n, len(words))
		case words[0] == words[1]:
			return nil, fmt.Errorf("%s:%d: ranks can't leave host %s for itself", path, n, words[0])
		default:
			out = append(out, leaving{words[0], words[1]})
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
func (s *Supervisor) leave(q *request, why string) {
	switch {
	case s.ending():
		s.say("host %s is not left: the run is to stop", q.host)
		return
	case s.isLeft(q.host):
		s.say("host %s is about to be left already", q.host)
		return
	}
	s.say("host %s is to be left, %s", q.host, why)
	s.askLeave(q)
}

func (s *Supervisor) askLeave(q *request) {
	q.how = control.Move{Rounds: DefaultRounds}
	q.tries++
	s.ask(q)
}

// isLeft reports whether a host is about to be left.
func (s *Supervisor) isLeft(name string) bool {
	same := func(q *request) bool { return q.host == name }
	return slices.ContainsFunc(s.queue, same) || s.move != nil && same(s.move.q) ||
		slices.ContainsFunc(s.back, func(m *move) bool { return same(m.q) })
}

// ending reports whether no move is begun any more.
func (s *Supervisor) ending() bool { return s.stopping || s.killed || s.stopLater != "" }

// leaveTries is how often a host that the file lists is tried to be left.
const leaveTries = 3

// again asks once more for a move that did not succeed, if nobody waits for
// it. A host that says itself that it is to be left will say so again; then it
// is tried, less and less often.
func (s *Supervisor) again(q *request) {
	later := s.limits.again
	switch w := s.watches[q.host]; {
	case q.by == byFile && q.tries < leaveTries:
		time.AfterFunc(later, func() { // the ranks may have been started again by then
			s.post(func() {
				if !s.ending() && !s.isLeft(q.host) {
					s.askLeave(&request{host: q.host, to: q.to, by: q.by, tries: q.tries})
				}
			})
		})
	case q.by == byWatch && w != nil:
		later <<= min(w.failed, 6)
		w.failed++
		w.next = time.Now().Add(later)
	default:
		return
	}
	s.say("host %s is to be left: that is tried again in %s", q.host, timeText(later))
}

// leaveWatch is what is known of a host that says that it is to be left.
type leaveWatch struct {
	told   string    // why that could not begin, as was said last
	failed int       // moves
	next   time.Time // not before that it is tried again
}

// toLeave takes in what a helper says of the command that watches its host. It
// says so at every look, so that ranks leave as soon as they can.
func (h *host) toLeave(m *control.Message) {
	s, name := h.s, h.title()
	if m.Error != "" {
		s.say("host %s: %s", name, m.Error)
		return
	}
	h.leaves = true
	q := &request{host: name, by: byWatch}
	w := s.watches[name]
	if w == nil { // there may be several helpers of one host
		s.watches[name] = new(leaveWatch)
		if !s.isLeft(name) {
			s.leave(q, "as --leave-when says there")
		}
		return
	}
	if s.isLeft(name) || s.a == nil || !s.a.begun || s.stopping || time.Now().Before(w.next) {
		return
	}
	ranks := s.ranksOn(name)
	if len(ranks) == 0 {
		return
	}
	if _, err := s.spread(q, ranks, []string{name}); err != nil {
		if err.Error() != w.told {
			w.told = err.Error()
			s.say("host %s is still to be left: %s", name, w.told)
		}
		return
	}
	w.told = ""
	s.leave(q, "and now there is room for its ranks")
}

// leaveWhen runs a command every so often that tells whether this host is to
// be left, and passes that on.
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
		if h.secret != nil && !h.serves() { // there is nobody to leave
			continue
		}
		leave, err := runLeave(w)
		if leave {
			h.up.send(&control.Message{Kind: control.Leave})
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
