//go:build linux

package helper

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
	"github.com/cairnrun/cairn/internal/vfs"
)

// writerEndTime is how long the writer of a rank that was handed over may take
// to end.
const writerEndTime = 500 * time.Millisecond

// rankLimit bounds what a rank may send in one message.
const rankLimit = 4 << 20

// child is a rank that this helper started.
type child struct {
	h           *helper
	l           *launch
	s           *control.Start
	rank        int
	byMove      uint64 // the move that started it; 0: it was started with all others
	cmd         *exec.Cmd
	id          rundir.Process
	ctl         *control.Conn
	queue       *control.SendQueue
	outputReady chan struct{} // closed when stdout is complete up to where the rank continues; for a destination: when its output is followed
	wrote       chan struct{} // closed when its writer has ended
	stderr      *stderrBuffer // for a destination: stderr before it takes over

	mu        sync.Mutex
	follow    [3]*follower // by stream; nil for a destination until the source's output has ended
	hello     bool
	takesOver bool // for a destination: it was told to continue
	pausing   bool // it was told to pause, and the move is not decided yet
	dismissed bool // its end is not a failure: it has handed over, or was not needed
	killed    bool // a signal was sent while it was alive
	reaped    bool
}

// start starts the rank and the goroutines that watch it.
func (c *child) start(i int) (err error) {
	s := c.s
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
			err = fmt.Errorf("%s: %w", c.name(), err)
		}
	}()
	open := func(stream int) (*os.File, error) {
		if c.byMove != 0 {
			f, err := unnamedFile(s.Output)
			if err == nil && stream == control.Stdout {
				theirs = append(theirs, f)
			} else if err == nil {
				mine = append(mine, f)
				c.stderr = &stderrBuffer{f: f, to: rundir.OutputFile(s.Output, c.rank, stream)}
			}
			return f, err
		}
		f, err := vfs.OpenPrivate(rundir.OutputFile(s.Output, c.rank, stream), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
		if err == nil {
			theirs = append(theirs, f)
			if stream == control.Stdout && !s.KeepOutput {
				err = f.Truncate(0)
			}
			if stream == control.Stdout && err == nil {
				err = reserveOutput(f) // before the rank can write
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
		Env: append(c.environment(),
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
	step.At("start.rank")
	c.id = identify(c.cmd.Process.Pid)
	c.ctl = control.New(ctl)
	c.ctl.SetLimit(rankLimit)
	c.queue = control.NewSendQueue(c.ctl, 4096)
	c.outputReady = make(chan struct{})
	if c.byMove == 0 {
		if !s.KeepOutput {
			close(c.outputReady)
		}
		c.pass(s.OutputOffsets[i], c.outputReady)
	}
	c.l.add(c)
	read := make(chan struct{})
	if c.byMove == 0 {
		go keepReserved(rundir.OutputFile(s.Output, c.rank, control.Stdout), read)
	}
	c.wrote = make(chan struct{})
	c.say(&control.Running{Pid: c.id.Pid}) // before its end can be reported
	go func() {
		defer close(read)
		c.listen()
	}()
	go func() {
		defer close(c.wrote)
		defer writer.Close()
		// The writer has reported its errors to the rank. Nothing else can be
		// done about them.
		_ = ckpt.Serve(context.Background(), writer, ckpt.ServeOptions{})
	}()
	go c.watch(writer, read)
	return nil
}

// environment returns the rank's environment: the one that the supervisor gave,
// or the helper's. It leaves out the helper's own variables. It adds the
// overrides for this host and, unless the user has set another, the path of the
// cairn command. A destination must not find the MPI job of the launcher that
// started its helper, unless it can join the job of the others.
func (c *child) environment() []string {
	env := c.s.Env
	if env == nil {
		env = os.Environ()
	}
	apart := c.byMove != 0 && c.h.secret != nil && !control.MayJoin()
	env = append(slices.DeleteFunc(slices.Clone(env), func(s string) bool {
		name, _, _ := strings.Cut(s, "=")
		return name == EnvSecret || name == EnvSupervisor || name == EnvShell || name == EnvParent || apart && ofLauncher(name)
	}), c.s.ExtraEnv...)
	if self, err := os.Executable(); err == nil && !slices.ContainsFunc(env, setsHelper) {
		env = append(env, control.EnvHelper+"="+self)
	}
	return env
}

// setsHelper reports whether a variable says which cairn command to use.
func setsHelper(s string) bool {
	name, path, _ := strings.Cut(s, "=")
	return name == control.EnvHelper && path != ""
}

// ofLauncher reports whether a launcher uses this variable to tell a process
// its job and rank.
func ofLauncher(name string) bool {
	for _, p := range []string{"OMPI_", "PMIX_", "PMI_", "PRTE_", "HYDI_", "HYDRA_", "MPI_LOCAL", "SLURM_STEP", "SLURM_TASK", "ALPS_", "FLUX_TASK"} {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return slices.Contains([]string{"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_GTIDS"}, name)
}

// unnamedFile makes a regular file without a name.
func unnamedFile(dir string) (*os.File, error) {
	f, err := os.CreateTemp(dir, ".destination-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	return f, err
}

// pass starts to pass on the rank's output; stdout when ready is closed.
func (c *child) pass(from [2]int64, ready chan struct{}) {
	now := make(chan struct{})
	close(now)
	for _, stream := range []int{control.Stdout, control.Stderr} {
		when := now
		if stream == control.Stdout {
			when = ready
		}
		c.follow[stream] = follow(c.l.watch, rundir.OutputFile(c.s.Output, c.rank, stream), from[stream-1], when, c.h.gone, func(offset int64, data []byte) {
			c.say(&control.Output{Stream: stream, Offset: offset, Data: data})
		})
	}
}

// followFrom passes on a destination's output, from where its source's output
// ended.
func (c *child) followFrom(from [2]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.outputReady:
	default:
		if c.byMove != 0 {
			c.pass(from, c.outputReady)
			close(c.outputReady)
		}
	}
}

// say passes a message about the rank to the supervisor.
func (c *child) say(m control.Message) {
	c.h.up.Send(&control.FromRank{Process: c.process(), Launch: c.s.Launch, Carried: control.Carried{Message: m}})
}

func (c *child) process() control.Process { return control.Process{Rank: c.rank, ByMove: c.byMove} }

// layOut returns the rank's descriptors from 3 on: the files to keep under
// their numbers, and the two sockets under the lowest numbers that are free.
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

// inheritedFiles returns the descriptors that this process inherited, such as
// PMI_FD, for its ranks. The kernel passes on those above the sockets' numbers;
// those below need an entry in the table.
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
				c.say(&control.SaveFailed{Error: err.Error()})
				c.ctl.CloseRead()
			}
			return
		}
		switch m.(type) {
		case *control.Hello:
			w := c.s.Welcome
			w.Rank = c.rank
			if c.byMove != 0 {
				w.Stdout, w.Stderr = rundir.OutputFile(c.s.Output, c.rank, control.Stdout), c.stderr.to
			}
			w.Host = cmp.Or(w.Host, c.h.name)
			c.queue.Send(&w)
			c.mu.Lock()
			c.hello = true // from now on messages can be sent to it
			c.mu.Unlock()
		case *control.Restored:
			select {
			case <-c.outputReady:
			default:
				if c.byMove == 0 {
					close(c.outputReady)
				}
			}
		case *control.Endpoint, *control.Progress, *control.RolledBack, *control.Saved, *control.SaveFailed,
			*control.Committed, *control.Refused, *control.Damaged, *control.Finished, *control.Stopped,
			*control.Listening, *control.Precopied, *control.Paused, *control.Sent, *control.Received, *control.MoveFailed, *control.Spawned:
		case *control.Linked:
			c.stderr.pass()
		case *control.HandedOver:
			// The source has released its writer, which also holds the lock of
			// the checkpoint directory. The destination needs the lock.
			select {
			case <-c.wrote:
			case <-time.After(writerEndTime):
				c.dismiss()
				<-c.wrote
			}
			c.say(m)
			c.dismiss()
			continue
		default:
			continue // not a message that a rank sends
		}
		c.say(m)
	}
}

// tell sends a message to the rank, if it has said Hello. Programs that do not
// use Cairn do not read.
func (c *child) tell(m control.Message) {
	if c.greeted() {
		c.mu.Lock()
		switch m := m.(type) {
		case *control.Pause:
			c.pausing = true
		case *control.Switch:
			c.pausing, c.takesOver = false, c.takesOver || m.OK
		}
		joined := c.takesOver
		c.mu.Unlock()
		if joined {
			c.stderr.pass()
		}
		c.queue.Send(m)
	}
}

// waits reports whether this is a destination that has not taken over, or a
// rank that pauses until a move is decided.
func (c *child) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pausing || c.byMove != 0 && !c.takesOver
}

// dismiss kills a source that has handed over, or a destination that is not
// needed, with its children.
func (c *child) dismiss() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dismissed = true
	if !c.reaped {
		syscall.Kill(-c.id.Pid, syscall.SIGKILL)
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
		c.killed = c.killed || !ended(c.id.Pid)
		syscall.Kill(-c.id.Pid, s)
	}
}

func (c *child) reap() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.reaped {
		c.reaped = true // from now on the number may belong to another process
		c.cmd.Wait()
	}
}

func (c *child) outputTaken(stream int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (stream == control.Stdout || stream == control.Stderr) && c.follow[stream] != nil {
		c.follow[stream].more()
	}
}

// watch waits for the end of the rank, of its writer and of its output.
func (c *child) watch(writer *net.UnixConn, read chan struct{}) {
	defer c.l.release()
	pid := c.id.Pid
	m := new(control.Exited)
	m.Code, m.Signal = ending(pid)
	// What the rank has sent is read to the end, even if a child of it still
	// has the other side open.
	c.ctl.CloseRead()
	<-read
	c.mu.Lock()
	alone, joined := c.dismissed, c.takesOver
	m.Killed = c.killed
	c.mu.Unlock()
	if alone {
		syscall.Kill(-pid, syscall.SIGKILL)
		endGroup(func(st stat) bool { return st.group == pid })
	} else {
		if m.Code != 0 || m.Signal != 0 {
			c.l.bad.Store(true)
		}
		if c.l.bad.Load() {
			syscall.Kill(-pid, syscall.SIGKILL) // the rest of its process group, see launch.reap
		}
		if c.byMove != 0 && !joined {
			m.Stderr = c.stderr.last()
		}
		c.say(m)
		m = new(control.Exited) // it is being reported already
	}
	if joined {
		c.stderr.pass()
	}
	writer.CloseRead()
	<-c.wrote
	if joined && c.byMove != 0 {
		select { // the source's output is still being shown
		case <-c.outputReady:
		case <-c.h.gone:
		}
	}
	c.mu.Lock()
	list := c.follow
	c.mu.Unlock()
	for _, f := range list {
		if f != nil {
			f.finish()
			m.Offsets = append(m.Offsets, f.at)
		}
	}
	if alone { // the others continue, so the end of the launch is not awaited
		c.reap()
		c.l.remove(c)
		c.say(m)
	}
	c.stderr.close()
	c.queue.Finish()
	c.ctl.Close()
}

func identify(pid int) rundir.Process {
	if st, ok := readStat(pid); ok {
		return st.Process
	}
	return rundir.Process{Pid: pid}
}

// endLeftOver kills the ranks of an earlier helper of this host that died, with
// their process groups, and waits for their end. The kernel sent them SIGKILL,
// but a shell that started a rank does not pass it on.
func endLeftOver(lock *os.File) {
	buf := make([]byte, 1<<20)
	n, _ := lock.ReadAt(buf, 0)
	var old rundir.Holder
	if json.Unmarshal(buf[:n], &old) != nil || old.Boot != rundir.BootID() {
		return
	}
	for _, p := range old.Ranks {
		endProcess(p, groupTime)
		born, err := strconv.ParseUint(p.Born, 10, 64)
		if leader, ok := readStat(p.Pid); err != nil || ok && leader.Process != p {
			continue // another process has the number now
		}
		endGroup(func(st stat) bool {
			return st.group == p.Pid && st.born >= born && st.user == uint32(os.Geteuid()) && (old.Session == 0 || st.session == old.Session)
		})
	}
}
