//go:build linux

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// host is a host with its helper, as the supervisor sees them.
type host struct {
	s       *Supervisor
	name    string
	shared  string // identifies hosts whose ranks share memory; "": the name
	slots   int
	vacated int  // slots of ranks that have moved away
	closed  bool // it was evacuated: only --to brings ranks there, and their slots are not free for others afterwards
	local   bool
	fixed   []int // for a launched helper: its rank

	cmd        *exec.Cmd
	ended      chan struct{} // closed when the process of cmd has ended
	stderr     *tail
	queue      *control.SendQueue
	conn       *control.Conn
	state      hostState
	busy       bool      // ranks were started, and Drained has not come
	missed     int       // checks since the last message
	served     bool      // it has had ranks
	starts     uint64    // starts that it was sent in this attempt
	evacuating bool      // its EvacuateWhen holds
	extra      bool      // it was added for its files or for a move, and goes when nobody needs it
	spawned    bool      // an MPI library has started its helper, and ends everything if the helper ends
	waiting    time.Time // since when it waits for an earlier helper to end
	killed     int       // helpers that a signal has killed while they joined
	err        error     // why it is not up

	// With a directory per host:
	files     *control.HostFiles      // what it had when it was scanned last
	addresses []string                // where other helpers get files
	peer      []string                // where it takes copies of checkpoints; none: there is no tier on hosts
	asked     []func(control.Message) // who waits for its answers, see ask
	holds     bool                    // it may have files that ranks on other hosts need
	other     string                  // it could not join, because its directory has the files of this run; AnyRun: of an unknown one
	found     *control.AttemptRecord  // … the newest start of that run
	rotten    []control.TierRepair    // what it has read again, is damaged, and cannot be repaired
}

// hostState says whether a host's helper is connected.
//
//	hostDown ──▶ hostJoining ──▶ hostUp
//	    ▲─────────────┴─────────────┘ lost, released
type hostState int

const (
	hostDown hostState = iota
	hostJoining
	hostUp
)

// title returns the host's name in messages.
func (h *host) title() string {
	if h.shared != "" {
		return h.shared
	}
	return h.name
}

// gatherHelpers starts the helpers that the ranks need. It reports whether the
// ranks can start; if not, it has set the attempt's failure, or the run stops.
func (s *Supervisor) gatherHelpers(ctx context.Context) bool {
	if s.launcher != nil {
		return s.gatherLaunched(ctx)
	}
	s.addHolders()
	for _, h := range s.hosts {
		if h.state != hostUp && (h.slots > 0 || h.holds) {
			h.join()
		}
	}
	s.until(ctx, func() bool {
		return s.killed || s.stopping || !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.state == hostJoining })
	}, nil)
	for _, h := range s.hosts {
		if h.state != hostUp && h.served && !s.killed && !s.stopping {
			h.awaitFree(ctx)
		}
	}
	if s.killed || s.stopping {
		return false
	}
	if again, err := s.findOnHosts(); err != nil {
		s.notBegun(err.Error())
		return false
	} else if again {
		return s.gatherHelpers(ctx)
	}
	room := 0
	var lost []error
	for _, h := range s.hosts {
		if h.state == hostUp {
			room += h.slots
		} else if h.slots > 0 {
			lost = append(lost, h.err)
		}
	}
	if len(lost) > 0 && s.local != nil && s.rec.Started == nil && !s.o.Fresh {
		if remedy := roomRemedy(errors.Join(lost...).Error()); remedy != "" {
			s.notBegun(fmt.Sprintf("%v; %s, and give the same command again", errors.Join(lost...), remedy))
			return false
		}
		s.notBegun(errors.Join(lost...).Error() + "; the run directory is new, and that host may have an earlier run of this command: bring it back, leave it out of --hosts if it has none, or begin a new run with --fresh")
		return false
	}
	if room >= s.n || room > 0 && s.finished() {
		for _, err := range lost {
			s.say("continuing without a host: %v", err)
		}
		return true
	}
	var why []string
	for _, err := range lost {
		why = append(why, err.Error())
	}
	if room > 0 {
		why = append(why, fmt.Sprintf("%d ranks need room and there is room for %d", s.n, room))
	}
	if remedy := roomRemedy(strings.Join(why, "; ")); remedy != "" {
		why = append(why, remedy+", and give the same command again")
	}
	s.notBegun(strings.Join(why, "; "))
	return false
}

// notBegun fails an attempt whose ranks were not started. If that ends the run,
// end reports the reason.
func (s *Supervisor) notBegun(why string) {
	s.a.failure = &failure{why: why, status: 1, fatal: !s.began}
	if s.began {
		s.say("%s", why)
	}
}

// awaitFree waits for the end of the ranks on a host whose helper is lost and
// cannot be replaced. While they may run, no rank must start elsewhere.
func (h *host) awaitFree(ctx context.Context) {
	s, told := h.s, false
	if s.local != nil { // its lock is on the host: see awaitLeft
		h.served = false
		return
	}
	for until := time.Now().Add(s.o.Grace + helperEndTime); time.Now().Before(until) && !s.killed && !s.stopping; {
		lock, holder, err := rundir.TryLock(rundir.HostLock(s.dir.Path, h.name))
		if err == nil {
			lock.Close()
		}
		if !errors.Is(err, rundir.ErrBusy) {
			h.served = false
			return
		}
		if !told {
			told = true
			s.say("waiting for the ranks of the last start on %s to end (%s)", h.name, holder)
		}
		s.until(ctx, func() bool { return s.killed || s.stopping }, time.After(busyEvery))
	}
}

// command returns the command that starts the host's helper.
func (h *host) command() []string {
	if h.local {
		return h.s.o.Helper
	}
	return remoteCommand(h.name, h.s.o.RemoteShell, h.s.o.RemoteHelper)
}

// remoteCommand returns the command that starts a helper on another host.
func remoteCommand(host string, shell, helper []string) []string {
	if len(shell) == 0 {
		shell = []string{"ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=10", "-o", "ServerAliveCountMax=3"}
	}
	out := make([]string, len(shell))
	named := false
	for i, arg := range shell {
		out[i] = strings.ReplaceAll(arg, "{host}", host)
		named = named || out[i] != arg
	}
	if !named {
		out = append(out, host)
	}
	// ssh passes one line to a remote shell; other programs pass arguments on.
	if base := filepath.Base(out[0]); base == "ssh" || base == "rsh" {
		return append(out, control.ShellCommand(helper))
	}
	return append(out, helper...)
}

// join starts the host's helper. It does not wait: the state, or h.err, is set
// later.
func (h *host) join() {
	h.state, h.err, h.fixed, h.waiting, h.other, h.found = hostJoining, nil, nil, time.Time{}, "", nil
	args := h.command()
	cmd := exec.Command(args[0], args[1:]...)
	// It has its own process group, so that a terminal's Ctrl-C reaches only
	// the supervisor.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	h.stderr = new(tail)
	cmd.Stderr = h.stderr
	stream, err := startHelper(cmd, h.local)
	if err != nil {
		h.state = hostDown
		h.err = fmt.Errorf("host %s: its helper could not be started: %w", h.name, err)
		if errors.Is(err, exec.ErrNotFound) {
			h.err = fmt.Errorf("%w; install it, or name another command that reaches hosts with --rsh", h.err)
		}
		return
	}
	h.cmd, h.ended = cmd, make(chan struct{})
	go func(done chan struct{}) {
		cmd.Wait()
		close(done)
	}(h.ended)
	go func(ended chan struct{}) {
		if err := skipTo(stream, helper.StreamMark, 64<<10); err != nil {
			stream.Close()
			select { // after that, its stderr is complete
			case <-ended:
			case <-time.After(2 * time.Second):
			}
			h.s.post(func() { h.unreached(err, cmd) })
			return
		}
		conn := control.New(stream)
		queue := control.NewSendQueue(conn, 1<<16)
		h.s.post(func() {
			if h.cmd == cmd && h.state == hostJoining {
				h.attach(conn, queue)
			} else { // it is too late
				queue.Finish()
				conn.Close()
			}
		})
		h.listen(conn, queue)
	}(h.ended)
	pid := cmd.Process.Pid
	time.AfterFunc(joinTime, func() {
		h.s.post(func() {
			if h.state == hostJoining && h.cmd == cmd && h.waiting.IsZero() {
				syscall.Kill(-pid, syscall.SIGKILL)
				h.lost(fmt.Errorf("no answer within %s", control.TimeText(joinTime)))
			}
		})
	})
}

// startHelper starts cmd with its stdin and stdout connected to the stream.
func startHelper(cmd *exec.Cmd, local bool) (io.ReadWriteCloser, error) {
	if local {
		mine, theirs, err := control.Pair()
		if err != nil {
			return nil, err
		}
		defer theirs.Close()
		cmd.Stdin, cmd.Stdout = theirs, theirs
		if err := cmd.Start(); err != nil {
			mine.Close()
			return nil, err
		}
		return mine, nil
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inWrite.Close()
		return nil, err
	}
	defer outWrite.Close()
	cmd.Stdin, cmd.Stdout = inRead, outWrite
	if err := cmd.Start(); err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, err
	}
	return control.Duplex{In: outRead, Out: inWrite}, nil
}

// skipTo reads up to and including mark.
func skipTo(r io.Reader, mark string, limit int) error {
	var seen []byte
	one := make([]byte, 1)
	for len(seen) < limit {
		if _, err := io.ReadFull(r, one); err != nil {
			return fmt.Errorf("the connection ended (%w) after %q", err, seen)
		}
		if seen = append(seen, one[0]); bytes.HasSuffix(seen, []byte(mark)) {
			return nil
		}
	}
	return fmt.Errorf("there is no helper, but something that says %q", seen[:80])
}

// listen receives the helper's messages and posts them to the supervisor.
func (h *host) listen(conn *control.Conn, queue *control.SendQueue) {
	for {
		m, err := conn.Recv()
		if err != nil {
			h.s.post(func() {
				if h.conn == conn {
					h.lost(err)
				}
			})
			return
		}
		if from, ok := m.(*control.FromRank); ok {
			if out, ok := from.Carried.Message.(*control.Output); ok {
				h.s.sink.Take(from, out, queue)
				continue
			}
		}
		h.s.post(func() {
			if h.conn == conn {
				h.handle(m)
			}
		})
	}
}

func (h *host) attach(conn *control.Conn, queue *control.SendQueue) {
	h.conn, h.queue, h.missed = conn, queue, 0
}

func (h *host) handle(m control.Message) {
	h.missed = 0
	switch m := m.(type) {
	case *control.Joined:
		h.setUp()
	case *control.Ready:
		switch {
		case h.state != hostJoining:
		case m.Error == "" && h.s.local != nil && m.Files == nil:
			h.lost(errors.New("its helper is of another version: it knows no directories of hosts"))
		case m.Error == "":
			h.state, h.files, h.addresses, h.peer, h.killed, h.rotten = hostUp, m.Files, m.Addresses, m.Peer, 0, nil
			if h.s.local != nil { // it has the host's lock
				delete(h.s.local.left, m.Files.ID)
			}
			if h.s.a != nil && h.s.a.begun() { // for a move
				h.s.tellPeers()
			}
			h.s.releaseEmptyHosts()
		case !m.Busy || !h.waits(m.Holder):
			h.other, h.found = m.Other, m.Attempt
			h.lost(errors.New(m.Error))
		}
	case *control.Drained:
		if h.s.a != nil && m.Launch == h.s.a.launch && m.Number == h.starts { // no more ranks were started meanwhile
			h.busy = false
			h.s.releaseEmptyHosts()
		}
	case *control.Scanned, *control.Fetched, *control.AttemptStored, *control.FileData, *control.Discarded, *control.PartVerified:
		h.answers(m)
	case *control.Stored:
		h.s.stored(h, m)
	case *control.Turn:
		h.s.turn(h, m)
	case *control.Scrubbed:
		h.s.scrubbed(h, m)
	case *control.Evacuate:
		h.toEvacuate(m)
	case *control.Signaled:
		h.s.signaled()
	case *control.FromRank:
		h.s.fromRank(h, m)
	}
}

// setUp sends the helper its name and the run directory. A helper on this
// machine learns from its connection that the supervisor has ended, so silence
// means nothing to it.
func (h *host) setUp() {
	m := &control.Setup{Host: h.name, Dir: h.s.dir.Path, SameMachine: h.local}
	if o := &h.s.o; o.EvacuateWhen != "" {
		m.EvacuateWhen = &control.EvacuateWhen{Command: o.EvacuateWhen, Every: o.EvacuatePoll}
	}
	if h.s.local != nil {
		m.Local = h.s.local.setup(h.s)
		m.Local.Peer = h.shared
	}
	h.queue.Send(m)
}

// waits makes a helper try again to lock its host, which an earlier helper has
// locked. It reports whether there is time for that.
func (h *host) waits(holder string) bool {
	if h.waiting.IsZero() {
		h.waiting = time.Now()
		h.s.say("waiting for the ranks of the last start on %s to save and stop (%s)", h.name, holder)
	}
	if time.Since(h.waiting) > h.s.o.Grace+helperEndTime {
		return false
	}
	conn := h.conn
	time.AfterFunc(busyEvery, func() {
		h.s.post(func() {
			if h.state == hostJoining && h.conn == conn {
				h.setUp()
			}
		})
	})
	return true
}

// joinAgain starts another helper if a signal has killed the one that was
// joining, three times at most.
func (h *host) joinAgain() bool {
	if h.state != hostJoining || h.cmd == nil || h.killed >= 3 || h.s.killed || h.s.stopping {
		return false
	}
	select {
	case <-h.ended:
	case <-time.After(time.Second): // it has closed the connection
		return false
	}
	if st, ok := h.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || !st.Signaled() {
		return false
	}
	h.killed++
	h.hangUp()
	h.join()
	return true
}

// lost records that the helper is gone, and its ranks with it.
func (h *host) lost(err error) {
	if h.state == hostDown || h.joinAgain() {
		return
	}
	if err == io.EOF || errors.Is(err, syscall.ECONNRESET) {
		err = errors.New("its helper has ended")
	}
	h.err = fmt.Errorf("host %s: %w%s", h.name, err, h.stderr.text())
	if h.s.local != nil && h.files != nil && h.busy {
		h.s.local.left[h.files.ID] = time.Now()
	}
	h.hangUp()
	s := h.s
	s.holderLost(h)
	if s.a == nil || !s.a.begun() {
		return
	}
	if s.onHost(h) > 0 {
		s.reportCause(fmt.Sprintf("lost %v", h.err))
		s.a.outside = true
	}
	s.hostOfSourceLost(h)
	for i := range s.a.ranks {
		r := &s.a.ranks[i]
		if r.on != h || r.State == "ended" {
			continue
		}
		r.State, r.bad = "ended", true
		s.a.alive--
		if !s.stopping && !s.a.killed() {
			s.fail(r.Rank, &failure{why: fmt.Sprintf("lost %v", h.err), status: 1})
		}
	}
}

// unreached records that the helper did not start. The message of the remote
// shell says more than the end of the connection; with status 255, the message
// is ssh's own.
func (h *host) unreached(err error, cmd *exec.Cmd) {
	if h.cmd != cmd || h.state != hostJoining {
		return
	}
	said := h.stderr.line()
	ended := false
	select {
	case <-h.ended:
		ended = true
	default:
	}
	h.lost(err)
	switch {
	case said == "" || h.local:
	case ended && cmd.ProcessState.ExitCode() == 255:
		h.err = fmt.Errorf("host %s cannot be reached: %s", h.name, said)
	default:
		h.err = fmt.Errorf("host %s: its helper could not be started: %s; --remote-cairn names cairn there", h.name, said)
	}
}

// hangUp closes the connection. A helper that still runs ends by itself then.
func (h *host) hangUp() {
	h.state, h.busy = hostDown, false
	if h.queue != nil {
		h.queue.Finish()
	}
	if h.conn != nil {
		h.conn.Close()
	}
	h.queue, h.conn = nil, nil
	h.answersNothing()
	h.s.endTurns(h)
}

// look pings the helpers and gives up those that are silent.
func (s *Supervisor) look() {
	for _, h := range s.hosts {
		switch {
		case h.conn == nil:
		case h.missed > int(hostSilence/helper.PingEvery):
			if h.local && h.cmd != nil { // its ranks die with it
				h.cmd.Process.Kill()
			}
			h.lost(fmt.Errorf("nothing was heard from it for %s", control.TimeText(hostSilence)))
		default:
			h.missed++ // checks are counted, because time in which this process was stopped is not silence
			h.queue.Send(&control.Ping{})
		}
	}
	s.tick.Reset(helper.PingEvery)
}

// dismiss tells all helpers to end, and waits for them.
func (s *Supervisor) dismiss() {
	if s.launcher != nil {
		s.launcher.note(s.hosts)
	}
	for _, h := range s.hosts {
		if h.queue == nil {
			continue
		}
		h.queue.Send(&control.Quit{})
		h.queue.Finish()
		select {
		case <-h.queue.Done:
		case <-time.After(time.Second):
		}
		if h.ended != nil {
			select {
			case <-h.ended:
			case <-time.After(5 * time.Second):
			}
		}
		h.hangUp()
	}
	if s.launcher != nil {
		s.launcher.end()
		s.hosts = nil
	}
}

// tail keeps the end of what is written to it.
type tail struct {
	mu  sync.Mutex
	buf []byte
}

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.buf = append(t.buf, p...)
	if len(t.buf) > 4096 {
		t.buf = append(t.buf[:0], t.buf[len(t.buf)-2048:]...)
	}
	return len(p), nil
}

// line returns the text in one line.
func (t *tail) line() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for s := range strings.Lines(string(t.buf)) {
		if s = strings.TrimSpace(s); s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, " | ")
}

// text returns the text for an error message.
func (t *tail) text() string {
	if t == nil {
		return ""
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := strings.TrimSpace(string(t.buf)); s != "" {
		return fmt.Sprintf(" (it said: %s)", s)
	}
	return ""
}
