//go:build linux && (amd64 || arm64) && !static

package mpilib

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/transport"
	"github.com/cairnrun/cairn/internal/transport/transporttest"
)

// launchers start processes with their own MPI.
var launchers = []struct {
	name, program string
	args          []string
	libraries     []string
	piece         int
}{
	{"OpenMPI", "mpirun.openmpi", []string{"--allow-run-as-root", "--oversubscribe"}, openMPI, 0},
	{"MPICH", "mpirun.mpich", nil, mpich, 1 << 20},
}

// need skips the test if the launcher or its library is missing.
func need(t testing.TB, program string, libraries []string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("not tested: %s is not installed", program)
	}
	if _, err := dl.Open(libraries...); err != nil {
		t.Skipf("not tested: %v", err)
	}
}

func launch(ctx context.Context, program string, args []string, n int, argv, env []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, append(append(append([]string(nil), args...), "-n", strconv.Itoa(n)), argv...)...)
	cmd.Env = append(append(os.Environ(), "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"OMPI_MCA_mpi_yield_when_idle=1"), env...)
	return cmd
}

func runSuite(t *testing.T, i int) {
	with := launchers[i]
	if os.Getenv("CAIRN_CONFORM_TEST") == "" {
		need(t, with.program, with.libraries)
	}
	const ends = "the launcher ends all processes when one dies"
	const stays = "an MPI world has the processes that it began with"
	transporttest.Run(t, transporttest.Transport{
		New: func(n int, dir string) func(int) (transport.Driver, error) {
			return func(rank int) (transport.Driver, error) {
				d, err := Open(Options{piece: with.piece})
				if err != nil {
					return nil, err
				}
				return drive(d), nil
			}
		},
		Sizes:        []int{4096, inlineMax, 64 << 10},
		NoGoroutines: true,
		Launch: func(ctx context.Context, n int, argv, env []string) *exec.Cmd {
			return launch(ctx, with.program, with.args, n, argv, env)
		},
		Skip: map[string]string{"Sleep": "there is no descriptor to sleep on", "Killed": ends, "KilledAsleep": ends, "KilledFull": ends, "KilledAmid": ends, "Pull": "two-sided messages cannot read the memory of a peer", "PullKilled": ends,
			"Replaced": stays, "Impostor": stays, "Leaks": stays},
	})
}

// TestTransport_OpenMPI runs the tests of all transports under Open MPI.
func TestTransport_OpenMPI(t *testing.T) { runSuite(t, 0) }

// TestTransport_MPICH runs the tests of all transports under MPICH.
func TestTransport_MPICH(t *testing.T) { runSuite(t, 1) }
