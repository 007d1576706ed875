/*
 * A program written for VeloC with many regions: veloc_many CONFIG. It ends with
 * status 3 if they take time that is not proportional to their number.
 */
#include <veloc.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 102400, FEW = 1000, SECONDS = 8 };

static int value[N], ids[FEW / 2];

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
	assert(argc == 2 && VELOC_Init_single(0, argv[1]) == VELOC_SUCCESS);
	for (int n = 0; n < 2; n++) /* twice: the second address counts */
		for (int i = 0; i < N; i++)
			assert(VELOC_Mem_protect(id(i), n ? &value[id(i)] : ids, 1, sizeof *value) == VELOC_SUCCESS);
	check("protect");
	for (int i = 0; i < N; i++)
		assert((i % 3 ? VELOC_Mem_unprotect(id(i)) : VELOC_SUCCESS) == VELOC_SUCCESS);
	check("unprotect");
	for (int i = 0; i < 6; i++)
		assert(VELOC_Mem_unprotect(id(i)) == (i % 3 ? VELOC_FAILURE : VELOC_SUCCESS));
	assert(VELOC_Mem_clear() == VELOC_SUCCESS && VELOC_Mem_unprotect(id(3)) == VELOC_FAILURE);
	check("clear");

	for (int i = 0; i < FEW; i++) {
		assert(VELOC_Mem_protect(id(i), &value[id(i)], 1, sizeof *value) == VELOC_SUCCESS);
		value[id(i)] = id(i) + 1;
		if (i % 2)
			ids[i / 2] = id(i);
	}
	for (int version = 1; version < 3; version++) { /* half of them, then the others */
		assert(VELOC_Checkpoint_begin("many", version) == VELOC_SUCCESS);
		assert(VELOC_Checkpoint_selective(version == 1 ? VELOC_CKPT_SOME : VELOC_CKPT_REST, ids, FEW / 2) == VELOC_SUCCESS);
		assert(VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
	}
	for (int version = 1; version < 3; version++) {
		assert(VELOC_Restart_begin("many", version) == VELOC_SUCCESS);
		for (int i = 0; i < FEW; i++) {
			assert(VELOC_Recover_size(id(i)) == (i % 2 == (version == 1) ? (int)sizeof *value : 0));
			value[id(i)] = 0;
		}
		assert(VELOC_Recover_selective(VELOC_RECOVER_REST, ids, 1) == VELOC_SUCCESS);
		for (int i = 0; i < FEW; i++)
			assert(value[id(i)] == (i % 2 == (version == 1) && id(i) != ids[0] ? id(i) + 1 : 0));
		assert(VELOC_Restart_end(1) == VELOC_SUCCESS);
	}
	assert(VELOC_Finalize(1) == VELOC_SUCCESS);
	return 0;
}
