//go:build linux

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// onOpenMPI starts a traveller on Open MPI and waits until it is at its gate.
// files are put beside mpirun.
func onOpenMPI(t *testing.T, n int, files map[string]string, flags ...string) *trip {
	t.Helper()
	need(t, "mpirun.openmpi", "ompi-server")
	env := launcherNamed(t, "mpirun.openmpi")
	for name, text := range files {
		dir, _, _ := strings.Cut(strings.TrimPrefix(env[0], "PATH="), ":")
		write(t, filepath.Join(dir, name), text)
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	r := newTraveller(t)
	p := r.travels(n, nil)
	p.restart = func() {
		p.s = r.startIn(env, append([]string{"-n", strconv.Itoa(n), "--launcher", "mpirun", "--transport", "mpi", "--launcher-args=--oversubscribe", "--every", "1h"}, flags...)...)
	}
	p.restart()
	p.waits()
	return p
}

// wentBy checks which transport each pair of ranks used in the end.
func (p *trip) wentBy(want func(a, b int) string) {
	p.t.Helper()
	for r := range p.n {
		b, err := os.ReadFile(filepath.Join(p.root, fmt.Sprintf("routes-%d", r)))
		if err != nil {
			p.t.Fatal(err)
		}
		for i, way := range strings.Split(string(b), " ") {
			if i != r && way != want(r, i) {
				p.t.Errorf("from rank %d to %d by %s, not %s", r, i, way, want(r, i))
			}
		}
	}
}

// server returns the run's ompi-server, or 0.
func (p *trip) server() int {
	for _, pid := range childrenOf(p.s.cmd.Process.Pid) {
		if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(args), "ompi-server\x00--no-daemonize") {
			return pid
		}
	}
	return 0
}

// TestMigrate_OpenMPI moves ranks of a run on Open MPI: one, after a first
// attempt whose new process was killed; two at once; one that has moved before;
// all. The new processes join the library's world.
func TestMigrate_OpenMPI(t *testing.T) {
	onlyLong(t)
	p := onOpenMPI(t, 4, nil)
	server := p.server()
	if server == 0 {
		t.Fatalf("there is no ompi-server:\n%s", p.s.text())
	}
	p.still(p.pidOf(0)) // so that the move is not decided
	a := p.asks("--rank", "1", "--to", "localhost", "--rounds", "0")
	p.reachesState(control.MoveFinalCopy)
	syscall.Kill(p.destination(1), syscall.SIGKILL)
	a.ends(3)
	p.thaw()
	p.moves("--rank", "1", "--to", "localhost")
	p.onlyRanks()
	p.moves("--rank", "0,2", "--to", "localhost", "--rounds", "0")
	p.moves("--rank", "1", "--to", "localhost")
	p.onlyRanks()
	p.moves("--rank", "0-3", "--to", "localhost", "--rounds", "0")
	p.onlyRanks()
	p.arrives()
	p.wentBy(func(int, int) string { return "mpi" })
	if syscall.Kill(server, 0) == nil {
		t.Errorf("ompi-server, process %d, is left", server)
	}
}

// TestMigrate_OpenMPINotAdmitted moves ranks that the library cannot admit.
// Their pairs use another transport, and the others continue with the library.
func TestMigrate_OpenMPINotAdmitted(t *testing.T) {
	onlyLong(t)
	t.Run("no server", func(t *testing.T) {
		p := onOpenMPI(t, 3, map[string]string{"ompi-server": "#!/bin/sh\nexit 1\n"})
		p.moves("--rank", "1", "--to", "localhost", "--rounds", "0")
		p.arrives()
		p.wentBy(func(a, b int) string {
			if a == 1 || b == 1 {
				return "shm"
			}
			return "mpi"
		})
	})
	t.Run("server lost", func(t *testing.T) {
		p := onOpenMPI(t, 3, nil)
		p.moves("--rank", "1", "--to", "localhost", "--rounds", "0")
		server := p.server()
		syscall.Kill(server, syscall.SIGKILL)
		for end := time.Now().Add(patience); syscall.Kill(server, 0) == nil; time.Sleep(time.Millisecond) { // until cairn run has noticed
			if time.Now().After(end) {
				t.Fatal("ompi-server was killed, and is still there")
			}
		}
		p.moves("--rank", "2", "--to", "localhost", "--rounds", "0")
		p.arrives()
		p.wentBy(func(a, b int) string {
			if a == 2 || b == 2 {
				return "shm"
			}
			return "mpi"
		})
	})
}

// TestMigrate_OpenMPIKilled kills a destination while it and the others wait
// for each other inside the library. The run restarts, and destinations do not
// join any more.
func TestMigrate_OpenMPIKilled(t *testing.T) {
	onlyLong(t)
	log := filepath.Join(t.TempDir(), "steps")
	t.Setenv("CAIRN_STEP_LOG", log)
	p := onOpenMPI(t, 3, nil)
	if out, code := cairnTool(t, "checkpoint", p.run()); code != 0 {
		t.Fatalf("%s\n%s", out, p.s.text())
	}
	destination, a := p.comesToJoin(1, 2, "localhost")
	awaitSteps(t, log, fmt.Sprintf("mpi.accept %d ", destination), 1)
	syscall.Kill(destination, syscall.SIGKILL)
	a.ends(4)
	p.thaw()
	p.waits()
	p.moves("--rank", "1", "--to", "localhost", "--rounds", "0")
	p.arrives()
	p.wentBy(func(a, b int) string {
		if a == 1 || b == 1 {
			return "shm"
		}
		return "mpi"
	})
}

// awaitSteps waits until a log has n lines that begin with a step.
func awaitSteps(t *testing.T, log, step string, n int) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if len(steps(t, log, step)) >= n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s was not reached %d times: %q", step, n, steps(t, log, ""))
		}
	}
}

// comesToJoin begins to move a rank, and stops another one that stays when the
// move is decided. Then the destination waits for it inside the library.
// comesToJoin returns the destination.
func (p *trip) comesToJoin(moves, other int, to string) (destination int, a *asked) {
	p.t.Helper()
	p.still(p.pidOf(other))
	a = p.asks("--rank", strconv.Itoa(moves), "--to", to, "--rounds", "0")
	p.reachesState(control.MoveFinalCopy)
	destination = p.destination(moves)
	p.still(destination)
	p.thawOne(p.pidOf(other))
	if !p.enters(patience, func(m *control.MoveState) bool { return m.State == control.MoveFinalCopy && m.NegotiationNS > 0 }) {
		p.t.Fatalf("not all ranks are paused:\n%s", p.s.text())
	}
	for tries := 0; ; tries++ { // as in stoppedIn
		time.Sleep(50 * time.Millisecond << tries)
		pid := p.pidOf(other)
		p.still(pid)
		p.thawOne(destination)
		if p.enters(time.Second<<tries, func(m *control.MoveState) bool { return m.State == control.MoveLinking }) {
			return destination, a
		}
		if tries == 6 {
			p.t.Fatalf("the move does not come to its end:\n%s", p.s.text())
		}
		p.still(destination)
		p.thawOne(pid)
	}
}

// acrossOpenMPI starts a traveller on Open MPI and waits until it is at its
// gate: ranks 0 and 1 on the first host, where mpirun is, 2 and 3 on the
// second. It returns the hosts' names.
func acrossOpenMPI(t *testing.T, env []string, flags ...string) (p *trip, own, there string) {
	t.Helper()
	p, own, there = startsAcross(t, newTraveller(t), 4, env, flags...)
	p.waits()
	return p, own, there
}

// startsAcross starts a run of n ranks in this way, half of them on each host.
func startsAcross(t *testing.T, r *runOf, n int, env []string, flags ...string) (p *trip, own, there string) {
	t.Helper()
	need(t, "mpirun.openmpi", "unshare")
	net := network(t, 2)
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	there = net.Hosts[1]
	shell := filepath.Join(t.TempDir(), "shell")
	write(t, shell, "#!/bin/sh\nhost=$1; shift\nexec ip netns exec $host unshare --uts sh -c \"hostname $host; $*\"\n")
	if err := os.Chmod(shell, 0o755); err != nil {
		t.Fatal(err)
	}
	argv := []string{"ip", "netns", "exec", net.Hosts[0], build(t, "./cmd/cairn", runtime.GOARCH), "run", "--run", r.run(), "-o", r.out(), "-n", fmt.Sprint(n), "--every", "1h", "--launcher", "mpirun",
		fmt.Sprintf("--launcher-args=--oversubscribe --host %s:%d,%s:%d --mca plm_rsh_agent %s", own, n/2, there, n/2, shell)}
	argv = append(append(append(argv, flags...), r.command[0], "--"), r.command[1:]...)
	return r.travels(n, begin(t, r.run(), append(launcherNamed(t, "mpirun.openmpi"), env...), argv...)), own, there
}

// TestMigrate_OpenMPIHosts moves ranks between hosts of a run on Open MPI,
// there and back, after a first attempt whose new process was killed. The
// library starts the new processes, and admits them.
func TestMigrate_OpenMPIHosts(t *testing.T) {
	onlyLong(t)
	p, own, there := acrossOpenMPI(t, nil, "--transport", "mpi")
	p.still(p.pidOf(0)) // and so the move is not decided
	a := p.asks("--rank", "1", "--to", there, "--rounds", "0")
	p.reachesState(control.MoveFinalCopy)
	syscall.Kill(p.destination(1), syscall.SIGKILL)
	a.ends(3)
	p.thaw()
	p.moves("--rank", "1", "--to", there)
	p.onlyRanks()
	p.moves("--rank", "2,3", "--to", own, "--rounds", "0")
	p.onlyRanks()
	p.moves("--rank", "1", "--to", own, "--rounds", "0")
	p.moves("--rank", "0", "--to", there, "--rounds", "0")
	p.onlyRanks()
	if got, want := p.where(), []string{there, own, own, own}; !slices.Equal(got, want) {
		t.Errorf("ranks are on %v, not %v", got, want)
	}
	p.arrives()
	p.wentBy(func(int, int) string { return "mpi" })
}

// TestMigrate_OpenMPIHostsKilled kills a destination that the library has
// started, while it joins. The run restarts, and its ranks move without the
// library.
func TestMigrate_OpenMPIHostsKilled(t *testing.T) {
	onlyLong(t)
	p, _, there := acrossOpenMPI(t, nil)
	if out, code := cairnTool(t, "checkpoint", p.run()); code != 0 {
		t.Fatalf("%s\n%s", out, p.s.text())
	}
	destination, a := p.comesToJoin(1, 2, there)
	syscall.Kill(destination, syscall.SIGKILL)
	a.ends(4)
	p.thaw()
	p.waits()
	p.onlyRanks()
	p.moves("--rank", "1", "--to", there, "--rounds", "0")
	p.arrives()
	p.wentBy(func(a, b int) string {
		switch {
		case (a == 0) == (b == 0):
			return "shm"
		case a+b == 1: // rank 1 has moved
			return "tcp"
		}
		return "mpi"
	})
}

// TestMigrate_OpenMPIHostsNotAdmitted moves ranks between hosts without the
// library, which cannot join launches across hosts. The run must end although
// MPI_Finalize would wait for some processes.
func TestMigrate_OpenMPIHostsNotAdmitted(t *testing.T) {
	onlyLong(t)
	p, own, there := acrossOpenMPI(t, []string{control.EnvJoin + "=no"})
	p.moves("--rank", "1", "--to", there, "--rounds", "0")
	p.moves("--rank", "2", "--to", own, "--rounds", "0")
	p.arrives()
	p.wentBy(func(a, b int) string {
		switch here := func(r int) bool { return r == 0 || r == 2 }; {
		case here(a) == here(b):
			return "shm"
		case a+b == 3 && a*b == 0: // neither has moved
			return "mpi"
		}
		return "tcp"
	})
}

// TestMigrate_OpenMPIHelpersWithoutRanks kills the supervisor of a run in which
// some helpers have no ranks any more; one of them is lost itself. These
// helpers must not end before the last rank has saved, because all others would
// end with them.
func TestMigrate_OpenMPIHelpersWithoutRanks(t *testing.T) {
	onlyLong(t)
	t.Setenv(control.EnvJoin, control.JoinSpawned)
	p := onOpenMPI(t, 3, nil)
	p.moves("--rank", "1", "--to", "localhost", "--rounds", "0")
	shells := p.shells()
	p.moves("--rank", "1", "--to", "localhost", "--rounds", "0")
	if len(shells) != 1 || len(childrenOf(shells[0])) != 1 {
		t.Fatalf("shells %v have started the helpers", shells)
	}
	helper := childrenOf(shells[0])[0]
	syscall.Kill(helper, syscall.SIGKILL)
	all := descendants(p.s.cmd.Process.Pid)
	p.still(p.pidOf(2)) // it saves later than the others
	syscall.Kill(p.s.cmd.Process.Pid, syscall.SIGKILL)
	time.Sleep(2 * time.Second) // mpirun kills a second after its request; no event shows that it has not
	p.thaw()
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left := slices.DeleteFunc(slices.Clone(all), func(pid int) bool {
			st, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(st), ") Z ") // perhaps no process will wait for it
		})
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v are left", left)
		}
	}
	for r := range 3 {
		if files, _ := filepath.Glob(filepath.Join(p.checkpoints(), "ckpt-*", fmt.Sprintf("rank-%04d.h5", r))); len(files) == 0 {
			t.Fatalf("rank %d has saved nothing", r)
		}
	}
	p.restart()
	p.s.awaits("restored checkpoint")
	p.arrives()
}

// shells returns the shells by which the MPI library has started helpers.
func (p *trip) shells() (out []int) {
	for _, pid := range descendants(p.s.cmd.Process.Pid) {
		if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.HasPrefix(string(args), "/bin/sh\x00-c\x00used=") {
			out = append(out, pid)
		}
	}
	return out
}

// descendants returns all direct and indirect children of a process.
func descendants(pid int) (out []int) {
	for _, c := range childrenOf(pid) {
		out = append(append(out, c), descendants(c)...)
	}
	return out
}

// TestMigrate_OpenMPIHostsNPB moves ranks of the NPB kernels in this way.
func TestMigrate_OpenMPIHostsNPB(t *testing.T) {
	onlyLong(t)
	for kernel, class := range map[string]string{"cg": "A", "ft": "W", "mg": "A"} {
		t.Run(kernel, func(t *testing.T) {
			r := newRun(t, build(t, "./examples/npb", runtime.GOARCH), "-kernel", kernel, "-class", class)
			p, own, there := startsAcross(t, r, 8, []string{"OMPI_MCA_mpi_yield_when_idle=1"}, "--transport", "mpi")
			if moved := p.movesAround(5, []string{own, there}); moved < 2 {
				t.Errorf("%d moves:\n%s", moved, p.s.text())
			}
			p.s.finishes()
			must(t, r.output(), "SUCCESSFUL")
			if strings.Contains(p.s.text(), "does not use the MPI library") || strings.Contains(p.s.text(), "started again") {
				t.Error(p.s.text())
			}
		})
	}
}
