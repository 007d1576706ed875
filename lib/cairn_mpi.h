/*
 * cairn_open_mpi: checkpoints for programs that use an MPI library. This header
 * is compiled with the program's own mpi.h; libcairn knows no MPI.
 */
#ifndef CAIRN_MPI_H
#define CAIRN_MPI_H

#include <mpi.h>
#include <stdlib.h>

#include "cairn.h"

static int cairn_mpi_gather_(void *context, const void *mine, int bytes, void *all)
{
	return MPI_Allgather((void *)mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, *(MPI_Comm *)context);
}

static int cairn_mpi_max_(void *context, uint64_t *values, int n)
{
	return MPI_Allreduce(MPI_IN_PLACE, values, n, MPI_UINT64_T, MPI_MAX, *(MPI_Comm *)context);
}

static void cairn_mpi_close_(void *context)
{
	int over = 0;
	MPI_Finalized(&over);
	if (!over)
		MPI_Comm_free((MPI_Comm *)context);
	free(context);
}

/*
 * cairn_open_mpi is cairn_open for the processes of a communicator, of which it
 * makes a duplicate, which cairn_close frees. Both are collective. Call
 * cairn_open_mpi after MPI_Init, and cairn_close before MPI_Finalize.
 */
static inline cairn_status cairn_open_mpi(cairn_run **run, const char *dir, const cairn_options *options, MPI_Comm comm)
{
	MPI_Comm *own = (MPI_Comm *)malloc(sizeof *own);
	cairn_comm c;
	cairn_status rc;
	*run = NULL;
	if (!own)
		return CAIRN_NOMEMORY;
	if (MPI_Comm_dup(comm, own) != MPI_SUCCESS) {
		free(own);
		return CAIRN_ERROR;
	}
	MPI_Comm_rank(*own, &c.rank);
	MPI_Comm_size(*own, &c.size);
	c.context = own;
	c.gather = cairn_mpi_gather_;
	c.max = cairn_mpi_max_;
	c.close = cairn_mpi_close_;
	rc = cairn_open_comm(run, dir, options, &c);
	if (!*run)
		cairn_mpi_close_(own);
	return rc;
}

#endif
