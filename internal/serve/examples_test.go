//go:build linux

package serve

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn"
)

// heatC compiles examples/c/heat.c with an MPI library, so that it can be
// killed.
func heatC(t *testing.T, compiler string) (path string) {
	t.Helper()
	dir := build(t)
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no %s: this test needs the library's headers", compiler)
	}
	path = filepath.Join(t.TempDir(), "heat")
	output(t, exec.Command(compiler, "-std=c99", "-O2", "-I../../lib", "-o", path, wraps, "../../examples/c/heat.c", "testdata/kill.c", filepath.Join(dir, "libcairn.a"), "-lm", "-lpthread", "-ldl"))
	return path
}

// heatFortran compiles examples/fortran/heat.f90.
func heatFortran(t *testing.T, library string) (path string) {
	t.Helper()
	return compileFortran(t, "mpif90."+library, append(append(fortranSources[:2:2], mpiSources...), "../../examples/fortran/heat.f90", "testdata/kill.c", wraps)...)
}

// heatPython returns the command that runs examples/python/heat.py.
func heatPython(t *testing.T) (args []string) {
	t.Helper()
	for _, module := range []string{"numpy", "mpi4py"} {
		if err := exec.Command(python, "-c", "import "+module).Run(); err != nil {
			t.Skipf("%s has no %s", python, module)
		}
	}
	return []string{python, "-m", "mpi4py", source(t, "testdata/killed.py"), source(t, "../../examples/python/heat.py")}
}

// TestHeatFortran_RankKilled kills one rank of an MPI program in Fortran.
func TestHeatFortran_RankKilled(t *testing.T) {
	for i, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			if i > 0 && os.Getenv("CAIRN_LONG") == "" {
				t.Skip("TestHeat_RankKilled uses it every day: set CAIRN_LONG=1")
			}
			heat := heatFortran(t, lib.name)
			killRank(t, lib.launcher, heat, []string{heat}, nil)
		})
	}
}

// TestHeatPython_RankKilled kills one rank of an MPI program in Python.
func TestHeatPython_RankKilled(t *testing.T) {
	heat := heatPython(t)
	out, err := exec.Command(python, "-c", "from mpi4py import MPI; print(MPI.Get_library_version())").Output()
	if err != nil {
		t.Skip("mpi4py cannot be loaded")
	}
	lib := mpiLibraries[0]
	if !strings.Contains(string(out), "Open MPI") {
		lib = mpiLibraries[1]
	}
	killRank(t, lib.launcher, "", heat, pythonEnv(t))
}

// killRank runs a program on two ranks, kills one of them, and starts it again.
// Only a program with a path of its own is killed from outside.
func killRank(t *testing.T, launcher []string, path string, heat, env []string) {
	t.Helper()
	mpirun := mustFind(t, launcher[0])
	v := &victim{path: path, ranks: 2, start: func(ckpt, _ string) *exec.Cmd {
		cmd := start(t, mpirun, slices.Concat(launcher[1:], []string{"-n", "2"}, heat, []string{"40", "100", "2", ckpt})...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}}
	v.undisturbed(t)
	v.survive(t, []kill{{at: "committed#1", resumes: true}})
	atMost := time.Second
	if path == "" {
		atMost = 0
	}
	v.surviveMany(t, 150, []string{"point", "committed"}, atMost)
}

const (
	heatSize  = 32
	heatSteps = 20
)

// heatGo is the plate of examples/c/heat.c in Go, on one rank.
type heatGo struct {
	step int32
	u    [heatSize + 2][heatSize]float64
}

// open protects the plate, and restores it if there is a checkpoint.
func (h *heatGo) open(t *testing.T, dir string) (run *cairn.Run, resumed bool) {
	t.Helper()
	run, err := cairn.Open(t.Context(), cairn.Options{Dir: dir, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	for i := range h.u[0] {
		h.u[0][i] = 100
	}
	if err := cairn.Protect(run, "step", &h.step); err != nil {
		t.Fatal(err)
	}
	if err := cairn.Protect(run, "u", &h.u); err != nil {
		t.Fatal(err)
	}
	if resumed, err = run.Restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	return run, resumed
}

// advance computes until a step is reached.
func (h *heatGo) advance(step int32) {
	for ; h.step < step; h.step++ {
		u := h.u
		for i := 1; i <= heatSize; i++ {
			for k := 1; k < heatSize-1; k++ {
				h.u[i][k] = 0.25 * (u[i-1][k] + u[i+1][k] + u[i][k-1] + u[i][k+1])
			}
		}
	}
}

func (h *heatGo) sum() (sum float64) {
	for _, row := range h.u[1 : heatSize+1] {
		for _, x := range row {
			sum += x
		}
	}
	return sum
}

// language is a program that computes the same in one of the languages.
type language struct {
	name string
	save func(t *testing.T, dir string)                   // saves checkpoints, and is killed
	end  func(t *testing.T, dir string) (float64, string) // resumes, and returns the result and what it said
}

// external is a program that runs examples/…/heat.
func external(name string, command, env []string) language {
	begin := func(t *testing.T, dir string) *exec.Cmd {
		cmd := start(t, command[0], slices.Concat(command[1:], []string{strconv.Itoa(heatSteps), strconv.Itoa(heatSize), "3", dir})...)
		cmd.Env = append(cmd.Env, env...)
		return cmd
	}
	return language{name, func(t *testing.T, dir string) {
		cmd := begin(t, dir)
		cmd.Env = append(cmd.Env, "KILL_AT=committed#1", "KILL_WAIT=1")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("%s was not killed: %v\n%s", name, err, out)
		}
	}, func(t *testing.T, dir string) (float64, string) {
		text := output(t, begin(t, dir))
		var sum float64
		if i := strings.Index(text, "heat "); i >= 0 {
			fmt.Sscan(text[i+len("heat "):], &sum)
		}
		return sum, text
	}}
}

// TestHeat_AcrossLanguages lets the program of each language resume what the
// program of each other one has saved.
func TestHeat_AcrossLanguages(t *testing.T) {
	languages := []language{{"go", func(t *testing.T, dir string) {
		var h heatGo
		run, _ := h.open(t, dir)
		h.advance(2)
		if err := run.Checkpoint(t.Context()); err != nil {
			t.Fatal(err)
		}
		h.advance(5)
		if err := run.Close(); err != nil {
			t.Fatal(err)
		}
	}, func(t *testing.T, dir string) (float64, string) {
		var h heatGo
		run, resumed := h.open(t, dir)
		defer run.Close()
		text := ""
		if resumed {
			text = fmt.Sprintln("resumed at step", h.step)
		}
		h.advance(heatSteps)
		return h.sum(), text
	}}}
	// One process needs no launcher: any of the libraries will do.
	for _, lib := range mpiLibraries {
		if _, err := exec.LookPath(lib.compiler); err == nil {
			languages = append(languages, external("c", []string{heatC(t, lib.compiler)}, nil))
			if _, err := exec.LookPath("mpif90." + lib.name); err == nil {
				languages = append(languages, external("fortran", []string{heatFortran(t, lib.name)}, nil))
			}
			break
		}
	}
	if exec.Command(python, "-c", "import numpy, mpi4py").Run() == nil {
		languages = append(languages, external("python", heatPython(t), pythonEnv(t)))
	}
	var undisturbed heatGo
	for i := range undisturbed.u[0] {
		undisturbed.u[0][i] = 100
	}
	undisturbed.advance(heatSteps)
	want := undisturbed.sum()
	for i, from := range languages {
		saved := filepath.Join(t.TempDir(), "ckpt")
		from.save(t, saved)
		for j, to := range languages {
			if j != (i+1)%len(languages) && os.Getenv("CAIRN_LONG") == "" {
				continue // every language saves once, and restores once
			}
			t.Run(from.name+"-to-"+to.name, func(t *testing.T) {
				dir := filepath.Join(t.TempDir(), "ckpt")
				if err := os.CopyFS(dir, os.DirFS(saved)); err != nil {
					t.Fatal(err)
				}
				got, text := to.end(t, dir)
				if got != want || !strings.Contains(text, "resumed at step 2\n") {
					t.Errorf("%s got %v from %s, want %v:\n%s", to.name, got, from.name, want, text)
				}
			})
		}
	}
}
