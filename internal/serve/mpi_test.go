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
			start := func(every, ckpt string) (*exec.Cmd, *bytes.Buffer, *bytes.Buffer) {
				args := append(lib.launcher[1:len(lib.launcher):len(lib.launcher)], "-n", "2", heat, "300", "100", every, ckpt)
				cmd := program(t, "cairn")
				cmd.Path, cmd.Args = mustFind(t, lib.launcher[0]), append([]string{lib.launcher[0]}, args...)
				var stdout, stderr bytes.Buffer
				cmd.Stdout, cmd.Stderr = &stdout, &stderr
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				return cmd, &stdout, &stderr
			}
			cmd, want, text := start("1000000", filepath.Join(t.TempDir(), "a"))
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			ckpt := filepath.Join(t.TempDir(), "b")
			cmd, _, _ = start("5", ckpt)
			committed := filepath.Join(ckpt, "line")
			for deadline := time.Now().Add(2 * time.Minute); ; {
				if _, err := os.Stat(committed); err == nil {
					break
				}
				if time.Now().After(deadline) {
					cmd.Process.Kill()
					t.Fatal("no checkpoint was committed")
				}
				time.Sleep(time.Millisecond)
			}
			for _, pid := range processes(heat) {
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
			cmd.Wait()
			cmd, got, text := start("5", ckpt)
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
