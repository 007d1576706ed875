//go:build linux

package serve

import (
	"os/exec"
	"slices"
	"testing"
	"time"
)

// mpiLibrary is one, with its compiler and launcher.
type mpiLibrary struct {
	name, compiler string
	launcher       []string
}

// mpiLibraries are those that programs are tried with.
var mpiLibraries = []mpiLibrary{
	{"openmpi", "mpicc.openmpi", []string{"mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"}},
	{"mpich", "mpicc.mpich", []string{"mpirun.mpich"}},
}

// TestHeat_RankKilled kills one rank of an MPI program in C, or its helper.
func TestHeat_RankKilled(t *testing.T) {
	for _, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			heat := heatC(t, lib.compiler)
			launcher := mustFind(t, lib.launcher[0])
			v := &victim{path: heat, ranks: 2, start: func(ckpt, _ string) *exec.Cmd {
				cmd := program(t, "cairn")
				cmd.Path, cmd.Args = launcher, append(slices.Clone(lib.launcher), "-n", "2", heat, "40", "100", "2", ckpt)
				return cmd
			}}
			v.undisturbed(t)
			v.survive(t, []kill{
				{at: "committed#1", resumes: true},
				{step: "commit.written#4=kill", resumes: true},
			})
			v.surviveMany(t, 300, []string{"point", "send", "receive", "copy", "committed"}, time.Second)
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
