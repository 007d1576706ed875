/*
 * A program written for FTI: fti CONFIG STEPS HOW. HOW is how it saves and
 * recovers: all (FTI_Checkpoint, FTI_Recover), var (FTI_RecoverVar one by one),
 * icp (an incremental checkpoint; FTI_Snapshot recovers), snap (FTI_Snapshot,
 * until it has saved, in the step in which a helper is lost). KILL=STEP:RANK makes
 * a rank kill itself in that step, LOST=STEP:RANK its helper. With GONE, no other
 * helper can be started. All ways print the same.
 */
#include <fti.h>
#include <assert.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 5000, EVERY = 5 };

struct particle {
	double x[3];
	int kind;
	float weight;
};

/* lose_helper kills the helper of this rank, and waits until it is gone. */
static void lose_helper(void)
{
	char path[64];
	int pid = 0;
	FILE *f;
	snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
	assert((f = fopen(path, "r")) && fscanf(f, "%d", &pid) == 1 && pid > 0);
	fclose(f);
	if (getenv("GONE"))
		assert(unlink(getenv("CAIRN_HELPER")) == 0);
	assert(kill(pid, SIGKILL) == 0 && waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT) == 0);
}

int main(int argc, char **argv)
{
	int rank, ranks, step = 0, rc, kill_step = -1, kill_rank = -1, lost_step = -1, lost_rank = -1;
	double *u = (double *)malloc(N * sizeof *u), sum = 0, all;
	long *trace = (long *)malloc(sizeof *trace); /* one more every step */
	struct particle p[7];
	char blob[3][24];
	long double wide = 1;
	fti_id_t particle, opaque;
	int64_t three = 3;

	MPI_Init(&argc, &argv);
	assert(argc == 4);
	rc = FTI_Init(argv[1], MPI_COMM_WORLD);
	if (rc != FTI_SCES) {
		printf("FTI_Init returned %d\n", rc);
		MPI_Finalize();
		return 3;
	}
	MPI_Comm_rank(FTI_COMM_WORLD, &rank);
	MPI_Comm_size(FTI_COMM_WORLD, &ranks);
	if (getenv("KILL"))
		sscanf(getenv("KILL"), "%d:%d", &kill_step, &kill_rank);
	if (getenv("LOST"))
		sscanf(getenv("LOST"), "%d:%d", &lost_step, &lost_rank);
	int steps = atoi(argv[2]), icp = !strcmp(argv[3], "icp"), var = !strcmp(argv[3], "var"), snap = !strcmp(argv[3], "snap");
	for (int i = 0; i < N; i++)
		u[i] = rank + i;
	memset(p, 0, sizeof p);
	memset(blob, 0, sizeof blob);
	trace[0] = rank;

	particle = FTI_InitCompositeType("particle", sizeof(struct particle), NULL);
	assert(particle >= 0);
	assert(FTI_AddScalarField(particle, "kind", FTI_INTG, offsetof(struct particle, kind)) == FTI_SCES);
	assert(FTI_AddVectorField(particle, "x", FTI_DBLE, offsetof(struct particle, x), 1, &three) == FTI_SCES);
	assert(FTI_AddScalarField(particle, "weight", FTI_SFLT, offsetof(struct particle, weight)) == FTI_SCES);
	assert(FTI_InitType(&opaque, sizeof blob[0]) == FTI_SCES);

	assert(FTI_Protect(0, &step, 1, FTI_INTG) == FTI_SCES);
	assert(FTI_Protect(1, u, N, FTI_DBLE) == FTI_SCES);
	assert(FTI_Protect(2, trace, 1, FTI_LONG) == FTI_SCES);
	assert(FTI_Protect(3, p, 7, particle) == FTI_SCES);
	assert(FTI_Protect(4, blob, 3, opaque) == FTI_SCES);
	int named = FTI_Status() ? FTI_getIDFromString("wide") : FTI_setIDFromString("wide");
	assert(named >= 0 && FTI_Protect(named, &wide, 1, FTI_LDBE) == FTI_SCES);
	FTIT_H5Group grid;
	int64_t dims[2] = {N / 10, 10};
	assert(FTI_InitGroup(&grid, "grid", NULL) == FTI_SCES);
	if (FTI_Status()) {
		int64_t bytes = FTI_GetStoredSize(2);
		assert(bytes > 0 && bytes % (int64_t)sizeof *trace == 0);
		trace = (long *)FTI_Realloc(2, trace);
	}
	if (!var)
		assert(FTI_DefineDataset(1, 2, dims, "u", &grid) == FTI_SCES);
	if (FTI_Status() && var) {
		assert(FTI_RecoverVarInit() == FTI_SCES);
		for (int id = 4; id >= 0; id--)
			assert(FTI_RecoverVar(id) == FTI_SCES);
		assert(FTI_RecoverVar(named) == FTI_SCES);
		assert(FTI_RecoverVarFinalize() == FTI_SCES);
	} else if (FTI_Status()) {
		assert((icp ? FTI_Snapshot() : FTI_Recover()) == FTI_SCES);
		assert(FTI_Status() == 0);
	}
	if (step > 0) {
		assert(FTI_GetStoredSize(2) == (int64_t)((step + 1) * sizeof *trace));
		if (rank == 0)
			printf("resumed at step %d\n", step);
	}

	while (step < steps) {
		for (int i = 0; i < N; i++)
			u[i] = 0.5 * u[i] + 0.25 * (u[(i + 1) % N] + u[(i + N - 1) % N]) + 1e-3 * trace[step];
		trace = (long *)realloc(trace, (step + 2) * sizeof *trace);
		trace[step + 1] = (trace[step] * 48271 + step) % 1009;
		p[step % 7].x[step % 3] += u[step];
		p[step % 7].kind = step, p[step % 7].weight += 0.5f;
		snprintf(blob[step % 3], sizeof blob[0], "step %d", step);
		wide = wide * 1.01L + step;
		step++;
		assert(FTI_Protect(2, trace, step + 1, FTI_LONG) == FTI_SCES);
		if (icp && step == 1) { /* incomplete: nothing is saved */
			assert(FTI_InitICP(99, 1, true) == FTI_SCES && FTI_AddVarICP(1) == FTI_SCES);
			assert(FTI_AddVarICP(1) == FTI_NSCS && FTI_FinalizeICP() == FTI_NSCS);
		}
		if (icp) { /* what was added may change at once */
			assert(FTI_InitICP(step / EVERY, 1, step % EVERY == 0) == FTI_SCES);
			assert(FTI_AddVarICP(1) == FTI_SCES);
			u[0] += 1;
			for (int id = 0; id < 5; id++)
				assert(id == 1 || FTI_AddVarICP(id) == FTI_SCES);
			assert(FTI_AddVarICP(named) == FTI_SCES);
			if (step == lost_step && rank == lost_rank)
				lose_helper();
			assert(FTI_FinalizeICP() == (step == lost_step ? FTI_NSCS : FTI_SCES)); /* all ranks are told */
			u[0] -= 1;
		} else if (snap) {
			FTI_Snapshot();
		} else if (step % EVERY == 0) {
			assert(FTI_Checkpoint(step / EVERY, 1 + step / EVERY % 4) == FTI_DONE);
		}
		if (step == lost_step && !icp) {
			if (rank == lost_rank)
				lose_helper();
			for (double began = MPI_Wtime(); snap && FTI_Snapshot() != FTI_DONE;) {
				int late = MPI_Wtime() - began > 100;
				MPI_Allreduce(MPI_IN_PLACE, &late, 1, MPI_INT, MPI_MAX, FTI_COMM_WORLD);
				assert(!late);
			}
		}
		if (step == kill_step && rank == kill_rank)
			raise(SIGKILL);
	}
	if (FTI_Status() == 0 && steps % EVERY == 0 && !snap) { /* back to the last checkpoint */
		double last = u[1];
		u[1] = -1;
		assert(FTI_Recover() == FTI_SCES && u[1] == last);
	}
	for (int i = 0; i < N; i++)
		sum += u[i] * (i + 1);
	for (int i = 0; i <= step; i++)
		sum += trace[i] * (i + 1);
	for (int i = 0; i < 7; i++)
		sum += p[i].x[0] + 2 * p[i].x[1] + 3 * p[i].x[2] + p[i].kind + p[i].weight;
	for (int i = 0; i < 3; i++)
		sum += atoi(blob[i] + 5);
	sum += (double)wide;
	MPI_Reduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, 0, FTI_COMM_WORLD);
	if (rank == 0)
		printf("sum %.17g\n", all);
	assert(FTI_SendFile("a", "b") == FTI_NSCS);
	assert(FTI_GetDatasetSpan(1, 1) == NULL);
	free(u);
	free(trace);
	assert(FTI_Finalize() == FTI_SCES);
	MPI_Finalize();
	return 0;
}
