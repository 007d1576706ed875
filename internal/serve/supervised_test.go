//go:build linux

package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestHelper_Disturbed lets signals reach a helper, sends it what it refuses,
// continues with a run that could not be opened, kills the helper when no other
// one can be started, lets a child use the run, and lets memory be short.
func TestHelper_Disturbed(t *testing.T) {
	build(t)
	for _, what := range []string{"signals", "refused", "unopened", "lost", "fork", "memory", "ranks"} {
		t.Run(what, func(t *testing.T) {
			output(t, program(t, "helper", filepath.Join(t.TempDir(), "ckpt"), what))
		})
	}
}

// TestHelper_NotBoundToProcessor binds a program to one processor, as a
// launcher of MPI does: its helper may use the others. Without a launcher it
// may not.
func TestHelper_NotBoundToProcessor(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one processor")
	}
	taskset := mustFind(t, "taskset")
	for _, rank := range []string{"0", ""} {
		dir := build(t)
		cmd := start(t, taskset, "-c", "0", filepath.Join(dir, "plain"), filepath.Join(t.TempDir(), "ckpt"), "20", "2000", "1")
		cmd.Env = append(cmd.Env, "PMI_RANK="+rank, "OMPI_COMM_WORLD_RANK=", "PMIX_RANK=", "SLURM_PROCID=", "KILL_AT=point#5=19") // it stops there
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
			t.Fatal(err, status)
		}
		var bound int
		helper := childOf(cmd.Process.Pid)
		tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", helper))
		for _, task := range tasks {
			tid, _ := strconv.Atoi(filepath.Base(task))
			var set unix.CPUSet
			if unix.SchedGetaffinity(tid, &set) == nil && set.Count() == 1 {
				bound++
			}
		}
		if len(tasks) == 0 || rank != "" && bound > 0 || rank == "" && bound != len(tasks) {
			t.Errorf("rank %q: %d of %d threads of the helper are bound to one processor", rank, bound, len(tasks))
		}
		cmd.Process.Signal(syscall.SIGCONT)
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}

// steps returns what a program prints that prints a line per step.
func steps(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("step " + strconv.Itoa(i) + "\n")
	}
	return b.String()
}

// supervised runs a command under 'cairn run', and returns what it printed.
func supervised(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := program(t, "cairn", append([]string{"run", "--run", filepath.Join(t.TempDir(), "run")}, args...)...)
	cmd.Env = append(cmd.Env, env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, failure(err))
	}
	return string(out)
}

// TestSupervised_PrintsOnce kills programs whose lines are in a buffer when the
// checkpoint is saved: 'cairn run' shows each line once.
func TestSupervised_PrintsOnce(t *testing.T) {
	dir := build(t)
	t.Run("c", func(t *testing.T) {
		if got := supervised(t, nil, filepath.Join(dir, "helper"), filepath.Join(t.TempDir(), "ckpt"), "print"); got != steps(1000) {
			t.Errorf("it printed %d lines:\n%.1000s", strings.Count(got, "\n"), got)
		}
	})
	t.Run("python", func(t *testing.T) {
		startPython(t, "numpy")
		file := filepath.Join(t.TempDir(), "print.py")
		if err := os.WriteFile(file, []byte(printPython), 0o644); err != nil {
			t.Fatal(err)
		}
		if got := supervised(t, pythonEnv(t), python, file, filepath.Join(t.TempDir(), "ckpt")); got != steps(1000) {
			t.Errorf("it printed %d lines:\n%.1000s", strings.Count(got, "\n"), got)
		}
	})
	t.Run("fortran", func(t *testing.T) {
		path := compileFortran(t, "gfortran", append(fortranSources[:2:2], "testdata/print.f90")...)
		if got := supervised(t, nil, path, filepath.Join(t.TempDir(), "ckpt")); got != steps(1000) {
			t.Errorf("it printed %d lines:\n%.1000s", strings.Count(got, "\n"), got)
		}
	})
}

const printPython = `
import cairn, os, signal, sys
with cairn.open(sys.argv[1], every=1e6) as run:
    run.state.step = 0
    restored = run.restore()
    while run.state.step < 1000:
        run.point()
        if run.state.step == 500:
            run.checkpoint()
        if run.state.step == 900 and not restored:
            os.kill(os.getpid(), signal.SIGKILL)
        print("step", run.state.step)
        run.state.step += 1
    run.finish()
`

// TestSupervised_OneRunIsTheRank opens several runs in a process, one after the
// other and together, and starts a program that opens one: the first is the
// rank of 'cairn run', and the others do not disturb it.
func TestSupervised_OneRunIsTheRank(t *testing.T) {
	dir := build(t)
	if got := supervised(t, nil, filepath.Join(dir, "helper"), filepath.Join(t.TempDir(), "ckpt"), "twice"); got != "checkpoints 2\n" {
		t.Errorf("it printed %q", got)
	}
}

// TestSupervised_HelperFound starts a program far from any cairn command, with
// none in PATH: 'cairn run' says where it is itself, unless the user has said
// something else.
func TestSupervised_HelperFound(t *testing.T) {
	dir := build(t)
	path := filepath.Join(t.TempDir(), "helper") // with the library in it
	if err := os.Link(filepath.Join(dir, "helper"), path); err != nil {
		t.Skip(err)
	}
	env := []string{"PATH=" + t.TempDir(), "CAIRN_HELPER="}
	if got := supervised(t, env, path, filepath.Join(t.TempDir(), "ckpt"), "twice"); got != "checkpoints 2\n" {
		t.Errorf("it printed %q", got)
	}
	cmd := program(t, "cairn", "run", "--run", filepath.Join(t.TempDir(), "run"), path, filepath.Join(t.TempDir(), "ckpt"), "twice")
	cmd.Env = append(cmd.Env, "CAIRN_HELPER=/nowhere/cairn")
	if _, err := cmd.Output(); err == nil || !strings.Contains(failure(err), "cannot start the helper /nowhere/cairn") {
		t.Errorf("with a CAIRN_HELPER that does not exist: %v\n%s", err, failure(err))
	}
}

// TestSupervised_OtherRanksRefused opens a run with communicators that 'cairn
// run' does not know: it could give a rank what another one has saved.
func TestSupervised_OtherRanksRefused(t *testing.T) {
	for n, says := range map[string]string{
		"1": "a run of several ranks needs a communicator",
		"3": "the communicator has 3 ranks, and 'cairn run' supervises 2",
		"2": "this is rank 1 of the communicator, and rank 0 for 'cairn run'",
	} {
		cmd := program(t, "cairn", "run", "-n", "2", "--run", filepath.Join(t.TempDir(), "run"), filepath.Join(build(t), "helper"), filepath.Join(t.TempDir(), "ckpt"), "other", n)
		if _, err := cmd.Output(); err == nil || !strings.Contains(failure(err), says) {
			t.Errorf("%v: it does not say %q:\n%s", err, says, failure(err))
		}
	}
}

// TestSupervised_HelperLost kills the helper: the program is told to end, and
// resumes.
func TestSupervised_HelperLost(t *testing.T) {
	dir := build(t)
	if got := supervised(t, nil, filepath.Join(dir, "helper"), filepath.Join(t.TempDir(), "ckpt"), "ended"); got != "resumed with 2\n" {
		t.Errorf("it printed %q", got)
	}
}

// TestSupervised_TerminatedTwice sends a program two SIGTERM before its next
// point, as some schedulers do: it saves and stops, and resumes.
func TestSupervised_TerminatedTwice(t *testing.T) {
	dir := build(t)
	run, ckpt := filepath.Join(t.TempDir(), "run"), filepath.Join(t.TempDir(), "ckpt")
	start := func() *exec.Cmd {
		return program(t, "cairn", "run", "--run", run, filepath.Join(dir, "helper"), ckpt, "term")
	}
	cmd := start()
	if _, err := cmd.Output(); cmd.ProcessState.ExitCode() != 75 {
		t.Fatalf("%v\n%s", err, failure(err))
	}
	cmd = start()
	if out, err := cmd.Output(); err != nil || string(out) != "resumed with 2\n" {
		t.Errorf("%v: it printed %q\n%s", err, out, failure(err))
	}
}
