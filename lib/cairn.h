/*
 * libcairn: checkpoints for C, C++, Fortran and Python programs.
 *
 *     cairn_run *run;
 *     if (cairn_open(&run, "ckpt", NULL) != CAIRN_OK)
 *         return fprintf(stderr, "%s\n", cairn_error(run)), 1;
 *     cairn_protect(run, "step", &step, CAIRN_INT, 0, NULL);
 *     cairn_protect(run, "grid", grid, CAIRN_DOUBLE, 2, (size_t[]){N, M});
 *     if (cairn_restore(run) < 0) ...;           // CAIRN_RESTORED or CAIRN_OK
 *     for (; step < steps; step++) {
 *         int rc = cairn_point(run);             // a point saves when one is due
 *         if (rc == CAIRN_STOPPED)
 *             return cairn_close(run) < 0;       // saved: end now, resume later
 *         if (rc < 0)
 *             fprintf(stderr, "%s\n", cairn_error(run));
 *         relax(grid);
 *     }
 *     int rc = cairn_finish(run, 0);             // only when the work is done
 *     return cairn_close(run) < 0 || rc < 0;
 *
 * Every function that can fail returns a cairn_status: 0 or more is success, a
 * negative number is an error, whose text cairn_error returns. A run is used by
 * one thread at a time; cairn_request and cairn_request_stop may be called by
 * any thread and in a signal handler. A forked child must not use the run.
 */
#ifndef CAIRN_H
#define CAIRN_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CAIRN_VERSION "0.1.0"

/* cairn_run is a program's connection to its checkpoints. */
typedef struct cairn_run cairn_run;

typedef enum cairn_status {
	CAIRN_OK = 0,
	CAIRN_RESTORED = 1, /* cairn_restore: the variables hold a checkpoint's values */
	CAIRN_STOPPED = 2,  /* cairn_point: the state is saved, and the program should end */
	CAIRN_SAVED = 3,    /* cairn_point: a checkpoint was begun at this point */

	CAIRN_ERROR = -1,    /* anything else; see cairn_error */
	CAIRN_ARGUMENT = -2, /* a wrong argument, or a call that is out of order */
	CAIRN_NOTSAVED = -3, /* no checkpoint was saved; the program and older checkpoints are intact */
	CAIRN_MISMATCH = -4, /* the program and its checkpoint do not fit */
	CAIRN_CORRUPT = -5,  /* no checkpoint can be loaded */
	CAIRN_FINISHED = -6, /* the run in this directory has finished: see cairn_options.fresh */
	CAIRN_INUSE = -7,    /* another process uses the directory */
	CAIRN_NOHELPER = -8, /* the helper process cannot be started, or is gone */
	CAIRN_NOMEMORY = -9
} cairn_status;

/*
 * Types of elements. Machines with another byte order restore them, but for
 * long double. CAIRN_BYTES is memory without a type, which is restored byte by
 * byte. cairn_struct makes further types.
 */
typedef int cairn_type;
enum {
	CAIRN_INT8 = 1,
	CAIRN_INT16,
	CAIRN_INT32,
	CAIRN_INT64,
	CAIRN_UINT8,
	CAIRN_UINT16,
	CAIRN_UINT32,
	CAIRN_UINT64,
	CAIRN_FLOAT,
	CAIRN_DOUBLE,
	CAIRN_COMPLEX_FLOAT,
	CAIRN_COMPLEX_DOUBLE,
	CAIRN_LONG_DOUBLE,
	CAIRN_COMPLEX_LONG_DOUBLE,
	CAIRN_BOOL, /* C99 _Bool, C++ bool */
	CAIRN_BYTES,
	CAIRN_FIRST_STRUCT = 256
};
#define CAIRN_CHAR CAIRN_INT8 /* also where char has no sign: its bits are kept */
#define CAIRN_SHORT CAIRN_INT16
#define CAIRN_INT CAIRN_INT32
#define CAIRN_LONG (sizeof(long) == 8 ? CAIRN_INT64 : CAIRN_INT32)
#define CAIRN_LONG_LONG CAIRN_INT64
#define CAIRN_UNSIGNED_CHAR CAIRN_UINT8
#define CAIRN_UNSIGNED_SHORT CAIRN_UINT16
#define CAIRN_UNSIGNED CAIRN_UINT32
#define CAIRN_UNSIGNED_LONG (sizeof(long) == 8 ? CAIRN_UINT64 : CAIRN_UINT32)
#define CAIRN_UNSIGNED_LONG_LONG CAIRN_UINT64
#define CAIRN_SIZE (sizeof(size_t) == 8 ? CAIRN_UINT64 : CAIRN_UINT32)

/*
 * cairn_options. Zero means the default of each. Initialize with CAIRN_OPTIONS,
 * so that a program that was compiled with an older header works still:
 *
 *     cairn_options o = CAIRN_OPTIONS;
 *     o.every = 600;
 */
typedef struct cairn_options {
	size_t struct_size;
	double every;          /* seconds between checkpoints */
	uint64_t every_points; /* points between checkpoints */
	double mtbf;           /* seconds between failures, for Young's and Daly's optimum; 0: a day.
	                          The optimum is taken where neither every nor every_points is given. */
	int keep;              /* newest checkpoints to keep; 0: 2 */
	int max_bases;         /* older files that a checkpoint may need; 0: 64; negative: full ones only */
	uint64_t memory;       /* bound on the helper's memory for copies, in bytes */
	const char *compression; /* "none", "zstd" or "gzip" */
	int fresh;             /* consent to discard an earlier run in the directory */
	int no_signals;        /* leave SIGTERM (save and stop) and SIGUSR1 (save) alone */
	int no_tracking;       /* do not let the kernel track written pages: needed for memory that
	                          a device or another process writes (pinned, registered, RDMA).
	                          With several ranks nothing is tracked. */
	int group, any_owner;  /* as 'cairn run --group' and '--any-owner' */
	const char *helper;    /* path of the cairn command; else CAIRN_HELPER, beside the library, PATH */
	const char *tiers;     /* where checkpoints are kept besides, as 'cairn run --tiers'; else CAIRN_TIERS.
	                          dir is then the run directory. Several ranks need 'cairn run'. */
} cairn_options;
#define CAIRN_OPTIONS {sizeof(cairn_options), 0, 0, 0, 0, 0, 0, NULL, 0, 0, 0, 0, 0, NULL, NULL}

/*
 * cairn_open starts a run whose checkpoints are kept in dir; NULL: where
 * 'cairn run' says. options may be NULL. *run is set even after an error, for
 * cairn_error; close it in any case. *run is NULL only without memory.
 */
cairn_status cairn_open(cairn_run **run, const char *dir, const cairn_options *options);

/*
 * cairn_comm lets ranks that the library cannot connect by itself agree: see
 * cairn_mpi.h, which makes one of an MPI communicator. The functions are
 * collective, and return 0, or anything else for a failure. close may be NULL;
 * cairn_close calls it, at its end.
 */
typedef struct cairn_comm {
	int rank, size;
	void *context;
	int (*gather)(void *context, const void *mine, int bytes, void *all); /* of all ranks, to all ranks */
	int (*max)(void *context, uint64_t *values, int n);                   /* in place, element by element */
	void (*close)(void *context);
} cairn_comm;

/* cairn_open_comm is cairn_open for one of several ranks. All ranks call it. */
cairn_status cairn_open_comm(cairn_run **run, const char *dir, const cairn_options *options, const cairn_comm *comm);

/*
 * cairn_protect makes an array part of the state, under a name that files and
 * tools show: up to 200 bytes of UTF-8, without '/' and control characters.
 * ndim 0 is a single value. Called again with the same name, it changes
 * address, type or dimensions of the variable. Arrays are stored row by row
 * (the last dimension varies fastest).
 * After an error, cairn_restore and all saves fail until the variable is
 * protected, or cairn_unprotect is called.
 */
cairn_status cairn_protect(cairn_run *run, const char *name, void *data, cairn_type type, int ndim, const size_t *dims);

/* cairn_unprotect takes a variable out of the state. */
cairn_status cairn_unprotect(cairn_run *run, const char *name);

/* cairn_field describes a member of a struct; ndim > 0: an array of up to 4 dimensions. */
typedef struct cairn_field {
	const char *name;
	cairn_type type;
	size_t offset; /* offsetof(struct …, …) */
	int ndim;
	size_t dims[4];
} cairn_field;

/* cairn_struct makes a type of the members of a struct of so many bytes. */
cairn_status cairn_struct(cairn_run *run, const char *name, size_t bytes, int nfields, const cairn_field *fields, cairn_type *type);

/*
 * cairn_stored tells what the checkpoint that cairn_restore is going to load
 * holds under a name: its dimensions, at most max of them, in dims. It returns
 * the number of dimensions, or a negative status; CAIRN_MISMATCH: there is no
 * such variable, or no checkpoint. It is called before cairn_restore, by
 * programs that do not know how large their arrays are: allocate, protect,
 * restore. With several ranks, all call it if one does.
 */
int cairn_stored(cairn_run *run, const char *name, cairn_type *type, int max, size_t *dims);

/* cairn_variable is a variable in a checkpoint. */
typedef struct cairn_variable {
	const char *name;
	cairn_type type; /* CAIRN_FIRST_STRUCT: a struct, or a type of another language */
	int ndim;
	const size_t *dims;
} cairn_variable;

/*
 * cairn_variables lists the variables that a checkpoint holds. It sets *list to
 * them, and returns how many there are, or a negative status. index 0 is the
 * newest checkpoint, and before cairn_restore the one that it is going to load;
 * if there is none, the list is empty. Types are those of the file: a long double
 * is 16 bytes there, or a struct with them. With several ranks, all call it before
 * cairn_restore if one does, and any rank alone after it. The list is valid until
 * the next call of cairn_variables or cairn_close.
 */
int cairn_variables(cairn_run *run, uint64_t index, const cairn_variable **list);

/*
 * cairn_restore puts the newest good checkpoint's values into the protected
 * variables, and files back to where they were. It returns CAIRN_RESTORED, or
 * CAIRN_OK when there is nothing to restore. It is called once, before the
 * first point.
 *
 * It checks every byte of the checkpoint. After most errors the variables have
 * the values that they had before: what was changed is changed back. If another
 * rank fails, or a copy to a GPU, they may have the checkpoint's values: end the
 * program.
 */
cairn_status cairn_restore(cairn_run *run);

/*
 * cairn_resume is cairn_restore for programs that load their variables
 * themselves, with cairn_read: only some of them, one after the other, or those
 * of an older checkpoint. It verifies the newest checkpoint, and loads nothing.
 */
cairn_status cairn_resume(cairn_run *run);

/*
 * cairn_checkpoints puts the indices of the kept checkpoints, newest first, into
 * indices, at most max of them, and returns how many there are, or a negative
 * status. Another rank may have removed the oldest ones already, or keep them
 * still.
 */
int cairn_checkpoints(cairn_run *run, int max, uint64_t *indices);

/*
 * cairn_read loads one variable of a checkpoint, and verifies it. index 0 is the
 * newest. Type and dimensions must be those that were saved; the variable need
 * not be protected. cairn_stored_in is cairn_stored for any checkpoint. Both
 * are called after cairn_restore or cairn_resume, at any time, and by any rank
 * alone.
 */
cairn_status cairn_read(cairn_run *run, uint64_t index, const char *name, void *data, cairn_type type, int ndim, const size_t *dims);
int cairn_stored_in(cairn_run *run, uint64_t index, const char *name, cairn_type *type, int max, size_t *dims);

/*
 * cairn_point is called where the state is consistent. It saves when a
 * checkpoint is due; it costs some nanoseconds when none is. CAIRN_STOPPED: end
 * the program now. CAIRN_NOTSAVED: see cairn_error; the program may continue.
 * Other errors: it cannot save now. One process should try again at the next
 * point; several ranks should end, to be started again.
 * With several ranks, all call it at the same places, and no message may cross
 * it: everything sent before it was received before it.
 */
cairn_status cairn_point(cairn_run *run);

/*
 * cairn_before_save makes every save call f first, which may change, protect and
 * unprotect variables: for state that must be packed. It must not call points.
 * If it does not return 0, nothing is saved.
 */
void cairn_before_save(cairn_run *run, int (*f)(void *context), void *context);

/* cairn_checkpoint saves now, and returns when the checkpoint is durable. */
cairn_status cairn_checkpoint(cairn_run *run);

/*
 * cairn_save begins a checkpoint, and returns when the program may change its
 * variables. cairn_wait waits until the checkpoint is durable; CAIRN_NOTSAVED:
 * it was not saved. Without cairn_wait, the next call that saves, point or
 * cairn_close returns that. With several ranks, all call them. cairn_saving
 * reports whether a checkpoint is being written.
 */
cairn_status cairn_save(cairn_run *run);
cairn_status cairn_wait(cairn_run *run);
int cairn_saving(cairn_run *run);

/*
 * cairn_begin, cairn_add and cairn_commit take a checkpoint of variables that
 * become ready one after the other. cairn_add copies a protected variable: the
 * checkpoint holds it as it is then, and the program may change it. cairn_commit
 * copies those that were not added, and is cairn_save otherwise. Points between
 * cairn_begin and cairn_commit save nothing. cairn_begin waits for the
 * checkpoint before. With several ranks, all call cairn_begin and cairn_commit.
 * cairn_cancel forgets what was begun.
 */
cairn_status cairn_begin(cairn_run *run);
cairn_status cairn_add(cairn_run *run, const char *name);
cairn_status cairn_commit(cairn_run *run);
void cairn_cancel(cairn_run *run);

/*
 * cairn_request makes the next point save; cairn_request_stop: and stop. If the
 * checkpoint before is being written, the first point after that saves. Several
 * ranks agree at some points only, at most 256 points later.
 */
void cairn_request(cairn_run *run);
void cairn_request_stop(cairn_run *run);

/* cairn_last returns the index of the newest durable checkpoint; 0: none yet. */
uint64_t cairn_last(cairn_run *run);

/*
 * cairn_fopen is fopen for a file that belongs to the state: a restart cuts it
 * back to what it held, and positions it. Call it before cairn_restore, as on a
 * fresh start; a file that the checkpoint holds may be opened later, with the
 * same path and mode: "w" does not empty it then, and "wx" opens it. "wx" also
 * opens, and empties, a file that the run has made after the checkpoint: it is
 * made again. cairn_protect_stream and cairn_protect_fd do that for files that
 * the program has opened itself. Close a stream with cairn_fclose, and a
 * descriptor as usual.
 */
FILE *cairn_fopen(cairn_run *run, const char *path, const char *mode);
int cairn_fclose(cairn_run *run, FILE *stream); /* as fclose */
cairn_status cairn_protect_stream(cairn_run *run, FILE *stream, const char *path);
cairn_status cairn_protect_fd(cairn_run *run, int fd, const char *path);

/*
 * cairn_finish says that the run's work is done, with this exit status of the
 * program: the next start is told so. Without it, the next start resumes.
 * It flushes the streams that belong to the state. cairn_close makes their files
 * durable, and then records the end: if that fails, the next start resumes, too.
 */
cairn_status cairn_finish(cairn_run *run, int status);

/*
 * cairn_close waits for a checkpoint that is being written, and ends the run.
 * With several ranks, all call it, before any of them waits for another one.
 */
cairn_status cairn_close(cairn_run *run);

/* cairn_error returns the text of the last error; it is valid until the next call. */
const char *cairn_error(const cairn_run *run);

/* cairn_rank and cairn_ranks return who this process is among how many. */
int cairn_rank(const cairn_run *run);
int cairn_ranks(const cairn_run *run);

#ifdef __cplusplus
}
#endif
#endif
