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
)

// errand is another launch by mpirun or srun, of one helper on the host that a
// rank moves to.
type errand struct {
	cmd   *exec.Cmd
	ended chan struct{}
	seat  *seat
}

// recall ends it if its helper has not come, and is not needed any more.
func (e *errand) recall() {
	if e.seat.to == nil {
		go endLauncher(e.cmd, e.ended, syscall.SIGTERM, syscall.SIGKILL)
	}
}

// recall ends errands of a move that is over.
func (l *launcher) recall(m *move) {
	for _, e := range l.errands {
		if slices.Contains(m.seats, e.seat) {
			e.recall()
		}
	}
	for _, x := range m.seats {
		if x.spawn != nil && x.to == nil {
			x.spawn.port.Close()
		}
	}
}

// sendErrands starts a helper for each rank that moves.
func (s *Supervisor) sendErrands() {
	m := s.move
	join := s.joinAt()
	for _, x := range m.seats {
		if !s.sendSpawn(m, x) {
			go s.sendErrand(m, x, join)
		}
	}
}

// expect lets the helper of a rank that moves in, which connects to a port.
func (s *Supervisor) expect(m *move, x *seat, port net.Listener, by *spawn) {
	l := s.starter
	l.accept(s, port, l.secret, func(h *host, c *control.Conn, box *outbox, joined *control.Message) {
		port.Close() // nobody else is expected
		if s.move != m || x.to != nil || x.spawn != by {
			box.finish()
			c.Close()
			return
		}
		h.name, h.shared, h.fixed = fmt.Sprintf("%s-rank-%04d-move-%d", joined.Host, x.rank, m.ID), joined.Host, []int{x.rank}
		h.joining, h.extra, h.spawned = true, true, by != nil
		s.hosts = append(s.hosts, h)
		x.to, m.To = h, joined.Host
		h.attach(c, box)
		h.handle(joined)
	})
}

func (s *Supervisor) sendErrand(m *move, x *seat, join string) {
	l := s.starter
	fails := func(err error) {
		s.post(func() {
			if s.move == m && x.to == nil {
				s.unmoved(fmt.Sprintf("%s: %v", l.name, err))
			}
		})
	}
	port, err := net.Listen("tcp", ":0")
	if err != nil {
		fails(err)
		return
	}
	go s.expect(m, x, port, nil)
	cmd, said, err := l.errand(s, port, x.goal, join)
	if err != nil {
		port.Close()
		fails(err)
		return
	}
	ended := make(chan struct{})
	e := &errand{cmd, ended, x}
	s.post(func() {
		l.errands = append(l.errands, e)
		if s.move != m {
			e.recall()
		}
	})
	cmd.Wait()
	close(ended)
	s.post(func() { l.errands = slices.DeleteFunc(l.errands, func(x *errand) bool { return x == e }) })
	port.Close()
	fails(errors.New("it ended before its helper had come" + said.text()))
}

// errand starts the launcher for one helper on a host. join is where newcomers
// can join the MPI world of the others.
func (l *launcher) errand(s *Supervisor, port net.Listener, host, join string) (*exec.Cmd, *tail, error) {
	path, err := exec.LookPath(l.name)
	if err != nil {
		return nil, nil, err
	}
	var args []string
	switch {
	case l.name == "srun":
		args = []string{"-N1", "-n1", "-w", host, "--overlap"}
	case openMPI(path):
		args = []string{"-n", "1", "--host", host, "-x", envSupervisor, "-x", envSecret}
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
	cmd.Env = append(os.Environ(), envSupervisor+"="+strings.Join(addressesOf(port), ","), envSecret+"="+hex.EncodeToString(l.secret), control.EnvJoin+"="+join)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, said, cmd.Start()
}

// elsewhere returns a launcher's arguments without those that say where and
// how many processes are started.
func elsewhere(args []string) (out []string) {
	const one = "-H -host --host -hosts --hosts -f -hostfile --hostfile -machinefile --machinefile -default-hostfile --default-hostfile" +
		" -n -np --np -c -N -w --nodelist --nodes --ntasks --ntasks-per-node -npernode --npernode -ppn --ppn -perhost -r --relative -x-nodes -F --nodefile"
	names := strings.Fields(one)
	for i := 0; i < len(args); i++ {
		name, _, inside := strings.Cut(args[i], "=")
		switch {
		case slices.Contains(names, name):
			if !inside {
				i++
			}
		case len(name) > 2 && slices.Contains([]string{"-n", "-N", "-w", "-H", "-r"}, name[:2]) && strings.Trim(name[2:], "0123456789") == "": // -N2
		default:
			out = append(out, args[i])
		}
	}
	return out
}
