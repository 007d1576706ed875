//go:build linux

package serve

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// mpiLibraries are those that programs are tried with.
var mpiLibraries = []struct {
	name, compiler string
	launcher       []string
}{
	{"openmpi", "mpicc.openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"}},
	{"mpich", "mpicc.mpich", []string{"mpirun.mpich"}},
}

// TestHeat_RankKilled kills one rank of an MPI program in C, and starts it
// again: it resumes, and computes what an undisturbed one does.
func TestHeat_RankKilled(t *testing.T) {
	long(t)
	dir := build(t)
	for _, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			if _, err := exec.LookPath(lib.compiler); err != nil {
				t.Skipf("no %s: this test needs the library's headers", lib.compiler)
			}
			heat := filepath.Join(t.TempDir(), "heat")
			if out, err := exec.Command(lib.compiler, "-std=c99", "-O2", "-I../../lib", "-o", heat, "../../examples/c/heat.c", filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			start := func(steps int, every, ckpt string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
				args := append(lib.launcher[1:len(lib.launcher):len(lib.launcher)], "-n", "2", heat, strconv.Itoa(steps), "100", every, ckpt)
				cmd := program(t, "cairn")
				cmd.Path, cmd.Args = mustFind(t, lib.launcher[0]), append([]string{lib.launcher[0]}, args...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, &stdout, &stderr
			}
			steps, ckpt := 100, ""
			for killed := false; !killed; steps *= 4 { // until it is slow enough to be killed
				ckpt = filepath.Join(t.TempDir(), "ckpt")
				cmd, _, _ := start(4*steps, "2", ckpt)
				killed = killRank(t, heat, filepath.Join(ckpt, "line"), cmd)
			}
			cmd, want, text := start(steps, "1000000", filepath.Join(t.TempDir(), "undisturbed"))
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			cmd, got, text := start(steps, "2", ckpt)
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			if got.String() != want.String() {
				t.Errorf("%s, want %s", got, want)
			}
			t.Log(strings.TrimSpace(text.String()))
		})
	}
}

// killRank kills a rank as soon as a checkpoint is committed, and waits for the
// launcher. It reports whether the program was killed before it ended.
func killRank(t *testing.T, program, committed string, cmd *exec.Cmd) bool {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatalf("it ended before it was killed: %v", err)
			}
			return false
		case <-time.After(time.Millisecond):
		}
		if _, err := os.Stat(committed); err == nil {
			break
		}
	}
	for _, pid := range processes(program) {
		syscall.Kill(pid, syscall.SIGKILL)
		break
	}
	err := <-ended
	_, finished := os.Stat(filepath.Join(filepath.Dir(committed), "end"))
	return err != nil && finished != nil
}

func mustFind(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(err)
	}
	return path
}

// processes returns those that run a program.
func processes(path string) (pids []int) {
	list, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, link := range list {
		if to, err := os.Readlink(link); err == nil && to == path {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
