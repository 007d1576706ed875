//go:build linux

package supervise

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
)

// launcher is mpirun, mpiexec or srun. It starts one helper per rank. The
// helpers connect to a TCP port of the supervisor and prove that they know a
// secret, which they find in their environment.
type launcher struct {
	name string // the command: a name, which PATH has, or a path
	kind string // "mpirun" or "srun", see kindOf
	args []string

	port   net.Listener
	secret []byte
	id     string // of its last start
	cmd    *exec.Cmd
	ended  chan struct{}
	said   *tail

	lostHosts []*host  // helpers that were lost in the last attempt
	lostNodes []string // machines that srun can perhaps not reach
	without   bool     // srun is to use other machines than these

	helperLaunches []*helperLaunch // helper launches of moves
	server         atomic.Pointer[ompiServer]
	apart          bool // destinations do not join the MPI world of the others, because that failed
	spawns         bool // it is Open MPI 4: ranks can make it start destinations

	refused atomic.Int64 // number of refused connections
}

const (
	halfOpen    = 64 // maximum number of connections without a proof
	versionTime = 10 * time.Second
)

// gatherLaunched starts the launcher and waits for a helper of every rank.
func (s *Supervisor) gatherLaunched(ctx context.Context) bool {
	l := s.launcher
	if slices.ContainsFunc(s.failedMoves, func(m *move) bool { return m.decided }) {
		l.apart = true
	}
	for _, h := range l.lostHosts {
		h.awaitFree(ctx)
	}
	if l.lostHosts = nil; s.killed || s.stopping {
		return false
	}
	started, err := false, error(nil)
	go func() { // starting it includes asking the launcher for its version
		e := l.start(s)
		s.post(func() { started, err = true, e })
	}()
	s.until(ctx, func() bool { return started }, nil)
	if err != nil {
		s.a.failure = &failure{why: fmt.Sprintf("%s: %v", l.name, err), status: 1, fatal: true}
		return false
	}
	gone := false
	go func(ended chan struct{}) {
		<-ended
		s.post(func() { gone = true })
	}(l.ended)
	// srun may wait in a queue, so the time counts from the first rank on.
	var late *time.Timer
	overdue := false
	watch := func() {
		if late == nil && (l.kind != "srun" || len(s.hosts) > 0) {
			late = time.AfterFunc(joinTime, func() { s.post(func() { overdue = true }) })
		}
	}
	queued := time.AfterFunc(joinTime, func() {
		s.post(func() {
			if len(s.hosts) == 0 && !gone {
				s.say("%s has started no rank yet%s", l.name, l.said.text())
			}
		})
	})
	defer func() {
		queued.Stop()
		if late != nil {
			late.Stop()
		}
	}()
	other := func(h *host) bool { return h.other != "" }                                   // its directory may have this run, see findOnHosts
	waiting := func(h *host) bool { return h.state == hostJoining && !h.waiting.IsZero() } // this has a limit of its own
	lost := func(h *host) bool { return h.state == hostDown }
	full := func() bool {
		k := 0
		for _, h := range s.hosts {
			if h.state == hostUp {
				k++
			}
		}
		return k == s.n
	}
	answered := func() bool { // all, so that the newest record is known
		return len(s.hosts) == s.n && !slices.ContainsFunc(s.hosts, func(h *host) bool { return h.state == hostJoining })
	}
	s.until(ctx, func() bool {
		watch()
		return gone || s.killed || s.stopping || full() || slices.ContainsFunc(s.hosts, func(h *host) bool { return lost(h) && (!other(h) || answered()) }) || overdue && !slices.ContainsFunc(s.hosts, waiting)
	}, nil)
	l.shut() // no other helper is expected
	if n := l.refused.Load(); n > 1 {
		s.say("%d connections were refused", n)
	}
	if full() && !s.killed && !s.stopping {
		l.reached()
		if err := s.checkLaunched(); err != nil {
			s.a.failure = &failure{why: err.Error(), status: 1, fatal: true}
			return false
		}
		return true
	}
	if again, err := s.findOnHosts(); err != nil && !s.killed && !s.stopping {
		s.dismiss()
		s.notBegun(err.Error())
		return false
	} else if again {
		s.dismiss()
		return s.gatherLaunched(ctx)
	}
	why := fmt.Sprintf("not all ranks came within %s", control.TimeText(joinTime))
	switch {
	case gone:
		why = "it ended before all ranks had come"
	case slices.ContainsFunc(s.hosts, lost):
		why = "not all ranks can be started"
	}
	var errs []error
	for _, h := range s.hosts {
		errs = append(errs, h.err)
	}
	if err := errors.Join(errs...); err != nil {
		why += ": " + err.Error()
	}
	why = fmt.Sprintf("%s: %s%s", l.name, why, l.said.text())
	s.dismiss()
	if !s.killed && !s.stopping {
		l.unreached()
		s.notBegun(why)
		if s.began { // in another allocation the same command may succeed
			s.a.failure.status = StoppedStatus
		}
	}
	return false
}

// start opens the port and starts the launcher.
func (l *launcher) start(s *Supervisor) (err error) {
	path, err := l.find()
	if err != nil {
		return err
	}
	if l.port, err = net.Listen("tcp", ":0"); err != nil {
		return err
	}
	l.secret, l.id = randomBytes(32), randomName()
	l.refused.Store(0)
	go l.accept(s, l.port, l.secret, s.joined)
	args := []string{"-n", strconv.Itoa(s.n)}
	env := os.Environ()
	if l.kind == "srun" {
		args = append(args, srunArgs(l.args, os.Getenv)...)
		if l.without {
			args = append(args, "--exclude="+strings.Join(l.lostNodes, ","))
			env = withoutNodeCount(env)
		}
	}
	if l.kind == "mpirun" {
		// Open MPI passes on only variables that are named; MPICH passes on
		// all.
		said := version(path)
		l.spawns = strings.Contains(said, "(Open MPI) 4.") || strings.Contains(said, "(OpenRTE) 4.")
		if isOpenMPI(said) {
			args = append(args, "-x", helper.EnvSupervisor, "-x", helper.EnvSecret)
			if l.useful(s) {
				l.server.Store(startServer(path))
			}
			if x := l.server.Load(); x != nil {
				args = append(args, "--ompi-server", x.uri)
			}
		}
	}
	args = append(append(args, l.args...), s.o.RemoteHelper...)
	l.said = new(tail)
	l.cmd = exec.Command(path, append(args, "--launched")...)
	l.cmd.Env = append(env, helper.EnvSupervisor+"="+strings.Join(addressesOf(l.port), ","), helper.EnvSecret+"="+hex.EncodeToString(l.secret))
	l.cmd.Stdout, l.cmd.Stderr = l.said, l.said
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := l.cmd.Start(); err != nil {
		l.port.Close()
		if x := l.server.Swap(nil); x != nil {
			x.end()
		}
		return err
	}
	l.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan struct{}) {
		cmd.Wait()
		close(ended)
	}(l.cmd, l.ended)
	return nil
}

// addressesOf returns the addresses by which helpers may reach a port.
func addressesOf(l net.Listener) []string {
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	var out []string
	if list, err := net.InterfaceAddrs(); err == nil {
		for _, a := range list {
			if ip, ok := a.(*net.IPNet); ok && ip.IP.IsGlobalUnicast() {
				out = append(out, net.JoinHostPort(ip.IP.String(), port))
			}
		}
	}
	return append([]string{net.JoinHostPort("127.0.0.1", port)}, out...)
}

// accept accepts connections of helpers, and calls take in the goroutine of
// Run. It refuses peers that do not know the secret, and the oldest unproven
// connection if there are too many.
func (l *launcher) accept(s *Supervisor, port net.Listener, secret []byte, take func(*host, *control.Conn, *control.SendQueue, *control.Joined)) {
	var mu sync.Mutex
	var open []net.Conn // connections without a proof, oldest first
	for {
		conn, err := port.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return
			}
			time.Sleep(10 * time.Millisecond) // most likely, there are too many open files
			continue
		}
		mu.Lock()
		if len(open) >= halfOpen {
			open[0].Close()
			open = open[1:]
		}
		open = append(open, conn)
		mu.Unlock()
		go func() {
			c, err := control.Server(conn, secret)
			mu.Lock()
			open = slices.DeleteFunc(open, func(x net.Conn) bool { return x == conn })
			mu.Unlock()
			if err != nil {
				if l.refused.Add(1) == 1 {
					s.post(func() { s.say("a connection was refused: %v (others are counted)", err) })
				}
				return
			}
			c.SetReadDeadline(time.Now().Add(10 * time.Second))
			m, err := c.Recv()
			c.SetReadDeadline(time.Time{})
			joined, ok := m.(*control.Joined)
			if err != nil || !ok {
				c.Close()
				return
			}
			h := &host{s: s, stderr: new(tail)}
			queue := control.NewSendQueue(c, 1<<16)
			s.post(func() { take(h, c, queue, joined) })
			h.listen(c, queue)
		}()
	}
}

// joined adds a launched helper.
func (s *Supervisor) joined(h *host, c *control.Conn, queue *control.SendQueue, m *control.Joined) {
	refuse := func(format string, args ...any) {
		s.say("a helper was refused: "+format, args...)
		queue.Finish()
		c.Close()
	}
	if s.a == nil || s.a.begun() {
		refuse("it came too late")
		return
	}
	if m.Rank < 0 || m.Rank >= s.n {
		refuse("it has rank %d of %d", m.Rank, s.n)
		return
	}
	for _, x := range s.hosts {
		if x.fixed[0] == m.Rank {
			refuse("rank %d is there already", m.Rank)
			return
		}
	}
	// Ranks of one machine may share memory. A host's name alone need not be
	// unique.
	h.name, h.shared, h.fixed, h.slots, h.state = fmt.Sprintf("%s-rank-%04d", m.Host, m.Rank), m.Host, []int{m.Rank}, 1, hostJoining
	s.hosts = append(s.hosts, h)
	h.attach(c, queue)
	h.handle(m)
}

// shut closes the port.
func (l *launcher) shut() {
	if l.port != nil {
		l.port.Close()
		l.port = nil
	}
}

// note remembers the helpers that were lost, and the machines of which no
// helper is left. If none is left anywhere, the machines are not the cause.
func (l *launcher) note(hosts []*host) {
	var nodes []string
	left := false
	own, _ := os.Hostname()
	for _, h := range hosts {
		switch {
		case h.err == nil:
			left = true
		case h.served:
			l.lostHosts = append(l.lostHosts, h)
			if !slices.Contains(nodes, h.shared) && h.shared != own && !slices.ContainsFunc(hosts, func(x *host) bool { return x.shared == h.shared && x.err == nil }) {
				nodes = append(nodes, h.shared)
			}
		}
	}
	if left {
		l.suspect(nodes)
	}
}

// suspect remembers machines that srun can perhaps not reach.
func (l *launcher) suspect(nodes []string) {
	for _, n := range nodes {
		if !slices.Contains(l.lostNodes, n) {
			l.lostNodes = append(l.lostNodes, n)
		}
	}
}

// reached notes that the launcher has started all helpers.
func (l *launcher) reached() {
	if !l.without {
		l.lostNodes = nil
	}
	l.without = false
}

// unreached notes that the launcher has not started all helpers. Slurm takes
// minutes to notice that a machine is dead, and srun fails until then. So every
// other start does without the machines that were lost.
func (l *launcher) unreached() {
	if l.kind == "srun" {
		l.suspect(failedNodes(l.said.line()))
		l.without = !l.without && len(l.lostNodes) > 0
	}
}

// end waits for the end of the launcher after its helpers have ended, and kills
// it if that takes too long. A launcher that has lost a machine would wait for
// it.
func (l *launcher) end() {
	l.shut()
	if l.cmd != nil && l.cmd.Process != nil {
		signals := []syscall.Signal{0, syscall.SIGTERM, syscall.SIGKILL}
		if len(l.lostHosts) > 0 {
			signals = signals[1:]
		}
		endLauncher(l.cmd, l.ended, signals...)
	}
	for _, e := range l.helperLaunches {
		endLauncher(e.cmd, e.ended, 0, syscall.SIGTERM, syscall.SIGKILL)
	}
	l.helperLaunches = nil
	if x := l.server.Swap(nil); x != nil {
		x.end()
	}
}

// endLauncher sends a launcher one signal after the other until it has ended. 0
// only waits.
func endLauncher(cmd *exec.Cmd, ended chan struct{}, signals ...syscall.Signal) {
	for _, s := range signals {
		select {
		case <-ended:
			return
		default:
		}
		if s != 0 {
			syscall.Kill(-cmd.Process.Pid, s)
		}
		select {
		case <-ended:
			return
		case <-time.After(5 * time.Second):
		}
	}
}
