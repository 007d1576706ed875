/* The functions of veloc.h over libcairn. It is compiled as C99 or as C++. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "veloc.h"

#include <cairn_mpi.h>
#include <limits.h>
#include <stdarg.h>
#include <unistd.h>

#include "config.h"

enum { NAME = 100, OPEN = 4 }; /* OPEN: a name has a helper process while it is open */

/* region is protected memory. */
struct region {
	int id;
	void *ptr;
	size_t size;
	char name[NAME]; /* of the checkpoints that it belongs to; "": of all that have no own regions */
};

/* version is a kept checkpoint. */
struct version {
	int version;
	uint64_t index;
};

/* stored is a region in the checkpoint that is being restored. */
struct stored {
	int id;
	size_t size;
};

/* store holds the checkpoints of one name. */
struct store {
	char name[NAME];
	cairn_run *run;
	struct version *list; /* in the order in which they were taken */
	int n;
	int *ids, nids; /* that the run protects */
	char *table;    /* a variable of each checkpoint: its version, then a line per region: id and bytes */
	size_t table_len;
	int supervised;
	struct store *next;
};

static struct {
	int ready, sync, single, rank, ranks, keep;
	unsigned id;
	MPI_Comm comm;
	char dir[1100];
	int inpersistent;
	struct region *regions;
	int nregions;
	struct table byid; /* of regions */
	struct store *stores;
	struct store *saving; /* between Checkpoint_begin and Checkpoint_end */
	int version, begun, selected;
	struct store *waiting;   /* its checkpoint may not be durable yet */
	struct store *restoring; /* between Restart_begin and Restart_end, and after it */
	uint64_t from;
	struct stored *held;
	int nheld;
} veloc;

/* say prints a line on stderr, in one piece. */
static int say(const char *format, ...)
{
	char text[4096], rank[32] = "";
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (veloc.ranks > 1)
		snprintf(rank, sizeof rank, ", rank %d", veloc.rank);
	fprintf(stderr, "cairn (VeloC)%s: %s\n", rank, text);
	return VELOC_FAILURE;
}

static int initialized(const char *function)
{
	if (!veloc.ready)
		say("%s: VELOC_Init was not called, or has failed", function);
	return veloc.ready;
}

static int least(int mine)
{
	int all = mine;
	if (veloc.ranks > 1 && MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, veloc.comm) != MPI_SUCCESS)
		return INT_MIN;
	return all;
}

static int all_agree(int mine) { return least(mine != 0) == 1; }

static int valid(const char *function, const char *name, int version)
{
	size_t n = name ? strlen(name) : 0;
	if (n == 0 || n >= NAME || strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.") != n || version < 0) {
		say("%s: \"%.100s\", version %d: a name has up to %d letters, digits, _ and ., and a version is not negative", function, name ? name : "", version, NAME - 1);
		return 0;
	}
	return 1;
}

/* --- configuration --- */

/* setting returns a value of the environment (VELOC_SCRATCH) or of the file. */
static const char *setting(struct config *c, const char *key)
{
	char name[64] = "VELOC_";
	const char *s;
	size_t i;
	for (i = 0; key[i]; i++)
		name[6 + i] = (char)toupper((unsigned char)key[i]);
	name[6 + i] = 0;
	s = getenv(name);
	return s && *s ? s : config_text(c, key, NULL);
}

static int number(struct config *c, const char *key, int otherwise)
{
	const char *s = setting(c, key);
	char *end;
	long v = s ? strtol(s, &end, 10) : otherwise;
	if (s && (*end || v < -1 || v > 1 << 20)) {
		if (!*c->error)
			snprintf(c->error, sizeof c->error, "%.1000s: %s = %.100s: a whole number from -1 to 1048576 is needed", c->path, key, s);
		return otherwise;
	}
	return (int)v;
}

static int read_config(const char *path)
{
	struct config c;
	if (path && !*path) { /* all of it is in the environment */
		memset(&c, 0, sizeof c);
		c.path = "the environment";
	}
	if ((path && !*path) || config_load(&c, path) == 0) {
		const char *mode = setting(&c, "mode"), *scratch = setting(&c, "scratch"), *persistent = setting(&c, "persistent");
		static const char *const without[] = {"persistent_interval", "ec_interval", "watchdog_interval", "scratch_versions", "failure_domain", "axl_type", "meta", "daos_pool", "aggregated", "threaded", NULL};
		char list[300] = "";
		if (!mode || (strcmp(mode, "sync") && strcmp(mode, "async")))
			snprintf(c.error, sizeof c.error, "%.1000s: mode = %.100s: sync or async is needed", c.path, mode ? mode : "");
		else if (!scratch)
			snprintf(c.error, sizeof c.error, "%.1000s has no scratch", c.path);
		veloc.sync = mode && strcmp(mode, "sync") == 0;
		veloc.keep = number(&c, "max_versions", 0);
		if (!persistent)
			veloc.keep = number(&c, "scratch_versions", 0);
		veloc.inpersistent = persistent != NULL;
		snprintf(veloc.dir, sizeof veloc.dir, "%.1000s", persistent ? persistent : scratch ? scratch : "");
		for (int i = 0; without[i]; i++)
			if (setting(&c, without[i]) && !(strcmp(without[i], "scratch_versions") == 0 && !persistent))
				snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", *list ? ", " : "", without[i]);
		if (!*c.error && (veloc.single || veloc.rank == 0))
			say("checkpoints are in %s/NAME%s.cairn, written %s; all are verified on restart%s%s%s", veloc.dir, veloc.single ? "-ID" : "", veloc.sync ? "before VELOC_Checkpoint_end returns" : "in the background", persistent ? ". scratch is not used" : "", *list ? ". These settings have no effect: " : "", list);
	}
	if (*c.error && (veloc.single || veloc.rank == 0))
		say("VELOC_Init: %s", c.error);
	free(c.list);
	return *c.error ? VELOC_FAILURE : VELOC_SUCCESS;
}

static int start(const char *cfg_file)
{
	if (!all_agree(read_config(cfg_file) == VELOC_SUCCESS))
		return VELOC_FAILURE;
	veloc.ready = 1;
	return VELOC_SUCCESS;
}

int VELOC_Init(MPI_Comm comm, const char *cfg_file)
{
	if (veloc.ready)
		return VELOC_SUCCESS;
	memset(&veloc, 0, sizeof veloc);
	if (MPI_Comm_dup(comm, &veloc.comm) != MPI_SUCCESS)
		return VELOC_FAILURE;
	MPI_Comm_rank(veloc.comm, &veloc.rank);
	MPI_Comm_size(veloc.comm, &veloc.ranks);
	return start(cfg_file);
}

/*
 * alone reports whether this process is the only rank of a run, also if 'cairn run'
 * has one rank and that is a launcher of MPI programs.
 */
static int alone(void)
{
	static const char *const sizes[] = {"CAIRN_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"};
	int begun = 0, ended = 0, n = 1;
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		const char *s = getenv(sizes[i]);
		if (s && atoi(s) > 1)
			return 0;
	}
	MPI_Initialized(&begun);
	MPI_Finalized(&ended);
	if (begun && !ended)
		MPI_Comm_size(MPI_COMM_WORLD, &n);
	return n == 1;
}

int VELOC_Init_single(unsigned int id, const char *cfg_file)
{
	if (veloc.ready)
		return VELOC_SUCCESS;
	memset(&veloc, 0, sizeof veloc);
	veloc.single = 1, veloc.id = id, veloc.comm = MPI_COMM_NULL;
	if (!alone())
		unsetenv("CAIRN_CONTROL"); /* each process has its own directory: 'cairn run' watches one for all */
	return start(cfg_file);
}

/* --- regions --- */

static struct region *find_region(const char *name, int id)
{
	for (int i = table_first(&veloc.byid, table_hash(name, id)); i >= 0; i = veloc.byid.entry[i].next)
		if (veloc.regions[i].id == id && strcmp(veloc.regions[i].name, name) == 0)
			return &veloc.regions[i];
	return NULL;
}

static int protect(const char *function, int id, void *ptr, size_t count, size_t base_size, const char *name)
{
	struct region *r;
	if (!initialized(function))
		return VELOC_FAILURE;
	if (strlen(name) >= NAME || (base_size && count > SIZE_MAX / 2 / base_size) || (!ptr && count > 0 && base_size > 0))
		return say("%s: region %d has no address, is too large, or its name is too long", function, id);
	if (!(r = find_region(name, id))) {
		struct region *more;
		if (table_room(&veloc.byid, veloc.nregions) < 0 || !(more = (struct region *)grown(veloc.regions, veloc.nregions, sizeof *more)))
			return say("%s: region %d: out of memory", function, id);
		veloc.regions = more;
		r = &more[veloc.nregions];
		memset(r, 0, sizeof *r);
		r->id = id;
		snprintf(r->name, sizeof r->name, "%s", name);
		table_link(&veloc.byid, veloc.nregions++, table_hash(name, id));
	}
	r->ptr = ptr, r->size = count * base_size;
	return VELOC_SUCCESS;
}

/* drop removes a region; the last one takes its place. */
static void drop(int i)
{
	int last = --veloc.nregions;
	table_unlink(&veloc.byid, i);
	if (i == last)
		return;
	table_unlink(&veloc.byid, last);
	veloc.regions[i] = veloc.regions[last];
	table_link(&veloc.byid, i, veloc.byid.entry[last].hash);
}

static int unprotect(const char *function, int id, const char *name)
{
	struct region *r;
	if (!initialized(function))
		return VELOC_FAILURE;
	if (!(r = find_region(name, id)))
		return say("%s: region %d is not protected", function, id);
	drop((int)(r - veloc.regions));
	return VELOC_SUCCESS;
}

static int clear(const char *function, const char *name)
{
	if (!initialized(function))
		return VELOC_FAILURE;
	for (int i = veloc.nregions - 1; i >= 0; i--)
		if (strcmp(veloc.regions[i].name, name) == 0)
			drop(i);
	return VELOC_SUCCESS;
}

int VELOC_Mem_protect(int id, void *ptr, size_t count, size_t base_size) { return protect("VELOC_Mem_protect", id, ptr, count, base_size, ""); }
int VELOC_Region_protect(int id, void *ptr, size_t count, size_t base_size, const char *name) { return protect("VELOC_Region_protect", id, ptr, count, base_size, name); }
int VELOC_Mem_unprotect(int id) { return unprotect("VELOC_Mem_unprotect", id, ""); }
int VELOC_Region_unprotect(int id, const char *name) { return unprotect("VELOC_Region_unprotect", id, name); }
int VELOC_Mem_clear(void) { return clear("VELOC_Mem_clear", ""); }
int VELOC_Region_clear(const char *name) { return clear("VELOC_Region_clear", name); }

/* group returns the name of the regions that checkpoints of a name have. */
static const char *group(const char *name)
{
	for (int i = 0; i < veloc.nregions; i++)
		if (strcmp(veloc.regions[i].name, name) == 0)
			return name;
	return "";
}

/* ascending compares ids, or structs that begin with one, for qsort and bsearch. */
static int ascending(const void *a, const void *b)
{
	int x = *(const int *)a, y = *(const int *)b;
	return (x > y) - (x < y);
}

/* listed reports whether an id is among sorted ones. */
static int listed(const int *ids, int n, int id) { return n > 0 && bsearch(&id, ids, (size_t)n, sizeof id, ascending); }

/* sorted returns a sorted copy of ids, to be freed; NULL: no memory. */
static int *sorted(const int *ids, int n)
{
	int *own = (int *)malloc((size_t)(n > 0 ? n : 1) * sizeof *own);
	if (own && n > 0) {
		memcpy(own, ids, (size_t)n * sizeof *own);
		qsort(own, (size_t)n, sizeof *own, ascending);
	}
	return own;
}

/* selective calls a function with sorted ids. */
static int selective(int (*call)(const char *, int, const int *, int), const char *function, int mode, const int *ids, int n)
{
	int rc, *own;
	if (!initialized(function))
		return VELOC_FAILURE;
	if (!(own = sorted(ids, n)))
		return say("%s: out of memory", function);
	rc = call(function, mode, own, n);
	free(own);
	return rc;
}

/* --- the checkpoints of one name --- */

static char *read_table(struct store *s, uint64_t index)
{
	size_t n = 0;
	char *text = NULL;
	if (cairn_stored_in(s->run, index, "veloc", NULL, 1, &n) != 1 || !(text = (char *)malloc(n + 1)) || cairn_read(s->run, index, "veloc", text, CAIRN_UINT8, 1, &n) < 0) {
		say("checkpoint %llu of %s: %s", (unsigned long long)index, s->name, cairn_error(s->run));
		free(text);
		return NULL;
	}
	text[n] = 0;
	return text;
}

static int remember(struct store *s, int version, uint64_t index)
{
	struct version *more = (struct version *)realloc(s->list, (size_t)(s->n + 1) * sizeof *more);
	if (!more)
		return say("%s: out of memory", s->name);
	s->list = more;
	more[s->n].version = version, more[s->n++].index = index;
	return VELOC_SUCCESS;
}

/* list_versions finds out which checkpoints there are. */
static int list_versions(struct store *s)
{
	int n = cairn_checkpoints(s->run, 0, NULL), k;
	uint64_t *indices;
	s->n = 0;
	if (n <= 0)
		return n < 0 ? say("%s: %s", s->name, cairn_error(s->run)) : VELOC_SUCCESS;
	if (!(indices = (uint64_t *)malloc((size_t)n * sizeof *indices)))
		return say("%s: out of memory", s->name);
	k = cairn_checkpoints(s->run, n, indices);
	for (int i = (k < n ? k : n) - 1; i >= 0; i--) { /* the oldest first */
		char *text = read_table(s, indices[i]);
		if (text)
			remember(s, atoi(text), indices[i]);
		free(text);
	}
	free(indices);
	return VELOC_SUCCESS;
}

static int close_store(struct store *s)
{
	cairn_status rc = cairn_close(s->run);
	struct store **at = &veloc.stores;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	free(s->list);
	free(s->ids);
	free(s->table);
	free(s);
	return rc < 0 ? VELOC_FAILURE : VELOC_SUCCESS;
}

/* make_room closes the name that was opened first, if there are too many. */
static void make_room(void)
{
	struct store *first = NULL;
	int n = 0;
	for (struct store *s = veloc.stores; s; s = s->next, n++)
		if (!s->supervised && s != veloc.saving && s != veloc.waiting && s != veloc.restoring)
			first = s;
	if (n >= OPEN && first)
		close_store(first);
}

/* start_run opens the run of a store, and finds out which checkpoints there are. All ranks call it. */
static int start_run(struct store *s, int fresh)
{
	cairn_options o = CAIRN_OPTIONS;
	char dir[1400];
	const char *control = getenv("CAIRN_CONTROL"); /* 'cairn run' watches the checkpoints of one name: libcairn empties it then */
	cairn_status rc;
	o.every = 1e8; /* the program says when */
	o.no_signals = 1;
	o.keep = veloc.keep > 0 ? veloc.keep : 1 << 20;
	o.fresh = fresh;
	s->supervised = control && *control;
	if (veloc.single) {
		snprintf(dir, sizeof dir, "%s/%s-%u.cairn", veloc.dir, s->name, veloc.id);
		rc = cairn_open(&s->run, dir, &o);
	} else {
		snprintf(dir, sizeof dir, "%s/%s.cairn", veloc.dir, s->name);
		rc = cairn_open_mpi(&s->run, dir, &o, veloc.comm);
	}
	if (rc >= 0)
		rc = cairn_resume(s->run);
	return rc >= 0 && all_agree(list_versions(s) == VELOC_SUCCESS) ? VELOC_SUCCESS : VELOC_FAILURE;
}

/*
 * restart_helper starts other helpers when a rank has lost its own. All ranks
 * call it. What the run had copied, and had not saved, is gone.
 */
static int restart_helper(const char *function, struct store *s)
{
	if (s->supervised)
		return say("%s: a helper process was lost. End the program: 'cairn run' starts it again", function);
	cairn_close(s->run);
	free(s->ids);
	s->ids = NULL, s->nids = 0;
	if (start_run(s, 0) != VELOC_SUCCESS)
		return say("%s: a helper process was lost, and no other can be started: %s", function, cairn_error(s->run));
	if (veloc.single || veloc.rank == 0)
		say("%s: a helper process was lost; %s", function, veloc.ranks > 1 ? "others have been started" : "another one has been started");
	return VELOC_SUCCESS;
}

/* open_store opens the checkpoints of a name; all ranks call it. */
static struct store *open_store(const char *function, const char *name, int fresh)
{
	struct store *s;
	for (s = veloc.stores; s; s = s->next)
		if (strcmp(s->name, name) == 0)
			return all_agree(cairn_checkpoints(s->run, 0, NULL) >= 0) || restart_helper(function, s) == VELOC_SUCCESS ? s : NULL;
	make_room();
	s = (struct store *)calloc(1, sizeof *s);
	if (!all_agree(s != NULL)) {
		free(s);
		return NULL;
	}
	snprintf(s->name, sizeof s->name, "%s", name);
	if (start_run(s, fresh) != VELOC_SUCCESS) {
		say("%s: %s: %s", function, name, cairn_error(s->run));
		cairn_close(s->run);
		free(s->list);
		free(s);
		return NULL;
	}
	s->next = veloc.stores;
	return veloc.stores = s;
}

enum { LOST = 1 }; /* not saved, because a helper was lost; others have been started */

/*
 * outcome says what became of a version for which cairn_commit or cairn_wait has
 * failed. If a helper was lost, the version may have been saved before. With one
 * rank, libcairn itself has started another helper, which may have saved it.
 */
static int outcome(const char *function, struct store *s, int version, cairn_status rc)
{
	int again = rc == CAIRN_NOTSAVED && veloc.ranks <= 1;
	say("%s: version %d of %s: %s", function, version, s->name, cairn_error(s->run));
	if (again ? cairn_wait(s->run) < 0 || list_versions(s) != VELOC_SUCCESS : rc != CAIRN_NOHELPER || restart_helper(function, s) != VELOC_SUCCESS)
		return VELOC_FAILURE;
	if (all_agree(s->n > 0 && s->list[s->n - 1].version == version))
		return VELOC_SUCCESS;
	return again ? VELOC_FAILURE : LOST;
}

/* wait_for waits until the last checkpoint of all is durable. */
static int wait_for(const char *function)
{
	struct store *s = veloc.waiting;
	int version = s && s->n > 0 ? s->list[s->n - 1].version : -1;
	cairn_status rc;
	veloc.waiting = NULL;
	if (!s || (rc = cairn_wait(s->run)) >= 0)
		return VELOC_SUCCESS;
	if (s->n > 0)
		s->n--; /* unless it is found */
	return outcome(function, s, version, rc);
}

/* --- saving --- */

int VELOC_Checkpoint_begin(const char *name, int version)
{
	if (!initialized("VELOC_Checkpoint_begin") || !valid("VELOC_Checkpoint_begin", name, version))
		return VELOC_FAILURE;
	if (veloc.saving)
		return say("VELOC_Checkpoint_begin: version %d of %s was not ended", veloc.version, veloc.saving->name);
	if (wait_for("VELOC_Checkpoint_begin") != VELOC_SUCCESS)
		say("VELOC_Checkpoint_begin: the checkpoint before was not saved");
	if (!(veloc.saving = open_store("VELOC_Checkpoint_begin", name, 0)))
		return VELOC_FAILURE;
	veloc.version = version, veloc.selected = 0;
	return VELOC_SUCCESS;
}

/* select_regions makes the run protect the chosen regions, and copies them. ids are sorted. */
static int select_regions(const char *function, int mode, const int *ids, int n)
{
	struct store *s = veloc.saving;
	const char *from = s ? group(s->name) : "";
	char *table;
	size_t room = 64 + (size_t)veloc.nregions * 48;
	int count = 0, failed = 0, *now;
	char name[40];
	if (!s)
		return say("%s: call VELOC_Checkpoint_begin first", function);
	if (veloc.begun)
		cairn_cancel(s->run);
	veloc.begun = veloc.selected = 0;
	table = (char *)realloc(s->table, room);
	now = (int *)malloc((size_t)(veloc.nregions + 1) * sizeof *now);
	if (table)
		s->table = table;
	if (!table || !now) {
		free(now);
		return say("%s: out of memory", function);
	}
	if (cairn_begin(s->run) < 0) {
		free(now);
		return say("%s: %s", function, cairn_error(s->run));
	}
	veloc.begun = 1;
	s->table_len = (size_t)snprintf(table, room, "%d\n", veloc.version);
	for (int i = 0; i < veloc.nregions; i++) {
		struct region *r = &veloc.regions[i];
		if (strcmp(r->name, from) || (mode == VELOC_CKPT_SOME && !listed(ids, n, r->id)) || (mode == VELOC_CKPT_REST && listed(ids, n, r->id)))
			continue;
		snprintf(name, sizeof name, "region_%d", r->id);
		if (cairn_protect(s->run, name, r->ptr, CAIRN_BYTES, 1, &r->size) < 0 || (now[count++] = r->id, cairn_add(s->run, name)) < 0) {
			failed = say("%s: region %d: %s", function, r->id, cairn_error(s->run));
			cairn_unprotect(s->run, name); /* the next selection may be without it */
			break;
		}
		s->table_len += (size_t)snprintf(table + s->table_len, room - s->table_len, "%d %zu\n", r->id, r->size);
	}
	qsort(now, (size_t)count, sizeof *now, ascending);
	for (int i = 0; i < s->nids; i++)
		if (!listed(now, count, s->ids[i])) {
			snprintf(name, sizeof name, "region_%d", s->ids[i]);
			cairn_unprotect(s->run, name);
		}
	free(s->ids);
	s->ids = now, s->nids = count;
	if (failed || !count)
		return failed ? failed : say("%s: no region is chosen", function);
	if (cairn_protect(s->run, "veloc", table, CAIRN_UINT8, 1, &s->table_len) < 0)
		return say("%s: %s", function, cairn_error(s->run));
	veloc.selected = 1;
	return VELOC_SUCCESS;
}

int VELOC_Checkpoint_selective(int mode, int *ids, int id_count)
{
	return selective(select_regions, "VELOC_Checkpoint_selective", mode, ids, id_count);
}

int VELOC_Checkpoint_mem(void)
{
	return initialized("VELOC_Checkpoint_mem") ? select_regions("VELOC_Checkpoint_mem", VELOC_CKPT_ALL, NULL, 0) : VELOC_FAILURE;
}

/* end_checkpoint returns LOST if the checkpoint may be taken again. */
static int end_checkpoint(const char *function, int success)
{
	struct store *s = veloc.saving;
	cairn_status rc;
	veloc.saving = NULL;
	if (!s)
		return say("%s: call VELOC_Checkpoint_begin first", function);
	if (!all_agree(success && veloc.selected)) {
		if (veloc.begun)
			cairn_cancel(s->run);
		veloc.begun = 0;
		return say("%s: version %d of %s is not saved: a process had no success with it", function, veloc.version, s->name);
	}
	veloc.begun = 0;
	rc = cairn_commit(s->run);
	if (rc >= 0 && veloc.sync)
		rc = cairn_wait(s->run);
	if (rc < 0)
		return outcome(function, s, veloc.version, rc);
	if (!veloc.sync)
		veloc.waiting = s;
	return remember(s, veloc.version, 0); /* its index is asked for when it is needed */
}

int VELOC_Checkpoint_end(int success)
{
	return initialized("VELOC_Checkpoint_end") && end_checkpoint("VELOC_Checkpoint_end", success) == VELOC_SUCCESS ? VELOC_SUCCESS : VELOC_FAILURE;
}

int VELOC_Checkpoint_wait(void)
{
	if (!initialized("VELOC_Checkpoint_wait"))
		return VELOC_FAILURE;
	if (veloc.saving)
		return say("VELOC_Checkpoint_wait: call VELOC_Checkpoint_end first");
	return wait_for("VELOC_Checkpoint_wait") == VELOC_SUCCESS ? VELOC_SUCCESS : VELOC_FAILURE;
}

int VELOC_Checkpoint_finished(void)
{
	if (!initialized("VELOC_Checkpoint_finished"))
		return VELOC_FAILURE;
	if (veloc.saving && !veloc.sync) /* as VeloC does */
		return say("VELOC_Checkpoint_finished: call VELOC_Checkpoint_end first");
	return veloc.waiting && cairn_saving(veloc.waiting->run) ? VELOC_FAILURE : VELOC_SUCCESS;
}

int VELOC_Checkpoint(const char *name, int version)
{
	int rc = LOST;
	if (!initialized("VELOC_Checkpoint") || (!veloc.saving && wait_for("VELOC_Checkpoint") == VELOC_FAILURE))
		return VELOC_FAILURE;
	for (int i = 0; i < 2 && rc == LOST; i++) /* the regions are as they were */
		rc = VELOC_Checkpoint_begin(name, version) == VELOC_SUCCESS ? end_checkpoint("VELOC_Checkpoint", VELOC_Checkpoint_mem() == VELOC_SUCCESS) : VELOC_FAILURE;
	return rc == VELOC_SUCCESS ? VELOC_SUCCESS : VELOC_FAILURE;
}

/* --- restart --- */

/* newest returns the newest version up to one on this rank, and its index. */
static int newest(struct store *s, int most, uint64_t *index)
{
	int best = VELOC_FAILURE;
	for (int i = 0; i < s->n; i++)
		if (s->list[i].version <= most && s->list[i].version >= best)
			best = s->list[i].version, *index = s->list[i].index;
	return best;
}

/*
 * common returns the newest version up to one that all ranks have in the same
 * checkpoint.
 */
static int common(struct store *s, int most, uint64_t *index)
{
	for (;;) {
		uint64_t range[2] = {UINT64_MAX, UINT64_MAX}, all[2]; /* it is not here */
		int version = least(newest(s, most, index));
		if (version < 0)
			return VELOC_FAILURE;
		if (newest(s, version, index) == version)
			range[0] = *index, range[1] = ~*index;
		all[0] = range[0], all[1] = range[1];
		if (veloc.ranks > 1 && MPI_Allreduce(range, all, 2, MPI_UINT64_T, MPI_MAX, veloc.comm) != MPI_SUCCESS)
			return VELOC_FAILURE;
		if (all[0] == ~all[1])
			return version;
		most = version - 1;
		if (most < 0)
			return VELOC_FAILURE;
	}
}

/* look_up opens the store of a name, and brings its list up to date. */
static struct store *look_up(const char *function, const char *name, int version)
{
	struct store *s;
	int wanted = 0;
	if (!initialized(function) || !valid(function, name, version))
		return NULL;
	wait_for(function);
	if (!(s = open_store(function, name, 0)))
		return NULL;
	for (int i = 0; i < s->n; i++)
		wanted |= s->list[i].index == 0;
	if (wanted || veloc.keep > 0)
		list_versions(s);
	return s;
}

int VELOC_Restart_test(const char *name, int version)
{
	struct store *s = look_up("VELOC_Restart_test", name, version);
	uint64_t index = 0;
	return s ? common(s, version > 0 ? version : INT_MAX, &index) : VELOC_FAILURE;
}

int VELOC_Restart_begin(const char *name, int version)
{
	struct store *s = look_up("VELOC_Restart_begin", name, version);
	char *text = NULL, *line;
	int lines = 0, good;
	veloc.restoring = NULL;
	free(veloc.held);
	veloc.held = NULL, veloc.nheld = 0;
	if (!s)
		return VELOC_FAILURE;
	if (common(s, version, &veloc.from) != version)
		return say("VELOC_Restart_begin: there is no version %d of %s in %s", version, name, veloc.dir);
	good = (text = read_table(s, veloc.from)) != NULL;
	for (line = text; line && (line = strchr(line, '\n')); line++)
		lines++;
	if (good && !(veloc.held = (struct stored *)calloc((size_t)lines + 1, sizeof *veloc.held)))
		good = 0;
	for (line = good ? strchr(text, '\n') : NULL; line; line = strchr(line + 1, '\n'))
		if (sscanf(line + 1, "%d %zu", &veloc.held[veloc.nheld].id, &veloc.held[veloc.nheld].size) == 2)
			veloc.nheld++;
	free(text);
	if (veloc.nheld)
		qsort(veloc.held, (size_t)veloc.nheld, sizeof *veloc.held, ascending);
	if (!all_agree(good))
		return say("VELOC_Restart_begin: version %d of %s cannot be read", version, name);
	veloc.restoring = s;
	return VELOC_SUCCESS;
}

static int recover(const char *function, int mode, const int *ids, int n)
{
	struct store *s = veloc.restoring;
	const char *from = s ? group(s->name) : "";
	char name[40];
	if (!s)
		return say("%s: call VELOC_Restart_begin first", function);
	for (int i = 0; i < veloc.nheld; i++) {
		struct stored *h = &veloc.held[i];
		struct region *r = find_region(from, h->id);
		if ((mode == VELOC_RECOVER_SOME && !listed(ids, n, h->id)) || (mode == VELOC_RECOVER_REST && listed(ids, n, h->id)))
			continue;
		if (!r)
			return say("%s: region %d of the checkpoint is not protected", function, h->id);
		if (r->size < h->size)
			return say("%s: region %d has %zu bytes, and %zu in the checkpoint", function, h->id, r->size, h->size);
		snprintf(name, sizeof name, "region_%d", h->id);
		if (h->size && cairn_read(s->run, veloc.from, name, r->ptr, CAIRN_BYTES, 1, &h->size) < 0)
			return say("%s: region %d: %s", function, h->id, cairn_error(s->run));
	}
	return VELOC_SUCCESS;
}

int VELOC_Recover_selective(int mode, int *ids, int id_count)
{
	return selective(recover, "VELOC_Recover_selective", mode, ids, id_count);
}

int VELOC_Recover_mem(void)
{
	return initialized("VELOC_Recover_mem") ? recover("VELOC_Recover_mem", VELOC_RECOVER_ALL, NULL, 0) : VELOC_FAILURE;
}

int VELOC_Recover_size(int id)
{
	struct stored *h;
	if (!initialized("VELOC_Recover_size"))
		return VELOC_FAILURE;
	h = veloc.nheld ? (struct stored *)bsearch(&id, veloc.held, (size_t)veloc.nheld, sizeof *h, ascending) : NULL;
	if (h)
		return h->size > INT_MAX ? say("VELOC_Recover_size: region %d has %zu bytes, more than an int holds", id, h->size) : (int)h->size;
	return veloc.restoring ? 0 : VELOC_FAILURE;
}

int VELOC_Restart_end(int success)
{
	(void)success;
	return initialized("VELOC_Restart_end") && veloc.restoring ? VELOC_SUCCESS : VELOC_FAILURE;
}

int VELOC_Restart(const char *name, int version)
{
	int rc = VELOC_Restart_begin(name, version);
	if (rc == VELOC_SUCCESS)
		rc = VELOC_Recover_mem();
	return rc == VELOC_SUCCESS ? VELOC_Restart_end(1) : rc;
}

/* --- the end --- */

int VELOC_Cleanup(const char *name)
{
	struct store *s;
	if (!initialized("VELOC_Cleanup") || !valid("VELOC_Cleanup", name, 0))
		return VELOC_FAILURE;
	if (veloc.inpersistent)
		return VELOC_SUCCESS; /* it removes what is in scratch, where nothing is */
	wait_for("VELOC_Cleanup");
	if (!(s = open_store("VELOC_Cleanup", name, 0)))
		return VELOC_FAILURE;
	if (veloc.restoring == s)
		veloc.restoring = NULL;
	close_store(s);
	return open_store("VELOC_Cleanup", name, 1) ? VELOC_SUCCESS : VELOC_FAILURE;
}

int VELOC_Finalize(int drain)
{
	int rc = VELOC_SUCCESS;
	(void)drain; /* a checkpoint that was begun is always completed */
	if (!initialized("VELOC_Finalize"))
		return VELOC_FAILURE;
	rc = wait_for("VELOC_Finalize") == VELOC_SUCCESS ? VELOC_SUCCESS : VELOC_FAILURE;
	while (veloc.stores)
		if (close_store(veloc.stores) != VELOC_SUCCESS)
			rc = VELOC_FAILURE;
	if (!veloc.single)
		MPI_Comm_free(&veloc.comm);
	free(veloc.regions);
	table_free(&veloc.byid);
	free(veloc.held);
	memset(&veloc, 0, sizeof veloc);
	return rc;
}

int VELOC_Route_file(const char *original, char *routed)
{
	(void)original, (void)routed;
	return say("VELOC_Route_file is not available: Cairn saves memory, not files: protect the data with VELOC_Mem_protect");
}
