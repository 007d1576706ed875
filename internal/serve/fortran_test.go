//go:build linux

package serve

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnrun/cairn"
)

// fortranSources are what a program in Fortran is compiled with.
var fortranSources = []string{"../../lib/fortran/cairn.f90", "../../lib/fortran/cairn_fortran.c"}

// mpiSources are needed besides fortranSources by programs that use MPI.
var mpiSources = []string{"../../lib/fortran/cairn_mpi.f90", "../../lib/fortran/cairn_fortran_mpi.c"}

// compileFortran compiles a program.
func compileFortran(t *testing.T, compiler string, sources ...string) (path string) {
	t.Helper()
	lib := build(t)
	if _, err := exec.LookPath(compiler); err != nil {
		t.Skipf("no %s: this test needs a Fortran compiler", compiler)
	}
	path = filepath.Join(t.TempDir(), "program")
	args := []string{"-O2", "-I../../lib", "-J" + filepath.Dir(path), "-o", path}
	args = append(append(args, sources...), filepath.Join(lib, "libcairn.a"), "-lpthread", "-ldl")
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
	return path
}

// start is a command that uses the library and the helper of this test.
func start(t *testing.T, path string, args ...string) *exec.Cmd {
	cmd := program(t, "cairn")
	cmd.Path, cmd.Args = path, append([]string{path}, args...)
	return cmd
}

// output runs a command, which must succeed, and returns its output.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	return string(out)
}

// TestFortran_Types restores variables of all types, refuses what cannot be
// protected, and cuts a file back. A Go program sees arrays with their
// dimensions reversed.
func TestFortran_Types(t *testing.T) {
	types := compileFortran(t, "gfortran", append(fortranSources, "-fcheck=all", "testdata/types.f90")...)
	dir, file := filepath.Join(t.TempDir(), "ckpt"), filepath.Join(t.TempDir(), "out")
	if got := output(t, start(t, types, dir, file)); got != "saved\n" {
		t.Fatal(got)
	}
	readFortran(t, dir)
	if got := output(t, start(t, types, dir, file)); got != "restored\n" {
		t.Fatal(got)
	}
	if got, _ := os.ReadFile(file); string(got) != "first\nresumed\n" {
		t.Errorf("the file is %q", got)
	}
}

// TestFortran_Flang does the same with flang, whose array descriptors differ
// from gfortran's.
func TestFortran_Flang(t *testing.T) {
	flang, err := exec.LookPath("flang")
	if err != nil {
		t.Skip("no flang")
	}
	if flang, err = filepath.EvalSymlinks(flang); err != nil {
		t.Fatal(err)
	}
	dir, include := t.TempDir(), filepath.Join(filepath.Dir(flang), "../include/flang")
	output(t, exec.Command("cc", "-O1", "-Wall", "-Werror", "-I"+include, "-I../../lib", "-c", "-o", filepath.Join(dir, "descriptors.o"), fortranSources[1]))
	types := filepath.Join(dir, "types")
	output(t, exec.Command(flang, "-O1", "-module-dir", dir, "-o", types, fortranSources[0], "testdata/types.f90", filepath.Join(dir, "descriptors.o"),
		filepath.Join(build(t), "libcairn.a"), "-lpthread", "-ldl"))
	ckpt, file := filepath.Join(dir, "ckpt"), filepath.Join(dir, "out")
	for _, want := range []string{"saved\n", "restored\n"} {
		out, err := start(t, types, ckpt, file).Output() // flang says on stderr what happened to numbers
		if err != nil || string(out) != want {
			t.Fatalf("%v: %s, want %s%s", err, out, want, failure(err))
		}
		if want == "saved\n" {
			readFortran(t, ckpt)
		}
	}
}

// readFortran restores a copy of what testdata/types.f90 has saved.
func readFortran(t *testing.T, dir string) {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	run, err := cairn.Open(t.Context(), cairn.Options{Dir: copied, OutsideFiles: true, Drop: []string{"i1", "i16", "r16", "none", "particles", "wide_text"}})
	if err != nil {
		t.Fatal(err)
	}
	defer run.Close()
	var (
		step  int32
		i2    [3]int16
		i8    int64
		r4    float32
		u     [2][3][4]float64
		lower [2][3]float64
		r10   [16]byte // no type of Go has its 80 bits
		c4    complex64
		c8    [2]complex128
		l     int32
		b     [2]bool
		words [2][5]byte
		text  [7]byte
	)
	for name, err := range map[string]error{
		"step": cairn.Protect(run, "step", &step), "i2": cairn.Protect(run, "i2", &i2), "i8": cairn.Protect(run, "i8", &i8),
		"r4": cairn.Protect(run, "r4", &r4), "u": cairn.Protect(run, "u", &u), "lower": cairn.Protect(run, "lower", &lower),
		"r10": cairn.Protect(run, "r10", &r10), "c4": cairn.Protect(run, "c4", &c4), "c8": cairn.Protect(run, "c8", &c8), "l": cairn.Protect(run, "l", &l),
		"b": cairn.Protect(run, "b", &b), "words": cairn.Protect(run, "words", &words), "text": cairn.Protect(run, "text", &text),
	} {
		if err != nil {
			t.Fatal(name, err)
		}
	}
	if ok, err := run.Restore(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if step != 1 || i2 != [3]int16{1, 2, 3} || i8 != 1<<40+1 || r4 != 0.5 || lower != [2][3]float64{{2, 3, 4}, {5, 6, 7}} ||
		c4 != 1+2i || c8 != [2]complex128{1 + 3i, 4 + 1i} || l != 1 || b != [2]bool{true, false} || string(words[1][:]) != "world" || string(text[:]) != "Fortran" {
		t.Errorf("%v %v %v %v %v %v %v %v %v %s %s", step, i2, i8, r4, lower, c4, c8, l, b, words, text)
	}
	for i, n := 0, 1.0; i < 24; i, n = i+1, n+1 {
		if got := u[i/12][i/4%3][i%4]; got != n {
			t.Errorf("u has %v at %d, want %v", got, i, n)
		}
	}
}

// TestFortran_Stopped ends a program with module mpi in a point, on both ranks.
func TestFortran_Stopped(t *testing.T) {
	for i, lib := range mpiLibraries {
		t.Run(lib.name, func(t *testing.T) {
			if i == 0 && os.Getenv("CAIRN_LONG") == "" {
				t.Skip("TestHeatFortran_RankKilled uses it every day: set CAIRN_LONG=1")
			}
			sources := append(append(fortranSources[:2:2], mpiSources...), "testdata/stop.f90")
			stop := compileFortran(t, "mpif90."+lib.name, sources...)
			dir := filepath.Join(t.TempDir(), "ckpt")
			for _, want := range []string{"", "resumed\n"} {
				args := append(lib.launcher[1:len(lib.launcher):len(lib.launcher)], "-n", "2", stop, dir)
				if got := output(t, start(t, mustFind(t, lib.launcher[0]), args...)); got != want {
					t.Errorf("it says %q, want %q", got, want)
				}
			}
		})
	}
}

// TestInstall_Fortran compiles the example with the documented command.
func TestInstall_Fortran(t *testing.T) {
	dir := build(t)
	for _, tool := range []string{"pkg-config", "gfortran", "mpif90"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("no " + tool)
		}
	}
	prefix := t.TempDir()
	output(t, exec.Command("make", "-s", "-C", "../../lib", "install", "BUILD="+dir, "PREFIX="+prefix, "CFLAGS=-O1 -g -Werror"))
	heat, err := os.ReadFile("../../examples/fortran/heat.f90")
	if err != nil {
		t.Fatal(err)
	}
	command, _, _ := strings.Cut(string(heat)[strings.Index(string(heat), "mpif90 "):], "\n")
	compile := exec.Command("sh", "-c", command)
	compile.Dir = t.TempDir()
	compile.Env = append(os.Environ(), "PKG_CONFIG_PATH="+filepath.Join(prefix, "lib/pkgconfig"))
	if err := os.WriteFile(filepath.Join(compile.Dir, "heat.f90"), heat, 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, compile)
	cmd := start(t, filepath.Join(compile.Dir, "heat"), "10", "16", "3")
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+filepath.Join(prefix, "lib"))
	if got := output(t, cmd); !strings.HasPrefix(got, "heat ") {
		t.Error(got)
	}
}
