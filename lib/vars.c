/* Variables, their types, and where their copies are in the mirror. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SLAB = 256 << 10, OWN = 64 << 10, GRAIN = 64 << 10 }; /* GRAIN: no page is larger */

size_t type_size(cairn_run *r, cairn_type t)
{
	static const unsigned char sizes[] = {0, 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 8, 16, sizeof(long double), 2 * sizeof(long double), 1, 1};
	if (t > 0 && t < (cairn_type)sizeof sizes)
		return sizes[t];
	if (t >= CAIRN_FIRST_STRUCT && (size_t)(t - CAIRN_FIRST_STRUCT) < r->ntypes)
		return r->types[t - CAIRN_FIRST_STRUCT].bytes;
	return 0;
}

static size_t hash(const char *s)
{
	uint64_t h = 1469598103934665603u;
	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 1099511628211u;
	return (size_t)h;
}

struct variable **vars_find(cairn_run *r, const char *name)
{
	struct variable **v = r->nbuckets ? &r->bucket[hash(name) & (r->nbuckets - 1)] : NULL;
	for (; v && *v; v = &(*v)->next)
		if (strcmp((*v)->name, name) == 0)
			return v;
	return NULL;
}

static int grow(cairn_run *r)
{
	if (r->nvars == r->capvars) {
		size_t cap = r->capvars ? 2 * r->capvars : 64;
		struct variable **p = realloc(r->vars, cap * sizeof *p);
		if (!p)
			return -1;
		r->vars = p, r->capvars = cap;
	}
	if (r->nvars >= r->nbuckets) {
		size_t n = r->nbuckets ? 4 * r->nbuckets : 128;
		struct variable **b = calloc(n, sizeof *b);
		if (!b)
			return -1;
		free(r->bucket);
		r->bucket = b, r->nbuckets = n;
		for (size_t i = 0; i < r->nvars; i++) {
			struct variable **to = &b[hash(r->vars[i]->name) & (n - 1)];
			r->vars[i]->next = *to;
			*to = r->vars[i];
		}
	}
	return 0;
}

/*
 * reserve makes the kernel find memory for a part of the mirror. Without that, a
 * copy to it ends the program when there is none.
 */
static int reserve(cairn_run *r, uint64_t at, uint64_t n)
{
	sigset_t all, was;
	int rc;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was); /* a signal would undo it */
	rc = n ? fallocate(r->mirror, 0, (off_t)at, (off_t)n) : 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL); /* keeps errno */
	return rc;
}

/* extent makes the mirror longer, and maps what is new; so many bytes of it are needed at once. */
static unsigned char *extent(cairn_run *r, uint64_t bytes, uint64_t needed)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, r->mirror, (off_t)r->end);
	if (p == MAP_FAILED)
		return NULL;
	if (reserve(r, r->end, needed) < 0 || ftruncate(r->mirror, (off_t)(r->end + bytes)) < 0) { /* last: it cannot become shorter */
		munmap(p, bytes);
		return NULL;
	}
	r->end += bytes;
	return p;
}

/*
 * reuse gives a large variable a part of the mirror that another one had: the
 * smallest that is large enough. It returns whether there is one. The helper has
 * each part mapped already, and as a whole: parts are never joined.
 */
static int reuse(cairn_run *r, struct variable *v, uint64_t n)
{
	struct spare *all = (struct spare *)(void *)r->spares.p, *best = NULL;
	size_t count = r->spares.len / sizeof *all;
	for (size_t i = 0; i < count && (!best || best->hi - best->lo > n); i++)
		if (all[i].idle && all[i].hi - all[i].lo >= n && (!best || all[i].hi - all[i].lo < best->hi - best->lo))
			best = &all[i];
	if (!best)
		return 0;
	if (reserve(r, best->lo, v->bytes) < 0 || (v->copy = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, r->mirror, (off_t)best->lo)) == MAP_FAILED)
		return v->copy = NULL, 0;
	v->offset = best->lo, v->room = n;
	best->lo += n;
	if (best->lo == best->hi) {
		*best = all[count - 1];
		r->spares.len -= sizeof *all;
	}
	return 1;
}

/* pool returns the parts of the mirror for small variables of n bytes, and rounds n up to their size. */
static struct text *pool(cairn_run *r, uint64_t *n)
{
	struct text *p = r->pools;
	uint64_t size = 64, step = 64;
	for (; size < *n; size += step, p++)
		step = size < 8 * step ? step : 2 * step;
	*n = size;
	return p;
}

/*
 * place gives a variable its copy, with room to grow if it has grown before. A
 * small one takes a part from a pool, so that the time does not depend on how
 * many others have vanished.
 */
static int place(cairn_run *r, struct variable *v, uint64_t grown)
{
	uint64_t n = v->bytes + (grown ? v->bytes / 2 : 0);
	struct spare s = {r->end, 0, NULL, 1};
	v->room = 0;
	if ((v->own = n >= OWN)) {
		n = (n + GRAIN - 1) & ~(uint64_t)(GRAIN - 1);
		if (reuse(r, v, n))
			return 0;
		s.copy = extent(r, n, v->bytes);
	} else {
		struct text *p = pool(r, &n);
		if (!p->len && (s.copy = extent(r, SLAB, SLAB))) {
			p->bad = r->slabs.bad = 0; /* without memory for a list, what is not in it is lost */
			put_bytes(&r->slabs, &s.copy, sizeof s.copy);
			for (uint64_t at = SLAB / n * n; at > 0; at -= n) /* the first is taken first */
				put_bytes(p, &(struct spare){s.lo + at - n, s.lo + at, s.copy + at - n, 1}, sizeof s);
		}
		if (p->len)
			memcpy(&s, p->p + (p->len -= sizeof s), sizeof s);
	}
	if (!s.copy)
		return -1;
	v->offset = s.lo, v->copy = s.copy, v->room = n;
	return 0;
}

/*
 * unplace takes a variable's copy away. The helper may be reading it: the memory
 * is given back by vars_tell, when the checkpoint under way is durable.
 */
static void unplace(cairn_run *r, struct variable *v)
{
	struct spare s = {v->offset, v->offset + v->room, v->own ? NULL : v->copy, 0};
	gpu_forget(r, v);
	if (!v->copy)
		return;
	if (v->own)
		munmap(v->copy, (size_t)v->room);
	put_bytes(&r->spares, &s, sizeof s);
	r->spares.bad = 0; /* without memory for it, the part is not used again */
	v->copy = NULL, v->room = 0;
}

/* vacate says that the helper reads nothing of what was unplaced. */
static void vacate(cairn_run *r)
{
	struct spare *all = (struct spare *)(void *)r->spares.p;
	size_t large = 0;
	for (size_t i = 0; i < r->spares.len / sizeof *all; i++) {
		uint64_t n = all[i].hi - all[i].lo;
		if (!all[i].idle && !all[i].copy)
			fallocate(r->mirror, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)all[i].lo, (off_t)n);
		all[i].idle = 1;
		if (all[i].copy)
			put_bytes(pool(r, &n), &all[i], sizeof *all);
		else
			all[large++] = all[i];
	}
	r->spares.len = large * sizeof *all;
}

static void release(struct variable *v)
{
	free(v->name);
	free(v->dims);
	free(v);
}

/* shape checks dimensions, and says how many bytes the array has. */
static cairn_status shape(cairn_run *r, const char *name, cairn_type type, int ndim, const size_t *dims, uint64_t *bytes)
{
	uint64_t n = type_size(r, type);
	if (!n)
		return fail(r, CAIRN_ARGUMENT, "variable \"%.100s\": there is no type %d", name, type);
	if (ndim < 0 || ndim > 32 || (ndim && !dims))
		return fail(r, CAIRN_ARGUMENT, "variable \"%.100s\": %d dimensions; there may be up to 32", name, ndim);
	for (int i = 0; i < ndim; i++) {
		if (dims[i] && n > (uint64_t)(SIZE_MAX / 2) / dims[i])
			return fail(r, CAIRN_ARGUMENT, "variable \"%.100s\" has more bytes than can be addressed", name);
		n *= dims[i];
	}
	*bytes = n;
	return CAIRN_OK;
}

static cairn_status protect(cairn_run *r, const char *name, void *data, cairn_type type, int ndim, const size_t *dims)
{
	struct variable *v, **at;
	size_t *own = NULL;
	uint64_t bytes, bytes_before;
	if (!*name || !name[strspn(name, ".")] || strlen(name) > 200 || name[strcspn(name, "/\1\2\3\4\5\6\a\b\t\n\v\f\r\16\17\20\21\22\23\24\25\26\27\30\31\32\33\34\35\36\37")])
		return fail(r, CAIRN_ARGUMENT, "variable \"%.200s\": a name has 1 to 200 bytes, not only dots, no '/' and no control character", name);
	if (shape(r, name, type, ndim, dims, &bytes) < 0)
		return CAIRN_ARGUMENT;
	if (!data && bytes)
		return fail(r, CAIRN_ARGUMENT, "variable \"%.100s\" has no address", name);
	at = vars_find(r, name);
	if ((!at || (*at)->data != data || (*at)->bytes != bytes) && gpu_check(r, name, data, bytes) < 0)
		return CAIRN_ARGUMENT;
	if (at && (*at)->copy && (*at)->type == type && (*at)->ndim == ndim && (!ndim || memcmp((*at)->dims, dims, (size_t)ndim * sizeof *dims) == 0)) {
		if ((*at)->data != data) {
			copy_unwatch(r, *at);
			(*at)->data = data, (*at)->fresh = 1, (*at)->added = 0;
		}
		return CAIRN_OK;
	}
	if (ndim && !(own = malloc((size_t)ndim * sizeof *own)))
		return fail(r, CAIRN_NOMEMORY, "variable \"%.100s\": out of memory", name);
	if (ndim)
		memcpy(own, dims, (size_t)ndim * sizeof *own);
	if (at) {
		v = *at;
		copy_unwatch(r, v);
		free(v->dims);
	} else {
		v = calloc(1, sizeof *v);
		if (!v || !(v->name = strdup(name)) || grow(r) < 0) {
			free(v ? v->name : NULL);
			free(v);
			free(own);
			return fail(r, CAIRN_NOMEMORY, "variable \"%.100s\": out of memory", name);
		}
		at = &r->bucket[hash(name) & (r->nbuckets - 1)];
		v->next = *at;
		*at = v;
		v->index = r->nvars;
		r->vars[r->nvars++] = v;
	}
	v->data = data, v->type = type, v->ndim = ndim, v->dims = own, v->bytes = bytes;
	v->told = 0, v->fresh = 1, v->untracked = 0, v->added = 0;
	bytes_before = v->room;
	if (!v->copy || bytes > v->room || (v->own && reserve(r, v->offset, bytes) < 0)) {
		unplace(r, v);
		place(r, v, bytes_before);
	}
	if (!v->copy)
		return fail(r, CAIRN_NOMEMORY, "variable \"%.100s\": no memory for a copy of %llu bytes: %s; a run needs as much memory again as it protects", name, (unsigned long long)bytes, strerror(errno));
	if (v->own)
		copy_bytes(v->copy, v->copy, (size_t)bytes); /* maps it: the first copy must not wait for that */
	return CAIRN_OK;
}

/* forgive forgets that a variable could not be protected. */
static int forgive(cairn_run *r, const char *name)
{
	for (size_t at = 0, n; at < r->failed.len; at += n) {
		char *p = (char *)r->failed.p + at;
		n = strlen(p) + 1;
		n += strlen(p + n) + 1;
		if (strcmp(p, name) == 0) {
			memmove(p, p + n, r->failed.len - at - n);
			r->failed.len -= n;
			return 1;
		}
	}
	return 0;
}

cairn_status cairn_protect(cairn_run *r, const char *name, void *data, cairn_type type, int ndim, const size_t *dims)
{
	cairn_status rc;
	size_t before;
	if ((rc = own_run(r)) < 0)
		return rc;
	name = name ? name : "";
	rc = protect(r, name, data, type, ndim, dims);
	forgive(r, name);
	if (rc >= 0)
		return rc;
	before = r->failed.len;
	put_bytes(&r->failed, name, strlen(name) + 1);
	put_bytes(&r->failed, cairn_error(r), strlen(cairn_error(r)) + 1);
	if (r->failed.bad)
		r->failed.len = before;
	return rc;
}

cairn_status vars_complete(cairn_run *r)
{
	const char *first = (const char *)r->failed.p;
	if (!r->failed.len && !r->failed.bad)
		return CAIRN_OK;
	return fail(r, CAIRN_ARGUMENT, "%s; the state is incomplete: protect the variable, or call cairn_unprotect for its name", r->failed.len ? first + strlen(first) + 1 : "out of memory when a variable was protected");
}

cairn_status cairn_unprotect(cairn_run *r, const char *name)
{
	struct variable **at, *v;
	int failed;
	if (own_run(r) < 0)
		return CAIRN_ARGUMENT;
	at = name ? vars_find(r, name) : NULL;
	failed = name && forgive(r, name);
	if (!at)
		return failed ? CAIRN_OK : fail(r, CAIRN_ARGUMENT, "no variable \"%.100s\" is protected", name ? name : "");
	v = *at;
	*at = v->next;
	r->vars[v->index] = r->vars[--r->nvars];
	r->vars[v->index]->index = v->index;
	copy_unwatch(r, v);
	unplace(r, v);
	put_str(&r->gone_names, name);
	r->dropped++;
	release(v);
	return CAIRN_OK;
}

/* put_shape appends dimensions and a type to a message. */
static void put_shape(cairn_run *r, struct text *t, int ndim, const size_t *dims, cairn_type type)
{
	put_u32(t, (uint32_t)ndim);
	for (int i = 0; i < ndim; i++)
		put_u64(t, dims[i]);
	put_u32(t, (uint32_t)type);
	if (type >= CAIRN_FIRST_STRUCT)
		put_bytes(t, r->types[type - CAIRN_FIRST_STRUCT].description.p, r->types[type - CAIRN_FIRST_STRUCT].description.len);
}

cairn_status cairn_struct(cairn_run *r, const char *name, size_t bytes, int n, const cairn_field *fields, cairn_type *type)
{
	struct structure *all, s = {bytes, {0}};
	cairn_status rc = CAIRN_OK;
	uint64_t end = 0, size;
	if (!r || !name || !*name || !type || n < 1 || !fields || !bytes)
		return fail(r, CAIRN_ARGUMENT, "a struct needs a name, a size and members");
	put_str(&s.description, name);
	put_u64(&s.description, bytes);
	put_u32(&s.description, (uint32_t)n);
	for (int i = 0; rc >= 0 && i < n; i++) {
		const cairn_field *f = &fields[i];
		if ((rc = shape(r, f->name ? f->name : "", f->type, f->ndim > 4 ? -1 : f->ndim, f->dims, &size)) < 0)
			break;
		if (!f->name || !*f->name || f->offset < end || f->offset + size > bytes)
			rc = fail(r, CAIRN_ARGUMENT, "struct %.100s: member %d has no name, overlaps the one before it, or does not fit; list members by ascending offset", name, i);
		end = f->offset + size;
		put_str(&s.description, f->name);
		put_u64(&s.description, f->offset);
		put_shape(r, &s.description, f->ndim, f->dims, f->type);
	}
	all = rc < 0 || s.description.bad ? NULL : realloc(r->types, (r->ntypes + 1) * sizeof *all);
	if (!all) {
		free(s.description.p);
		return rc < 0 ? rc : fail(r, CAIRN_NOMEMORY, "struct %.100s: out of memory", name);
	}
	r->types = all;
	all[r->ntypes] = s;
	*type = CAIRN_FIRST_STRUCT + (cairn_type)r->ntypes++;
	return CAIRN_OK;
}

/* tell_extent tells the helper which part of the mirror is new. */
static cairn_status tell_extent(cairn_run *r)
{
	cairn_status rc = CAIRN_OK;
	r->out.len = 0, r->out.bad = 0;
	if (r->mapped == r->end)
		return rc;
	put_u64(&r->out, r->mapped);
	put_u64(&r->out, r->end);
	if ((rc = helper_send(r, MSG_EXTENT, NULL, 0)) >= 0)
		r->mapped = r->end;
	return rc;
}

cairn_status vars_tell(cairn_run *r)
{
	cairn_status rc = tell_extent(r);
	size_t n = 0;
	if (rc < 0)
		return rc;
	for (size_t i = 0; i < r->nvars; i++)
		n += !r->vars[i]->told;
	if (!n && !r->dropped)
		return CAIRN_OK;
	put_u32(&r->out, (uint32_t)r->dropped);
	put_bytes(&r->out, r->gone_names.p, r->gone_names.len);
	put_u32(&r->out, (uint32_t)n);
	for (size_t i = 0; i < r->nvars; i++) {
		struct variable *v = r->vars[i];
		if (v->told)
			continue;
		put_str(&r->out, v->name);
		put_u64(&r->out, v->offset);
		put_shape(r, &r->out, v->ndim, v->dims, v->type);
	}
	if ((rc = helper_ask(r, MSG_VARS)) < 0)
		return rc;
	for (size_t i = 0; i < r->nvars; i++)
		r->vars[i]->told = 1;
	vacate(r);
	r->dropped = 0, r->gone_names.len = 0;
	return CAIRN_OK;
}

cairn_status cairn_read(cairn_run *r, uint64_t index, const char *name, void *data, cairn_type type, int ndim, const size_t *dims)
{
	struct variable own = {0}, *v = &own, **at;
	cairn_status rc;
	if ((rc = own_run(r)) < 0)
		return rc;
	if (!name || !*name || !data)
		return fail(r, CAIRN_ARGUMENT, "a variable without a name or an address");
	if ((rc = shape(r, name, type, ndim, dims, &own.bytes)) < 0)
		return rc;
	if (r->saving && (rc = helper_news(r, 1)) < 0 && rc != CAIRN_NOTSAVED)
		return rc;
	gpu_wait(r);
	if ((at = vars_find(r, name)) && (*at)->copy && !(*at)->added && (*at)->room >= own.bytes) {
		v = *at; /* its copy will do: the next save copies the variable again */
		v->fresh = 1;
	} else if (place(r, v, 0) < 0) {
		return fail(r, CAIRN_NOMEMORY, "variable \"%.100s\": no memory for %llu bytes: %s", name, (unsigned long long)own.bytes, strerror(errno));
	}
	if ((rc = tell_extent(r)) >= 0) {
		put_u64(&r->out, index);
		put_str(&r->out, name);
		put_u64(&r->out, v->offset);
		put_shape(r, &r->out, ndim, dims, type);
		rc = helper_ask(r, MSG_READ);
	}
	if (rc >= 0)
		rc = gpu_load(r, v, data, own.bytes);
	if (v == &own)
		unplace(r, v);
	if (rc >= 0)
		vacate(r);
	return rc;
}

void vars_forget(cairn_run *r)
{
	r->mapped = 0;
	for (size_t i = 0; i < r->nvars; i++)
		r->vars[i]->told = 0, r->vars[i]->fresh = 1;
	r->dropped = 0, r->gone_names.len = 0;
}

void vars_free(cairn_run *r)
{
	for (size_t i = 0; i < r->nvars; i++) {
		copy_unwatch(r, r->vars[i]);
		unplace(r, r->vars[i]);
		release(r->vars[i]);
	}
	for (size_t i = 0; i < r->ntypes; i++)
		free(r->types[i].description.p);
	for (size_t i = 0; i < r->slabs.len / sizeof(void *); i++)
		munmap(((void **)(void *)r->slabs.p)[i], SLAB);
	for (size_t i = 0; i < sizeof r->pools / sizeof *r->pools; i++)
		free(r->pools[i].p);
}
