/*
 * The interface of VeloC over libcairn: a program written for VeloC is compiled
 * with this header and veloc.c, and takes Cairn's checkpoints.
 * docs/coming-from.md says what differs.
 *
 *     mpicc sim.c $(pkg-config --cflags --libs cairn-veloc) -o sim
 */
#ifndef CAIRN_VELOC_H
#define CAIRN_VELOC_H

#include <mpi.h>
#include <string.h>

#define VELOC_SUCCESS (0)
#define VELOC_FAILURE (-1) /* the reason is on stderr */

#define VELOC_MAX_NAME (1024)

#define VELOC_RECOVER_ALL (0)
#define VELOC_RECOVER_SOME (1)
#define VELOC_RECOVER_REST (2)

#define VELOC_CKPT_ALL (0)
#define VELOC_CKPT_SOME (1)
#define VELOC_CKPT_REST (2)

#define VELOC_OBSERVE_CKPT_END (0)

#ifdef __cplusplus
extern "C" {
#endif

/* Collective after VELOC_Init: Checkpoint_begin and _end, _wait, Restart_test, _begin and _end, Cleanup, Finalize. */
int VELOC_Init(MPI_Comm comm, const char *cfg_file);
int VELOC_Init_single(unsigned int id, const char *cfg_file);
int VELOC_Finalize(int drain);

/* Regions. Those of a name belong to checkpoints of that name only. */
int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size);
int VELOC_Mem_unprotect(int id);
int VELOC_Mem_clear(void);
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name);
int VELOC_Region_unprotect(int id, const char *name);
int VELOC_Region_clear(const char *name);

/* Checkpoints have a name and a version. */
int VELOC_Checkpoint_begin(const char *name, int version);
int VELOC_Checkpoint_selective(int mode, int *ids, int id_count);
int VELOC_Checkpoint_mem(void);
int VELOC_Checkpoint_end(int success);
int VELOC_Checkpoint_wait(void);
int VELOC_Checkpoint_finished(void);
int VELOC_Checkpoint(const char *name, int version); /* wait, begin, mem, end */

/* VELOC_Restart_test returns the newest version up to the given one; 0: of all. */
int VELOC_Restart_test(const char *name, int version);
int VELOC_Restart_begin(const char *name, int version);
int VELOC_Recover_selective(int mode, int *ids, int id_count);
int VELOC_Recover_size(int id);
int VELOC_Recover_mem(void);
int VELOC_Restart_end(int success);
int VELOC_Restart(const char *name, int version); /* begin, mem, end */
int VELOC_Cleanup(const char *name);

/* Not available with Cairn: it fails, and says so on stderr. */
int VELOC_Route_file(const char *original, char *routed);

#ifdef __cplusplus
}
#endif
#endif
