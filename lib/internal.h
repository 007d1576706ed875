/* What the sources of libcairn share. Package internal/serve documents the messages. */
#ifndef CAIRN_INTERNAL_H
#define CAIRN_INTERNAL_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#pragma GCC visibility push(default)
#include "cairn.h"
#pragma GCC visibility pop

/* Names that a static library must not take from the program. */
#define put_bytes cairn__put_bytes
#define put_u32 cairn__put_u32
#define put_u64 cairn__put_u64
#define put_f64 cairn__put_f64
#define put_str cairn__put_str
#define get_u32 cairn__get_u32
#define get_u64 cairn__get_u64
#define get_str cairn__get_str
#define add_range cairn__add_range
#define fail cairn__fail
#define now cairn__now
#define own_run cairn__own_run
#define ranks_max cairn__ranks_max
#define helper_start cairn__helper_start
#define helper_ask cairn__helper_ask
#define helper_send cairn__helper_send
#define helper_news cairn__helper_news
#define helper_end cairn__helper_end
#define said cairn__said
#define vars_find cairn__vars_find
#define type_size cairn__type_size
#define vars_tell cairn__vars_tell
#define vars_complete cairn__vars_complete
#define vars_forget cairn__vars_forget
#define vars_free cairn__vars_free
#define copy_out cairn__copy_out
#define copy_later cairn__copy_later
#define page_set cairn__page_set
#define copy_in cairn__copy_in
#define copy_checked cairn__copy_checked
#define copy_undo cairn__copy_undo
#define copy_bytes cairn__copy_bytes
#define copy_stream cairn__copy_stream
#define copy_unwatch cairn__copy_unwatch
#define gpu_check cairn__gpu_check
#define gpu_begin cairn__gpu_begin
#define gpu_used cairn__gpu_used
#define gpu_finish cairn__gpu_finish
#define gpu_frozen cairn__gpu_frozen
#define gpu_wait cairn__gpu_wait
#define gpu_load cairn__gpu_load
#define gpu_forget cairn__gpu_forget
#define gpu_end cairn__gpu_end
#define files_flush cairn__files_flush
#define files_tell cairn__files_tell
#define files_told cairn__files_told
#define files_sync cairn__files_sync
#define files_unclaimed cairn__files_unclaimed
#define files_give cairn__files_give

enum { WIRE_MAGIC = 0x316e7263, WIRE_VERSION = 11, WIRE_MAX = 256 << 20 };

/* Kinds of messages. The program sends those below 100. */
enum {
	MSG_HELLO = 1, MSG_EXTENT, MSG_VARS, MSG_FILE, MSG_STORED, MSG_RESTORE, MSG_SAVE, MSG_FINISH, MSG_BYE, MSG_GATHERED,
	MSG_LIST, MSG_READ, MSG_VARIABLES, MSG_MAKE,
	MSG_WELCOME = 101, MSG_DONE, MSG_FAILED, MSG_GATHER, MSG_NEWS, MSG_CHECKED
};

/* Why a checkpoint is taken. */
enum { WHY_TIME = 1, WHY_STOP = 2, WHY_POINTS = 8, WHY_REQUEST = 16, WHY_SIGNAL = 32, WHY_CALL = 64 };

/* page is memory that the program shares with its helper. */
struct page {
	uint32_t wake;   /* set by the helper: WHY_TIME or WHY_STOP */
	uint32_t step;   /* … by the program: changes when one of the last four does; the helper waits for it */
	uint64_t points; /* that the program has passed */
	uint64_t paused; /* nanoseconds for which it was paused */
	uint64_t copied, until; /* from here to here the mirror is incomplete if it is filling */
	uint32_t filling; /* the program still copies to the mirror, or that failed */
};
enum { NEWS = 4, PAGE_BYTES = 4096, FILLING = 1, FILL_FAILED = 2 /* and the CUDA driver's result */ };

/* text is a message, or something else, that grows. */
struct text {
	unsigned char *p;
	size_t len, cap, at; /* at: where the next get_ reads */
	int bad;             /* no memory, or read beyond its end */
};
void put_bytes(struct text *t, const void *p, size_t n);
void put_u32(struct text *t, uint32_t v);
void put_u64(struct text *t, uint64_t v);
void put_f64(struct text *t, double v);
void put_str(struct text *t, const char *s);
uint32_t get_u32(struct text *t);
uint64_t get_u64(struct text *t);
char *get_str(struct text *t); /* to be freed; NULL: t is bad */

/* range is some bytes of the mirror, or of a variable. */
struct range { uint64_t lo, hi; };
void add_range(struct text *t, uint64_t lo, uint64_t hi); /* in ascending order */

/* variable is a protected array. */
struct variable {
	char *name;
	unsigned char *data;
	cairn_type type;
	int ndim;
	size_t *dims;
	uint64_t bytes;
	uint64_t offset;       /* of its copy in the mirror */
	uint64_t room;         /* … which may grow to so many bytes */
	unsigned char *copy;   /* … mapped */
	int own;               /* … the mapping is its own, not part of a slab */
	int told;              /* the helper knows it as it is */
	int fresh;             /* all of it counts as changed */
	int watched;           /* the kernel tracks its pages */
	int untracked;         /* tracking is impossible */
	int rest, pause;       /* it did not pay: saves until it is tried again, and how many these were */
	int place;             /* MEM_HOST, or MEM_DEVICE: gpu.c copies it */
	uint64_t pinned;       /* so many bytes of its copy are */
	int unpinnable;        /* the others cannot be */
	uint64_t digests;      /* memory of a device; 0: none */
	size_t digest_context;
	unsigned digest_blocks;
	int digested;          /* the mirror holds what they say */
	size_t index;          /* in vars */
	int added;             /* cairn_add has made its copy */
	int loaded;            /* copy_checked has exchanged it with its copy */
	struct variable *next; /* of the same bucket */
};

/* spare is a part of the mirror that another variable may get. */
struct spare {
	uint64_t lo, hi;
	unsigned char *copy; /* NULL: it is not mapped, and was not part of a slab */
	int idle;            /* the helper does not read it any more */
};

/* structure is a type that cairn_struct has made. */
struct structure {
	size_t bytes;
	struct text description; /* as in messages, without its number */
};

/* file is an open file that belongs to the state. */
struct file {
	uint32_t id;
	int fd;
	FILE *stream;
	char *path;
	dev_t dev;
	ino_t ino;
};

struct cairn_run {
	uint64_t left;    /* points until cairn_point looks closer */
	const uint32_t *wake;  /* … not 0: at once */
	const uint32_t *asked; /* … not asked_seen: at once */
	uint32_t asked_seen;
	struct page *page;
	int requested; /* WHY_REQUEST, WHY_STOP; by any thread */
	uint64_t points; /* that had passed when it last looked */
	uint64_t step;   /* what left was then */

	char *dir;
	char *cwd; /* working directory when it was opened, in which helpers work */
	cairn_options opts;
	cairn_comm comm; /* size 0: none was given */
	int rank, size;
	pid_t pid, helper;
	int opened;
	int sock, mirror, pagefd;
	uint64_t every_points, since; /* … that have passed since the last save */
	uint64_t last;   /* the newest durable checkpoint */
	uint64_t saving; /* the one being written; 0: none */
	int restored, finished, signals;
	int supervised; /* its helper speaks with 'cairn run' */
	double retry, pause; /* when another helper may be tried, and how long after the last one that failed */
	int refused;  /* another rank could not open the run */
	int resuming; /* there are checkpoints to restore */
	int stopped;  /* the last point said so */
	uint64_t saves_seen, stops_seen; /* signals */
	double looked;     /* when cairn_point last looked closer */
	uint64_t look;     /* points between two looks */
	double cost;       /* seconds that the ranks took to agree, the last time */
	uint64_t dropped;  /* variables taken away that the helper has still */

	struct variable **vars;
	size_t nvars, capvars;
	struct variable **bucket;
	size_t nbuckets;
	struct text gone_names; /* … of those dropped */
	struct text failed;     /* names that could not be protected, and why */
	uint64_t end;           /* of the mirror */
	struct text spares;     /* … parts that no variable has any more: struct spare */
	struct text pools[36];  /* … for small variables, by size: struct spare */
	struct text slabs;      /* … where these are mapped: void * */
	uint64_t mapped;        /* … up to here by the helper */

	struct structure *types;
	size_t ntypes;
	struct file *files;
	size_t nfiles;
	uint32_t next_file;
	struct text unclaimed; /* which files of the checkpoint the helper has opened for the program, in its words */
	struct text claimed;   /* … those that the program has opened since */
	struct text checked;   /* parts of variables that were exchanged with the mirror: struct exchange */
	struct text placed;    /* … variables, by where they are in it: struct variable * */

	int begun;              /* cairn_begin was called, and cairn_commit was not */
	struct text changed;    /* … in the mirror since the last save: struct range */
	struct variable *later; /* copy_later copies its second half; NULL: nothing */
	double began;           /* when the save began */

	int (*before)(void *);
	void *before_context;
	int uffd, pagemap; /* -1: no tracking */
	struct gpu *gpu;   /* NULL: the program has loaded no CUDA driver */

	struct text in, out;
	cairn_variable *listed; /* what cairn_variables returned */
	char *unsaid; /* why a checkpoint was not saved, which the program was not told */
	char *err; /* the last error; NULL: none, or no memory for its text */
	int failed_once;
};

cairn_status fail(cairn_run *r, cairn_status code, const char *format, ...)
#ifdef __GNUC__
	__attribute__((format(printf, 3, 4)))
#endif
	;
double now(void);
cairn_status ranks_max(cairn_run *r, uint64_t *v, int n); /* of all ranks, element by element */
cairn_status own_run(cairn_run *r); /* fails in a forked process, which shares the mirror */

/* helper.c: the helper process and the messages */
cairn_status helper_start(cairn_run *r);
cairn_status helper_ask(cairn_run *r, int kind); /* sends r->out, and reads the answer into r->in */
cairn_status helper_send(cairn_run *r, int kind, const int *fds, int nfds);
cairn_status helper_news(cairn_run *r, int wait); /* takes in what it has said meanwhile; wait: until no checkpoint is being written */
cairn_status said(cairn_run *r, cairn_status rc); /* rc, or CAIRN_NOTSAVED if there is something unsaid */
int helper_end(cairn_run *r); /* returns its status */

/* vars.c: variables and their copies in the mirror */
size_t type_size(cairn_run *r, cairn_type t);
struct variable **vars_find(cairn_run *r, const char *name); /* in its bucket; NULL: none */
cairn_status vars_tell(cairn_run *r); /* the helper what has changed */
cairn_status vars_complete(cairn_run *r); /* an error if a call of cairn_protect has failed */
void vars_forget(cairn_run *r);       /* … that the helper was told anything */
void vars_free(cairn_run *r);

/* copy.c: copying, and finding what changed */
cairn_status copy_out(cairn_run *r, struct variable *only); /* to the mirror; NULL: all that were not added, but for what copy_later copies */
void copy_later(cairn_run *r); /* copies the rest, while the helper writes what is there */
void page_set(cairn_run *r, uint64_t copied, uint64_t until, uint32_t filling); /* tells the helper */
cairn_status copy_in(cairn_run *r);      /* … from it, but for what copy_checked has exchanged */
cairn_status copy_checked(cairn_run *r); /* reads r->in: exchanges a part of the mirror that the helper has checked with its variable; CAIRN_NOMEMORY: or there is none */
void copy_undo(cairn_run *r);            /* … all of them again: the restore has failed */
void copy_bytes(unsigned char *to, const unsigned char *from, size_t n);
void copy_unwatch(cairn_run *r, struct variable *v);

/* stream.c */
void copy_stream(unsigned char *to, const unsigned char *from, size_t n); /* memcpy for what is not read soon */

/* gpu.c: memory that the CUDA driver knows */
enum { MEM_HOST, MEM_DEVICE };
cairn_status gpu_check(cairn_run *r, const char *name, const void *p, uint64_t bytes); /* that a variable can be copied */
int gpu_used(cairn_run *r); /* the program has loaded a CUDA driver */
cairn_status gpu_begin(cairn_run *r, int in, struct variable *only); /* waits for the GPUs, says where variables are, and begins to copy; only: as copy_out */
cairn_status gpu_finish(cairn_run *r);        /* waits for the copy, unless variables are frozen on the device */
cairn_status gpu_frozen(cairn_run *r);        /* … waits for that: then the program may change them */
cairn_status gpu_load(cairn_run *r, struct variable *v, void *to, uint64_t n); /* copies from its copy to any memory */
void gpu_wait(cairn_run *r);                  /* until nothing is being copied */
void gpu_forget(cairn_run *r, struct variable *v); /* its copy goes away */
void gpu_end(cairn_run *r);

/* files.c */
cairn_status files_flush(cairn_run *r); /* what is in buffers of streams; forgets closed files */
cairn_status files_tell(cairn_run *r);
void files_told(cairn_run *r); /* the helper knows which files were closed */
void files_sync(cairn_run *r); /* streams with the descriptors that the helper has positioned */
cairn_status files_unclaimed(cairn_run *r); /* reads r->in: which files of the checkpoint the helper has opened for the program */
void files_give(cairn_run *r); /* … puts them into r->out, for another helper */

#endif
