/*
 * A program written for VeloC: veloc CONFIG STEPS HOW. HOW is how it saves and
 * recovers: all (VELOC_Checkpoint, VELOC_Restart), some (in phases, with selected
 * regions, in mode async), single (every process for itself). KILL=STEP:RANK
 * makes a rank kill itself in that step, LOST=STEP:RANK its helper. All ways print
 * the same.
 */
#include <veloc.h>
#include <assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 5000, EVERY = 5 };

/* MPI libraries have room for some thousand communicators. */
static int communicators;
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *own) { return communicators++, PMPI_Comm_dup(comm, own); }
int MPI_Comm_free(MPI_Comm *comm) { return communicators--, PMPI_Comm_free(comm); }

/* lose kills this process's helper. */
static void lose(void)
{
	char path[64];
	int pid = 0;
	FILE *f;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	assert((f = fopen(path, "r")) && fscanf(f, "%d", &pid) == 1 && pid > 0);
	fclose(f);
	assert(kill(pid, SIGKILL) == 0 && waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT) == 0);
}

int main(int argc, char **argv)
{
	int rank, step = 0, count = 1, kill_step = -1, kill_rank = -1, lost_step = -1, lost_rank = -1, v;
	double u[N], sum = 0, all;
	long *trace; /* one more every step */

	MPI_Init(&argc, &argv);
	assert(argc == 4);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	int steps = atoi(argv[2]), some = !strcmp(argv[3], "some"), single = !strcmp(argv[3], "single");
	if ((single ? VELOC_Init_single((unsigned)rank, argv[1]) : VELOC_Init(MPI_COMM_WORLD, argv[1])) != VELOC_SUCCESS) {
		printf("VELOC_Init failed\n");
		MPI_Finalize();
		return 3;
	}
	if (getenv("KILL"))
		sscanf(getenv("KILL"), "%d:%d", &kill_step, &kill_rank);
	if (getenv("LOST"))
		sscanf(getenv("LOST"), "%d:%d", &lost_step, &lost_rank);
	for (int i = 0; i < N; i++)
		u[i] = rank + i;
	assert(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
	assert(VELOC_Mem_protect(1, u, N, sizeof *u) == VELOC_SUCCESS);
	assert(VELOC_Mem_protect(2, &count, 1, sizeof count) == VELOC_SUCCESS);
	assert(VELOC_Mem_protect(9, &all, 1, sizeof all) == VELOC_SUCCESS);
	assert(VELOC_Mem_unprotect(9) == VELOC_SUCCESS);

	v = VELOC_Restart_test("walk", 0);
	if (single) { /* the older of what the two have */
		int mine = v;
		MPI_Allreduce(&mine, &v, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	}
	if (v > 0) {
		int first[] = {2}, *size = first;
		assert(VELOC_Restart_begin("walk", v) == VELOC_SUCCESS);
		assert(VELOC_Recover_selective(VELOC_RECOVER_SOME, size, 1) == VELOC_SUCCESS);
		assert(step == 0 && count == v + 1);
		assert(VELOC_Recover_size(3) == (int)(count * sizeof *trace) && VELOC_Recover_size(77) == 0);
		trace = (long *)malloc(count * sizeof *trace);
		assert(VELOC_Mem_protect(3, trace, count, sizeof *trace) == VELOC_SUCCESS);
		assert((some ? VELOC_Recover_selective(VELOC_RECOVER_REST, first, 1) : VELOC_Recover_mem()) == VELOC_SUCCESS);
		assert(VELOC_Restart_end(1) == VELOC_SUCCESS);
		assert(step == v);
		if (rank == 0)
			printf("resumed at step %d\n", step);
	} else {
		trace = (long *)malloc(sizeof *trace);
		trace[0] = rank;
	}

	while (step < steps) {
		for (int i = 0; i < N; i++)
			u[i] = 0.5 * u[i] + 0.25 * (u[(i + 1) % N] + u[(i + N - 1) % N]) + 1e-3 * trace[step];
		trace = (long *)realloc(trace, (step + 2) * sizeof *trace);
		trace[step + 1] = (trace[step] * 48271 + step) % 1009;
		step++;
		count = step + 1;
		assert(VELOC_Mem_protect(3, trace, count, sizeof *trace) == VELOC_SUCCESS);
		if (step == 1 && some) { /* without success: nothing is saved */
			assert(VELOC_Checkpoint_begin("walk", 99) == VELOC_SUCCESS);
			assert(VELOC_Checkpoint_begin("walk", 100) == VELOC_FAILURE);
			assert(VELOC_Checkpoint_finished() == VELOC_FAILURE); /* in mode async */
			assert(VELOC_Checkpoint_mem() == VELOC_SUCCESS);
			assert(VELOC_Checkpoint_end(rank != 1) == VELOC_FAILURE);
		}
		if (step == lost_step && rank == lost_rank && !some)
			lose();
		if (step % EVERY == 0 && some) {
			int ids[] = {0, 1, 2, 3};
			assert(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
			assert(VELOC_Checkpoint_begin("walk", step) == VELOC_SUCCESS);
			assert(VELOC_Checkpoint_selective(VELOC_CKPT_SOME, ids, 4) == VELOC_SUCCESS);
			u[0] += 1; /* it was copied */
			if (step == lost_step && rank == lost_rank)
				lose();
			assert(VELOC_Checkpoint_end(1) == (step == lost_step ? VELOC_FAILURE : VELOC_SUCCESS)); /* all processes are told */
			u[0] -= 1;
		} else if (step % EVERY == 0) {
			assert(VELOC_Checkpoint("walk", step) == VELOC_SUCCESS);
		}
		if (step == kill_step) {
			VELOC_Checkpoint_wait();
			MPI_Barrier(MPI_COMM_WORLD);
			if (rank == kill_rank)
				raise(SIGKILL);
			MPI_Barrier(MPI_COMM_WORLD); /* nobody gets past it */
		}
	}
	for (int i = 0; i < N; i++)
		sum += u[i] * (i + 1);
	for (int i = 0; i <= step; i++)
		sum += trace[i] * (i + 1);
	MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0)
		printf("sum %.17g\n", all);

	/* An older version, while the program runs: three are kept. */
	int now = steps - steps % EVERY, was = now - 2 * EVERY;
	assert(VELOC_Checkpoint_wait() == VELOC_SUCCESS);
	assert(VELOC_Restart_test("walk", 0) == now);
	assert(VELOC_Restart_test("walk", now - 1) == now - EVERY);
	assert(VELOC_Restart_test("walk", was - 1) == VELOC_FAILURE);
	assert(VELOC_Restart_test("other", 0) == VELOC_FAILURE);
	assert(VELOC_Restart("walk", was) == VELOC_SUCCESS && step == was && count == was + 1);
	assert(VELOC_Restart("walk", was - EVERY) == VELOC_FAILURE);

	/* Regions of one name only. */
	int extra = 5;
	assert(VELOC_Region_protect(7, &extra, 1, sizeof extra, "other") == VELOC_SUCCESS);
	assert(VELOC_Checkpoint("other", 1) == VELOC_SUCCESS);
	extra = 6, step = -1;
	assert(VELOC_Restart("other", 1) == VELOC_SUCCESS && extra == 5 && step == -1);
	for (int i = 0; i < 6; i++) { /* more names than are open together */
		char name[] = {'n', (char)('0' + i), 0};
		assert(VELOC_Checkpoint(name, i + 1) == VELOC_SUCCESS);
	}
	assert(VELOC_Restart_test("n0", 0) == 1 && VELOC_Restart_test("walk", 0) == now);
	assert(VELOC_Region_clear("other") == VELOC_SUCCESS);
	assert(VELOC_Cleanup("other") == VELOC_SUCCESS);
	char path[VELOC_MAX_NAME];
	assert(VELOC_Route_file("x", path) == VELOC_FAILURE);
	free(trace);
	assert(VELOC_Finalize(1) == VELOC_SUCCESS);
	assert(communicators == 0);
	MPI_Finalize();
	return 0;
}
