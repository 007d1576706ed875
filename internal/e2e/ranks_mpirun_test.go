//go:build linux

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt"
	"github.com/cairnrun/cairn/internal/store"
	"github.com/cairnrun/cairn/internal/vfs"
)

// launchers start ranks without a supervisor.
var launchers = []struct {
	name  string
	needs string
	start func(t *testing.T, dir string, n int, command []string) []*exec.Cmd
}{
	{"Open MPI", "mpirun.openmpi", func(t *testing.T, dir string, n int, command []string) []*exec.Cmd {
		return []*exec.Cmd{exec.Command("mpirun.openmpi", append([]string{"--oversubscribe", "-n", strconv.Itoa(n)}, command...)...)}
	}},
	{"MPICH", "mpirun.mpich", func(t *testing.T, dir string, n int, command []string) []*exec.Cmd {
		return []*exec.Cmd{exec.Command("mpirun.mpich", append([]string{"-n", strconv.Itoa(n)}, command...)...)}
	}},
	{"srun", "true", func(t *testing.T, dir string, n int, command []string) []*exec.Cmd {
		env, err := os.ReadFile(filepath.Join(dir, "slurm"))
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("srun", append([]string{"-n", strconv.Itoa(n)}, command...)...)
		cmd.Env = append(os.Environ(), string(env))
		return []*exec.Cmd{cmd}
	}},
	// Without srun: the environment that it sets, with no MPI library. The
	// ranks use the file bootstrap in the checkpoint directory.
	{"srun's environment", "true", func(t *testing.T, dir string, n int, command []string) []*exec.Cmd {
		var ranks []*exec.Cmd
		starts, _ := filepath.Glob(filepath.Join(dir, "start-*"))
		os.WriteFile(filepath.Join(dir, fmt.Sprintf("start-%d", len(starts))), nil, 0o600)
		for r := range n {
			cmd := exec.Command(command[0], command[1:]...)
			cmd.Env = append(os.Environ(), "SLURM_PROCID="+strconv.Itoa(r), "SLURM_STEP_NUM_TASKS="+strconv.Itoa(n),
				"SLURM_JOB_ID=4711", "SLURM_STEP_ID="+strconv.Itoa(len(starts)), "CAIRN_LIBMPI=/nonexistent/libmpi.so")
			ranks = append(ranks, cmd)
		}
		return ranks
	}},
}

// TestRanks_Unsupervised kills runs under other launchers than cairn run. The
// same command must continue from the recovery line.
func TestRanks_Unsupervised(t *testing.T) {
	onlyLong(t)
	for i, l := range launchers {
		for j, how := range []string{"SIGKILL of a rank", "SIGTERM"} {
			if !stressed() && (i%2 != j || l.name == "MPICH") {
				continue
			}
			t.Run(l.name+", "+how, func(t *testing.T) {
				t.Parallel()
				need(t, l.needs)
				root := t.TempDir()
				if l.name == "srun" {
					if err := os.WriteFile(filepath.Join(root, "slurm"), []byte(slurm(t)[0]), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				dir, out := filepath.Join(root, "ckpt"), filepath.Join(root, "out.txt")
				args := []string{program(t, "heat"), "-n", "96", "-check", "50", "-out", out}
				const n = 4
				steps := 2000
				if stressed() {
					steps = 10000
				}
				want := filepath.Join(root, "want.txt")
				plain := newRun(t, program(t, "heat"), "-n", "96", "-check", "50", "-out", want, "-steps", fmt.Sprint(steps))
				plain.start("-n", "4", "--every", "1h").finishes()

				command := append(args, "-steps", fmt.Sprint(steps), "-dir", dir, "-every-points", "20")
				g := startGroup(t, l.start(t, root, n, command))
				before := g.committed(dir, 1)
				if how == "SIGTERM" {
					for _, c := range g.cmds {
						c.Process.Signal(syscall.SIGTERM)
					}
				} else {
					syscall.Kill(g.ranks(command[0], dir, n)[n-1], syscall.SIGKILL)
				}
				g.wait()
				if g.good() {
					t.Fatalf("it ended well though it was killed:\n%s", g.said.String())
				}
				line := lineOf(t, dir)
				if line < before {
					t.Fatalf("the recovery line went back from checkpoint %d to %d", before, line)
				}
				passed := points(t, dir, line)
				g = startGroup(t, l.start(t, root, n, command))
				next := g.committed(dir, line+1)
				if now := points(t, dir, next); now <= passed {
					t.Errorf("checkpoint %d was taken at point %d, and checkpoint %d of the start before at %d: it did not resume from there", next, now, line, passed)
				}
				g.wait()
				if !g.good() {
					t.Fatalf("started again, it failed:\n%s", g.said.String())
				}
				compareFiles(t, out, want)
				if left, _ := filepath.Glob(filepath.Join(dir, "bootstrap-*", "*")); len(left) > 4*n {
					t.Errorf("the file bootstrap left %d files", len(left))
				}
			})
		}
	}
}

// TestRanks_LauncherNamed resumes a run under one MPI library and then the
// other, whose launchers are named by --launcher.
func TestRanks_LauncherNamed(t *testing.T) {
	t.Parallel()
	need(t, "mpirun.openmpi", "mpiexec.hydra")
	command := []string{program(t, "ring"), "-steps", "6000", "-report", "0"}
	want := undisturbed(t, 2, command...)
	path, err := exec.LookPath("mpiexec.hydra")
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(t, command...)
	flags := []string{"-n", "2", "--transport", "mpi", "--every", "50ms", "--launcher"}
	s := r.start(append(flags, "mpirun.openmpi", "--launcher-args=--oversubscribe")...)
	s.awaits("committed")
	s.stops()
	must(t, s.text(), "2 ranks by mpirun.openmpi")

	s = r.start(append(flags, path)...)
	s.awaits("committed")
	st := s.state()
	if st == nil || len(st.Ranks) != 2 {
		t.Fatalf("no ranks: %v\n%s", st, s.text())
	}
	syscall.Kill(st.Ranks[1].Pid, syscall.SIGKILL)
	s.finishes()
	must(t, s.text(), "2 ranks by "+path, "started again")
	sameOutput(t, r.output(), want)
}

// group is the processes of a launcher, or those that replace one.
type group struct {
	t    *testing.T
	cmds []*exec.Cmd
	said bytes.Buffer
	errs []error
	over chan struct{}
}

// startGroup starts processes in a session of their own.
func startGroup(t *testing.T, cmds []*exec.Cmd) *group {
	t.Helper()
	g := &group{t: t, cmds: cmds, errs: make([]error, len(cmds)), over: make(chan struct{})}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cmds {
		if c.Env == nil {
			c.Env = os.Environ()
		}
		c.Env = append(c.Env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", "UCX_LOG_LEVEL=error")
		c.Stdout, c.Stderr = write, write
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	write.Close()
	go func() {
		g.said.ReadFrom(read)
		for i, c := range g.cmds {
			g.errs[i] = c.Wait()
		}
		close(g.over)
	}()
	t.Cleanup(func() {
		for _, c := range cmds {
			select {
			case <-g.over:
			default:
				syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
			}
		}
	})
	return g
}

// wait waits for the end of all processes.
func (g *group) wait() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case <-g.over:
	case <-ctx.Done():
		for _, c := range g.cmds {
			syscall.Kill(-c.Process.Pid, syscall.SIGQUIT)
		}
		<-g.over
		g.t.Fatalf("it did not end:\n%s", g.said.String())
	}
}

// good reports whether all processes ended successfully.
func (g *group) good() bool {
	for _, err := range g.errs {
		if err != nil {
			return false
		}
	}
	return true
}

// committed waits until checkpoint index is complete, and returns the newest.
func (g *group) committed(dir string, index uint64) uint64 {
	g.t.Helper()
	for limit := time.Now().Add(patience); time.Now().Before(limit); time.Sleep(time.Millisecond) {
		if l, err := store.Open(vfs.OS(), dir, 0).Line(); err == nil && l.Index >= index {
			return l.Index
		}
		select {
		case <-g.over:
			g.t.Fatalf("it ended:\n%s", g.said.String())
		default:
		}
	}
	g.t.Fatalf("no checkpoint was committed in %s", dir)
	return 0
}

// points returns the point at which a checkpoint, or a newer one, was taken.
func points(t *testing.T, dir string, index uint64) uint64 {
	t.Helper()
	var err error
	for range 20 {
		var s *ckpt.File
		if s, err = ckpt.Open(vfs.OS(), filepath.Join(dir, fmt.Sprintf("ckpt-%08d", index), "rank-0000.h5")); err == nil {
			defer s.Close()
			return s.Header.Note.Points
		}
		index++ // it was removed meanwhile
	}
	t.Fatal(err)
	return 0
}

// lineOf returns the recovery line of a directory.
func lineOf(t *testing.T, dir string) uint64 {
	t.Helper()
	l, err := store.Open(vfs.OS(), dir, 0).Line()
	if err != nil {
		t.Fatal(err)
	}
	return l.Index
}

// ranks returns the processes of a program with a given argument.
func (g *group) ranks(program, argument string, n int) []int {
	g.t.Helper()
	var found []int
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		pid, _ := strconv.Atoi(strings.TrimPrefix(p, "/proc/"))
		args, err := os.ReadFile(filepath.Join(p, "cmdline"))
		if err == nil && runs(pid, program) && slices.Contains(strings.Split(string(args), "\x00"), argument) {
			found = append(found, pid)
		}
	}
	if len(found) != n {
		g.t.Fatalf("%d ranks instead of %d: %v", len(found), n, found)
	}
	return found
}

// compareFiles fails the test unless two files are equal.
func compareFiles(t *testing.T, got, want string) {
	t.Helper()
	a, err := os.ReadFile(got)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(want)
	if err != nil {
		t.Fatal(err)
	}
	sameOutput(t, string(a), string(b))
}
