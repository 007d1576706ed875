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

// The MPI library of the other ranks can start destinations. mpirun of Open MPI
// 4 cannot connect processes of two launches on several hosts, but it can
// connect processes that it has started itself, at any time. So the helper of a
// destination is started by MPI_Comm_spawn, in a running rank:
//
//	supervisor                      a rank                       the target
//	  Spawn ─────────────────────────▶
//	  ◀──────────────── Spawned{Busy}  MPI_Comm_spawn ─────────────▶ sh, and in it
//	  ◀────────────────────── Spawned                                the helper
//	  ◀────────────────────────────────────────────────────────────── Joined
//
// After that it is like any other helper. mpirun does not see the processes
// that the helper starts, and their end has no effect on it. But mpirun ends
// everything if a process ends that it has started itself and in which MPI was
// initialised. So such a helper stays until all ranks have ended, even if its
// rank has moved away, or the supervisor is gone. There is a shell in between,
// so that mpirun does not end everything if a helper cannot be started or is
// killed.

// spawn is the start of a helper by an MPI library.
type spawn struct {
	move       uint64
	movingRank int // the rank that moves
	rank       int // the rank that executes it
	port       net.Listener
	busy       bool // the library is executing it
	late       bool // it has taken too long and is not awaited any more
}

// spawnScript starts a helper. Its arguments are the addresses of the
// supervisor, the launch and directory of the run, the working directory, and
// the command. It never fails, because mpirun would end everything then. If the
// helper was killed and had started ranks (see keepShell), another one waits in
// its place until no rank is left. The shell ignores signals that batch systems
// send.
const spawnScript = `used=; trap used=1 USR1; trap : TERM INT HUP USR2
unset ` + helper.EnvParent + `; ` + helper.EnvSupervisor + `=$1 ` + helper.EnvShell + `=$$ ` + control.EnvJoin + `=` + control.JoinSpawned + ` stay=$2
export ` + helper.EnvSupervisor + ` ` + helper.EnvShell + ` ` + control.EnvJoin + `
cd "$3"; shift 3; "$@"
while [ $? -ge 128 ] && [ -n "$used" ]; do ` + helper.EnvStay + `=$stay "$@"; done
exit 0`

// spawning reports whether the MPI library of the others must start
// destinations: because they cannot join otherwise, or because the user wants
// it.
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

// spawnHost returns mpirun's name for the host that a rank goes to, or "" if it
// is not one of its hosts. If mpirun's arguments do not name a host, mpirun
// knows it by its name without the domain.
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

// spawner returns a rank that can execute a spawn, preferably one that moves,
// or -1.
func (s *Supervisor) spawner(m *move) int {
	found := -1
	for i := range s.a.ranks {
		r := &s.a.ranks[i]
		if r.on == nil || r.on.state != hostUp || r.State != rundir.Running || r.byMove != 0 && !r.on.spawned {
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

// sendSpawn makes a rank start the helper for a rank that moves. It returns
// false if the library cannot be used for that.
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
			s.say("rank %d on %s has not called MPI_Comm_spawn within %s; new processes are started by another mpirun, and do not use the MPI library", rank, a.ranks[rank].Host, control.TimeText(limit))
		}
	})
	return true
}

// inSpawn reports whether a rank is executing a spawn, or will.
func (a *attempt) inSpawn() bool {
	return slices.ContainsFunc(a.spawning, func(by *spawn) bool { return by.busy || !by.late })
}

// spawned handles the result of a spawn. If the library did not start the
// helper, another launch of mpirun does.
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
		why := fmt.Sprintf("no helper came from %s within %s, though rank %d had started one by MPI_Comm_spawn", m.rank(by.movingRank).goal, control.TimeText(s.limits.come), by.rank)
		if said := s.launcher.said.line(); said != "" {
			why += fmt.Sprintf(" (mpirun said: %s)", said)
		}
		s.unspawned(m, by, why)
	})
}

// unspawned makes another launch of mpirun start a helper that the library did
// not start, and all helpers after it.
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
