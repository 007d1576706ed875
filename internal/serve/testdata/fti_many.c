/*
 * A program written for FTI with as many variables as FTI's ids allow: fti_many
 * CONFIG. It ends with status 3 if they take time that is not proportional to
 * their number.
 */
#include <fti.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 102400, NAMED = N / 2, SECONDS = 10 };

static int value[N];

static void check(const char *what)
{
	if (clock() > (clock_t)SECONDS * CLOCKS_PER_SEC) {
		fprintf(stderr, "%s: %.1f s\n", what, (double)clock() / CLOCKS_PER_SEC);
		exit(3);
	}
}

static int id(int i) { return (int)(7919L * i % N); } /* in no order */

int main(int argc, char **argv)
{
	char name[32];
	MPI_Init(&argc, &argv);
	assert(argc == 2 && FTI_Init(argv[1], MPI_COMM_WORLD) == FTI_SCES);
	for (int i = 0; i < NAMED; i++) { /* they have the first ids */
		snprintf(name, sizeof name, "v%d", i);
		assert(FTI_setIDFromString(name) == i);
	}
	for (int n = 0; n < 2; n++)
		for (int i = 0; i < N; i++)
			assert(FTI_Protect(id(i), &value[id(i)], 1, FTI_INTG) == FTI_SCES);
	check("protect");
	for (int i = 0; i < NAMED; i++) {
		snprintf(name, sizeof name, "v%d", i);
		assert(FTI_setIDFromString(name) == i && FTI_getIDFromString(name) == i);
		assert(FTI_DefineDataset(N - 1 - i, 0, NULL, name, NULL) == FTI_SCES);
	}
	assert(FTI_getIDFromString("w") == -1);
	check("name");
	assert(FTI_Finalize() == FTI_SCES);
	MPI_Finalize();
	return 0;
}
