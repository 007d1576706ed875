/*
 * Heat in a plate, by rows, on all processes of an MPI program.
 *
 *     mpicc heat.c $(pkg-config --cflags --libs cairn) -lm -o heat
 *     mpirun -n 4 ./heat 2000 1000       # kill it, start it again: it resumes
 *     cairn run --launcher mpirun -n 4 ./heat 2000 1000   # … by itself
 */
#include <cairn_mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int rank, ranks, step = 0, rc = CAIRN_OK;
	cairn_run *run;
	cairn_options options = CAIRN_OPTIONS;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	int steps = argc > 1 ? atoi(argv[1]) : 1000;
	size_t n = argc > 2 ? (size_t)atol(argv[2]) : 500;
	size_t rows = n / (size_t)ranks + ((size_t)rank < n % (size_t)ranks) + 2; /* two belong to the neighbours */
	double *u = calloc(rows * n, sizeof *u), *next = calloc(rows * n, sizeof *next);
	int up = rank > 0 ? rank - 1 : MPI_PROC_NULL, down = rank < ranks - 1 ? rank + 1 : MPI_PROC_NULL;
	for (size_t i = 0; i < n; i++) /* a hot edge */
		if (rank == 0)
			u[i] = next[i] = 100;

	options.every_points = argc > 3 ? (uint64_t)atol(argv[3]) : 0;
	if (cairn_open_mpi(&run, argc > 4 ? argv[4] : "heat.ckpt", &options, MPI_COMM_WORLD) < 0 ||
	    cairn_protect(run, "step", &step, CAIRN_INT, 0, NULL) < 0 ||
	    cairn_protect(run, "u", u, CAIRN_DOUBLE, 2, (size_t[]){rows, n}) < 0 ||
	    (rc = cairn_restore(run)) < 0) {
		fprintf(stderr, "rank %d: %s\n", rank, cairn_error(run));
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	if (rank == 0 && rc == CAIRN_RESTORED)
		fprintf(stderr, "resumed at step %d\n", step);

	for (; step < steps; step++) {
		rc = cairn_point(run); /* all messages were received: a safe point */
		if (rc == CAIRN_STOPPED)
			break;
		if (rc < 0) {
			fprintf(stderr, "rank %d: %s\n", rank, cairn_error(run));
			if (rc != CAIRN_NOTSAVED) /* it can save nothing any more: 'cairn run' starts it again */
				MPI_Abort(MPI_COMM_WORLD, 1);
		}
		MPI_Sendrecv(u + n, (int)n, MPI_DOUBLE, up, 0, u + (rows - 1) * n, (int)n, MPI_DOUBLE, down, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		MPI_Sendrecv(u + (rows - 2) * n, (int)n, MPI_DOUBLE, down, 1, u, (int)n, MPI_DOUBLE, up, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		for (size_t i = 1; i < rows - 1; i++)
			for (size_t k = 1; k < n - 1; k++)
				next[i * n + k] = 0.25 * (u[(i - 1) * n + k] + u[(i + 1) * n + k] + u[i * n + k - 1] + u[i * n + k + 1]);
		for (size_t i = 1; i < rows - 1; i++)
			for (size_t k = 1; k < n - 1; k++)
				u[i * n + k] = next[i * n + k];
	}

	if (rc == CAIRN_STOPPED) {
		cairn_close(run);
		MPI_Finalize();
		return 0;
	}
	double sum = 0, all;
	for (size_t i = n; i < (rows - 1) * n; i++)
		sum += u[i];
	MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("heat %.17g\n", all);
	fflush(stdout); /* what is in a buffer would be lost if the program is killed after it has finished */
	rc = cairn_finish(run, 0);
	if (cairn_close(run) < 0 || rc < 0)
		MPI_Abort(MPI_COMM_WORLD, 1); /* it may be this rank alone: the others would wait in MPI_Finalize */
	MPI_Finalize();
	free(u);
	free(next);
	return 0;
}
