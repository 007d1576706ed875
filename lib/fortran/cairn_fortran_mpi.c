/* The part of module cairn that needs an MPI library. */
#include <ISO_Fortran_binding.h>

#include <cairn_mpi.h>

/* cairn_f_run is type(cairn_run) of module cairn. */
struct cairn_f_run {
	cairn_run *run;
	void *files;
	void (*finalize)(void);
};

static void finalize(void) { MPI_Finalize(); }

/* The communicator is an integer, or type(MPI_Comm), which holds just one. */
cairn_status cairn_f_open_mpi(struct cairn_f_run *r, const CFI_cdesc_t *comm, const char *dir, const cairn_options *options)
{
	r->run = NULL;
	r->finalize = finalize;
	if (comm->rank != 0 || comm->elem_len != sizeof(MPI_Fint))
		return CAIRN_ARGUMENT;
	return cairn_open_mpi(&r->run, dir, options, MPI_Comm_f2c(*(MPI_Fint *)comm->base_addr));
}
