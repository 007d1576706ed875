/*
 * Memory that the CUDA driver knows: telling it apart from other memory, and
 * copying it to the mirror and back.
 *
 * At a save, the program first waits for all work that was given to its GPUs. Its
 * variables are then copied on the device (frozen), and the point returns. A
 * thread copies them from there to the mirror, and the helper waits for it. If
 * the device has no memory for that, the point returns when the mirror has them.
 *
 * The library does not load the driver. A program that has such memory has done
 * that; in others, nothing here costs anything.
 */
#include "internal.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHUNK = 32 << 20, DIRECT = 4 << 20, ALIGN = 256 };

/* Numbers of cuda.h. */
enum {
	OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_VALUE = 1, INVALID_CONTEXT = 201, ALREADY_MAPPED = 712,
	POINTER_CONTEXT = 1, POINTER_TYPE = 2, POINTER_MANAGED = 8, POINTER_DEVICE = 9, TYPE_HOST = 1,
	DEVICE_PAGEABLE = 88, DEVICE_CONCURRENT_MANAGED = 89, NON_BLOCKING = 1, NO_TIMING = 2, BLOCKING_SYNC = 1, PORTABLE = 1
};

typedef uint64_t address; /* CUdeviceptr */

#define FUNCTIONS(X) \
	X(GetErrorName, "cuGetErrorName", (int, const char **)) \
	X(GetErrorString, "cuGetErrorString", (int, const char **)) \
	X(DeviceGetCount, "cuDeviceGetCount", (int *)) \
	X(DeviceGet, "cuDeviceGet", (int *, int)) \
	X(DeviceGetAttribute, "cuDeviceGetAttribute", (int *, int, int)) \
	X(PrimaryState, "cuDevicePrimaryCtxGetState", (int, unsigned *, int *)) \
	X(PrimaryRetain, "cuDevicePrimaryCtxRetain", (void **, int)) \
	X(PrimaryRelease, "cuDevicePrimaryCtxRelease_v2", (int)) \
	X(Push, "cuCtxPushCurrent_v2", (void *)) \
	X(Pop, "cuCtxPopCurrent_v2", (void **)) \
	X(Current, "cuCtxGetCurrent", (void **)) \
	X(CurrentDevice, "cuCtxGetDevice", (int *)) \
	X(Synchronize, "cuCtxSynchronize", (void)) \
	X(PointerAttributes, "cuPointerGetAttributes", (unsigned, int *, void **, address)) \
	X(MemInfo, "cuMemGetInfo_v2", (size_t *, size_t *)) \
	X(Alloc, "cuMemAlloc_v2", (address *, size_t)) \
	X(Free, "cuMemFree_v2", (address)) \
	X(HostAlloc, "cuMemHostAlloc", (void **, size_t, unsigned)) \
	X(HostFree, "cuMemFreeHost", (void *)) \
	X(HostRegister, "cuMemHostRegister_v2", (void *, size_t, unsigned)) \
	X(HostUnregister, "cuMemHostUnregister", (void *)) \
	X(ToHost, "cuMemcpyDtoHAsync_v2", (void *, address, size_t, void *)) \
	X(ToDevice, "cuMemcpyHtoDAsync_v2", (address, const void *, size_t, void *)) \
	X(OnDevice, "cuMemcpyDtoDAsync_v2", (address, address, size_t, void *)) \
	X(StreamCreate, "cuStreamCreate", (void **, unsigned)) \
	X(StreamDestroy, "cuStreamDestroy_v2", (void *)) \
	X(StreamSynchronize, "cuStreamSynchronize", (void *)) \
	X(EventCreate, "cuEventCreate", (void **, unsigned)) \
	X(EventDestroy, "cuEventDestroy_v2", (void *)) \
	X(EventRecord, "cuEventRecord", (void *, void *)) \
	X(EventSynchronize, "cuEventSynchronize", (void *))

/* context is a CUDA context that has variables. */
struct context {
	void *handle;
	unsigned long long id; /* of the context: one that was reset has another */
	int freezes;           /* copies on the device are possible */
	void *stream, *frozen, *full[2]; /* events: the copies are made, a buffer is full */
	unsigned char *stage[2];         /* pinned buffers */
	size_t staged;                   /* … of so many bytes */
	address room;                    /* memory of the device for copies */
	uint64_t has, needs;             /* … its bytes, and what this save needs */
};

/* part is some bytes of a variable, on the device and in the mirror. */
struct part {
	struct variable *v;
	size_t context;
	address at;
	uint64_t n;
};

struct gpu {
#define DECLARE(name, symbol, args) int (*name) args;
	FUNCTIONS(DECLARE)
#undef DECLARE
	int (*ContextID)(void *, unsigned long long *); /* NULL: the driver is older than CUDA 12 */
	struct context *contexts;
	size_t ncontexts;
	struct part *parts;
	size_t nparts, capparts;
	int pageable;   /* a device may write any memory of the program */
	int copying;    /* the thread runs, or has ended and was not joined */
	int background; /* … while the program continues */
	int in;         /* it copies to the device */
	int code;       /* what it failed with */
	pthread_t thread;
	cairn_run *run;
};

/* load finds the driver that the program has loaded; NULL: it has none. */
static struct gpu *load(cairn_run *r)
{
	struct gpu *g;
	void *lib;
	int missing = 0;
	if (r->gpu)
		return r->gpu;
	if (!(lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD)) || !(g = calloc(1, sizeof *g)))
		return NULL;
#define LOOK_UP(name, symbol, args) \
	*(void **)&g->name = dlsym(lib, symbol); \
	missing += !g->name;
	FUNCTIONS(LOOK_UP)
#undef LOOK_UP
	*(void **)&g->ContextID = dlsym(lib, "cuCtxGetId");
	if (missing) { /* a stub of it, or older than CUDA 11 */
		free(g);
		return NULL;
	}
	g->run = r;
	return r->gpu = g;
}

/* not_saved makes a text of a result of the driver. */
static cairn_status not_saved(cairn_run *r, int code, const char *doing, const char *name)
{
	struct gpu *g = r->gpu;
	const char *symbol = NULL, *what = NULL, *remedy = "";
	g->GetErrorName(code, &symbol);
	g->GetErrorString(code, &what);
	switch (code) {
	case INVALID_VALUE:
		remedy = "; its memory was freed, or is shorter than what is protected: call cairn_protect with the new address and size";
		break;
	case OUT_OF_MEMORY:
		remedy = "; free memory of the device or the host, or protect less";
		break;
	case 4: case 46: case 100: case 101: case 214: case 709: case 999:
		remedy = "; the device is lost for this process: end the program and start it again, and it resumes from its last checkpoint";
		break;
	default:
		if (code >= 700 && code < 720)
			remedy = "; a kernel failed, and the device is lost for this process: end the program and start it again, and it resumes from its last checkpoint";
		else if (code >= 900 && code < 910)
			remedy = "; a stream is being captured into a graph: move the point out of the capture";
	}
	return fail(r, r->restored ? CAIRN_NOTSAVED : CAIRN_ERROR, "%s %s%s%.100s%s: the CUDA driver returned %s (%s)%s", r->restored ? "checkpoint not saved:" : "cannot restore:",
		doing, name ? " \"" : "", name ? name : "", name ? "\"" : "", symbol ? symbol : "an unknown error", what ? what : "?", remedy);
}

/* attributes is what the driver knows of an address. */
struct attributes {
	void *context;
	unsigned type;
	int managed, device;
};

/* ask returns the driver's result; type 0: it does not know the memory. */
static int ask(struct gpu *g, const void *p, struct attributes *a)
{
	int what[4] = {POINTER_CONTEXT, POINTER_TYPE, POINTER_MANAGED, POINTER_DEVICE}, code, n = 0;
	unsigned char managed[4] = {0};
	void *to[4];
	memset(a, 0, sizeof *a);
	to[0] = &a->context, to[1] = &a->type, to[2] = managed, to[3] = &a->device;
	code = g->PointerAttributes(4, what, to, (address)(uintptr_t)p);
	if (code == INVALID_CONTEXT && g->DeviceGetCount(&n) == 0) /* older drivers want one */
		for (int i = 0, d, on = 0; i < n && code == INVALID_CONTEXT; i++) {
			void *c;
			unsigned flags;
			if (g->DeviceGet(&d, i) || g->PrimaryState(d, &flags, &on) || !on || g->PrimaryRetain(&c, d))
				continue;
			if (g->Push(c) == 0) {
				code = g->PointerAttributes(4, what, to, (address)(uintptr_t)p);
				g->Pop(&c);
			}
			g->PrimaryRelease(d);
		}
	if (code == INVALID_VALUE || code == NOT_INITIALIZED || code == INVALID_CONTEXT) { /* nobody has such memory */
		memset(a, 0, sizeof *a);
		return 0;
	}
	a->managed = managed[0];
	if (a->managed && !a->type)
		a->type = 4;
	return code;
}

/* readable reports whether the processor can read a byte; it may be wrong by saying yes. */
static int readable(const void *p)
{
	char c;
	struct iovec to = {&c, 1}, from = {(void *)(uintptr_t)p, 1};
	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

cairn_status gpu_check(cairn_run *r, const char *name, const void *p, uint64_t bytes)
{
	struct attributes a;
	struct gpu *g;
	if (!bytes || (readable(p) && readable((const char *)p + bytes - 1)))
		return CAIRN_OK;
	g = load(r);
	if (g && ask(g, p, &a) == 0 && a.type)
		return CAIRN_OK;
	return fail(r, CAIRN_ARGUMENT, "variable \"%.100s\": %llu bytes at %p are no memory that this process can read%s", name, (unsigned long long)bytes, p,
		g ? ", and the CUDA driver does not know them" : "; for memory of a GPU, the program must have loaded a CUDA driver (libcuda.so.1) that works");
}

/* make prepares a context that is current. */
static int make(struct gpu *g, struct context *c)
{
	int d, yes = 0, code = 0;
	if (!c->stream)
		code = g->StreamCreate(&c->stream, NON_BLOCKING);
	if (!code && !c->frozen)
		code = g->EventCreate(&c->frozen, NO_TIMING);
	for (int i = 0; i < 2; i++)
		if (!code && !c->full[i])
			code = g->EventCreate(&c->full[i], NO_TIMING | BLOCKING_SYNC);
	/* Where the processor must not use managed memory while a device works, nothing may run in the background. */
	c->freezes = !code && g->CurrentDevice(&d) == 0 && g->DeviceGetAttribute(&yes, DEVICE_CONCURRENT_MANAGED, d) == 0 && yes;
	return code;
}

/* identify returns the number of a context that is current; 0: the driver has none. */
static unsigned long long identify(struct gpu *g, void *handle)
{
	unsigned long long id = 0;
	if (g->ContextID)
		g->ContextID(handle, &id);
	return id;
}

/*
 * context_of finds the context of a variable, or makes it known. Memory of pools
 * has none: it is used with the current one, or the primary one of its device.
 */
static int context_of(struct gpu *g, const struct attributes *a, size_t *index)
{
	void *handle = a->context, *c = NULL, *popped;
	struct context *list, *x;
	size_t i = 0;
	int d = 0, current = -1, code;
	if (!handle) {
		if (g->Current(&c) == 0 && c && g->CurrentDevice(&current) == 0 && (a->device < 0 || current == a->device))
			handle = c;
		else if ((code = g->DeviceGet(&d, a->device)) || (code = g->PrimaryRetain(&handle, d)))
			return code;
		else
			g->PrimaryRelease(d); /* it stays: there is memory in it */
	}
	while (i < g->ncontexts && g->contexts[i].handle != handle)
		i++;
	if (i == g->ncontexts) {
		if (!(list = realloc(g->contexts, (i + 1) * sizeof *list)))
			return OUT_OF_MEMORY;
		g->contexts = list;
		memset(&list[i], 0, sizeof *list);
		list[i].handle = handle;
		g->ncontexts++;
	}
	*index = i;
	x = &g->contexts[i];
	if ((code = g->Push(handle)))
		return code;
	if (identify(g, handle) != x->id) { /* new, or reset: what was in it is gone */
		memset(x, 0, sizeof *x);
		x->handle = handle;
		x->id = identify(g, handle);
	}
	code = make(g, x);
	g->Pop(&popped);
	return code;
}

/* wait_for_work waits for everything that the program has given to its devices. */
static int wait_for_work(struct gpu *g)
{
	void *c = NULL, *popped;
	int n = 0, d, on, code = 0;
	unsigned flags;
	if (g->Current(&c) == 0 && c)
		code = g->Synchronize();
	if (!code && g->DeviceGetCount(&n))
		n = 0; /* the program has not called cuInit */
	for (int i = 0; i < n && !code; i++) {
		if (g->DeviceGet(&d, i) || g->PrimaryState(d, &flags, &on) || !on)
			continue;
		if ((code = g->PrimaryRetain(&c, d)))
			break;
		if (!(code = g->Push(c))) {
			code = g->Synchronize();
			if (!code && g->DeviceGetAttribute(&on, DEVICE_PAGEABLE, d) == 0 && on)
				g->pageable = 1;
			g->Pop(&popped);
		}
		g->PrimaryRelease(d);
	}
	return code;
}

/* wait_for waits for a context that the program may have made itself. */
static int wait_for(struct gpu *g, void *handle)
{
	void *popped;
	int code = g->Push(handle);
	if (!code) {
		code = g->Synchronize();
		g->Pop(&popped);
	}
	return code;
}

/* add_part lists a variable whose memory is at an address of a device. */
static int add_part(struct gpu *g, struct variable *v, const void *at, uint64_t n, const struct attributes *a)
{
	struct part *p;
	int code;
	if (g->nparts == g->capparts) {
		size_t cap = g->capparts ? 2 * g->capparts : 64;
		if (!(p = realloc(g->parts, cap * sizeof *p)))
			return OUT_OF_MEMORY;
		g->parts = p, g->capparts = cap;
	}
	p = &g->parts[g->nparts];
	p->v = v, p->at = (address)(uintptr_t)at, p->n = n;
	if ((code = context_of(g, a, &p->context)))
		return code;
	g->contexts[p->context].needs += (n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
	g->nparts++;
	return 0;
}

static void no_parts(struct gpu *g)
{
	g->nparts = 0;
	for (size_t i = 0; i < g->ncontexts; i++)
		g->contexts[i].needs = 0;
}

/* on_device reports whether the processor should not copy memory itself. */
static int on_device(const struct attributes *a) { return a->managed || (a->type && a->type != TYPE_HOST); }

/* find_parts asks the driver of the variables to copy, and lists those on devices. */
static cairn_status find_parts(cairn_run *r, int in, struct variable *only)
{
	struct gpu *g = r->gpu;
	void *waited = NULL;
	no_parts(g);
	for (size_t i = 0; i < r->nvars; i++) {
		struct variable *v = r->vars[i];
		struct attributes a;
		int code;
		if (only ? v != only : v->added)
			continue;
		v->place = MEM_HOST;
		if (!v->bytes)
			continue;
		if ((code = ask(g, v->data, &a)))
			return not_saved(r, code, "asking what memory has", v->name);
		if (a.type || g->pageable) { /* the kernel does not see what a device writes */
			copy_unwatch(r, v);
			v->untracked = 1;
		}
		if (a.context && a.context != waited && (code = wait_for(g, waited = a.context)))
			return not_saved(r, code, "waiting for the work of the GPU that has", v->name);
		if (!on_device(&a) || (in && v->fresh))
			continue;
		v->place = MEM_DEVICE;
		if ((code = add_part(g, v, v->data, v->bytes, &a)))
			return not_saved(r, code, "copying", v->name);
	}
	return CAIRN_OK;
}

/* direct reports whether the device reaches the copy of a variable: it is pinned. */
static int direct(struct gpu *g, struct variable *v)
{
	if (v->pinned == 0 && v->own && v->bytes >= DIRECT)
		v->pinned = g->HostRegister(v->copy, (size_t)v->room, PORTABLE) == 0 ? 1 : -1;
	return v->pinned > 0;
}

/* cursor is where a walk over the parts of a context is that are not copied directly. */
struct cursor { size_t part; uint64_t at; };

/*
 * chunk walks over as many bytes as a buffer holds, and either lets the device
 * copy them or copies between the buffer and the mirror. It returns how many
 * there were.
 */
static uint64_t chunk(struct gpu *g, size_t context, struct cursor *w, unsigned char *buffer, int device, int *code)
{
	struct context *c = &g->contexts[context];
	uint64_t used = 0;
	for (; w->part < g->nparts && used < c->staged && !*code; w->part++, w->at = 0) {
		struct part *p = &g->parts[w->part];
		unsigned char *copy = p->v->copy + w->at;
		uint64_t n = p->n - w->at;
		if (p->context != context || p->v->pinned > 0)
			continue;
		if (n > c->staged - used)
			n = c->staged - used;
		if (device && g->in)
			*code = g->ToDevice(p->at + w->at, buffer + used, (size_t)n, c->stream);
		else if (device)
			*code = g->ToHost(buffer + used, p->at + w->at, (size_t)n, c->stream);
		else if (g->in)
			copy_bytes(buffer + used, copy, (size_t)n);
		else
			copy_bytes(copy, buffer + used, (size_t)n);
		used += n;
		if (w->at + n < p->n) {
			w->at += n;
			break;
		}
	}
	return used;
}

/* staged copies the small parts of a context, and those that cannot be pinned. */
static int staged(struct gpu *g, size_t context)
{
	struct context *c = &g->contexts[context];
	struct cursor lead = {0, 0}, trail = {0, 0};
	uint64_t want = 0;
	int code = 0, k = 0, waiting[2] = {0, 0};
	for (size_t i = 0; i < g->nparts; i++)
		if (g->parts[i].context == context && g->parts[i].v->pinned <= 0)
			want += g->parts[i].n;
	if (!want)
		return 0;
	want = want > CHUNK ? CHUNK : (want + 65535) & ~(uint64_t)65535;
	if (c->staged < want) {
		for (int i = 0; i < 2; i++) {
			if (c->stage[i])
				g->HostFree(c->stage[i]);
			c->stage[i] = NULL;
		}
		c->staged = 0;
		for (int i = 0; i < 2; i++)
			if ((code = g->HostAlloc((void **)&c->stage[i], (size_t)want, PORTABLE)))
				return code;
		c->staged = (size_t)want;
	}
	if (g->in) { /* fill a buffer while the other one travels */
		for (; !code; k ^= 1) {
			if (waiting[k] && (code = g->EventSynchronize(c->full[k])))
				break;
			if (!chunk(g, context, &lead, c->stage[k], 0, &code))
				break;
			chunk(g, context, &trail, c->stage[k], 1, &code);
			if (!code)
				code = g->EventRecord(c->full[k], c->stream);
			waiting[k] = 1;
		}
		return code;
	}
	for (int more = 1; !code && (more || waiting[k ^ 1]); k ^= 1) {
		waiting[k] = 0;
		if (more && (more = chunk(g, context, &lead, c->stage[k], 1, &code) > 0) && !code) {
			code = g->EventRecord(c->full[k], c->stream);
			waiting[k] = 1;
		}
		if (!code && waiting[k ^ 1] && !(code = g->EventSynchronize(c->full[k ^ 1])))
			chunk(g, context, &trail, c->stage[k ^ 1], 0, &code);
		waiting[k ^ 1] = 0;
		if (code)
			break;
	}
	return code;
}

/* transfer copies all parts to the mirror, or from it, and waits for that. */
static int transfer(struct gpu *g)
{
	void *popped;
	int code = 0, c;
	for (int step = 0; step < 3; step++)
		for (size_t k = 0; k < g->ncontexts; k++) {
			struct context *x = &g->contexts[k];
			if (!x->needs || (code && step < 2))
				continue;
			if ((c = g->Push(x->handle))) {
				code = code ? code : c;
				continue;
			}
			for (size_t i = 0; step == 0 && i < g->nparts && !code; i++) {
				struct part *p = &g->parts[i];
				if (p->context != k || !direct(g, p->v))
					continue;
				for (uint64_t at = 0; at < p->n && !code; at += CHUNK) { /* so that the program's copies come between */
					size_t n = (size_t)(p->n - at < CHUNK ? p->n - at : CHUNK);
					code = g->in ? g->ToDevice(p->at + at, p->v->copy + at, n, x->stream) : g->ToHost(p->v->copy + at, p->at + at, n, x->stream);
				}
			}
			if (step == 1)
				code = staged(g, k);
			if (step == 2 && (c = g->StreamSynchronize(x->stream)) && !code)
				code = c;
			g->Pop(&popped);
		}
	return code;
}

/* give_back frees the memory of the copies on devices that have little of it. */
static void give_back(struct gpu *g, int all)
{
	for (size_t i = 0; i < g->ncontexts; i++) {
		struct context *c = &g->contexts[i];
		size_t available, total;
		void *popped;
		if (!c->room || g->Push(c->handle))
			continue;
		if (all || g->MemInfo(&available, &total) || available < total / 4) {
			g->Free(c->room);
			c->room = 0, c->has = 0;
		}
		g->Pop(&popped);
	}
}

static void *work(void *arg)
{
	struct gpu *g = arg;
	struct page *page = g->run->page;
	g->code = transfer(g);
	give_back(g, 0);
	if (g->background) { /* the helper waits for it */
		__atomic_store_n(&page->filling, g->code ? FILL_FAILED + (uint32_t)g->code : 0, __ATOMIC_RELEASE);
#ifdef SYS_futex
		syscall(SYS_futex, &page->filling, 1 /* FUTEX_WAKE */, INT_MAX, NULL, NULL, 0);
#endif
	}
	return NULL;
}

/* start lets a thread copy; without one, the caller does. */
static void start(struct gpu *g, int in)
{
	sigset_t all, was;
	g->in = in;
	g->code = 0;
	sigfillset(&all); /* the program's signals are not for this thread */
	pthread_sigmask(SIG_SETMASK, &all, &was);
	g->copying = pthread_create(&g->thread, NULL, work, g) == 0;
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	if (!g->copying)
		work(g);
}

void gpu_wait(cairn_run *r)
{
	if (r->gpu && r->gpu->copying && r->pid == getpid()) {
		pthread_join(r->gpu->thread, NULL);
		r->gpu->copying = 0;
	}
}

/* freeze copies all parts on their devices. It returns 0 where memory is short. */
static int freeze(struct gpu *g, int *code)
{
	void *popped;
	for (size_t k = 0; k < g->ncontexts; k++) {
		struct context *c = &g->contexts[k];
		size_t available, total;
		int enough = 1;
		if (!c->needs || c->has >= c->needs)
			continue;
		if (!c->freezes)
			return 0;
		if ((*code = g->Push(c->handle)))
			return 0;
		if (c->room)
			g->Free(c->room);
		c->room = 0, c->has = 0;
		/* Leave some to the program: an eighth of the device. */
		if (g->MemInfo(&available, &total) || available < total / 8 || available - total / 8 < c->needs || g->Alloc(&c->room, (size_t)c->needs))
			enough = c->room = 0;
		else
			c->has = c->needs;
		g->Pop(&popped);
		if (!enough)
			return 0;
	}
	for (size_t k = 0; k < g->ncontexts && !*code; k++) {
		struct context *c = &g->contexts[k];
		uint64_t at = 0;
		if (!c->needs)
			continue;
		if ((*code = g->Push(c->handle)))
			break;
		for (size_t i = 0; i < g->nparts && !*code; i++) {
			struct part *p = &g->parts[i];
			if (p->context != k)
				continue;
			if ((*code = g->OnDevice(c->room + at, p->at, (size_t)p->n, c->stream)) == 0)
				p->at = c->room + at;
			at += (p->n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
		}
		if (!*code)
			*code = g->EventRecord(c->frozen, c->stream);
		g->Pop(&popped);
	}
	return 1;
}

cairn_status gpu_begin(cairn_run *r, int in, struct variable *only)
{
	struct gpu *g = load(r);
	cairn_status rc;
	int code;
	if (!g)
		return CAIRN_OK;
	gpu_wait(r);
	__atomic_store_n(&r->page->filling, 0, __ATOMIC_RELAXED);
	g->background = 0;
	if ((code = wait_for_work(g)))
		return not_saved(r, code, "waiting for the work of the program's GPUs", NULL);
	if ((rc = find_parts(r, in, only)) < 0 || !g->nparts)
		return rc;
	if (!in && !only) {
		g->background = freeze(g, &code);
		if (code) {
			g->nparts = 0;
			return not_saved(r, code, "copying GPU memory on the device", NULL);
		}
	}
	if (g->background)
		__atomic_store_n(&r->page->filling, FILLING, __ATOMIC_RELAXED);
	start(g, in);
	return CAIRN_OK;
}

cairn_status gpu_finish(cairn_run *r)
{
	struct gpu *g = r->gpu;
	int code = 0;
	if (!g || !g->nparts)
		return CAIRN_OK;
	if (!g->background) {
		gpu_wait(r);
		code = g->code;
	}
	for (size_t k = 0; g->background && k < g->ncontexts && !code; k++) {
		void *popped;
		if (g->contexts[k].needs && !(code = g->Push(g->contexts[k].handle))) {
			code = g->EventSynchronize(g->contexts[k].frozen);
			g->Pop(&popped);
		}
	}
	return code ? not_saved(r, code, g->in ? "copying to GPU memory" : "copying GPU memory", NULL) : CAIRN_OK;
}

cairn_status gpu_load(cairn_run *r, struct variable *v, void *to, uint64_t n)
{
	struct gpu *g = load(r);
	struct attributes a;
	int code;
	if (!g) {
		copy_bytes(to, v->copy, (size_t)n);
		return CAIRN_OK;
	}
	gpu_wait(r);
	no_parts(g);
	g->in = 1;
	if (!(code = wait_for_work(g)) && !(code = ask(g, to, &a)) && !(a.context && (code = wait_for(g, a.context)))) {
		if (!on_device(&a))
			copy_bytes(to, v->copy, (size_t)n);
		else if (!(code = add_part(g, v, to, n, &a)))
			code = transfer(g);
	}
	return code ? not_saved(r, code, "copying to GPU memory", NULL) : CAIRN_OK;
}

void gpu_forget(cairn_run *r, struct variable *v)
{
	gpu_wait(r);
	if (r->gpu && v->pinned > 0 && r->pid == getpid() && r->gpu->ncontexts) {
		void *popped;
		if (r->gpu->Push(r->gpu->contexts[0].handle) == 0) {
			r->gpu->HostUnregister(v->copy);
			r->gpu->Pop(&popped);
		}
	}
	v->pinned = 0;
}

void gpu_end(cairn_run *r)
{
	struct gpu *g = r->gpu;
	if (!g)
		return;
	gpu_wait(r);
	if (r->pid == getpid()) { /* CUDA does not work in a forked process */
		for (size_t i = 0; i < r->nvars; i++)
			gpu_forget(r, r->vars[i]);
		give_back(g, 1);
		for (size_t i = 0; i < g->ncontexts; i++) {
			struct context *c = &g->contexts[i];
			void *popped;
			if (!c->stream || g->Push(c->handle))
				continue;
			if (identify(g, c->handle) == c->id) {
				for (int k = 0; k < 2; k++) {
					if (c->stage[k])
						g->HostFree(c->stage[k]);
					if (c->full[k])
						g->EventDestroy(c->full[k]);
				}
				if (c->frozen)
					g->EventDestroy(c->frozen);
				g->StreamDestroy(c->stream);
			}
			g->Pop(&popped);
		}
	}
	free(g->contexts);
	free(g->parts);
	free(g);
	r->gpu = NULL;
}
