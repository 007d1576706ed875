/*
 * A program written for VeloC, of one process, which does not use MPI:
 * veloc_alone CONFIG STEPS. It ends with status 1 after every fourth step, and
 * resumes when it is started again.
 */
#include <veloc.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int step = 0, v;
	assert(argc == 3 && VELOC_Init_single(7, argv[1]) == VELOC_SUCCESS);
	assert(VELOC_Mem_protect(0, &step, 1, sizeof step) == VELOC_SUCCESS);
	if ((v = VELOC_Restart_test("walk", 0)) > 0)
		assert(VELOC_Restart("walk", v) == VELOC_SUCCESS && step == v);
	while (step < atoi(argv[2])) {
		printf("step %d\n", step++);
		assert(VELOC_Checkpoint_begin("walk", step) == VELOC_SUCCESS);
		assert(VELOC_Checkpoint_finished() == VELOC_SUCCESS); /* always, in mode sync */
		assert(VELOC_Checkpoint_mem() == VELOC_SUCCESS && VELOC_Checkpoint_end(1) == VELOC_SUCCESS);
		if (step % 4 == 0)
			return 1;
	}
	assert(VELOC_Finalize(1) == VELOC_SUCCESS);
	return 0;
}
