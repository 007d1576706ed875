package mpilib

import (
	"strconv"
)

const noLauncher = "no launcher"

// The names of the libraries of each kind. MPICH's own name for its library is
// libmpi.so.12. The libraries of Intel, Cray and MVAPICH have the same name and
// the same binary interface.
var (
	openMPI = []string{"libmpi.so.40", "libmpi.so.80"}
	mpich   = []string{"libmpich.so.12", "libmpi.so.12"}
)

// choice lists the libraries to try.
type choice struct {
	libraries [][]string // the names of each kind, in the order in which the kinds are tried
	size      int        // size of the world if the launcher states it, otherwise 0
	launcher  string
}

// choose finds out from the environment which launcher started this process,
// and so which library can communicate with it.
func choose(library string, getenv func(string) string) choice {
	c := choice{libraries: [][]string{openMPI, mpich}, launcher: noLauncher}
	number := func(names ...string) int {
		for _, name := range names {
			if n, err := strconv.Atoi(getenv(name)); err == nil && n > 0 {
				return n
			}
		}
		return 0
	}
	switch {
	case getenv("OMPI_COMM_WORLD_RANK") != "":
		c.launcher = "Open MPI's mpirun"
		c.libraries = [][]string{openMPI}
		c.size = number("OMPI_COMM_WORLD_SIZE")
	case getenv("PMI_RANK") != "" && (getenv("PMI_FD") != "" || getenv("PMI_PORT") != "" || getenv("HYDI_CONTROL_FD") != ""):
		c.launcher = "MPICH's mpirun"
		c.libraries = [][]string{mpich, openMPI} // Slurm's PMI-2 sets the same variables, and Open MPI may support it
		c.size = number("PMI_SIZE")
	case getenv("PMIX_RANK") != "":
		c.launcher = "a launcher with PMIx"
		c.size = number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	case getenv("SLURM_PROCID") != "":
		c.launcher = "srun"
		c.size = number("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	}
	if library == "" {
		library = getenv(EnvLibrary)
	}
	if library != "" {
		c.libraries = [][]string{{library}}
	}
	return c
}
