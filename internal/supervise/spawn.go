//go:build linux

package supervise

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/helper"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// Destinations that the MPI library of the others starts. mpirun of Open MPI 4
// can't connect processes of two launches that are on several hosts, but those
// that it has started itself, at any time. So the helper of a destination is
// started by MPI_Comm_spawn, in a rank that runs:
//
//	supervisor                      a rank                       the target
//	  Spawn ─────────────────────────▶
//	  ◀──────────────── Spawned{Busy}  MPI_Comm_spawn ─────────────▶ sh, and in it
//	  ◀────────────────────── Spawned                                the helper
//	  ◀────────────────────────────────────────────────────────────── Joined
//
// From there on it is like any other, and what is started or dies under it
// is its business: mpirun does not see it. What mpirun would not forgive is the end of what it
// started itself, once MPI was initialised under it: such a helper stays
// until all ranks have ended, also when its rank has left, or the supervisor
// is gone. A shell is between, so that a helper which can't be started or is
// killed is no reason to end all.

// spawn is the start of a helper by an MPI library.
type spawn struct {
	move       uint64
	movingRank int // the rank that moves
	rank       int // that is to do it
	port       net.Listener
	busy       bool // it is at it
	late       bool // it has not come to it for long: nobody waits for it
}

// spawnScript starts a helper: addresses of the supervisor, launch and directory
// of the run, directory to start in, command. It never fails, for which mpirun
// would end all. When the helper was killed, and ranks were started under it
// (see detain), another one only waits in its place until no rank is left.
// Signals that batch systems send are not for the shell.
const spawnScript = `used=; trap used=1 USR1; trap : TERM INT HUP USR2
unset ` + helper.EnvParent + `; ` + helper.EnvSupervisor + `=$1 ` + helper.EnvShell + `=$$ ` + control.EnvJoin + `=` + control.JoinSpawned + ` stay=$2
export ` + helper.EnvSupervisor + ` ` + helper.EnvShell + ` ` + control.EnvJoin + `
cd "$3"; shift 3; "$@"
while [ $? -ge 128 ] && [ -n "$used" ]; do ` + helper.EnvStay + `=$stay "$@"; done
exit 0`

// spawning reports whether destinations are to be started by the MPI library of
// the others: where they can't join otherwise, or if the user wants it.
func (s *Supervisor) spawning() bool {
	l := s.launcher
	if l == nil || !l.spawns || l.apart || s.n == 1 || len(s.o.Transports) > 0 && !slices.Contains(s.o.Transports, "mpi") {
		return false
	}
	switch os.Getenv(control.EnvJoin) {
	case control.JoinSpawned:
		return true
	case "":
		return slices.ContainsFunc(s.hosts, func(h *host) bool { return !h.extra && h.shared != s.hosts[0].shared })
	}
	return false
}

// spawnHost is the name that mpirun has for the host that a rank goes to; "" if
// it is none of its hosts. Those that are not named in its arguments it knows
// without their domain.
func (s *Supervisor) spawnHost(goal string) string {
	if named(s.launcher.args, goal) {
		return goal
	}
	if own, err := os.Hostname(); err == nil && (goal == "localhost" || goal == "127.0.0.1") {
		goal = own
	}
	if !slices.ContainsFunc(s.hosts, func(h *host) bool { return !h.extra && h.shared == goal }) {
		return ""
	}
	if short, _, _ := strings.Cut(goal, "."); !named(s.launcher.args, goal) {
		return short
	}
	return goal
}

// spawner is a rank that can have a process started, one that moves if there
// is one; -1 if none can.
func (s *Supervisor) spawner(m *move) int {
	found := -1
	for i := range s.a.ranks {
		r := &s.a.ranks[i]
		if r.on == nil || !r.on.up || r.State != rundir.Running || r.byMove != 0 && !r.on.spawned {
			continue
		}
		if m.rank(i) != nil {
			return i
		}
		if found < 0 {
			found = i
		}
	}
	return found
}

// sendSpawn has a rank start the helper for one that moves. It returns false
// if that is not to be done.
func (s *Supervisor) sendSpawn(m *move, x *movingRank) bool {
	if !s.spawning() || s.a.refused {
		return false
	}
	host, rank := s.spawnHost(x.goal), s.spawner(m)
	if host == "" || rank < 0 {
		return false
	}
	port, err := net.Listen("tcp", ":0")
	if err != nil {
		return false
	}
	by := &spawn{move: m.ID, movingRank: x.rank, rank: rank, port: port}
	x.spawn = by
	go s.expect(m, x, port, by)
	command := append([]string{"/bin/sh", "-c", spawnScript, "sh", strings.Join(addressesOf(port), ","), s.a.launch + ":" + s.dir.Path, s.cwd}, s.o.RemoteHelper...)
	s.tellRank(rank, &control.Spawn{Move: m.ID, Moving: x.rank, Host: host, Command: append(command, "--launched")})
	a, limit := s.a, s.limits.join
	a.spawning = append(a.spawning, by)
	s.after(limit, func() {
		if slices.Contains(a.spawning, by) && !by.busy {
			by.late, a.refused = true, true
			s.say("rank %d on %s has not come to MPI_Comm_spawn within %s; new processes are started by another mpirun, and do not use the MPI library", rank, a.ranks[rank].Host, control.TimeText(limit))
		}
	})
	return true
}

// inSpawn reports whether a rank has the library start something, or is about
// to.
func (a *attempt) inSpawn() bool {
	return slices.ContainsFunc(a.spawning, func(by *spawn) bool { return by.busy || !by.late })
}

// spawned takes in what became of it. What the library does not start,
// another launch of mpirun does.
func (s *Supervisor) spawned(rank int, said *control.Spawned) {
	a, m := s.a, s.move
	i := slices.IndexFunc(a.spawning, func(y *spawn) bool {
		return y.rank == rank && y.move == said.Move && y.movingRank == said.Moving
	})
	if i < 0 {
		return
	}
	by := a.spawning[i]
	if said.Busy {
		by.busy = true
		s.after(s.limits.spawn, func() {
			if slices.Contains(a.spawning, by) {
				s.launcher.apart = true
				s.fail(by.rank, &failure{why: fmt.Sprintf("rank %d on %s has not come back from MPI_Comm_spawn within %s", by.rank, a.ranks[by.rank].Host, control.TimeText(s.limits.spawn)), status: 1})
			}
		})
		return
	}
	a.spawning = slices.Delete(a.spawning, i, i+1)
	if said.Error != "" {
		s.unspawned(m, by, fmt.Sprintf("rank %d: %s", rank, plain(rank, said.Error)))
		return
	}
	s.after(s.limits.come, func() {
		if m == nil || m != s.move || m.ID != by.move || m.rank(by.movingRank).to != nil {
			return
		}
		why := fmt.Sprintf("no helper came from %s within %s, which rank %d had started by MPI_Comm_spawn", m.rank(by.movingRank).goal, control.TimeText(s.limits.come), by.rank)
		if said := s.launcher.said.line(); said != "" {
			why += fmt.Sprintf(" (mpirun said: %s)", said)
		}
		s.unspawned(m, by, why)
	})
}

// unspawned lets another launch of mpirun start the helper that did not come by
// the library, and those after it.
func (s *Supervisor) unspawned(m *move, by *spawn, why string) {
	s.a.refused = true
	if m == nil || m != s.move || m.ID != by.move {
		return
	}
	by.port.Close()
	x := m.rank(by.movingRank)
	x.spawn = nil
	s.say("%s; the new process of rank %d is started by another mpirun, and does not use the MPI library", why, x.rank)
	go s.launchHelper(m, x, "")
}
