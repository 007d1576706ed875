/*
 * A program for the tests of libcairn with CUDA memory. It opens the driver by
 * itself, as the CUDA runtime does, and needs no header of it.
 *
 *     gpu DIR MODE KINDS MIB ROUNDS
 *
 * KINDS are letters: d device, m managed, c managed and written by the processor
 * after the point, h pinned, p of a pool, n plain memory, s a small one on the
 * device, e on a second device, f no variable, but most of the device's memory.
 * MODE ranks is tear in two ranks. Each uses the device with its number first, and
 * the other one second, and the current context is not always that of a variable.
 */
#include <cairn.h>
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *lib, *stream, *ctx, *second, *stream2;
static uint64_t scratch;
static size_t words;

/* ranks is memory that two ranks share, to exchange what libcairn wants. */
static struct {
	pthread_barrier_t barrier;
	char bytes[2][4096];
	uint64_t values[2][16];
} *ranks;
static int rank;

static int gather(void *context, const void *mine, int n, void *all)
{
	(void)context;
	if ((size_t)n > sizeof ranks->bytes[0])
		return -1;
	memcpy(ranks->bytes[rank], mine, (size_t)n);
	pthread_barrier_wait(&ranks->barrier);
	for (int i = 0; i < 2; i++)
		memcpy((char *)all + i * n, ranks->bytes[i], (size_t)n);
	pthread_barrier_wait(&ranks->barrier);
	return 0;
}

static int most(void *context, uint64_t *v, int n)
{
	(void)context;
	memcpy(ranks->values[rank], v, (size_t)n * sizeof *v);
	pthread_barrier_wait(&ranks->barrier);
	for (int i = 0; i < n; i++)
		if (ranks->values[!rank][i] > v[i])
			v[i] = ranks->values[!rank][i];
	pthread_barrier_wait(&ranks->barrier);
	return 0;
}

/* become_ranks makes two ranks of this process; the first one returns the other's pid. */
static pid_t become_ranks(void)
{
	pthread_barrierattr_t attr;
	pid_t child;
	ranks = mmap(NULL, sizeof *ranks, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&ranks->barrier, &attr, 2);
	child = fork();
	rank = child == 0;
	return child;
}

/* cu calls a function of the driver. */
#define CU(name, ...) \
	do { \
		int (*f)() = (int (*)())dlsym(lib, #name); \
		int code = f ? f(__VA_ARGS__) : -1; \
		if (code) { \
			fprintf(stderr, "%s returned %d\n", #name, code); \
			exit(4); \
		} \
	} while (0)

static void fake(const char *name, int a, int b)
{
	void (*f)(int, int) = (void (*)(int, int))dlsym(lib, name);
	if (f)
		f(a, b);
}

struct var {
	char kind, name[16];
	uint64_t at;
	size_t n; /* words */
} vars[16];
static int nvars;

static int of_device(char kind) { return kind == 'e' || kind == 'd' || kind == 'p' || kind == 's' || kind == 'm' || kind == 'c'; }

static void make(char kind)
{
	struct var *v = &vars[nvars++];
	v->kind = kind, v->n = kind == 's' ? 777 : words;
	snprintf(v->name, sizeof v->name, "%c%d", kind, nvars);
	switch (kind) {
	case 'm': case 'c':
		CU(cuMemAllocManaged, &v->at, (size_t)4 * v->n, 1u);
		break;
	case 'h':
		CU(cuMemHostAlloc, &v->at, (size_t)4 * v->n, 0u);
		break;
	case 'p':
		CU(cuMemAllocAsync, &v->at, (size_t)4 * v->n, stream);
		break;
	case 'n':
		v->at = (uint64_t)(uintptr_t)malloc(4 * v->n);
		break;
	default:
		CU(cuMemAlloc_v2, &v->at, (size_t)4 * v->n);
	}
}

/* use makes the context of a variable the current one. */
static void use(const struct var *v) { CU(cuCtxSetCurrent, v && v->kind == 'e' ? second : ctx); }

/* devices gets the devices, as the CUDA runtime does. */
static void devices(const char *kinds)
{
	CU(cuInit, 0u);
	if (strchr(kinds, 'e')) {
		CU(cuDevicePrimaryCtxRetain, &second, !rank);
		CU(cuCtxSetCurrent, second);
		CU(cuStreamCreate, &stream2, 1u);
	}
	CU(cuDevicePrimaryCtxRetain, &ctx, rank);
	CU(cuCtxSetCurrent, ctx);
	CU(cuStreamCreate, &stream, 1u); /* non-blocking */
	CU(cuMemAlloc_v2, &scratch, (size_t)4 * words);
	for (nvars = 0; *kinds; kinds++) {
		if (*kinds == 'f') {
			size_t unused, total;
			uint64_t at;
			CU(cuMemGetInfo_v2, &unused, &total);
			CU(cuMemAlloc_v2, &at, unused - total / 16);
			continue;
		}
		vars[nvars].kind = *kinds;
		use(&vars[nvars]);
		make(*kinds);
	}
	use(NULL);
}

/* busy gives the stream work that takes a while, so that what follows is late. */
static void busy(void)
{
	for (int i = 0; i < 20; i++)
		CU(cuMemsetD32Async, scratch, (unsigned)i, words, stream);
}

/* put lets all variables have a value, on the stream where they can. */
static void put(unsigned value, int later)
{
	for (int i = 0; i < nvars; i++) {
		struct var *v = &vars[i];
		uint32_t *p = (uint32_t *)(uintptr_t)v->at;
		if (v->kind == 'n' || (v->kind == 'c' && later)) {
			for (size_t k = v->kind == 'c' ? v->n - v->n / 64 : 0; k < v->n; k++)
				p[k] = value + (unsigned)i;
		} else if (v->kind == 'h') {
			CU(cuMemsetD32Async, scratch, value + (unsigned)i, v->n, stream);
			CU(cuMemcpyDtoHAsync_v2, p, scratch, (size_t)4 * v->n, stream);
		} else {
			use(v);
			CU(cuMemsetD32Async, v->at, value + (unsigned)i, v->n, v->kind == 'e' ? stream2 : stream);
			use(NULL);
		}
	}
}

/* check counts elements that do not have the value. */
static int check(unsigned value, const char *when)
{
	enum { STEP = 1 << 22 };
	uint32_t *buf = malloc(4 * STEP);
	size_t wrong = 0;
	CU(cuStreamSynchronize, stream);
	for (int i = 0; i < nvars; i++) {
		struct var *v = &vars[i];
		use(v);
		if (v->kind == 'e')
			CU(cuStreamSynchronize, stream2);
		for (size_t at = 0; at < v->n; at += STEP) {
			size_t n = v->n - at < STEP ? v->n - at : STEP;
			const uint32_t *p = (const uint32_t *)(uintptr_t)v->at + at;
			if (of_device(v->kind)) {
				CU(cuMemcpyDtoH_v2, buf, v->at + 4 * at, (size_t)4 * n);
				p = buf;
			}
			for (size_t k = 0; k < n; k++)
				if (p[k] != value + (unsigned)i && !wrong++)
					fprintf(stderr, "%s: %s[%zu] is %u, not %u\n", when, v->name, at + k, p[k], value + (unsigned)i);
		}
	}
	use(NULL);
	free(buf);
	return wrong > 0;
}

/* current changes the current context of a rank: its own, the other one, or none. */
static void current(int i)
{
	if (ranks)
		CU(cuCtxSetCurrent, i % 3 == 0 ? ctx : i % 3 == 1 ? second : NULL);
}

static cairn_run *start(const char *dir, int *rc)
{
	cairn_run *run;
	cairn_options o = CAIRN_OPTIONS;
	o.every_points = 1u << 30;
	cairn_comm comm = {rank, 2, NULL, gather, most, NULL};
	*rc = cairn_open_comm(&run, dir, &o, ranks ? &comm : NULL);
	for (int i = 0; i < nvars && *rc >= 0; i++)
		*rc = cairn_protect(run, vars[i].name, (void *)(uintptr_t)vars[i].at, CAIRN_UINT32, 1, &vars[i].n);
	if (*rc >= 0)
		*rc = cairn_restore(run);
	if (*rc < 0) {
		fprintf(stderr, "start: %d: %s\n", *rc, cairn_error(run));
		exit(3);
	}
	return run;
}

static void saved(cairn_run *run)
{
	int rc = cairn_save(run);
	if (rc < 0) {
		fprintf(stderr, "save: %d: %s\n", rc, cairn_error(run));
		exit(5);
	}
}

int main(int argc, char **argv)
{
	if (argc < 6)
		return 2;
	const char *dir = argv[1], *mode = argv[2];
	int rounds = atoi(argv[5]), rc = 0, bad = 0;
	cairn_run *run;
	pid_t other = strcmp(mode, "ranks") == 0 ? become_ranks() : 0;
	words = (size_t)atol(argv[4]) << 18;
	if (strcmp(mode, "unreadable") == 0) {
		void *p = mmap(NULL, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		size_t n = 1 << 20;
		if (argv[3][0] != '-')
			lib = dlopen("libcuda.so.1", RTLD_NOW);
		if (cairn_open(&run, dir, NULL) < 0)
			return 3;
		rc = cairn_protect(run, "x", p, CAIRN_BYTES, 1, &n);
		printf("%d %s\n", rc, cairn_error(run));
		cairn_close(run);
		return 0;
	}
	if (!(lib = dlopen("libcuda.so.1", RTLD_NOW))) {
		fprintf(stderr, "%s\n", dlerror());
		return 77;
	}
	devices(argv[3]);
	put(5, 0);
	if (strcmp(mode, "check") == 0) {
		run = start(dir, &rc);
		printf("%s\n", rc == CAIRN_RESTORED ? "restored" : "started");
		bad = rc == CAIRN_RESTORED && check((unsigned)rounds, "after a restart");
	} else if (strcmp(mode, "tear") == 0 || ranks) {
		for (int i = 0; i < rounds; i++) {
			unsigned value = 1000 + 10 * (unsigned)i * (unsigned)nvars + 100000 * (unsigned)rank;
			current(i);
			run = start(dir, &rc);
			use(NULL);
			if ((rc == CAIRN_RESTORED) != (i > 0))
				return 6;
			busy();
			put(value, 0);
			current(i);
			saved(run);
			use(NULL);
			put(value + 1000000, 1); /* at once */
			CU(cuStreamSynchronize, stream);
			if (cairn_close(run) < 0)
				return 7;
			busy(); /* work that was given before a restore must not come after it */
			put(3, 0);
			current(i + 1);
			run = start(dir, &rc);
			use(NULL);
			bad |= check(value, "after a restore");
			cairn_close(run);
			if (bad)
				return 1;
		}
		if (other && (waitpid(other, &rc, 0) != other || rc != 0))
			return 8;
		printf("%d rounds\n", rounds);
		return 0;
	} else if (strcmp(mode, "lost") == 0) { /* a device that is lost before the point, and one that is lost after it */
		run = start(dir, &rc);
		put(100, 0);
		saved(run);
		cairn_wait(run);
		put(200, 0);
		fake("fake_lose", 0, 700);
		printf("%d ", cairn_save(run));
		printf("%s\n", cairn_error(run));
		fake("fake_lose", 0, 0);
		put(300, 0);
		CU(cuStreamSynchronize, stream);
		fake("fake_hold", 1, 0);
		saved(run);
		fake("fake_lose", 0, 719);
		fake("fake_hold", 0, 0);
		printf("%d ", cairn_wait(run));
		printf("%s\n", cairn_error(run));
		fake("fake_lose", 0, 0);
		put(400, 0);
		saved(run);
		put(500, 1);
		printf("%d\n", cairn_wait(run));
	} else if (strcmp(mode, "capture") == 0) { /* the program captures a graph after a save */
		void *graph;
		run = start(dir, &rc);
		for (int i = 0; i < rounds; i++) {
			put(100 * (unsigned)(i + 1), 0);
			CU(cuStreamSynchronize, stream);
			saved(run);
			CU(cuStreamBeginCapture_v2, stream, 0);
			rc = cairn_wait(run);
			for (int k = 0; k < nvars && i % 2 == 0; k++) /* frees what it has for the variable */
				if (cairn_unprotect(run, vars[k].name) < 0 || cairn_protect(run, vars[k].name, (void *)(uintptr_t)vars[k].at, CAIRN_UINT32, 1, &vars[k].n) < 0)
					return 8;
			CU(cuStreamEndCapture, stream, &graph);
			if (rc < 0)
				return 9;
		}
	} else if (strcmp(mode, "reset") == 0) { /* everything in the context is gone, and made again */
		run = start(dir, &rc);
		put(100, 0);
		saved(run);
		cairn_wait(run);
		CU(cuDevicePrimaryCtxReset_v2, 0);
		devices(argv[3]);
		for (int i = 0; i < nvars; i++)
			if (cairn_protect(run, vars[i].name, (void *)(uintptr_t)vars[i].at, CAIRN_UINT32, 1, &vars[i].n) < 0)
				return 8;
		for (unsigned value = 200; value <= 300; value += 50) {
			put(value, 0);
			saved(run);
			put(7, 1);
			if (cairn_wait(run) < 0)
				return 9;
		}
		CU(cuDevicePrimaryCtxReset_v2, 0); /* a program may do that before it closes the run */
		cairn_close(run);
		devices(argv[3]);
		run = start(dir, &rc);
		bad = check(300, "after a reset");
	} else if (strcmp(mode, "killed") == 0) { /* before the copy has reached the mirror */
		run = start(dir, &rc);
		put(100, 0);
		saved(run);
		cairn_wait(run);
		put(200, 0);
		fake("fake_hold", 1, 0);
		saved(run);
		kill(getpid(), SIGKILL);
	} else if (strcmp(mode, "sparse") == 0) { /* some blocks change; a save in the middle fails */
		struct var *v = &vars[0];
		size_t (*moved)(void) = (size_t (*)(void))dlsym(lib, "fake_moved");
		uint32_t *want = malloc(4 * v->n), *got = malloc(4 * v->n);
		int fails = getenv("FAKE_CUDA_EXCLUSIVE") || !moved ? -1 : rounds / 2;
		put(100, 0);
		for (size_t k = 0; k < v->n; k++)
			want[k] = 100;
		run = start(dir, &rc);
		for (int i = 0; i < rounds; i++) {
			size_t from = (size_t)i * 7919 * 1009 % (v->n - 5), n = 1 + (size_t)i % 5, before = moved ? moved() : 0;
			CU(cuMemcpyHtoD_v2, v->at, want, 4 * v->n);
			CU(cuMemsetD32Async, v->at + 4 * from, 5000u + (unsigned)i, n, stream);
			for (size_t k = from; k < from + n; k++)
				want[k] = 5000u + (unsigned)i;
			if (i == fails) {
				CU(cuStreamSynchronize, stream);
				fake("fake_hold", 1, 0);
			}
			saved(run);
			if (i == fails) {
				fake("fake_lose", 0, 719);
				fake("fake_hold", 0, 0);
			}
			if (i != fails)
				CU(cuMemsetD32Async, v->at, 9u, v->n, stream); /* at once */
			if (cairn_wait(run) >= 0 && i == fails)
				return 10;
			fake("fake_lose", 0, 0);
			CU(cuStreamSynchronize, stream);
			if (moved)
				printf("%zu ", moved() - before);
		}
		cairn_close(run);
		CU(cuMemsetD32Async, v->at, 9u, v->n, stream);
		run = start(dir, &rc);
		CU(cuMemcpyDtoH_v2, got, v->at, 4 * v->n);
		for (size_t k = 0; k < v->n && !bad; k++)
			if ((bad = got[k] != want[k]))
				fprintf(stderr, "%s[%zu] is %u, not %u\n", v->name, k, got[k], want[k]);
		printf("restored\n");
	} else if (strcmp(mode, "compile") == 0) { /* the kernel is compiled before the first save */
		int (*left)(int) = (int (*)(int))dlsym(lib, "fake_left");
		struct timespec a, b;
		put(100, 0);
		run = start(dir, &rc);
		for (int i = 0; i < 60000 && (!left ? i < 2000 : left(3) == 0); i++)
			usleep(1000); /* it is compiled while the program works */
		if (left && left(3) != 1)
			return 11;
		for (int i = 0; i < rounds; i++) {
			clock_gettime(CLOCK_MONOTONIC, &a);
			saved(run);
			clock_gettime(CLOCK_MONOTONIC, &b);
			if (!left) /* a GPU */
				printf("save %d: %.4f s\n", i + 1, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
			cairn_wait(run);
		}
		if (left && left(3) != 1)
			return 12;
		cairn_close(run);
		return left && left(3) != 0 ? 13 : 0;
	} else if (strcmp(mode, "change") == 0) { /* addresses, sizes and contexts that change */
		run = start(dir, &rc);
		for (int i = 0; i < rounds; i++) {
			put(100 * (unsigned)(i + 1), 0);
			saved(run);
			for (int k = 0; k < nvars; k++) {
				if (vars[k].kind == 'd' && i % 2 == 0)
					CU(cuMemAlloc_v2, &vars[k].at, (size_t)4 * (vars[k].n += 100001));
				rc = cairn_protect(run, vars[k].name, (void *)(uintptr_t)vars[k].at, CAIRN_UINT32, 1, &vars[k].n);
				if (rc < 0)
					return 8;
			}
		}
		cairn_wait(run);
		put(1000, 0);
		saved(run);
		put(2000, 1);
		if (cairn_wait(run) < 0)
			return 9;
		for (int k = 0; k < nvars && !bad; k++)
			bad = cairn_read(run, 0, vars[k].name, (void *)(uintptr_t)vars[k].at, CAIRN_UINT32, 1, &vars[k].n) < 0;
		if (bad)
			fprintf(stderr, "read: %s\n", cairn_error(run));
		bad |= check(1000, "after cairn_read");
	} else {
		return 2;
	}
	cairn_close(run);
	return bad;
}
