/* The functions of fti.h over libcairn. It is compiled as C99 or as C++. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "fti.h"

#include <cairn_mpi.h>
#include <limits.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>

#include "config.h"

MPI_Comm FTI_COMM_WORLD = MPI_COMM_NULL;
fti_id_t FTI_CHAR = 0, FTI_SHRT = 1, FTI_INTG = 2, FTI_LONG = 3, FTI_UCHR = 4, FTI_USHT = 5, FTI_UINT = 6, FTI_ULNG = 7, FTI_SFLT = 8, FTI_DBLE = 9, FTI_LDBE = 10;

enum { BASIC = 11, LEVELS = 5 };

/* field is a member of a composite type. */
struct field {
	char name[64];
	fti_id_t type;
	size_t offset, elements;
	int ndim;
	size_t dims[4]; /* more dimensions than 4 are one */
};

struct type {
	size_t size;
	char name[64];
	int nfields; /* 0: bytes */
	struct field fields[TYPES_FIELDS_MAX];
	cairn_type made; /* 0: not yet; CAIRN_BYTES: it cannot be described */
	size_t align;
};

/* variable is a protected one, or one that only the checkpoint holds. */
struct variable {
	int id;
	void *ptr;
	int64_t count;
	fti_id_t type;
	size_t size;
	int isprotected;
	int ndim;
	size_t dims[TYPES_DIMENSION_MAX];
	char label[FTI_BUFS]; /* of FTI_setIDFromString */
	char name[160];       /* in checkpoints */
	int64_t stored;       /* bytes in the checkpoint; -1: it holds none */
	char stored_name[160];
	int added; /* by FTI_AddVarICP */
};

static struct {
	int ready; /* FTI_Init has succeeded */
	cairn_run *run;
	char dir[1200];
	FTIT_allConfiguration all;
	struct variable *vars;
	int nvars;
	struct table ids, names, labels; /* of vars */
	int unused;                      /* no smaller id is free */
	struct type *types[TYPES_MAX];
	int ntypes;
	FTIT_H5Group groups[FTI_BUFS];
	int ngroups;
	char *table; /* what the checkpoint says of itself: see make_table */
	size_t table_len;
	int id, level; /* of the checkpoint that is being taken */
	int icp;       /* 1: between InitICP and FinalizeICP; -1: it failed */
	int supervised; /* by 'cairn run', which starts the program again */
	double start, looked; /* by FTI_Snapshot */
	unsigned long snapshots, next_look, step;
} fti;

/* say prints a line on stderr, in one piece. */
static void say(const char *format, ...)
{
	char text[4096], rank[32] = "";
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	if (fti.all.topology.nbProc > 1)
		snprintf(rank, sizeof rank, ", rank %d", fti.all.topology.myRank);
	fprintf(stderr, "cairn (FTI)%s: %s\n", rank, text);
}

static int initialized(const char *function)
{
	if (!fti.ready)
		say("%s: FTI_Init was not called, or has failed", function);
	return fti.ready;
}

static int unavailable(const char *function, const char *what)
{
	say("%s is not available: Cairn does not %s", function, what);
	return FTI_NSCS;
}

/* all_agree reports whether a condition holds on all ranks. */
static int all_agree(int mine)
{
	int all = 0;
	return MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_MIN, FTI_COMM_WORLD) == MPI_SUCCESS && all;
}

/* --- configuration --- */

/* config_int returns a number. If it is none, or out of range, c->error is set. */
static int config_int(struct config *c, const char *key, int otherwise, int least, int most)
{
	const struct setting *s = config_find(c, key);
	char *end;
	long v;
	if (!s)
		return otherwise;
	v = strtol(s->value, &end, 10);
	if (*end || v < least || v > most) {
		if (!*c->error)
			snprintf(c->error, sizeof c->error, "%.1000s, line %d: %s = %.100s: a whole number from %d to %d is needed", c->path, s->line, strchr(s->key, ':') ? strchr(s->key, ':') + 1 : s->key, s->value, least, most);
		return otherwise;
	}
	return (int)v;
}

/* config_bool returns a switch: 1, y, t, and so on. */
static int config_bool(const struct config *c, const char *key, int otherwise)
{
	const char *s = config_text(c, key, NULL);
	return s ? strchr("1yYtT", *s) != NULL : otherwise;
}

static void text_of(struct config *c, char *to, const char *key, const char *otherwise)
{
	snprintf(to, FTI_BUFS, "%.250s", config_text(c, key, otherwise));
}

static int read_config(const char *path)
{
	struct config c;
	FTIT_configuration *f = &fti.all.configuration;
	FTIT_topology *t = &fti.all.topology;
	FTIT_execution *x = &fti.all.execution;
	FTIT_checkpoint *k = fti.all.checkpoint;
	const char *base;
	if (config_load(&c, path) == 0) {
		static const char *const interval[] = {"", "basic:ckpt_l1", "basic:ckpt_l2", "basic:ckpt_l3", "basic:ckpt_l4"};
		static const char *const isinline[] = {"", "basic:inline_l1", "basic:inline_l2", "basic:inline_l3", "basic:inline_l4"};
		snprintf(f->cfgFile, sizeof f->cfgFile, "%.250s", path);
		text_of(&c, f->localDir, "basic:ckpt_dir", "");
		text_of(&c, f->glbalDir, "basic:glbl_dir", "");
		text_of(&c, f->metadDir, "basic:meta_dir", "");
		text_of(&c, f->StashDirGlobalBase, "basic:glbl_stash_dir", f->glbalDir);
		text_of(&c, f->h5SingleFileDir, "basic:h5_single_file_dir", f->glbalDir);
		text_of(&c, f->h5SingleFilePrefix, "basic:h5_single_file_prefix", "VPR-h5");
		text_of(&c, x->id, "restart:exec_id", "");
		for (int i = 1; i < LEVELS; i++) {
			k[i].ckptIntv = config_int(&c, interval[i], 0, -1, 10000000);
			k[i].isInline = i == 1 ? 1 : config_int(&c, isinline[i], 1, 0, 1);
			k[i].ckptCnt = k[i].ckptDcpCnt = 1;
		}
		k[4].ckptDcpIntv = config_int(&c, "basic:dcp_l4", 0, -1, 10000000);
		f->stagingEnabled = config_bool(&c, "basic:enable_staging", 0);
		f->keepHeadsAlive = config_bool(&c, "basic:keep_heads_alive", 0);
		f->keepL4Ckpt = config_bool(&c, "basic:keep_l4_ckpt", 0);
		f->h5SingleFileEnable = config_bool(&c, "basic:h5_single_file_enable", 0);
		f->h5SingleFileKeep = config_bool(&c, "basic:h5_single_file_keep", 0);
		f->h5SingleFileIsInline = config_bool(&c, "basic:h5_single_file_inline", 1);
		f->saveLastCkpt = config_int(&c, "basic:keep_last_ckpt", 0, 0, 1);
		f->verbosity = config_int(&c, "basic:verbosity", 2, INT_MIN, INT_MAX);
		f->dcpMode = config_int(&c, "basic:dcp_mode", 0, INT_MIN, INT_MAX);
		f->dcpBlockSize = config_int(&c, "basic:dcp_block_size", 16384, INT_MIN, INT_MAX);
		f->maxVarId = config_int(&c, "basic:max_var_id", FTI_DEFAULT_MAX_VAR_ID, 1, INT_MAX);
		f->ioMode = 1000 + config_int(&c, "basic:ckpt_io", 1, INT_MIN, 1000);
		f->dcpPosix = f->ioMode == FTI_IO_POSIX && config_bool(&c, "basic:enable_dcp", 0);
		f->dcpFtiff = f->ioMode == FTI_IO_FTIFF && config_bool(&c, "basic:enable_dcp", 0);
		f->blockSize = config_int(&c, "advanced:block_size", 1024, INT_MIN, 1 << 20) * 1024;
		f->transferSize = config_int(&c, "advanced:transfer_size", 16, INT_MIN, 1 << 10) * 1024 * 1024;
		f->ckptTag = config_int(&c, "advanced:ckpt_tag", 711, INT_MIN, INT_MAX);
		f->stageTag = config_int(&c, "advanced:stage_tag", 406, INT_MIN, INT_MAX);
		f->finalTag = config_int(&c, "advanced:final_tag", 3107, INT_MIN, INT_MAX);
		f->generalTag = config_int(&c, "advanced:general_tag", 2612, INT_MIN, INT_MAX);
		f->test = config_int(&c, "advanced:local_test", 1, INT_MIN, INT_MAX);
		f->l3WordSize = FTI_WORD;
		snprintf(f->suffix, sizeof f->suffix, "h5");
		t->nbHeads = config_int(&c, "basic:head", 0, 0, 1);
		t->groupSize = config_int(&c, "basic:group_size", 4, INT_MIN, INT_MAX);
		t->nodeSize = config_int(&c, "basic:node_size", 2, 1, INT_MAX);
		x->fastForward = config_int(&c, "advanced:fast_forward", 1, 1, 10);
		x->syncIterMax = config_int(&c, "basic:max_sync_intv", 0, -1, INT_MAX);
		x->ckptCnt = 1;
		fti.all.injection.rank = config_int(&c, "injection:rank", 0, INT_MIN, INT_MAX);
		fti.all.injection.index = config_int(&c, "injection:index", 0, 0, INT_MAX);
		fti.all.injection.position = config_int(&c, "injection:position", 0, 0, 63);
		fti.all.injection.number = config_int(&c, "injection:number", 0, 0, INT_MAX);
		fti.all.injection.frequency = config_int(&c, "injection:frequency", -1, INT_MIN, INT_MAX);
		if (!*c.error && !*f->glbalDir)
			snprintf(c.error, sizeof c.error, "%.1000s has no glbl_dir in its section [Basic]: the directory for checkpoints", path);
		base = strrchr(path, '/');
		snprintf(fti.dir, sizeof fti.dir, "%s/%.200s.cairn", f->glbalDir, base ? base + 1 : path);
	}
	if (*c.error && fti.all.topology.myRank == 0)
		say("FTI_Init: %s", c.error);
	free(c.list);
	return *c.error ? FTI_NSCS : FTI_SCES;
}

/* tell_differences says once what of the configuration does not map. */
static void tell_differences(void)
{
	FTIT_configuration *f = &fti.all.configuration;
	if (fti.all.topology.myRank != 0)
		return;
	say("checkpoints are in %s. Levels 1 to 4 are the same there: all ranks commit a checkpoint, and it is durable. ckpt_dir, meta_dir, node_size and group_size have no effect", fti.dir);
	if (fti.all.topology.nbHeads)
		say("head = 1: all %d processes compute. Cairn has its own helper processes", fti.all.topology.nbProc);
	if (f->stagingEnabled)
		say("enable_staging = 1 has no effect: Cairn does not stage files");
	if (f->h5SingleFileEnable)
		say("h5_single_file_enable = 1 has no effect: Cairn writes an HDF5 file per rank");
	if (f->ioMode != FTI_IO_POSIX && f->ioMode != FTI_IO_HDF5)
		say("ckpt_io = %d has no effect: checkpoints are HDF5 files", f->ioMode - 1000);
}

/* --- variables --- */

static struct variable *find(int id)
{
	for (int i = table_first(&fti.ids, table_hash("", id)); i >= 0; i = fti.ids.entry[i].next)
		if (fti.vars[i].id == id)
			return &fti.vars[i];
	return NULL;
}

/* find_label returns the variable that FTI_setIDFromString gave a name. */
static struct variable *find_label(const char *label)
{
	for (int i = table_first(&fti.labels, table_hash(label, 0)); i >= 0; i = fti.labels.entry[i].next)
		if (strcmp(fti.vars[i].label, label) == 0)
			return &fti.vars[i];
	return NULL;
}

/* set_label names a variable. Those without a name are not in one bucket. */
static void set_label(struct variable *v, const char *label)
{
	int i = (int)(v - fti.vars);
	table_unlink(&fti.labels, i);
	snprintf(v->label, sizeof v->label, "%s", label);
	table_link(&fti.labels, i, table_hash(v->label, *v->label ? 0 : v->id));
}

static struct variable *add(int id)
{
	struct variable *v = find(id), *more;
	if (v)
		return v;
	if (table_room(&fti.ids, fti.nvars) < 0 || table_room(&fti.names, fti.nvars) < 0 || table_room(&fti.labels, fti.nvars) < 0 || !(more = (struct variable *)grown(fti.vars, fti.nvars, sizeof *more))) {
		say("variable %d: out of memory", id);
		return NULL;
	}
	fti.vars = more;
	v = &more[fti.nvars];
	memset(v, 0, sizeof *v);
	v->id = id;
	v->stored = -1;
	snprintf(v->name, sizeof v->name, "Dataset_%d", id);
	table_link(&fti.ids, fti.nvars, table_hash("", id));
	table_link(&fti.names, fti.nvars, table_hash(v->name, 0));
	table_link(&fti.labels, fti.nvars, table_hash("", id));
	fti.nvars++;
	return v;
}

/* basic_type returns the element type of a type of FTI; 0: another one. */
static cairn_type basic_type(fti_id_t t)
{
	switch (t) {
	case 0: return CAIRN_CHAR;
	case 1: return CAIRN_SHORT;
	case 2: return CAIRN_INT;
	case 3: return CAIRN_LONG;
	case 4: return CAIRN_UNSIGNED_CHAR;
	case 5: return CAIRN_UNSIGNED_SHORT;
	case 6: return CAIRN_UNSIGNED;
	case 7: return CAIRN_UNSIGNED_LONG;
	case 8: return CAIRN_FLOAT;
	case 9: return CAIRN_DOUBLE;
	case 10: return CAIRN_LONG_DOUBLE;
	}
	return 0;
}

static size_t size_of(fti_id_t t)
{
	static const size_t sizes[] = {1, sizeof(short), sizeof(int), sizeof(long), 1, sizeof(short), sizeof(int), sizeof(long), sizeof(float), sizeof(double), sizeof(long double)};
	if (t >= 0 && t < BASIC)
		return sizes[t];
	return t >= BASIC && t < fti.ntypes ? fti.types[t]->size : 0;
}

/* made returns the type of libcairn for one of FTI. */
static cairn_type made(fti_id_t t, size_t *align);

/* describe makes a struct of a composite type, if it is laid out as C does it. */
static cairn_type describe(struct type *t, size_t *align)
{
	cairn_field fields[TYPES_FIELDS_MAX];
	int order[TYPES_FIELDS_MAX], n = t->nfields;
	size_t end = 0;
	cairn_type type;
	*align = 1;
	for (int i = 0; i < n; i++) { /* by offset */
		int k = i;
		for (; k > 0 && t->fields[order[k - 1]].offset > t->fields[i].offset; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (int i = 0; i < n; i++) {
		struct field *f = &t->fields[order[i]];
		size_t a, bytes = size_of(f->type) * f->elements;
		memset(&fields[i], 0, sizeof fields[i]);
		fields[i].name = f->name;
		fields[i].type = made(f->type, &a);
		fields[i].offset = f->offset;
		fields[i].ndim = f->ndim;
		memcpy(fields[i].dims, f->dims, sizeof f->dims);
		if (fields[i].type == CAIRN_BYTES) { /* a type of so many bytes */
			fields[i].ndim = 1;
			fields[i].dims[0] = bytes;
		}
		if (f->offset < end || f->offset % a || f->offset + bytes > t->size)
			return CAIRN_BYTES;
		for (int k = 0; k < i; k++)
			if (strcmp(fields[k].name, f->name) == 0)
				return CAIRN_BYTES;
		end = f->offset + bytes;
		if (a > *align)
			*align = a;
	}
	if (!n || t->size % *align || cairn_struct(fti.run, t->name, t->size, n, fields, &type) < 0)
		return CAIRN_BYTES;
	return type;
}

static cairn_type made(fti_id_t t, size_t *align)
{
	if (t < BASIC) {
		*align = t == 10 ? 1 : size_of(t);
		return basic_type(t);
	}
	if (!fti.types[t]->made) {
		fti.types[t]->made = describe(fti.types[t], &fti.types[t]->align);
		if (fti.types[t]->made == CAIRN_BYTES)
			fti.types[t]->align = 1;
	}
	*align = fti.types[t]->align;
	return fti.types[t]->made;
}

/* protect tells libcairn of a variable. */
static int protect(struct variable *v)
{
	size_t dims[TYPES_DIMENSION_MAX + 1], align;
	int n = v->ndim;
	cairn_type type = made(v->type, &align);
	memcpy(dims, v->dims, sizeof v->dims);
	if (type == CAIRN_BYTES)
		dims[n++] = size_of(v->type);
	if (cairn_protect(fti.run, v->name, v->ptr, type, n, dims) < 0) {
		say("variable %d: %s", v->id, cairn_error(fti.run));
		return FTI_NSCS;
	}
	return FTI_SCES;
}

int FTI_Protect(int id, void *ptr, int64_t count, fti_id_t tid)
{
	struct variable *v;
	size_t size;
	if (!initialized("FTI_Protect"))
		return FTI_NSCS;
	if (id < 0 || id > fti.all.configuration.maxVarId || count < 0 || !(size = size_of(tid))) {
		say("FTI_Protect: variable %d: the id, the count of %lld or the type %d is not valid (max_var_id is %d)", id, (long long)count, tid, fti.all.configuration.maxVarId);
		return FTI_NSCS;
	}
	if (!(v = add(id)))
		return FTI_NSCS;
	v->ptr = ptr;
	v->type = tid;
	if (v->count != count || !v->isprotected) {
		v->ndim = 1;
		v->dims[0] = (size_t)count;
	}
	v->count = count;
	v->size = size * (size_t)count;
	v->isprotected = 1;
	return protect(v);
}

int FTI_setIDFromString(const char *name)
{
	struct variable *v;
	if (!initialized("FTI_setIDFromString"))
		return FTI_NSCS;
	if ((v = find_label(name)))
		return v->id;
	while (find(fti.unused))
		fti.unused++;
	if (!(v = add(fti.unused)))
		return FTI_NSCS;
	set_label(v, name);
	return v->id;
}

int FTI_getIDFromString(const char *name)
{
	struct variable *v;
	if (!initialized("FTI_getIDFromString"))
		return FTI_NSCS;
	return (v = find_label(name)) ? v->id : -1;
}

/* rename_to gives a variable the name that the program wants to see in files. */
static int rename_to(struct variable *v, const char *group, const char *name)
{
	char to[160], number[24];
	int taken, self = (int)(v - fti.vars);
	if (!name || !*name)
		return FTI_SCES;
	while (*group == '/')
		group++;
	snprintf(to, sizeof to, "%.70s%s%.70s", group, *group ? "." : "", name);
	for (char *s = to; *s; s++)
		if (*s == '/' || (unsigned char)*s < ' ' || (unsigned char)*s > '~')
			*s = *s == '/' ? '.' : '_';
	snprintf(number, sizeof number, "_%d", v->id);
	taken = strcmp(to, "fti") == 0 || strncmp(to, "Dataset_", 8) == 0;
	for (int i = table_first(&fti.names, table_hash(to, 0)); i >= 0; i = fti.names.entry[i].next)
		taken |= i != self && strcmp(fti.vars[i].name, to) == 0;
	if (taken) /* another variable has that name */
		strncat(to, number, sizeof to - strlen(to) - 1);
	if (strcmp(to, v->name) == 0)
		return FTI_SCES;
	if (v->isprotected)
		cairn_unprotect(fti.run, v->name);
	table_unlink(&fti.names, self);
	snprintf(v->name, sizeof v->name, "%s", to);
	table_link(&fti.names, self, table_hash(to, 0));
	return v->isprotected ? protect(v) : FTI_SCES;
}

static int set_dims(struct variable *v, const char *function, int n, const int64_t *dims)
{
	int64_t elements = 1;
	for (int i = 0; i < n && n <= TYPES_DIMENSION_MAX; i++)
		elements *= dims[i];
	if (n > TYPES_DIMENSION_MAX || elements != v->count) {
		say("%s: variable %d has %lld elements, and its dimensions make %lld", function, v->id, (long long)v->count, (long long)elements);
		return FTI_NSCS;
	}
	v->ndim = n;
	for (int i = 0; i < n; i++)
		v->dims[i] = (size_t)dims[i];
	return protect(v);
}

static struct variable *existing(const char *function, int id)
{
	struct variable *v;
	if (!initialized(function))
		return NULL;
	if (!(v = find(id)) || !v->isprotected) {
		say("%s: variable %d is not protected: call FTI_Protect first", function, id);
		return NULL;
	}
	return v;
}

int FTI_SetAttribute(int id, FTIT_attribute attribute, FTIT_attributeFlag flag)
{
	struct variable *v = existing("FTI_SetAttribute", id);
	int rc = v ? FTI_SCES : FTI_NSCS;
	attribute.name[FTI_BUFS - 1] = 0;
	if (rc == FTI_SCES && flag & FTI_ATTRIBUTE_NAME)
		rc = rename_to(v, "", attribute.name);
	if (rc == FTI_SCES && flag & FTI_ATTRIBUTE_DIM)
		rc = set_dims(v, "FTI_SetAttribute", attribute.dim.ndims, attribute.dim.count);
	return rc;
}

int FTI_DefineDataset(int id, int rank, int64_t *dimLength, const char *name, FTIT_H5Group *h5group)
{
	struct variable *v = existing("FTI_DefineDataset", id);
	int group = h5group ? h5group->id : 0;
	if (!v)
		return FTI_NSCS;
	if (rank > 0 && !dimLength) {
		say("FTI_DefineDataset: variable %d has no dimensions", id);
		return FTI_NSCS;
	}
	if (rank > 0 && set_dims(v, "FTI_DefineDataset", rank, dimLength) != FTI_SCES)
		return FTI_NSCS;
	return rename_to(v, group > 0 && group < fti.ngroups ? fti.groups[group].fullName : "", name);
}

int FTI_InitGroup(FTIT_H5Group *h5group, const char *name, FTIT_H5Group *parent)
{
	if (!initialized("FTI_InitGroup"))
		return FTI_NSCS;
	if (fti.ngroups == FTI_BUFS) {
		say("FTI_InitGroup: there may be up to %d groups", FTI_BUFS - 1);
		return FTI_NSCS;
	}
	if (fti.ngroups == 0)
		fti.ngroups = 1; /* the root */
	memset(h5group, 0, sizeof *h5group);
	h5group->id = fti.ngroups;
	snprintf(h5group->name, sizeof h5group->name, "%.250s", name);
	snprintf(h5group->fullName, sizeof h5group->fullName, "%.120s/%.120s", parent ? parent->fullName : "", name);
	fti.groups[fti.ngroups++] = *h5group;
	return FTI_SCES;
}

int FTI_RenameGroup(FTIT_H5Group *h5group, const char *name)
{
	if (!initialized("FTI_RenameGroup") || h5group->id < 1 || h5group->id >= fti.ngroups)
		return FTI_NSCS;
	snprintf(fti.groups[h5group->id].name, FTI_BUFS, "%.250s", name);
	snprintf(fti.groups[h5group->id].fullName, FTI_BUFS, "/%.250s", name);
	return FTI_SCES;
}

static fti_id_t new_type(const char *function, const char *name, size_t size)
{
	struct type *t;
	if (!initialized(function))
		return FTI_NSCS;
	if (!size || fti.ntypes == TYPES_MAX || !(t = (struct type *)calloc(1, sizeof *t))) {
		say("%s: %s", function, !size ? "a type has at least one byte" : "there are too many types");
		return FTI_NSCS;
	}
	t->size = size;
	if (name && *name)
		snprintf(t->name, sizeof t->name, "%.60s", name);
	else
		snprintf(t->name, sizeof t->name, "Type%d", fti.ntypes);
	fti.types[fti.ntypes] = t;
	return fti.ntypes++;
}

int FTI_InitType(fti_id_t *type, int size)
{
	*type = new_type("FTI_InitType", NULL, size > 0 ? (size_t)size : 0);
	return *type == FTI_NSCS ? FTI_NSCS : FTI_SCES;
}

fti_id_t FTI_InitCompositeType(const char *name, size_t size, FTIT_H5Group *h5g)
{
	(void)h5g;
	return new_type("FTI_InitCompositeType", name, size);
}

static int add_field(const char *function, fti_id_t id, const char *name, fti_id_t type, int64_t offset, int ndims, const int64_t *dims)
{
	struct field *f;
	struct type *t;
	if (!initialized(function))
		return FTI_NSCS;
	if (id < BASIC || id >= fti.ntypes || !size_of(type) || type == id || offset < 0 || (t = fti.types[id])->nfields == TYPES_FIELDS_MAX || ndims > TYPES_DIMENSION_MAX) {
		say("%s: type %d, or its member's type %d, offset or dimensions are not valid", function, id, type);
		return FTI_NSCS;
	}
	f = &t->fields[t->nfields];
	memset(f, 0, sizeof *f);
	f->type = type, f->offset = (size_t)offset, f->elements = 1;
	for (int i = 0; i < ndims; i++) {
		if (dims[i] < 1) {
			say("%s: a member's dimensions are at least 1", function);
			return FTI_NSCS;
		}
		f->elements *= (size_t)dims[i];
		if (i < 4)
			f->dims[i] = (size_t)dims[i];
	}
	f->ndim = ndims;
	if (ndims > 4)
		f->ndim = 1, f->dims[0] = f->elements;
	if (name && *name)
		snprintf(f->name, sizeof f->name, "%.60s", name);
	else
		snprintf(f->name, sizeof f->name, "T%d", t->nfields);
	for (char *s = f->name; *s; s++)
		if (!isalnum((unsigned char)*s))
			*s = '_';
	if (isdigit((unsigned char)*f->name))
		*f->name = '_';
	t->nfields++;
	t->made = 0;
	return FTI_SCES;
}

int FTI_AddScalarField(fti_id_t id, const char *name, fti_id_t fid, int64_t offset)
{
	return add_field("FTI_AddScalarField", id, name, fid, offset, 0, NULL);
}

int FTI_AddVectorField(fti_id_t id, const char *name, fti_id_t tid, int64_t offset, int ndims, int64_t *dim_sizes)
{
	if (ndims < 1 || !dim_sizes) {
		say("FTI_AddVectorField: a vector has dimensions");
		return FTI_NSCS;
	}
	return add_field("FTI_AddVectorField", id, name, tid, offset, ndims, dim_sizes);
}

/* --- checkpoints --- */

/*
 * make_table is called before every save. The table is a text, and a variable
 * of the checkpoint: "id level", then a line per variable: id, bytes, name, and
 * the name that FTI_setIDFromString gave it.
 */
static int make_table(void *context)
{
	size_t room = 64 + (size_t)fti.nvars * (64 + sizeof fti.vars->name + FTI_BUFS);
	char *table = (char *)realloc(fti.table, room);
	(void)context;
	if (!table)
		return -1;
	fti.table = table;
	fti.table_len = (size_t)snprintf(table, room, "%d %d\n", fti.id, fti.level);
	for (int i = 0; i < fti.nvars; i++) {
		struct variable *v = &fti.vars[i];
		if (v->isprotected)
			fti.table_len += (size_t)snprintf(table + fti.table_len, room - fti.table_len, "%d\t%zu\t%s\t%s\n", v->id, v->size, v->name, v->label);
	}
	return cairn_protect(fti.run, "fti", table, CAIRN_UINT8, 1, &fti.table_len) < 0 ? -1 : 0;
}

/* saved takes in that the checkpoint holds the variables as they are. */
static void saved(void)
{
	fti.all.execution.ckptId = (unsigned)fti.id;
	fti.all.execution.ckptLvel = fti.level;
	fti.all.execution.ckptMeta.ckptId = fti.id;
	fti.all.execution.ckptMeta.level = fti.level;
	fti.all.execution.hasCkpt = true;
	for (int i = 0; i < fti.nvars; i++) {
		struct variable *v = &fti.vars[i];
		v->stored = v->isprotected ? (int64_t)v->size : -1;
		snprintf(v->stored_name, sizeof v->stored_name, "%s", v->name);
	}
}

/* load_table takes in what the newest checkpoint says of itself. */
static int load_table(void)
{
	size_t n = 0;
	char *text, *line, *rest;
	if (cairn_stored_in(fti.run, 0, "fti", NULL, 1, &n) != 1 || !(text = (char *)malloc(n + 1))) {
		say("FTI_Init: the checkpoint in %s is not one of an FTI program: %s", fti.dir, cairn_error(fti.run));
		return FTI_NREC;
	}
	if (cairn_read(fti.run, 0, "fti", text, CAIRN_UINT8, 1, &n) < 0) {
		say("FTI_Init: %s", cairn_error(fti.run));
		free(text);
		return FTI_NREC;
	}
	text[n] = 0;
	for (int i = 0; i < fti.nvars; i++)
		fti.vars[i].stored = -1;
	sscanf(text, "%d %d", &fti.id, &fti.level);
	for (line = strchr(text, '\n'); line && line[1]; line = rest) {
		int id;
		size_t size;
		char *name, *label;
		struct variable *v;
		rest = strchr(++line, '\n');
		if (rest)
			*rest = 0;
		if (sscanf(line, "%d\t%zu", &id, &size) != 2 || !(name = strchr(line, '\t')) || !(name = strchr(name + 1, '\t')) || !(label = strchr(name + 1, '\t')) || !(v = add(id)))
			continue;
		*label++ = 0;
		v->stored = (int64_t)size;
		snprintf(v->stored_name, sizeof v->stored_name, "%s", name + 1);
		if (!v->isprotected)
			set_label(v, label);
	}
	free(text);
	fti.all.execution.ckptId = (unsigned)fti.id;
	fti.all.execution.ckptLvel = fti.level;
	fti.all.execution.ckptCnt = (unsigned)fti.id + 1;
	fti.all.execution.hasCkpt = true;
	return FTI_SCES;
}

/* level_of checks a level, and makes it one of 1 to 4. */
static int level_of(const char *function, int level)
{
	static int told;
	if (level < FTI_MIN_LEVEL_ID || level > FTI_MAX_LEVEL_ID) {
		say("%s: there is no level %d", function, level);
		return FTI_NSCS;
	}
	if (level == FTI_L4_H5_SINGLE) {
		if (!told++ && fti.all.topology.myRank == 0)
			say("%s: FTI_L4_H5_SINGLE is level 4 here", function);
		return 4;
	}
	return level > 4 ? level - 4 : level; /* all checkpoints are differential */
}

/* drain waits until the reader of stderr has taken the texts, but not long: after
 * MPI_Abort, mpirun may not read any more. */
static void drain(void)
{
	int unread = 0;
	for (int i = 0; i < 200 && ioctl(2, FIONREAD, &unread) == 0 && unread > 0; i++) {
		struct timespec pause = {0, 5000000};
		nanosleep(&pause, NULL);
	}
}

static cairn_status open_run(int fresh);

/*
 * reopen starts other helpers when a rank has lost its own. All ranks call it. If
 * that is impossible, it ends the program, as the loss of a head ends a program
 * of FTI: few programs look at what FTI_Snapshot returns, and they would compute
 * without protection.
 */
static void reopen(const char *function)
{
	cairn_status rc = CAIRN_NOHELPER;
	int good = 0;
	char why[512];
	snprintf(why, sizeof why, "%s", cairn_error(fti.run));
	if (!fti.supervised) { /* 'cairn run' speaks with one helper of a process */
		cairn_close(fti.run);
		rc = open_run(0);
		snprintf(why, sizeof why, "%s", rc < 0 ? cairn_error(fti.run) : "");
		good = rc >= 0;
		for (int i = 0; i < fti.ntypes; i++)
			if (fti.types[i])
				fti.types[i]->made = 0;
		for (int i = 0; good && i < fti.nvars; i++)
			good = !fti.vars[i].isprotected || protect(&fti.vars[i]) == FTI_SCES;
	}
	if (all_agree(good)) {
		if (rc != CAIRN_RESTORED || load_table() != FTI_SCES) { /* none is left that FTI_Recover could load */
			fti.all.execution.hasCkpt = false;
			for (int i = 0; i < fti.nvars; i++)
				fti.vars[i].stored = -1;
		}
		if (fti.all.topology.myRank == 0)
			say("%s: a helper process was lost; others have been started", function);
		return;
	}
	if (!good)
		say("%s: %s", function, why);
	if (fti.all.topology.myRank == 0)
		say("%s: a helper process was lost, and no other can be started. The program ends, because it would continue without checkpoints; %s", function,
			fti.supervised ? "'cairn run' starts it again" : "start it again: it resumes from its last checkpoint");
	drain();
	MPI_Barrier(FTI_COMM_WORLD); /* the texts come first */
	MPI_Abort(fti.all.execution.globalComm, 1);
	exit(1);
}

/* save takes a checkpoint, or commits the one that FTI_InitICP has begun. */
static int save(const char *function, int id, int level, int begun)
{
	cairn_status rc;
	if (cairn_wait(fti.run) < 0)
		say("an earlier checkpoint was not saved: %s", cairn_error(fti.run));
	fti.id = id, fti.level = level;
	rc = begun ? cairn_commit(fti.run) : cairn_save(fti.run);
	if (rc == CAIRN_NOHELPER) { /* on all ranks */
		reopen(function);
		if (begun) {
			say("%s: checkpoint %d is not saved: the helper that was lost had its variables", function, id);
			return FTI_NSCS;
		}
		fti.id = id, fti.level = level;
		rc = cairn_save(fti.run);
	}
	if (rc >= 0 && fti.all.checkpoint[level].isInline)
		rc = cairn_wait(fti.run);
	if (rc < 0) {
		say("%s: checkpoint %d: %s", function, id, cairn_error(fti.run));
		return FTI_NSCS;
	}
	saved();
	return FTI_DONE;
}

int FTI_Checkpoint(int id, int level)
{
	if (!initialized("FTI_Checkpoint") || (level = level_of("FTI_Checkpoint", level)) < 0)
		return FTI_NSCS;
	return save("FTI_Checkpoint", id, level, 0);
}

/* look agrees on the time, and returns the level that is due; 0: none. */
static int look(void)
{
	FTIT_execution *x = &fti.all.execution;
	double passed = MPI_Wtime() - fti.start, minutes, pace;
	int level = 0, most = x->syncIterMax > 0 ? x->syncIterMax : 512;
	MPI_Allreduce(MPI_IN_PLACE, &passed, 1, MPI_DOUBLE, MPI_MAX, FTI_COMM_WORLD);
	pace = (passed - fti.looked) / (double)(fti.step ? fti.step : 1);
	fti.looked = passed;
	minutes = passed * x->fastForward / 60;
	for (int i = 1; i < LEVELS; i++) {
		FTIT_checkpoint *k = &fti.all.checkpoint[i];
		if (k->ckptIntv > 0 && minutes >= (double)k->ckptIntv * k->ckptCnt)
			level = i, k->ckptCnt = (int)(minutes / k->ckptIntv) + 1;
		if (k->ckptDcpIntv > 0 && minutes >= (double)k->ckptDcpIntv * k->ckptDcpCnt)
			level = i, k->ckptDcpCnt = (int)(minutes / k->ckptDcpIntv) + 1;
	}
	/* About five times a second, and at most twice as many snapshots as before. */
	fti.step = 2 * fti.step < 2 ? 2 : 2 * fti.step;
	if ((double)fti.step * pace > 0.2)
		fti.step = (unsigned long)(0.2 / pace);
	if (fti.step > (unsigned long)most)
		fti.step = (unsigned long)most;
	if (fti.step < 1)
		fti.step = 1;
	fti.next_look = fti.snapshots + fti.step;
	x->minuteCnt = (unsigned)minutes;
	return level;
}

int FTI_Snapshot(void)
{
	int level, rc;
	if (!initialized("FTI_Snapshot"))
		return FTI_NSCS;
	if (fti.all.execution.reco)
		return FTI_Recover();
	if (fti.snapshots++ == 0)
		fti.start = MPI_Wtime();
	fti.id = (int)fti.all.execution.ckptCnt, fti.level = 1;
	switch (rc = cairn_point(fti.run)) { /* saves if 'cairn checkpoint' or 'cairn stop' wants it */
	case CAIRN_OK:
		break;
	case CAIRN_STOPPED:
		if (fti.all.topology.myRank == 0 && !fti.supervised)
			say("the run was stopped at checkpoint %d: start the program again to continue", fti.id);
		cairn_close(fti.run);
		MPI_Finalize();
		exit(0);
	case CAIRN_SAVED:
		saved();
		fti.all.execution.ckptCnt++;
		return FTI_DONE;
	case CAIRN_NOHELPER: /* on all ranks; the last checkpoint may be lost, too */
		reopen("FTI_Snapshot");
		level = 1;
		goto due;
	default:
		say("FTI_Snapshot: %s", cairn_error(fti.run));
		if (rc != CAIRN_NOTSAVED)
			return FTI_NSCS;
	}
	if (fti.snapshots < fti.next_look || (level = look()) == 0)
		return FTI_SCES;
due:
	rc = save("FTI_Snapshot", (int)fti.all.execution.ckptCnt, level, 0);
	if (rc == FTI_DONE)
		fti.all.execution.ckptCnt++;
	return rc;
}

int FTI_InitICP(int id, int level, bool activate)
{
	if (!initialized("FTI_InitICP"))
		return FTI_NSCS;
	if (!activate)
		return FTI_SCES;
	fti.icp = -1;
	if ((level = level_of("FTI_InitICP", level)) < 0)
		return FTI_NSCS;
	if (cairn_begin(fti.run) < 0) {
		say("FTI_InitICP: %s", cairn_error(fti.run));
		return FTI_NSCS;
	}
	fti.icp = 1;
	fti.id = id, fti.level = level;
	return FTI_SCES;
}

int FTI_AddVarICP(int varID)
{
	struct variable *v;
	if (!initialized("FTI_AddVarICP"))
		return FTI_NSCS;
	if (fti.icp == 0)
		return FTI_SCES; /* FTI_InitICP was not active */
	if (fti.icp < 0 || !(v = existing("FTI_AddVarICP", varID)))
		return FTI_NSCS;
	if (v->added) {
		say("FTI_AddVarICP: variable %d was added to this checkpoint already", varID);
		return FTI_NSCS;
	}
	if (cairn_add(fti.run, v->name) < 0) {
		say("FTI_AddVarICP: %s", cairn_error(fti.run));
		return FTI_NSCS;
	}
	v->added = 1;
	return FTI_SCES;
}

int FTI_FinalizeICP(void)
{
	int id = fti.id, level = fti.level, good = fti.icp > 0, rc = FTI_NSCS;
	if (!initialized("FTI_FinalizeICP"))
		return FTI_NSCS;
	if (fti.icp == 0)
		return FTI_SCES;
	fti.icp = 0;
	for (int i = 0; i < fti.nvars; i++) {
		if (fti.vars[i].isprotected && !fti.vars[i].added && good) {
			say("FTI_FinalizeICP: checkpoint %d is not saved: variable %d was not added", id, fti.vars[i].id);
			good = 0;
		}
		fti.vars[i].added = 0;
	}
	if (all_agree(good))
		rc = save("FTI_FinalizeICP", id, level, 1);
	else
		cairn_cancel(fti.run);
	return rc == FTI_DONE ? FTI_SCES : FTI_NSCS;
}

/* --- recovery --- */

int FTI_Status(void) { return fti.all.execution.reco; }

/* recover loads one variable from the newest checkpoint. */
static int recover(const char *function, struct variable *v)
{
	cairn_type type, own;
	size_t dims[TYPES_DIMENSION_MAX + 2], align;
	int n;
	if (v->stored < 0 || (size_t)v->stored != v->size) {
		if (v->stored < 0)
			say("%s: the checkpoint does not hold variable %d", function, v->id);
		else
			say("%s: variable %d has %zu bytes, and %lld in the checkpoint: see FTI_Realloc", function, v->id, v->size, (long long)v->stored);
		return FTI_NREC;
	}
	if (!v->size)
		return FTI_SCES;
	own = made(v->type, &align);
	n = cairn_stored_in(fti.run, 0, v->stored_name, &type, TYPES_DIMENSION_MAX + 2, dims);
	if (n < 0 || n > TYPES_DIMENSION_MAX + 2 || cairn_read(fti.run, 0, v->stored_name, v->ptr, type < CAIRN_FIRST_STRUCT ? type : own, n, dims) < 0) {
		say("%s: variable %d: %s", function, v->id, cairn_error(fti.run));
		return FTI_NREC;
	}
	return FTI_SCES;
}

int FTI_Recover(void)
{
	int rc = FTI_SCES;
	if (!initialized("FTI_Recover"))
		return FTI_NREC;
	if (!fti.all.execution.hasCkpt) {
		say("FTI_Recover: there is no checkpoint");
		return FTI_NREC;
	}
	for (int i = 0; i < fti.nvars && rc == FTI_SCES; i++)
		if (fti.vars[i].stored >= 0 && !fti.vars[i].isprotected) {
			say("FTI_Recover: the checkpoint holds variable %d, which is not protected", fti.vars[i].id);
			rc = FTI_NREC;
		} else if (fti.vars[i].stored < 0 && fti.vars[i].isprotected) {
			say("FTI_Recover: variable %d is protected, and the checkpoint does not hold it", fti.vars[i].id);
			rc = FTI_NREC;
		}
	for (int i = 0; i < fti.nvars && rc == FTI_SCES; i++)
		if (fti.vars[i].stored >= 0)
			rc = recover("FTI_Recover", &fti.vars[i]);
	if (rc == FTI_SCES)
		fti.all.execution.reco = 0;
	return rc;
}

int FTI_RecoverVarInit(void) { return initialized("FTI_RecoverVarInit") ? FTI_SCES : FTI_NSCS; }

int FTI_RecoverVar(int id)
{
	struct variable *v = existing("FTI_RecoverVar", id);
	return v ? recover("FTI_RecoverVar", v) : FTI_NREC;
}

int FTI_RecoverVarFinalize(void) { return initialized("FTI_RecoverVarFinalize") ? FTI_SCES : FTI_NSCS; }

int64_t FTI_GetStoredSize(int id)
{
	struct variable *v = initialized("FTI_GetStoredSize") ? find(id) : NULL;
	return v && v->stored > 0 ? v->stored : 0;
}

void *FTI_Realloc(int id, void *ptr)
{
	struct variable *v = existing("FTI_Realloc", id);
	void *p;
	if (!v)
		return ptr;
	if (!fti.all.execution.reco || v->stored <= 0) {
		say("FTI_Realloc: variable %d keeps its size: %s", id, fti.all.execution.reco ? "the checkpoint does not hold it" : "this is not a restart");
		return ptr;
	}
	if (!(p = realloc(ptr, (size_t)v->stored))) {
		say("FTI_Realloc: no memory for the %lld bytes of variable %d", (long long)v->stored, id);
		return ptr;
	}
	return FTI_Protect(id, p, v->stored / (int64_t)size_of(v->type), v->type) == FTI_SCES ? p : NULL;
}

int FTI_BitFlip(int datasetID)
{
	FTIT_injection *j = &fti.all.injection;
	struct variable *v;
	unsigned char *at;
	size_t element;
	if (!initialized("FTI_BitFlip") || j->rank != fti.all.topology.splitRank || j->counter >= j->number || MPI_Wtime() - j->timer <= j->frequency)
		return FTI_NSCS;
	v = find(datasetID);
	if (!v || !v->isprotected || (v->type != FTI_DBLE && v->type != FTI_SFLT) || j->index >= v->count)
		return FTI_NSCS;
	element = size_of(v->type);
	if ((size_t)j->position >= 8 * element)
		return FTI_NSCS;
	at = (unsigned char *)v->ptr + (size_t)j->index * element;
	if (v->type == FTI_DBLE) {
		uint64_t bits;
		memcpy(&bits, at, sizeof bits);
		bits ^= (uint64_t)1 << j->position;
		memcpy(at, &bits, sizeof bits);
	} else {
		uint32_t bits;
		memcpy(&bits, at, sizeof bits);
		bits ^= (uint32_t)1 << j->position;
		memcpy(at, &bits, sizeof bits);
	}
	say("FTI_BitFlip: bit %d of element %d of variable %d is flipped", j->position, j->index, datasetID);
	j->counter++;
	j->timer = MPI_Wtime();
	return FTI_SCES;
}

/* --- beginning and end --- */

static void forget(void)
{
	for (int i = BASIC; i < fti.ntypes; i++)
		free(fti.types[i]);
	free(fti.vars);
	table_free(&fti.ids);
	table_free(&fti.names);
	table_free(&fti.labels);
	free(fti.table);
	memset(&fti, 0, sizeof fti);
}

/* open_run opens the checkpoints of this configuration, and resumes. */
/* open_run opens the run and its newest checkpoint. fresh: one that has finished is discarded. */
static cairn_status open_run(int fresh)
{
	cairn_options o = CAIRN_OPTIONS;
	cairn_status rc;
	o.every = 1e8; /* FTI_Snapshot says when */
	o.no_signals = 1;
	if (fti.all.configuration.keepL4Ckpt)
		o.keep = 1 << 20;
	rc = cairn_open_mpi(&fti.run, fti.dir, &o, FTI_COMM_WORLD);
	if (rc == CAIRN_FINISHED && fresh) { /* the next run begins from the start, as with FTI */
		cairn_close(fti.run);
		o.fresh = 1;
		rc = cairn_open_mpi(&fti.run, fti.dir, &o, FTI_COMM_WORLD);
	}
	if (rc >= 0)
		rc = cairn_resume(fti.run);
	if (rc >= 0)
		cairn_before_save(fti.run, make_table, NULL);
	return rc;
}

/* begin opens the run for FTI_Init. */
static int begin(void)
{
	const char *control = getenv("CAIRN_CONTROL");
	cairn_status rc;
	fti.supervised = control && *control; /* libcairn empties it */
	rc = open_run(1);
	if (rc < 0) {
		say("FTI_Init: %s", cairn_error(fti.run));
		cairn_close(fti.run);
		fti.run = NULL;
		return all_agree(rc != CAIRN_CORRUPT && rc != CAIRN_MISMATCH) ? FTI_NSCS : FTI_NREC; /* on all ranks */
	}
	if (rc != CAIRN_RESTORED)
		return FTI_SCES;
	fti.all.execution.reco = 1;
	if (!all_agree(load_table() == FTI_SCES)) {
		fti.all.execution.reco = 0;
		fti.all.execution.hasCkpt = false;
		return FTI_NREC;
	}
	if (fti.all.topology.myRank == 0)
		say("resuming from checkpoint %d of level %d; to start over, remove %s", fti.id, fti.level, fti.dir);
	return FTI_SCES;
}

int FTI_Init(const char *configFile, MPI_Comm globalComm)
{
	FTIT_topology *t;
	MPI_Comm own;
	int rc;
	if (fti.ready) {
		say("FTI_Init was called already");
		return FTI_NSCS;
	}
	forget();
	if (FTI_COMM_WORLD != MPI_COMM_NULL)
		MPI_Comm_free(&FTI_COMM_WORLD);
	t = &fti.all.topology;
	if (MPI_Comm_dup(globalComm, &own) != MPI_SUCCESS)
		return FTI_NSCS;
	FTI_COMM_WORLD = own;
	fti.all.execution.globalComm = globalComm;
	fti.all.execution.groupComm = fti.all.execution.nodeComm = MPI_COMM_NULL;
	MPI_Comm_rank(own, &t->myRank);
	MPI_Comm_size(own, &t->nbProc);
	fti.ntypes = BASIC;
	if (!all_agree(read_config(configFile) == FTI_SCES))
		return FTI_NSCS;
	t->splitRank = t->myRank, t->splitSize = t->nbProc;
	t->nbApprocs = t->nodeSize;
	t->nbNodes = t->nodeSize ? t->nbProc / t->nodeSize : 0;
	t->nodeID = t->nodeSize ? t->myRank / t->nodeSize : 0;
	t->nodeRank = t->nodeSize ? t->myRank % t->nodeSize : 0;
	t->masterGlobal = t->myRank == 0, t->masterLocal = t->nodeRank == 0;
	fti.all.injection.timer = MPI_Wtime();
	tell_differences();
	rc = begin();
	if (!fti.run)
		return rc;
	fti.ready = fti.all.execution.initSCES = 1;
	return rc;
}

FTIT_allConfiguration FTI_GetConfig(const char *configFile, MPI_Comm globalComm)
{
	(void)configFile, (void)globalComm;
	fti.all.execution.nbVar = fti.all.execution.nbVarStored = 0;
	fti.all.execution.ckptSize = 0;
	for (int i = 0; i < fti.nvars; i++) {
		fti.all.execution.nbVar += fti.vars[i].isprotected != 0;
		fti.all.execution.nbVarStored += fti.vars[i].stored >= 0;
		if (fti.vars[i].isprotected)
			fti.all.execution.ckptSize += (int64_t)fti.vars[i].size;
	}
	return fti.all;
}

/* archive keeps the checkpoints of a finished run, if keep_l4_ckpt wants that. */
static void archive(void)
{
	char to[2400];
	time_t t = time(NULL);
	struct tm now;
	snprintf(to, sizeof to, "%s/l4_archive", fti.all.configuration.glbalDir);
	mkdir(to, 0777);
	localtime_r(&t, &now);
	snprintf(to, sizeof to, "%s/l4_archive%s.%04d-%02d-%02d_%02d-%02d-%02d", fti.all.configuration.glbalDir, strrchr(fti.dir, '/'), now.tm_year + 1900, now.tm_mon + 1, now.tm_mday, now.tm_hour, now.tm_min, now.tm_sec);
	if (rename(fti.dir, to) < 0)
		say("FTI_Finalize: cannot move %s to %s: %s", fti.dir, to, strerror(errno));
	else
		say("checkpoints are kept in %s", to);
}

int FTI_Finalize(void)
{
	FTIT_configuration *f = &fti.all.configuration;
	cairn_status rc;
	int good = 1, keep;
	if (!initialized("FTI_Finalize"))
		return FTI_NSCS;
	keep = f->saveLastCkpt || f->keepL4Ckpt;
	if ((rc = cairn_wait(fti.run)) < 0) {
		say("FTI_Finalize: %s", cairn_error(fti.run));
		good = 0;
	}
	if ((!keep || !fti.all.execution.hasCkpt) && cairn_finish(fti.run, 0) < 0) {
		say("FTI_Finalize: %s", cairn_error(fti.run));
		good = 0;
	}
	MPI_Barrier(FTI_COMM_WORLD);
	if (cairn_close(fti.run) < 0)
		good = 0;
	good = all_agree(good);
	if (f->keepL4Ckpt && !f->saveLastCkpt && fti.all.execution.hasCkpt && keep && fti.all.topology.myRank == 0)
		archive();
	MPI_Barrier(FTI_COMM_WORLD);
	forget(); /* the program may still use FTI_COMM_WORLD */
	return good ? FTI_SCES : FTI_NSCS;
}

/* --- not available --- */

static const char staging[] = "stage files: write them to their final place, or protect what they hold";
static const char shared[] = "share one dataset among ranks: protect each rank's part";

int FTI_GetStageDir(char *stageDir, int maxLen) { (void)stageDir, (void)maxLen; return unavailable("FTI_GetStageDir", staging); }
int FTI_GetStageStatus(int ID) { (void)ID; return unavailable("FTI_GetStageStatus", staging); }
int FTI_SendFile(const char *lpath, const char *rpath) { (void)lpath, (void)rpath; return unavailable("FTI_SendFile", staging); }
int FTI_DefineGlobalDataset(int id, int rank, FTIT_hsize_t *dimLength, const char *name, FTIT_H5Group *h5group, fti_id_t tid) { (void)id, (void)rank, (void)dimLength, (void)name, (void)h5group, (void)tid; return unavailable("FTI_DefineGlobalDataset", shared); }
int FTI_AddSubset(int id, int rank, FTIT_hsize_t *offset, FTIT_hsize_t *count, int did) { (void)id, (void)rank, (void)offset, (void)count, (void)did; return unavailable("FTI_AddSubset", shared); }
int FTI_RecoverDatasetDimension(int did) { (void)did; return unavailable("FTI_RecoverDatasetDimension", shared); }
FTIT_hsize_t *FTI_GetDatasetSpan(int did, int rank) { (void)did, (void)rank; unavailable("FTI_GetDatasetSpan", shared); return NULL; }
int FTI_GetDatasetRank(int did) { (void)did; return unavailable("FTI_GetDatasetRank", shared); }
int FTI_UpdateGlobalDataset(int id, int rank, FTIT_hsize_t *dimLength) { (void)id, (void)rank, (void)dimLength; return unavailable("FTI_UpdateGlobalDataset", shared); }
int FTI_UpdateSubset(int id, int rank, FTIT_hsize_t *offset, FTIT_hsize_t *count, int did) { (void)id, (void)rank, (void)offset, (void)count, (void)did; return unavailable("FTI_UpdateSubset", shared); }
