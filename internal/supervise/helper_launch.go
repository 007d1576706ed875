//go:build linux

package supervise

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
)

// helperLaunch is another process of the launcher, which starts one helper on
// the host that a rank moves to.
type helperLaunch struct {
	cmd    *exec.Cmd
	ended  chan struct{}
	moving *movingRank
}

// cancel ends the launch if its helper has not connected.
func (e *helperLaunch) cancel() {
	if e.moving.to == nil {
		go endLauncher(e.cmd, e.ended, syscall.SIGTERM, syscall.SIGKILL)
	}
}

// cancel ends the helper launches of a move that is over.
func (l *launcher) cancel(m *move) {
	for _, e := range l.helperLaunches {
		if slices.Contains(m.moving, e.moving) {
			e.cancel()
		}
	}
	for _, x := range m.moving {
		if x.spawn != nil && x.to == nil {
			x.spawn.port.Close()
		}
	}
}

// launchHelpers starts a helper for each rank that moves.
func (s *Supervisor) launchHelpers() {
	m := s.move
	join := s.joinAt()
	for _, x := range m.moving {
		if !s.sendSpawn(m, x) {
			go s.launchHelper(m, x, join)
		}
	}
}

// expect waits for the helper of a moving rank to connect to a port.
func (s *Supervisor) expect(m *move, x *movingRank, port net.Listener, by *spawn) {
	l := s.launcher
	l.accept(s, port, l.secret, func(h *host, c *control.Conn, queue *control.SendQueue, joined *control.Joined) {
		port.Close() // no other helper is expected
		if s.move != m || x.to != nil || x.spawn != by {
			queue.Finish()
			c.Close()
			return
		}
		h.name, h.shared, h.fixed = fmt.Sprintf("%s-rank-%04d-move-%d", joined.Host, x.rank, m.ID), joined.Host, []int{x.rank}
		h.state, h.extra, h.spawned = hostJoining, true, by != nil
		s.hosts = append(s.hosts, h)
		x.to, m.To = h, joined.Host
		h.attach(c, queue)
		h.handle(joined)
	})
}

func (s *Supervisor) launchHelper(m *move, x *movingRank, join string) {
	l := s.launcher
	fails := func(err error) {
		s.post(func() {
			if s.move == m && x.to == nil {
				s.moveFailed(fmt.Sprintf("%s: %v", l.name, err))
			}
		})
	}
	port, err := net.Listen("tcp", ":0")
	if err != nil {
		fails(err)
		return
	}
	go s.expect(m, x, port, nil)
	cmd, said, err := l.launchHelper(s, port, x.goal, join)
	if err != nil {
		port.Close()
		fails(err)
		return
	}
	ended := make(chan struct{})
	e := &helperLaunch{cmd, ended, x}
	s.post(func() {
		l.helperLaunches = append(l.helperLaunches, e)
		if s.move != m {
			e.cancel()
		}
	})
	cmd.Wait()
	close(ended)
	s.post(func() {
		l.helperLaunches = slices.DeleteFunc(l.helperLaunches, func(x *helperLaunch) bool { return x == e })
	})
	port.Close()
	fails(errors.New("it ended before its helper had connected" + said.text()))
}

// launchHelper starts the launcher for one helper on a host. join is where
// destinations can join the MPI world of the others.
func (l *launcher) launchHelper(s *Supervisor, port net.Listener, host, join string) (*exec.Cmd, *tail, error) {
	path, err := l.find()
	if err != nil {
		return nil, nil, err
	}
	var args []string
	switch {
	case l.kind == "srun":
		args = append([]string{"-N1", "-n1", "-w", host}, srunArgs(l.args, os.Getenv)...)
	case openMPI(path):
		args = []string{"-n", "1", "--host", host, "-x", helper.EnvSupervisor, "-x", helper.EnvSecret}
		if x := l.server.Load(); x.runs() {
			args = append(args, "--ompi-server", x.uri)
		}
		if join != "" {
			args = append(args, "-x", control.EnvJoin)
		}
	default:
		args = []string{"-n", "1", "-hosts", host}
	}
	args = append(append(args, elsewhere(l.args)...), s.o.RemoteHelper...)
	said := new(tail)
	cmd := exec.Command(path, append(args, "--launched")...)
	cmd.Env = append(os.Environ(), helper.EnvSupervisor+"="+strings.Join(addressesOf(port), ","), helper.EnvSecret+"="+hex.EncodeToString(l.secret), control.EnvJoin+"="+join)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, said, cmd.Start()
}
