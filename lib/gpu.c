/*
 * Memory that the CUDA driver knows: telling it apart from other memory, and
 * copying it to the mirror and back.
 *
 * At a save, the program first waits for all work that was given to its GPUs. Its
 * variables are then copied on the device (frozen), and the point returns. A
 * thread finds the blocks that have changed since the last save, by digests on
 * the device, and copies them to the mirror; the helper waits for it. If the
 * device has no memory to freeze variables, the point returns when the mirror has
 * them.
 *
 * The thread then pins the mirror, a chunk at a time, so that the device can copy
 * to it by itself at the next save. What is not pinned goes through two pinned
 * buffers.
 *
 * The library does not load the driver. A program that has such memory has done
 * that; in others, nothing here costs anything.
 */
#include "internal.h"
#include "digest.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { CHUNK = 32 << 20, LARGE = 4 << 20, ALIGN = 256, BLOCK = 32 << 10 /* of digest.cu */ };

/* Numbers of cuda.h. */
enum {
	INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, INVALID_CONTEXT = 201, DESTROYED = 709,
	POINTER_CONTEXT = 1, POINTER_TYPE = 2, POINTER_MANAGED = 8, POINTER_DEVICE = 9, TYPE_HOST = 1,
	DEVICE_UNITS = 16, DEVICE_PAGEABLE = 88, DEVICE_CONCURRENT_MANAGED = 89, NON_BLOCKING = 1, NO_TIMING = 2, BLOCKING_SYNC = 1, PORTABLE = 1, RELAXED = 2
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
	X(CaptureMode, "cuThreadExchangeStreamCaptureMode", (int *)) \
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
	X(EventSynchronize, "cuEventSynchronize", (void *)) \
	X(Set, "cuMemsetD32Async", (address, unsigned, size_t, void *)) \
	X(ModuleLoad, "cuModuleLoadData", (void **, const void *)) \
	X(ModuleUnload, "cuModuleUnload", (void *)) \
	X(ModuleFunction, "cuModuleGetFunction", (void **, void *, const char *)) \
	X(Launch, "cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **))

/* kernel is that of digest.cu, in a context. */
struct kernel {
	void *module, *function; /* NULL: it does not work here */
	int units;               /* how many multiprocessors run it */
};

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
	struct kernel kernel;
	int tried; /* … it was compiled, or that failed */
};

/* part is some bytes of a variable, on the device and in the mirror. */
struct part {
	struct variable *v;
	size_t context;
	address at;
	uint64_t off, n; /* in the variable */
	int whole;       /* the mirror does not hold what the digests say */
	unsigned blocks; /* that were digested; 0: none */
};

struct parts {
	struct part *p;
	size_t n, cap;
};

struct gpu {
#define DECLARE(name, symbol, args) int (*name) args;
	FUNCTIONS(DECLARE)
#undef DECLARE
	int (*ContextID)(void *, unsigned long long *); /* NULL: the driver is older than CUDA 12 */
	struct context *contexts;
	size_t ncontexts;
	struct parts vars, moves; /* the variables, and what is copied of them */
	int pageable;   /* a device may write any memory of the program */
	int copying;    /* the thread runs, or has ended and was not joined */
	int background; /* … and the program continues */
	int in;         /* it copies to the device */
	int code;       /* what it failed with */
	int hurry;      /* somebody waits for its end */
	sem_t done;     /* its copy is made */
	pthread_t thread;
	cairn_run *run;
	int saves;      /* there was a save */
	struct {        /* a thread that compiles the kernel before the first save */
		int begun, running;
		pthread_t thread;
		void *context;
		unsigned long long id; /* of the context */
		struct kernel kernel;
	} early;
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
	sem_init(&g->done, 0, 0);
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

/* on_device reports whether the processor should not copy memory itself. */
static int on_device(const struct attributes *a) { return a->managed || (a->type && a->type != TYPE_HOST); }

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

static int relax(struct gpu *g);
static void relax_end(struct gpu *g, int mode);
static void compile_early(struct gpu *g, const struct attributes *a);

cairn_status gpu_check(cairn_run *r, const char *name, const void *p, uint64_t bytes)
{
	struct attributes a;
	struct gpu *g;
	int plain = !bytes || (readable(p) && readable((const char *)p + bytes - 1));
	if (plain && (bytes < LARGE || (r->gpu && r->gpu->early.begun)))
		return CAIRN_OK;
	g = load(r);
	if (g) {
		int mode = relax(g), known = ask(g, p, &a) == 0 && a.type;
		if (known && bytes >= LARGE)
			compile_early(g, &a);
		relax_end(g, mode);
		plain |= known;
	}
	if (plain)
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

/*
 * relax lets this thread call the driver while the program captures a stream into
 * a graph: what the library does belongs to no capture. It returns the mode before.
 */
static int relax(struct gpu *g)
{
	int mode = RELAXED;
	return g->CaptureMode(&mode) ? RELAXED : mode;
}

static void relax_end(struct gpu *g, int mode) { g->CaptureMode(&mode); }

/* identify returns the number of a context; 0: the driver has none, 1: it is gone. */
static unsigned long long identify(struct gpu *g, void *handle)
{
	unsigned long long id = 0;
	if (g->ContextID && g->ContextID(handle, &id))
		return 1;
	return id ? id + 1 : 0;
}

/* enter makes a context the current one, if it is still the same. */
static int enter(struct gpu *g, struct context *c)
{
	return identify(g, c->handle) != c->id ? DESTROYED : g->Push(c->handle);
}

static void leave(struct gpu *g)
{
	void *popped;
	g->Pop(&popped);
}

/* compile makes the kernel of the current context. What fails here only costs time: all is copied then. */
static void compile(struct gpu *g, struct kernel *k)
{
	int d;
	if (g->CurrentDevice(&d) || g->DeviceGetAttribute(&k->units, DEVICE_UNITS, d) || g->ModuleLoad(&k->module, digest_ptx) || g->ModuleFunction(&k->function, k->module, "cairn_digest"))
		k->function = NULL;
}

static void *compiler(void *arg)
{
	struct gpu *g = arg;
	int mode = relax(g);
	if (g->Push(g->early.context) == 0) {
		compile(g, &g->early.kernel);
		leave(g);
	}
	relax_end(g, mode);
	return NULL;
}

/* spawn starts a thread that gets none of the program's signals. It returns 0 without one. */
static int spawn(pthread_t *thread, void *(*f)(void *), struct gpu *g)
{
	sigset_t all, was;
	int code;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &was);
	code = pthread_create(thread, NULL, f, g);
	pthread_sigmask(SIG_SETMASK, &was, NULL);
	return code == 0;
}

/*
 * compile_early compiles the kernel when the first large variable on a device is
 * protected, so that the first save need not: the driver takes some tenths of a
 * second. It does so once; a later context compiles its own.
 */
static void compile_early(struct gpu *g, const struct attributes *a)
{
	void *handle = a->context;
	if (g->early.begun || g->saves || !on_device(a) || (!handle && (g->Current(&handle) || !handle)))
		return;
	g->early.begun = 1;
	g->early.context = handle;
	g->early.id = identify(g, handle);
	g->early.running = spawn(&g->early.thread, compiler, g);
}

/* compiled waits until the kernel is compiled that compile_early has begun. */
static void compiled(struct gpu *g)
{
	if (g->early.running)
		pthread_join(g->early.thread, NULL);
	g->early.running = 0;
}

/*
 * context_of finds the context of a variable, or makes it known. Memory of pools
 * has none: it is used with the current one, or the primary one of its device.
 */
static int context_of(struct gpu *g, const struct attributes *a, size_t *index)
{
	void *handle = a->context, *c = NULL;
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
	if (identify(g, handle) != x->id) { /* new, or reset: what was in it is gone */
		memset(x, 0, sizeof *x);
		x->handle = handle;
		x->id = identify(g, handle);
		for (i = 0; i < g->run->nvars; i++)
			g->run->vars[i]->pinned = g->run->vars[i]->digests = 0;
	}
	if (!(code = enter(g, x))) {
		code = make(g, x);
		leave(g);
	}
	return code;
}

/* wait_for_work waits for everything that the program has given to its devices. */
static int wait_for_work(struct gpu *g)
{
	void *c = NULL;
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
			leave(g);
		}
		g->PrimaryRelease(d);
	}
	return code;
}

/* wait_for waits for a context that the program may have made itself. */
static int wait_for(struct gpu *g, void *handle)
{
	int code = g->Push(handle);
	if (!code) {
		code = g->Synchronize();
		leave(g);
	}
	return code;
}

/* add_part makes a list longer. */
static int add_part(struct parts *l, struct part p)
{
	if (l->n == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 64;
		struct part *q = realloc(l->p, cap * sizeof *q);
		if (!q)
			return OUT_OF_MEMORY;
		l->p = q, l->cap = cap;
	}
	l->p[l->n++] = p;
	return 0;
}

/* add_var lists a variable whose memory is at an address of a device. */
static int add_var(struct gpu *g, struct variable *v, const void *at, uint64_t n, const struct attributes *a)
{
	struct part p = {0};
	int code = context_of(g, a, &p.context);
	p.v = v, p.at = (address)(uintptr_t)at, p.n = n;
	if (!code && !(code = add_part(&g->vars, p)))
		g->contexts[p.context].needs += (n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
	return code;
}

static void no_parts(struct gpu *g)
{
	g->vars.n = 0;
	for (size_t i = 0; i < g->ncontexts; i++)
		g->contexts[i].needs = 0;
}

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
		if ((code = add_var(g, v, v->data, v->bytes, &a)))
			return not_saved(r, code, "copying", v->name);
		g->vars.p[g->vars.n - 1].whole = v->fresh || !v->digested;
		if (!in)
			v->fresh = 0;
		v->digested = 0; /* until the mirror has it */
	}
	return CAIRN_OK;
}

/* add_move lists bytes to copy: those whose copy is pinned apart from the others. */
static int add_move(struct gpu *g, const struct part *p, uint64_t off, uint64_t n)
{
	struct part m = *p;
	int code = 0;
	m.off = off, m.n = n, m.at = p->at + off;
	if (off < p->v->pinned && off + n > p->v->pinned) {
		m.n = p->v->pinned - off;
		code = add_part(&g->moves, m);
		m.at += m.n, m.off += m.n, m.n = n - m.n;
	}
	return code ? code : add_part(&g->moves, m);
}

static int direct(const struct part *p) { return p->off + p->n <= p->v->pinned; }

/* digest lets the device compute the digests of a variable, and list the blocks whose digest is another one. */
static int digest(struct gpu *g, struct part *p)
{
	struct context *c = &g->contexts[p->context];
	struct variable *v = p->v;
	uint64_t words = p->n / 16;
	unsigned blocks = (unsigned)((p->n / 16 * 16 + BLOCK - 1) / BLOCK), most;
	address list, count;
	void *args[6];
	int code;
	if (!c->tried) {
		c->tried = 1;
		compiled(g);
		if (g->early.kernel.module && g->early.context == c->handle && g->early.id == c->id) {
			c->kernel = g->early.kernel;
			g->early.kernel.module = NULL;
		} else {
			compile(g, &c->kernel);
		}
	}
	most = 6 * (unsigned)c->kernel.units;
	if (!c->kernel.function || p->n < LARGE || p->n / BLOCK > UINT_MAX / 2 || p->at % 16)
		return 0;
	if (v->digests && (v->digest_blocks != blocks || v->digest_context != p->context)) {
		g->Free(v->digests);
		v->digests = 0;
	}
	if (!v->digests) {
		p->whole = 1;
		if (g->Alloc(&v->digests, (size_t)blocks * 36 + 4)) {
			v->digests = 0;
			return 0;
		}
		v->digest_blocks = blocks, v->digest_context = p->context;
	}
	list = v->digests + (uint64_t)blocks * 32, count = list + (uint64_t)blocks * 4;
	args[0] = &p->at, args[1] = &words, args[2] = &v->digests, args[3] = &list, args[4] = &count, args[5] = &blocks;
	if ((code = g->Set(count, 0, 1, c->stream)) || (code = g->Launch(c->kernel.function, blocks < most ? blocks : most, 1, 1, 256, 1, 1, 0, c->stream, args, NULL)))
		return code;
	p->blocks = blocks;
	return 0;
}

static int ascending(const void *a, const void *b)
{
	unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
	return (x > y) - (x < y);
}

/* changed lists what must be copied of a variable: the blocks that the digests name. */
static int changed(struct gpu *g, struct part *p)
{
	struct context *c = &g->contexts[p->context];
	uint64_t end = p->n / 16 * 16;
	unsigned n = 0, *list;
	int code;
	if (p->whole || !p->blocks)
		return add_move(g, p, 0, p->n);
	if (!(list = malloc((size_t)p->blocks * 4 + 4)))
		return add_move(g, p, 0, p->n);
	code = g->ToHost(list, p->v->digests + (uint64_t)p->blocks * 32, (size_t)p->blocks * 4 + 4, c->stream);
	if (!code && (code = g->StreamSynchronize(c->stream)))
		return code; /* a lost device may still write to list, so it is not freed */
	if (!code && (n = list[p->blocks]) > p->blocks / 2) {
		code = add_move(g, p, 0, p->n);
	} else if (!code) {
		qsort(list, n, sizeof *list, ascending);
		for (unsigned i = 0, k; i < n && !code; i = k) {
			uint64_t to;
			for (k = i + 1; k < n && list[k] == list[k - 1] + 1;)
				k++;
			to = ((uint64_t)list[k - 1] + 1) * BLOCK;
			code = add_move(g, p, (uint64_t)list[i] * BLOCK, (to < end ? to : end) - (uint64_t)list[i] * BLOCK);
		}
		if (!code && end < p->n) /* what has no digest */
			code = add_move(g, p, end, p->n - end);
	}
	free(list);
	return code;
}

/* choose lists what must be copied. */
static int choose(struct gpu *g)
{
	int code = 0;
	g->moves.n = 0;
	for (int step = 0; step < 2; step++)
		for (size_t i = 0; i < g->vars.n && !code; i++) {
			struct part *p = &g->vars.p[i];
			if ((code = enter(g, &g->contexts[p->context])))
				break;
			if (step == 1)
				code = changed(g, p);
			else if (!g->in)
				code = digest(g, p);
			leave(g);
		}
	return code;
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
	for (; w->part < g->moves.n && used < c->staged && !*code; w->part++, w->at = 0) {
		struct part *p = &g->moves.p[w->part];
		unsigned char *copy = p->v->copy + p->off + w->at;
		uint64_t n = p->n - w->at;
		if (p->context != context || direct(p))
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
	for (size_t i = 0; i < g->moves.n; i++)
		if (g->moves.p[i].context == context && !direct(&g->moves.p[i]))
			want += g->moves.p[i].n;
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

/* transfer copies what is needed to the mirror, or from it, and waits for that. */
static int transfer(struct gpu *g)
{
	int code = choose(g), c;
	for (int step = 0; step < 3; step++)
		for (size_t k = 0; k < g->ncontexts; k++) {
			struct context *x = &g->contexts[k];
			if (!x->needs || (code && step < 2))
				continue;
			if ((c = enter(g, x))) {
				code = code ? code : c;
				continue;
			}
			for (size_t i = 0; step == 0 && i < g->moves.n && !code; i++) {
				struct part *p = &g->moves.p[i];
				if (p->context != k || !direct(p))
					continue;
				/* By chunks, as they are pinned; and the program's copies can come between. */
				for (uint64_t at = 0, n; at < p->n && !code; at += n) {
					unsigned char *copy = p->v->copy + p->off + at;
					n = CHUNK - (p->off + at) % CHUNK;
					if (n > p->n - at)
						n = p->n - at;
					code = g->in ? g->ToDevice(p->at + at, copy, (size_t)n, x->stream) : g->ToHost(copy, p->at + at, (size_t)n, x->stream);
				}
			}
			if (step == 1)
				code = staged(g, k);
			if (step == 2 && (c = g->StreamSynchronize(x->stream)) && !code)
				code = c;
			leave(g);
		}
	for (size_t i = 0; i < g->vars.n && !g->in && !code; i++)
		g->vars.p[i].v->digested = g->vars.p[i].blocks > 0;
	return code;
}

/* give_back frees the memory of the copies on devices that have little of it. */
static void give_back(struct gpu *g, int all)
{
	for (size_t i = 0; i < g->ncontexts; i++) {
		struct context *c = &g->contexts[i];
		size_t available, total;
		if (!c->room || enter(g, c))
			continue;
		if (all || g->MemInfo(&available, &total) || available < total / 4) {
			g->Free(c->room);
			c->room = 0, c->has = 0;
		}
		leave(g);
	}
}

/*
 * pin lets the device reach the copies of large variables. The driver lets nobody
 * else in meanwhile, so that it is done by chunks, when the memory is there.
 */
static void pin(struct gpu *g)
{
	for (size_t i = 0; i < g->vars.n; i++) {
		struct part *p = &g->vars.p[i];
		struct variable *v = p->v;
		if (!v->own || p->n < LARGE || v->unpinnable || enter(g, &g->contexts[p->context]))
			continue;
		while (v->pinned < p->n && !v->unpinnable && !__atomic_load_n(&g->hurry, __ATOMIC_RELAXED)) {
			uint64_t n = v->room - v->pinned < CHUNK ? v->room - v->pinned : CHUNK;
			if (g->HostRegister(v->copy + v->pinned, (size_t)n, PORTABLE))
				v->unpinnable = 1;
			else
				v->pinned += n;
		}
		leave(g);
	}
}

static void *work(void *arg)
{
	struct gpu *g = arg;
	cairn_run *r = g->run;
	int mode = relax(g);
	g->code = transfer(g);
	give_back(g, 0);
	if (g->background) /* the helper waits for it */
		page_set(r, 0, UINT64_MAX, g->code ? FILL_FAILED + (uint32_t)g->code : 0);
	sem_post(&g->done);
	if (!g->in && !g->code)
		pin(g);
	relax_end(g, mode); /* it may be the program's thread */
	return NULL;
}

/* start lets a thread copy; without one, the caller does. */
static void start(struct gpu *g, int in)
{
	g->in = in;
	g->code = g->hurry = 0;
	g->copying = spawn(&g->thread, work, g);
	if (!g->copying)
		work(g);
}

void gpu_wait(cairn_run *r)
{
	if (r->gpu && r->gpu->copying && r->pid == getpid()) {
		__atomic_store_n(&r->gpu->hurry, 1, __ATOMIC_RELAXED);
		pthread_join(r->gpu->thread, NULL);
		r->gpu->copying = 0;
	}
}

/* freeze copies all variables on their devices. It returns 0 where memory is short. */
static int freeze(struct gpu *g, int *code)
{
	for (size_t k = 0; k < g->ncontexts; k++) {
		struct context *c = &g->contexts[k];
		size_t available, total;
		if (!c->needs || c->has >= c->needs)
			continue;
		if (!c->freezes || (*code = enter(g, c)))
			return 0;
		if (c->room)
			g->Free(c->room);
		c->room = 0, c->has = 0;
		/* Leave some to the program: an eighth of the device. */
		if (g->MemInfo(&available, &total) == 0 && available >= total / 8 && available - total / 8 >= c->needs && g->Alloc(&c->room, (size_t)c->needs) == 0)
			c->has = c->needs;
		leave(g);
		if (!c->has)
			return c->room = 0;
	}
	for (size_t k = 0; k < g->ncontexts && !*code; k++) {
		struct context *c = &g->contexts[k];
		uint64_t at = 0;
		if (!c->needs)
			continue;
		if ((*code = enter(g, c)))
			break;
		for (size_t i = 0; i < g->vars.n && !*code; i++) {
			struct part *p = &g->vars.p[i];
			if (p->context != k)
				continue;
			if ((*code = g->OnDevice(c->room + at, p->at, (size_t)p->n, c->stream)) == 0)
				p->at = c->room + at;
			at += (p->n + ALIGN - 1) & ~(uint64_t)(ALIGN - 1);
		}
		if (!*code)
			*code = g->EventRecord(c->frozen, c->stream);
		leave(g);
	}
	return 1;
}

static cairn_status begin(cairn_run *r, int in, struct variable *only)
{
	struct gpu *g = r->gpu;
	cairn_status rc;
	int code;
	gpu_wait(r);
	while (sem_trywait(&g->done) == 0)
		;
	__atomic_store_n(&r->page->filling, 0, __ATOMIC_RELAXED);
	g->background = 0;
	g->saves |= !in;
	no_parts(g);
	if ((code = wait_for_work(g)))
		return not_saved(r, code, "waiting for the work of the program's GPUs", NULL);
	if ((rc = find_parts(r, in, only)) < 0 || !g->vars.n)
		return rc;
	if (!in && !only) {
		g->background = freeze(g, &code);
		if (code)
			return not_saved(r, code, "copying GPU memory on the device", NULL);
	}
	if (g->background)
		page_set(r, 0, UINT64_MAX, FILLING);
	start(g, in);
	return CAIRN_OK;
}

int gpu_used(cairn_run *r) { return load(r) != NULL; }

cairn_status gpu_begin(cairn_run *r, int in, struct variable *only)
{
	cairn_status rc;
	int mode;
	if (!load(r))
		return CAIRN_OK;
	mode = relax(r->gpu);
	rc = begin(r, in, only);
	relax_end(r->gpu, mode);
	return rc;
}

cairn_status gpu_finish(cairn_run *r)
{
	struct gpu *g = r->gpu;
	if (!g || !g->vars.n || g->background)
		return CAIRN_OK;
	while (sem_wait(&g->done) < 0 && errno == EINTR)
		;
	return g->code ? not_saved(r, g->code, g->in ? "copying to GPU memory" : "copying GPU memory", NULL) : CAIRN_OK;
}

cairn_status gpu_frozen(cairn_run *r)
{
	struct gpu *g = r->gpu;
	int code = 0;
	if (!g || !g->vars.n || !g->background)
		return CAIRN_OK;
	for (size_t k = 0; k < g->ncontexts && !code; k++)
		if (g->contexts[k].needs && !(code = enter(g, &g->contexts[k]))) {
			code = g->EventSynchronize(g->contexts[k].frozen);
			leave(g);
		}
	return code ? not_saved(r, code, "copying GPU memory on the device", NULL) : CAIRN_OK;
}

cairn_status gpu_load(cairn_run *r, struct variable *v, void *to, uint64_t n)
{
	struct gpu *g = load(r);
	struct attributes a;
	int code, mode;
	if (!g) {
		copy_bytes(to, v->copy, (size_t)n);
		return CAIRN_OK;
	}
	mode = relax(g);
	gpu_wait(r);
	no_parts(g);
	g->in = 1;
	if (!(code = wait_for_work(g)) && !(code = ask(g, to, &a)) && !(a.context && (code = wait_for(g, a.context)))) {
		if (!on_device(&a))
			copy_bytes(to, v->copy, (size_t)n);
		else if (!(code = add_var(g, v, to, n, &a)))
			code = transfer(g);
	}
	relax_end(g, mode);
	return code ? not_saved(r, code, "copying to GPU memory", NULL) : CAIRN_OK;
}

void gpu_forget(cairn_run *r, struct variable *v)
{
	struct gpu *g = r->gpu;
	gpu_wait(r);
	if (g && g->ncontexts && (v->pinned || v->digests) && r->pid == getpid() && enter(g, &g->contexts[v->digest_context]) == 0) {
		int mode = relax(g);
		for (uint64_t at = 0; at < v->pinned; at += CHUNK)
			g->HostUnregister(v->copy + at);
		if (v->digests)
			g->Free(v->digests);
		relax_end(g, mode);
		leave(g);
	}
	v->pinned = v->digests = 0;
	v->unpinnable = v->digested = 0;
}

void gpu_end(cairn_run *r)
{
	struct gpu *g = r->gpu;
	if (!g)
		return;
	gpu_wait(r);
	if (r->pid == getpid()) { /* CUDA does not work in a forked process */
		compiled(g);
		if (g->early.kernel.module && identify(g, g->early.context) == g->early.id && g->Push(g->early.context) == 0) {
			g->ModuleUnload(g->early.kernel.module);
			leave(g);
		}
		for (size_t i = 0; i < r->nvars; i++)
			gpu_forget(r, r->vars[i]);
		give_back(g, 1);
		for (size_t i = 0; i < g->ncontexts; i++) {
			struct context *c = &g->contexts[i];
			if (enter(g, c))
				continue;
			for (int k = 0; k < 2; k++) {
				if (c->stage[k])
					g->HostFree(c->stage[k]);
				if (c->full[k])
					g->EventDestroy(c->full[k]);
			}
			if (c->frozen)
				g->EventDestroy(c->frozen);
			if (c->kernel.module)
				g->ModuleUnload(c->kernel.module);
			if (c->stream)
				g->StreamDestroy(c->stream);
			leave(g);
		}
	}
	sem_destroy(&g->done);
	free(g->contexts);
	free(g->vars.p);
	free(g->moves.p);
	free(g);
	r->gpu = NULL;
}
