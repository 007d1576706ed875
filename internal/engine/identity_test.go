package engine

import (
	"strings"
	"testing"

	"github.com/cairnrun/cairn/internal/transport/mpilib"
)

// TestOpenMPI_SrunWithoutMPI: under srun without --mpi no MPI library is
// opened, since it would end the process.
func TestOpenMPI_SrunWithoutMPI(t *testing.T) {
	for _, name := range []string{"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMI_FD", "PMIX_RANK", mpilib.EnvLibrary} {
		t.Setenv(name, "")
	}
	t.Setenv("SLURM_PROCID", "0")
	t.Setenv("SLURM_STEP_NUM_TASKS", "2")
	if _, err := new(identity).openMPI(); err == nil || !strings.Contains(err.Error(), "--mpi=pmix") {
		t.Errorf("opened, or not refused for that: %v", err)
	}
	t.Setenv(mpilib.EnvLibrary, "/nonexistent/libmpi.so")
	if _, err := new(identity).openMPI(); err == nil || strings.Contains(err.Error(), "--mpi=pmix") {
		t.Errorf("a library that the user names is not tried: %v", err)
	}
}
