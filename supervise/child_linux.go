package supervise

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/control"
)

// rankLimit bounds what a rank may send in one message.
const rankLimit = 4 << 20

// child is a rank that this helper started.
type child struct {
	h      *helper
	l      *launch
	rank   int
	cmd    *exec.Cmd
	ctl    *control.Conn
	box    *outbox
	follow [3]*follower  // by stream
	placed chan struct{} // closed: stdout is where the rank goes on

	mu     sync.Mutex
	hello  bool
	reaped bool
}

func hostLock(run, name string) string {
	return filepath.Join(run, "hosts", strings.ReplaceAll(name, "/", "_")+".lock")
}

func outputFile(dir string, rank, stream int) string {
	return filepath.Join(dir, fmt.Sprintf("rank-%04d.%s", rank, []string{control.Stdout: "out", control.Stderr: "err"}[stream]))
}

// start starts the rank and what watches it; all is done when it has ended
// together with its writer and its outputs.
func (c *child) start(i int, watch *watch, all *sync.WaitGroup) (err error) {
	s := c.l.start
	var mine []io.Closer
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			f.Close()
		}
		if err != nil {
			for _, f := range mine {
				f.Close()
			}
			err = fmt.Errorf("rank %d on %s: %w", c.rank, c.h.name, err)
		}
	}()
	open := func(stream int) (*os.File, error) {
		f, err := os.OpenFile(outputFile(s.Output, c.rank, stream), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err == nil {
			theirs = append(theirs, f)
			if stream == control.Stdout && !s.Keep {
				err = f.Truncate(0)
			}
		}
		return f, err
	}
	stdout, err := open(control.Stdout)
	if err != nil {
		return err
	}
	stderr, err := open(control.Stderr)
	if err != nil {
		return err
	}
	ctl, ctlEnd, err := control.Pair()
	if err != nil {
		return err
	}
	mine, theirs = append(mine, ctl), append(theirs, ctlEnd)
	writer, writerEnd, err := control.Pair()
	if err != nil {
		return err
	}
	mine, theirs = append(mine, writer), append(theirs, writerEnd)

	extra, numbers := layOut(c.h.keep, ctlEnd, writerEnd)
	c.cmd = &exec.Cmd{
		Path: s.Command[0], Args: s.Command, Dir: s.Dir,
		Env: append(rankEnv(s.Env),
			control.EnvControl+"="+strconv.Itoa(numbers[0]), control.EnvWriter+"="+strconv.Itoa(numbers[1]),
			control.EnvRank+"="+strconv.Itoa(c.rank), control.EnvSize+"="+strconv.Itoa(s.Welcome.Size)),
		Stdout: stdout, Stderr: stderr, ExtraFiles: extra,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL},
	}
	if s.Input != "" && c.rank == 0 {
		in, err := os.Open(s.Input)
		if err != nil {
			return fmt.Errorf("stdin of rank 0: %w", err)
		}
		defer in.Close()
		c.cmd.Stdin = in
	}
	started := make(chan error)
	c.h.fork <- func() { started <- c.cmd.Start() }
	if err := <-started; err != nil {
		return err
	}
	c.ctl = control.New(ctl)
	c.ctl.SetLimit(rankLimit)
	c.box = newOutbox(c.ctl, 4096)
	now := make(chan struct{})
	close(now)
	c.placed = make(chan struct{})
	if !s.Keep {
		close(c.placed)
	}
	for _, stream := range []int{control.Stdout, control.Stderr} {
		ready := now
		if stream == control.Stdout {
			ready = c.placed
		}
		c.follow[stream] = follow(watch, outputFile(s.Output, c.rank, stream), s.Shown[i][stream-1], ready, c.h.gone, func(offset int64, data []byte) {
			c.h.up.send(&control.Message{Kind: control.Output, Rank: c.rank, Launch: s.Launch, Stream: stream, Offset: offset, Data: data})
		})
	}
	read, wrote := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(read)
		c.listen()
	}()
	go func() {
		defer close(wrote)
		defer writer.Close()
		// A writer's trouble has been told to its rank; nobody else can act on it.
		_ = c.h.o.Writer(context.Background(), writer)
	}()
	all.Go(func() { c.watch(writer, read, wrote) })
	return nil
}

// rankEnv is the environment of ranks: the one given or ours, less what is
// the helper's own.
func rankEnv(env []string) []string {
	if env == nil {
		env = os.Environ()
	}
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		return strings.HasPrefix(s, envSecret+"=") || strings.HasPrefix(s, envSupervisor+"=")
	})
}

// layOut places the two sockets at the lowest numbers from 3 on that none of
// the files to be kept has, and keeps those where they are.
func layOut(keep map[int]*os.File, a, b *os.File) (extra []*os.File, numbers []int) {
	place := []*os.File{a, b}
	for fd := 3; len(place) > 0; fd++ {
		if f := keep[fd]; f != nil {
			extra = append(extra, f)
			continue
		}
		extra, place, numbers = append(extra, place[0]), place[1:], append(numbers, fd)
	}
	return extra, numbers
}

// inheritedFiles are the descriptors that whoever started this process left
// open for it, such as PMI_FD. Those above the sockets' numbers are passed on
// by the kernel; those below need an entry in the table.
func inheritedFiles() map[int]*os.File {
	out := make(map[int]*os.File)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return out
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			out[fd] = os.NewFile(uintptr(fd), "inherited")
		}
	}
	return out
}

// listen passes on what the rank says.
func (c *child) listen() {
	for {
		m, err := c.ctl.Recv()
		if err != nil {
			if errors.Is(err, control.ErrMalformed) { // tell, and listen no more
				c.h.up.send(&control.Message{Kind: control.Failed, Rank: c.rank, Launch: c.l.start.Launch, Error: err.Error()})
				c.ctl.CloseRead()
			}
			return
		}
		m.Rank, m.Launch = c.rank, c.l.start.Launch
		switch m.Kind {
		case control.Hello:
			c.mu.Lock()
			c.hello = true
			c.mu.Unlock()
			w := c.l.start.Welcome
			w.Rank = c.rank
			if w.Host == "" {
				w.Host = c.h.name
			}
			c.box.send(&control.Message{Kind: control.Welcomed, Welcome: &w})
		case control.Restored:
			select {
			case <-c.placed:
			default:
				close(c.placed)
			}
		case control.Card, control.Progress, control.Saved, control.Failed,
			control.Committed, control.Finished, control.Stopped:
		default:
			continue // nothing that a rank says
		}
		c.h.up.send(m)
	}
}

// tell passes a message to the rank, if it has said hello: other programs
// don't read.
func (c *child) tell(m *control.Message) {
	if c.greeted() {
		c.box.send(m)
	}
}

func (c *child) greeted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hello
}

// signal sends a signal to the rank and its children.
func (c *child) signal(s syscall.Signal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		c.l.bad.Store(true)
		syscall.Kill(-c.cmd.Process.Pid, s)
	}
}

// reap lets go of the ended ranks' numbers. After a launch that did not end
// well nothing of it may go on: children of ranks would write into the next
// one's output.
func (l *launch) reap() {
	if l.bad.Load() {
		groups := make(map[int]bool)
		for _, c := range l.children { // not reaped yet: the numbers are still ours
			groups[c.cmd.Process.Pid] = true
			syscall.Kill(-c.cmd.Process.Pid, syscall.SIGKILL)
		}
		endGroup(func(st stat) bool { return groups[st.group] })
	}
	for _, c := range l.children {
		c.mu.Lock()
		c.reaped = true // from here on the number may belong to another process
		c.cmd.Wait()
		c.mu.Unlock()
	}
}

func (c *child) shown(stream int) {
	if stream == control.Stdout || stream == control.Stderr {
		c.follow[stream].more()
	}
}

// watch waits for the rank's end, and then for what it left to be done.
func (c *child) watch(writer *net.UnixConn, read, wrote chan struct{}) {
	pid := c.cmd.Process.Pid
	m := &control.Message{Kind: control.Exited, Rank: c.rank, Launch: c.l.start.Launch}
	if m.Code, m.Signal = ending(pid); m.Code != 0 || m.Signal != 0 {
		c.l.bad.Store(true)
	}
	if c.l.bad.Load() {
		syscall.Kill(-pid, syscall.SIGKILL) // the rest of it, see reap
	}
	// What the rank sent is read to the end even if a child of it still holds
	// the other side open.
	c.ctl.CloseRead()
	<-read
	c.h.up.send(m)
	writer.CloseRead()
	<-wrote
	for _, f := range c.follow {
		if f != nil {
			f.finish()
		}
	}
	c.box.finish()
	c.ctl.Close()
}

// process names a process beyond doubt: numbers are used again, but not with
// the same time of birth.
type process struct {
	Pid  int    `json:"pid"`
	Born string `json:"born"`
}

func identify(pid int) process {
	if st, ok := readStat(pid); ok {
		return st.process
	}
	return process{Pid: pid}
}

// holder is what the host's lock file says.
type holder struct {
	Helper  int       `json:"helper"`
	Host    string    `json:"host"`
	Boot    string    `json:"boot"`
	Session int       `json:"session"` // that the ranks belong to
	Ranks   []process `json:"ranks"`
}

func bootID() string {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(text))
}

// recordProcesses writes the ranks that run now into the host's lock file.
func recordProcesses(lock *os.File, ranks []process) error {
	host, _ := os.Hostname()
	session, _ := unix.Getsid(0)
	text, err := json.Marshal(holder{os.Getpid(), host, bootID(), session, ranks})
	if err != nil {
		return err
	}
	return rewrite(lock, string(text))
}

// endLeftOver ends ranks of an earlier helper of this host that died, with
// their groups, and waits for it. They were sent SIGKILL when it did, but a
// shell that a rank was started by does not pass that on.
func endLeftOver(lock *os.File) {
	buf := make([]byte, 1<<20)
	n, _ := lock.ReadAt(buf, 0)
	var old holder
	if json.Unmarshal(buf[:n], &old) != nil || old.Boot != bootID() {
		return
	}
	for _, p := range old.Ranks {
		p.end(groupTime)
		born, err := strconv.ParseUint(p.Born, 10, 64)
		if leader, ok := readStat(p.Pid); err != nil || ok && leader.process != p {
			continue // the number is another one's now
		}
		endGroup(func(st stat) bool {
			return st.group == p.Pid && st.born >= born && st.user == uint32(os.Geteuid()) && (old.Session == 0 || st.session == old.Session)
		})
	}
}
