//go:build linux

package helper

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/step"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Run runs a helper whose stdin and stdout are connected to the supervisor.
// It returns when the supervisor says so, or when the supervisor is gone and
// all ranks have ended. The process should do nothing else.
func Run(ctx context.Context) error {
	in, out, err := takeStdio()
	if err != nil {
		return err
	}
	if _, err := out.WriteString(StreamMark); err != nil {
		return fmt.Errorf("stdout: %w; a helper is started by 'cairn run'", err)
	}
	return help(ctx, control.New(control.Duplex{In: in, Out: out}), -1, nil, 0)
}

// RunLaunched runs a helper that mpirun or srun started. It serves the one
// rank that its environment names.
func RunLaunched(ctx context.Context) error {
	if launch, run, ok := strings.Cut(os.Getenv(EnvStay), ":"); ok {
		awaitRanks(run, launch, time.Now().AddDate(100, 0, 0))
		return nil
	}
	rank, err := launchedRank(os.Getenv)
	if err != nil {
		return err
	}
	secret, err := hex.DecodeString(os.Getenv(EnvSecret))
	if err != nil || len(secret) == 0 {
		return fmt.Errorf("%s is not set: the launcher does not pass the environment on; tell it to with --launcher-args", EnvSecret)
	}
	os.Unsetenv(EnvSecret)
	shell, _ := strconv.Atoi(os.Getenv(EnvShell)) // most helpers have none
	os.Unsetenv(EnvShell)
	conn, err := dialSupervisor(ctx, strings.Split(os.Getenv(EnvSupervisor), ","), secret)
	if err != nil {
		return err
	}
	return help(ctx, conn, rank, secret, shell)
}

// launchedRank finds the rank in the environment that a launcher made.
func launchedRank(getenv func(string) string) (int, error) {
	names := []string{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "FLUX_TASK_RANK", "ALPS_APP_PE"}
	for _, name := range names {
		if v := getenv(name); v != "" {
			rank, err := strconv.Atoi(v)
			if err != nil || rank < 0 {
				return 0, fmt.Errorf("%s=%s is no rank", name, v)
			}
			return rank, nil
		}
	}
	return 0, fmt.Errorf("no launcher said which rank this is (looked at %s); use --launcher fork", strings.Join(names, ", "))
}

// takeStdio moves stdin and stdout elsewhere, so that nothing else of this
// process reads or writes them.
func takeStdio() (in, out *os.File, err error) {
	move := func(fd int, to *os.File) (*os.File, error) {
		syscall.ForkLock.RLock()
		defer syscall.ForkLock.RUnlock()
		moved, err := syscall.Dup(fd)
		if err != nil {
			return nil, err
		}
		syscall.CloseOnExec(moved)
		return os.NewFile(uintptr(moved), to.Name()), syscall.Dup3(int(to.Fd()), fd, 0)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	if in, err = move(0, null); err != nil {
		return nil, nil, err
	}
	out, err = move(1, null)
	return in, out, err
}

// helper is the state of a helper process.
type helper struct {
	up          *control.SendQueue // queue to the supervisor
	fork        chan func()
	gone        chan struct{} // closed when the supervisor is gone
	secret      []byte        // for a launched helper
	sameMachine bool          // the supervisor is on this machine: its silence has no meaning
	keep        map[int]*os.File
	name        string
	dir         string // the run directory
	lock        *os.File
	local       *localFiles // nil: all hosts share the files
	shell       int         // process that started this helper for an MPI library; 0: none

	mu   sync.Mutex
	now  *launch
	late []*lateStart // destinations that wait for the end of the current launch
	quit bool
}

func help(ctx context.Context, conn *control.Conn, rank int, secret []byte, shell int) error {
	// Batch systems signal every process of a job. The supervisor decides what
	// to do. (Signals that are ignored here would stay ignored in ranks.)
	ignored, term := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(ignored, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(ignored)
	signal.Notify(term, syscall.SIGTERM)
	defer signal.Stop(term)
	h := &helper{up: control.NewSendQueue(conn, 1<<16), fork: make(chan func()), gone: make(chan struct{}), secret: secret, shell: shell}
	if rank >= 0 {
		h.keep = inheritedFiles()
	}
	go h.forker()
	defer close(h.fork)
	defer func() { h.local.close() }()
	host, _ := os.Hostname()
	h.up.Send(&control.Joined{Rank: rank, Pid: os.Getpid(), Host: host})
	messages := make(chan control.Message)
	go func() {
		defer close(messages)
		for {
			m, err := conn.Recv()
			if err != nil {
				return
			}
			messages <- m
		}
	}()
	look := time.NewTicker(PingEvery)
	defer look.Stop()
	missed := 0 // checks since the last message; time in which this process was stopped does not count
	for !h.over() {
		var ended chan struct{}
		if h.now != nil && (h.quit || len(h.late) > 0) {
			ended = h.now.done
		}
		select {
		case m, ok := <-messages:
			if !ok {
				return h.orphaned(term)
			}
			missed = 0
			h.handle(m)
		case <-look.C:
			if missed++; missed > int(Silence/PingEvery) && !h.sameMachine {
				return h.orphaned(term)
			}
		case <-term:
			if rank >= 0 { // a batch system may signal launched processes and not the supervisor
				h.up.Send(&control.Signaled{})
			}
		case <-ended:
			h.startLate()
		case <-ctx.Done():
			return h.orphaned(term)
		}
	}
	h.up.Finish()
	<-h.up.Done
	return conn.Close()
}

// over reports whether the helper may end.
func (h *helper) over() bool {
	return h.quit && len(h.late) == 0 && !h.running()
}

// forker starts processes: from one thread that lives as long as the helper,
// because a rank's PDEATHSIG comes when the thread that forked it ends.
func (h *helper) forker() {
	runtime.LockOSThread()
	for f := range h.fork {
		f()
	}
	select {} // the thread must not end before the process does
}

func (h *helper) handle(m control.Message) {
	switch m := m.(type) {
	case *control.Ping:
		h.up.Send(&control.Pong{})
	case *control.Setup:
		ready := new(control.Ready)
		h.sameMachine = m.SameMachine
		holder, err := h.setup(m)
		if err == nil && h.local != nil {
			ready.Addresses, ready.Peer = h.local.addresses(), h.local.holder.addresses()
			ready.Files, err = h.local.scan()
		}
		if err == nil && m.EvacuateWhen != nil {
			go h.watchEvacuation(m.EvacuateWhen)
		}
		if err != nil {
			ready.Error, ready.Busy, ready.Holder = err.Error(), errors.Is(err, rundir.ErrBusy), holder
			ready.Other, ready.Attempt = otherRun(m.Local, err)
		}
		h.up.Send(ready)
	case *control.Launch:
		if !h.quit {
			h.begin(&m.Start)
		}
	case *control.StartDestination:
		if !h.quit {
			h.startDestination(&m.Start)
		}
	case *control.Kill:
		h.signal(syscall.SIGKILL)
	case *control.KillDestination:
		if c := h.child(m.Process); c != nil {
			c.dismiss()
		} else {
			h.forget(m.Process)
		}
	case *control.FollowOutput:
		if c := h.child(m.Process); c != nil {
			c.followFrom(m.Offsets)
		}
	case *control.Terminate:
		h.signal(syscall.SIGTERM)
	case *control.Quit:
		h.quit = true
	case *control.OutputTaken:
		if c := h.child(m.Process); c != nil {
			c.outputTaken(m.Stream)
		}
	case *control.Scan, *control.Fetch, *control.StoreAttempt, *control.VerifyPart, *control.ListFiles, *control.ReadFile, *control.Discard, *control.Keep, *control.Peers, *control.Retain:
		if h.local != nil {
			h.local.requests <- m
		}
	case *control.Turn:
		if h.local != nil {
			h.local.uploaders[m.Tier].begins()
		}
	case *control.ToRank:
		said := m.Carried.Message
		if spawn, ok := said.(*control.Spawn); ok {
			spawn.Env = append(spawn.Env, EnvSecret+"="+hex.EncodeToString(h.secret))
		}
		for _, c := range h.addressed(m.Process) {
			c.tell(said)
		}
	}
}

// setup locks the host and kills ranks that an earlier helper has left. If
// another helper has the lock, the error wraps ErrBusy and holder names it.
func (h *helper) setup(m *control.Setup) (holder string, err error) {
	if h.lock != nil {
		return "", errors.New("the helper is set up already")
	}
	if m.Local != nil && m.Local.ReadOnly {
		return "", h.setupReader(m.Host, m.Local)
	}
	if m.Local != nil {
		holder, err = h.setupLocal(m.Host, m.Local)
	} else {
		h.lock, holder, err = lockHost(m.Dir, m.Host)
		h.name, h.dir = m.Host, m.Dir
	}
	if err != nil {
		return holder, err
	}
	step.At("start.helper")
	endLeftOver(h.lock)
	return "", h.record()
}

// lockHost takes the lock of a host in a directory.
func lockHost(dir, name string) (lock *os.File, holder string, err error) {
	path := rundir.HostLock(dir, name)
	lock, holder, err = rundir.TryLock(path)
	if errors.Is(err, rundir.ErrBusy) {
		return nil, holder, busyHost{fmt.Errorf("%s: another helper serves this host: %s; it ends by itself when its ranks have saved and stopped", path, holder)}
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("the run directory %s does not exist here: all hosts must have it, on a shared file system, unless --local names a directory on each host: %w", dir, err)
	}
	return lock, "", err
}

// busyHost is an ErrBusy with another text.
type busyHost struct{ error }

func (busyHost) Is(target error) bool { return target == rundir.ErrBusy }

func (h *helper) signal(s syscall.Signal) {
	for _, c := range h.all() {
		c.signal(s)
	}
}

// dialSupervisor tries the supervisor's addresses in turn.
func dialSupervisor(ctx context.Context, addresses []string, secret []byte) (*control.Conn, error) {
	var errs []error
	for range 3 {
		for _, a := range addresses {
			d := net.Dialer{Timeout: 5 * time.Second}
			conn, err := d.DialContext(ctx, "tcp", a)
			if err == nil {
				var c *control.Conn
				if c, err = control.Client(conn, secret); err == nil {
					return c, nil
				}
			}
			errs = append(errs, err)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
		}
	}
	return nil, fmt.Errorf("the supervisor cannot be reached from this host: %w", errors.Join(errs...))
}
