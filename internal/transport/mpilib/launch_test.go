//go:build linux && (amd64 || arm64) && !static

package mpilib

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
)

// eachMPI runs a test under every launcher that is installed.
func eachMPI(t *testing.T, test func(t *testing.T, run func(body string, n int) (string, error))) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, with := range launchers {
		t.Run(with.name, func(t *testing.T) {
			need(t, with.program, with.libraries)
			test(t, func(body string, n int) (string, error) {
				cmd := launch(t.Context(), with.program, with.args, n, []string{self}, []string{bodyEnv + "=" + body, dirEnv + "=" + t.TempDir()})
				out, err := cmd.CombinedOutput()
				return string(out), err
			})
		})
	}
}

func passes(t *testing.T, body string, n int) {
	eachMPI(t, func(t *testing.T, run func(string, int) (string, error)) {
		out, err := run(body, n)
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		t.Log(out)
	})
}

// TestWorld exchanges messages of ranks that a launcher has started.
func TestWorld(t *testing.T) { passes(t, "world", 3) }

// TestSignals shows that Go programs get their signals with a library loaded.
func TestSignals(t *testing.T) { passes(t, "signals", 2) }

// TestClose_EndsLibrary shows that the last Close ends the library, and nothing
// can be opened after that.
func TestClose_EndsLibrary(t *testing.T) { passes(t, "finished", 2) }

// TestSent_FramesHaveLeft shows that frames which a rank was told were sent
// arrive, though it does not poll any more.
func TestSent_FramesHaveLeft(t *testing.T) { passes(t, "leaves", 2) }

// TestCrash_OutputAppears shows that the Go runtime's crash output appears with
// a library loaded, too.
func TestCrash_OutputAppears(t *testing.T) {
	for body, want := range map[string]string{"crash": "bodies_test.go", "panic": "panic: as it should be"} {
		eachMPI(t, func(t *testing.T, run func(string, int) (string, error)) {
			out, err := run(body, 2)
			if err == nil || !strings.Contains(out, want) || !strings.Contains(out, "goroutine 1") {
				t.Errorf("%v, and in this is no %q:\n%s", err, want, out)
			}
		})
	}
}

// TestChoose_UnknownLauncher shows that, under an unknown launcher, the library
// is found by trying.
func TestChoose_UnknownLauncher(t *testing.T) {
	for _, with := range launchers {
		need(t, with.program, with.libraries)
	}
	passes(t, "slurm", 2)
}

// TestWorld_WithoutCgo runs the tests without cgo, however this test was built.
func TestWorld_WithoutCgo(t *testing.T) {
	if testing.Short() {
		t.Skip("not tested: it builds another binary")
	}
	info, _ := debug.ReadBuildInfo()
	if info != nil && slices.Contains(info.Settings, debug.BuildSetting{Key: "CGO_ENABLED", Value: "0"}) {
		t.Skip("the other tests show it: this binary has no cgo")
	}
	binary := filepath.Join(t.TempDir(), "mpilib.test")
	cmd := exec.Command("go", "test", "-c", "-o", binary, ".")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("not tested: go test -c: %v\n%s", err, out)
	}
	for _, with := range launchers {
		t.Run(with.name, func(t *testing.T) {
			need(t, with.program, with.libraries)
			for _, body := range []string{"world", "signals"} {
				out, err := launch(t.Context(), with.program, with.args, 3, []string{binary}, []string{bodyEnv + "=" + body}).CombinedOutput()
				if err != nil {
					t.Errorf("%s: %v\n%s", body, err, out)
				}
			}
		})
	}
}

// TestChoose_ByLauncher checks which libraries are tried under each launcher.
func TestChoose_ByLauncher(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		opt  string
		want choice
	}{
		{want: choice{[][]string{openMPI, mpich}, 0, "no launcher"}},
		{env: map[string]string{"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_RANK": "0", "SLURM_PROCID": "0"},
			want: choice{[][]string{openMPI}, 4, "Open MPI's mpirun"}},
		{env: map[string]string{"PMI_RANK": "1", "PMI_FD": "6", "PMI_SIZE": "2"},
			want: choice{[][]string{mpich, openMPI}, 2, "MPICH's mpirun"}},
		{env: map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "3"},
			want: choice{[][]string{openMPI, mpich}, 3, "srun"}},
		{env: map[string]string{"PMIX_RANK": "1", "SLURM_NTASKS": "8"},
			want: choice{[][]string{openMPI, mpich}, 8, "a launcher with PMIx"}},
		{env: map[string]string{"PMI_RANK": "1", "PMI_FD": "6", "PMI_SIZE": "x", EnvLibrary: "/opt/libmpi.so"},
			want: choice{[][]string{{"/opt/libmpi.so"}}, 0, "MPICH's mpirun"}},
		{env: map[string]string{EnvLibrary: "/opt/libmpi.so"}, opt: "mine.so",
			want: choice{[][]string{{"mine.so"}}, 0, "no launcher"}},
	} {
		if got := choose(c.opt, func(name string) string { return c.env[name] }); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v", c.env, got)
		}
	}
}

// TestOpen_NoLibrary checks the errors for a missing library, and for one that
// is not MPI.
func TestOpen_NoLibrary(t *testing.T) {
	_, err := Open(Options{Library: "libno-such-mpi.so"})
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "libno-such-mpi.so") || !strings.Contains(err.Error(), EnvLibrary) {
		t.Error(err)
	}
	_, err = Open(Options{Library: "libc.so.6"})
	if !errors.Is(err, ErrNoLibrary) || !strings.Contains(err.Error(), "not an MPI library") {
		t.Error(err)
	}
}
