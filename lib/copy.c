/*
 * Copying variables to the mirror and back, by several threads where there is
 * much, and finding the pages that were written since the last copy.
 */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { STEP = 4 << 20, SCAN = 16 << 20, PART = 512 << 20, THREADS = 8, POPULATE = 23 /* MADV_POPULATE_WRITE */ };

/* piece is some bytes to copy. */
struct piece {
	unsigned char *to;
	const unsigned char *from;
	size_t n;
	struct variable *watched; /* not NULL: only pages of it that were written are copied */
	struct text written;      /* … these, in the mirror: struct range; bad: the kernel did not say */
};

struct work {
	cairn_run *r;
	struct text pieces; /* struct piece */
	size_t next;        /* taken by threads */
	uint64_t bytes;
};

static void add(struct work *w, unsigned char *to, const unsigned char *from, size_t n, struct variable *watched)
{
	size_t step = watched ? SCAN : STEP;
	while (n > 0) {
		struct piece p = {to, from, n < step ? n : step, watched, {0}};
		put_bytes(&w->pieces, &p, sizeof p);
		w->bytes += watched ? p.n / 4 : p.n; /* little of it is copied */
		to += p.n, from += p.n, n -= p.n;
	}
}

/* From linux/userfaultfd.h and linux/fs.h, which older systems lack. */
struct uffdio_api_ { uint64_t api, features, ioctls; };
struct uffdio_register_ { uint64_t start, len, mode, ioctls; };
struct page_region_ { uint64_t start, end, categories; };
struct pm_scan_arg_ {
	uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages;
	uint64_t category_inverted, category_mask, category_anyof_mask, return_mask;
};
#define UFFDIO_API_ 0xc018aa3ful
#define UFFDIO_REGISTER_ 0xc020aa00ul
#define UFFDIO_UNREGISTER_ 0x8010aa01ul
#define PAGEMAP_SCAN_ 0xc0606610ul
enum { WP_ALLOWED = 1, WRITTEN = 2, PRESENT = 8, WP_MATCHING = 1, CHECK_WPASYNC = 2, MODE_WP = 2, TRACKED = 1 << 20 };

static int scan(cairn_run *r, uint64_t lo, uint64_t hi, struct page_region_ *vec, size_t n, uint64_t *end)
{
	struct pm_scan_arg_ a = {0};
	int k;
	a.size = sizeof a, a.flags = WP_MATCHING | CHECK_WPASYNC, a.start = lo, a.end = hi;
	a.vec = (uint64_t)(uintptr_t)vec, a.vec_len = n;
	/* Pages that are not there, too: not all kernels count a huge page that was dropped as written. */
	a.category_inverted = PRESENT, a.category_anyof_mask = PRESENT | WRITTEN, a.return_mask = WP_ALLOWED;
	do
		k = ioctl(r->pagemap, PAGEMAP_SCAN_, &a);
	while (k < 0 && errno == EINTR);
	*end = a.walk_end;
	return k;
}

/* copy_written copies the pages of a piece that were written since the last copy, and sets n to their bytes. */
static void copy_written(cairn_run *r, struct piece *p)
{
	struct page_region_ vec[256];
	uint64_t lo = (uint64_t)(uintptr_t)p->from, hi = lo + p->n, end, mirror = p->watched->offset + (uint64_t)(p->to - p->watched->copy) - lo;
	p->n = 0;
	for (uint64_t at = lo; at < hi && !p->written.bad; at = end) {
		int k = scan(r, at, hi, vec, 256, &end);
		p->written.bad |= k < 0 || end <= at;
		for (int i = 0; i < k; i++) {
			memcpy(p->to + (vec[i].start - lo), p->from + (vec[i].start - lo), (size_t)(vec[i].end - vec[i].start));
			add_range(&p->written, mirror + vec[i].start, mirror + vec[i].end);
			p->n += (size_t)(vec[i].end - vec[i].start);
		}
	}
}

void page_set(cairn_run *r, uint64_t copied, uint64_t until, uint32_t filling)
{
	r->page->until = until;
	__atomic_store_n(&r->page->copied, copied, __ATOMIC_RELEASE);
	__atomic_store_n(&r->page->filling, filling, __ATOMIC_RELEASE);
	__atomic_fetch_add(&r->page->step, 1, __ATOMIC_RELEASE);
	syscall(SYS_futex, &r->page->step, 1 /* FUTEX_WAKE */, INT_MAX, NULL, NULL, 0);
}

static void *copy(void *arg)
{
	struct work *w = arg;
	size_t i, n = w->pieces.len / sizeof(struct piece);
	while ((i = __atomic_fetch_add(&w->next, 1, __ATOMIC_RELAXED)) < n) {
		struct piece *p = (struct piece *)(void *)w->pieces.p + i;
		if (p->watched)
			copy_written(w->r, p);
		else if (p->to != p->from)
			copy_stream(p->to, p->from, p->n);
		else
			madvise(p->to, p->n, POPULATE); /* an old kernel does it later, page by page */
	}
	return NULL;
}

static void run(struct work *w)
{
	pthread_t t[THREADS];
	int n = 0, most = w->bytes / STEP < THREADS ? (int)(w->bytes / STEP) : THREADS;
	cpu_set_t set;
	sigset_t all, was;
	if (most > 1 && sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) < most)
		most = CPU_COUNT(&set);
	sigfillset(&all); /* the program's signals are not for these threads */
	pthread_sigmask(SIG_SETMASK, &all, &was);
	while (n < most - 1 && pthread_create(&t[n], NULL, copy, w) == 0)
		n++;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	copy(w);
	while (n > 0)
		pthread_join(t[--n], NULL);
}

/* track opens what tracking needs, once. */
static void track(cairn_run *r)
{
	struct uffdio_api_ api = {0xaa, 1 << 13 | 1 << 15, 0};
	uint64_t end;
	if (r->uffd != -2)
		return;
	r->uffd = -1;
	/* Memory of several ranks may be written by another process or a network card. */
	if (r->opts.no_tracking || r->comm.size > 1 || (r->uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1)) < 0)
		return;
	if (ioctl(r->uffd, UFFDIO_API_, &api) == 0 && (r->pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) >= 0 && scan(r, 0, 0, NULL, 0, &end) >= 0)
		return;
	if (r->pagemap >= 0)
		close(r->pagemap);
	close(r->uffd);
	r->uffd = r->pagemap = -1;
}

/* pages returns the whole pages inside a variable: others share those at its edges. */
static void pages(struct variable *v, uint64_t *lo, uint64_t *hi)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), at = (uint64_t)(uintptr_t)v->data;
	*lo = (at + page - 1) & ~(page - 1);
	*hi = at + v->bytes < *lo ? *lo : (at + v->bytes) & ~(page - 1);
}

/* private_memory reports whether a mapping of nobody else has these addresses. */
static int private_memory(uint64_t lo, uint64_t hi)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char *line = NULL, perms[8];
	size_t n = 0;
	unsigned long long a, b;
	int ok = f != NULL;
	while (f && getline(&line, &n, f) > 0)
		if (sscanf(line, "%llx-%llx %7s", &a, &b, perms) == 3 && a < hi && lo < b && (perms[3] == 's' || perms[1] != 'w'))
			ok = 0;
	free(line);
	if (f)
		fclose(f);
	return ok;
}

/* watch makes the kernel track a variable from now on, if that is possible. */
static void watch(cairn_run *r, struct variable *v)
{
	struct uffdio_register_ reg = {0};
	struct page_region_ vec[64];
	uint64_t lo, hi, end;
	int alone = 1;
	pages(v, &lo, &hi);
	v->untracked = 1;
	for (size_t i = 0; hi - lo >= TRACKED && i < r->nvars; i++) { /* a scan of one would hide writes from the other */
		struct variable *w = r->vars[i];
		if (w != v && w->data < v->data + v->bytes && v->data < w->data + w->bytes) {
			alone = 0, w->untracked = w->fresh = 1;
			copy_unwatch(r, w);
		}
	}
	reg.start = lo, reg.len = hi - lo, reg.mode = MODE_WP;
	if (!alone || hi - lo < TRACKED || !private_memory(lo, hi) || ioctl(r->uffd, UFFDIO_REGISTER_, &reg) < 0)
		return;
	v->watched = 1;
	for (; lo < hi; lo = end) /* begin with no page written */
		if (scan(r, lo, hi, vec, 64, &end) < 0 || end <= lo) {
			copy_unwatch(r, v);
			return;
		}
	v->untracked = 0;
}

void copy_unwatch(cairn_run *r, struct variable *v)
{
	uint64_t range[2], end;
	if (!v->watched || r->pid != getpid()) /* the tracking is that of the process which began it */
		return;
	v->watched = 0;
	pages(v, &range[0], &end);
	range[1] = end - range[0];
	ioctl(r->uffd, UFFDIO_UNREGISTER_, range); /* the memory may be gone */
}

/* add_part adds bytes of a variable, of which only pages that were written may be meant. */
static void add_part(cairn_run *r, struct variable *v, struct work *w, uint64_t from, uint64_t to, int all)
{
	add(w, v->copy + from, v->data + from, (size_t)(v == r->later ? v->bytes / 2 : to - from), all ? NULL : v);
	if (all && from < to)
		add_range(&r->changed, v->offset + from, v->offset + to);
}

/* settle notes the pages that were copied. It adds variables of which the kernel did not say which. */
static void settle(cairn_run *r, struct work *w, struct work *again)
{
	struct piece *p = (struct piece *)(void *)w->pieces.p, *end = p + w->pieces.len / sizeof *p;
	for (uint64_t sum = 0; p < end; p++) {
		struct variable *v = p->watched;
		if (!v)
			continue;
		put_bytes(&r->changed, p->written.p, p->written.len);
		free(p->written.p);
		sum += p->written.bad ? v->bytes + 1 : p->n;
		if (p + 1 < end && p[1].watched == v)
			continue;
		v->pause = sum <= v->bytes / 2 ? 0 : v->pause == 0 ? 2 : v->pause < 16 ? 2 * v->pause : 32;
		if ((v->rest = v->pause)) { /* tracking costs more than it saves, or failed: try again later */
			copy_unwatch(r, v);
			v->untracked = sum > v->bytes;
		}
		if (sum > v->bytes)
			add_part(r, v, again, 0, v->bytes, 1);
		sum = 0;
	}
}

/* whole reports whether all of a variable is copied at the next save. */
static int whole(const struct variable *v) { return v->place == MEM_HOST && !(v->watched && !v->fresh); }

/* add_changed adds what may have changed of a variable since its last copy. */
static void add_changed(cairn_run *r, struct variable *v, struct work *w)
{
	if (v->bytes && v->place == MEM_HOST && !whole(v)) {
		uint64_t base = (uint64_t)(uintptr_t)v->data, lo, hi;
		pages(v, &lo, &hi);
		add_part(r, v, w, 0, lo - base, 1);
		add_part(r, v, w, lo - base, hi - base, 0);
		add_part(r, v, w, hi - base, v->bytes, 1);
	} else if (v->bytes && v->place != MEM_HOST) { /* gpu.c copies it */
		add_range(&r->changed, v->offset, v->offset + v->bytes);
	} else if (v->bytes) {
		if (v->rest)
			v->rest--;
		else if (r->uffd >= 0 && !v->untracked && !v->watched)
			watch(r, v); /* before the copy: what is written later must be seen */
		add_part(r, v, w, 0, v->bytes, 1);
		v->fresh = 0;
	}
}

cairn_status copy_out(cairn_run *r, struct variable *only)
{
	struct work w = {0}, again = {0};
	cairn_status rc = gpu_begin(r, 0, only);
	int bad, postpone;
	if (rc < 0)
		return rc;
	/* Other ranks may fail before they send. While GPU memory is copied, the helper waits for that. */
	postpone = !only && r->comm.size <= 1 && !r->page->filling;
	for (size_t i = 0; postpone && i < r->nvars; i++)
		if (whole(r->vars[i]) && !r->vars[i]->added && r->vars[i]->bytes >= (r->later ? r->later->bytes : STEP))
			r->later = r->vars[i];
	if (r->later)
		page_set(r, r->later->offset + r->later->bytes / 2, r->later->offset + r->later->bytes, FILLING);
	track(r);
	for (size_t i = 0; !only && i < r->nvars; i++)
		if (!r->vars[i]->added)
			add_changed(r, r->vars[i], &w);
	if (only)
		add_changed(r, only, &w);
	w.r = r;
	if (!w.pieces.bad) {
		run(&w);
		settle(r, &w, &again);
		run(&again);
	}
	bad = w.pieces.bad || again.pieces.bad || r->changed.bad;
	free(w.pieces.p);
	free(again.pieces.p);
	for (size_t i = 0; bad && i < r->nvars; i++)
		r->vars[i]->fresh = 1;
	r->changed.bad = 0;
	return bad ? fail(r, CAIRN_NOTSAVED, "checkpoint not saved: out of memory for the list of what to copy") : gpu_finish(r);
}

void copy_later(cairn_run *r)
{
	struct variable *v = r->later;
	uint64_t n = 0;
	for (uint64_t at = v ? v->bytes / 2 : 0; v && at < v->bytes; at += n) {
		n = v->bytes - at < PART ? v->bytes - at : PART;
		copy_bytes(v->copy + at, v->data + at, (size_t)n);
		r->page->paused = (uint64_t)(1e9 * (now() - r->began));
		page_set(r, v->offset + at + n, v->offset + v->bytes, at + n < v->bytes ? FILLING : 0);
	}
	r->later = NULL;
}

/* exchange is a part of a variable that has been exchanged with its copy. */
struct exchange { struct variable *v; uint64_t from, to; };

static void swap(const struct exchange *x)
{
	unsigned char other[16 << 10], *data = x->v->data, *copied = x->v->copy;
	for (uint64_t at = x->from, n; at < x->to; at += n) {
		n = x->to - at < sizeof other ? x->to - at : sizeof other;
		memcpy(other, data + at, (size_t)n);
		memcpy(data + at, copied + at, (size_t)n);
		memcpy(copied + at, other, (size_t)n);
	}
}

void copy_undo(cairn_run *r)
{
	struct exchange *first = (struct exchange *)(void *)r->checked.p, *x = first + r->checked.len / sizeof *x;
	for (; x > first; x->v->loaded = 0) /* the last one first: variables may share memory */
		swap(--x);
	r->checked.len = 0;
}

/* by_place orders variables by where their copies are. One without bytes is equal to the one in whose copy it is. */
static int by_place(const void *a, const void *b)
{
	const struct variable *x = *(struct variable *const *)a, *y = *(struct variable *const *)b;
	return x->offset < y->offset ? -1 : x != y && x->offset >= y->offset + y->bytes;
}

cairn_status copy_checked(cairn_run *r)
{
	struct variable at = {0}, *v = &at, **found;
	struct exchange x;
	uint64_t lo = at.offset = get_u64(&r->in), hi = get_u64(&r->in);
	if (lo >= hi) /* what comes is of another checkpoint */
		return copy_undo(r), helper_send(r, MSG_GATHERED, NULL, 0);
	if (!r->checked.len) { /* the first part */
		if (gpu_used(r)) /* its work must be waited for first: copy_in copies all */
			return CAIRN_OK;
		r->placed.len = 0;
		put_bytes(&r->placed, r->vars, r->nvars * sizeof v);
		if (r->placed.len)
			qsort(r->placed.p, r->nvars, sizeof v, by_place);
	}
	found = r->placed.len ? bsearch(&v, r->placed.p, r->nvars, sizeof v, by_place) : NULL;
	if (!found || hi > (*found)->offset + (*found)->bytes)
		return CAIRN_NOMEMORY;
	x = (struct exchange){*found, lo - (*found)->offset, hi - (*found)->offset};
	put_bytes(&r->checked, &x, sizeof x);
	if (r->checked.bad)
		return CAIRN_NOMEMORY;
	x.v->loaded = 1;
	return swap(&x), CAIRN_OK;
}

/* list_rest lists what copy_checked has not exchanged; all: what is on devices, too. */
static void list_rest(cairn_run *r, struct work *w, int all)
{
	w->pieces.len = w->bytes = 0;
	for (size_t i = 0; i < r->nvars; i++) {
		struct variable *v = r->vars[i];
		if (!v->loaded && (all || v->place == MEM_HOST))
			add(w, v->data, v->copy, (size_t)v->bytes, NULL);
	}
}

cairn_status copy_in(cairn_run *r)
{
	struct work w = {0};
	cairn_status rc;
	list_rest(r, &w, 1); /* for its memory, before anything changes */
	rc = w.pieces.bad ? fail(r, CAIRN_NOMEMORY, "out of memory for the list of what to copy") : gpu_begin(r, 1, NULL);
	list_rest(r, &w, 0);
	for (size_t i = 0; i < r->nvars; i++)
		r->vars[i]->fresh = r->vars[i]->loaded, r->vars[i]->loaded = 0; /* its copy is what the program had */
	if (rc >= 0)
		run(&w), rc = gpu_finish(r);
	free(w.pieces.p);
	return rc;
}

void copy_bytes(unsigned char *to, const unsigned char *from, size_t n)
{
	struct work w = {0};
	add(&w, to, from, n, NULL);
	if (w.pieces.bad)
		memmove(to, from, n);
	else
		run(&w);
	free(w.pieces.p);
}
