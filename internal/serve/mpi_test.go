//go:build linux

package serve

import (
	"os/exec"
	"path/filepath"
	"slices"
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

// TestHeat_RankKilled kills one rank of an MPI program in C, or its helper.
func TestHeat_RankKilled(t *testing.T) {
	dir := build(t)
	for _, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			if _, err := exec.LookPath(lib.compiler); err != nil {
				t.Skipf("no %s: this test needs the library's headers", lib.compiler)
			}
			heat := filepath.Join(t.TempDir(), "heat")
			if out, err := exec.Command(lib.compiler, "-std=c99", "-O2", "-I../../lib", "-o", heat, wraps, "../../examples/c/heat.c", "testdata/kill.c", filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl").CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			launcher := mustFind(t, lib.launcher[0])
			v := &victim{path: heat, start: func(ckpt, _ string) *exec.Cmd {
				cmd := program(t, "cairn")
				cmd.Path, cmd.Args = launcher, append(slices.Clone(lib.launcher), "-n", "2", heat, "40", "100", "2", ckpt)
				return cmd
			}}
			v.undisturbed(t)
			v.survive(t, []kill{
				{at: "committed#1", resumes: true},
				{step: "commit.written#4=kill", resumes: true},
			})
			v.survive(t, many(300, []string{"point", "send", "receive", "copy", "committed"}, helperSteps, time.Second))
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
