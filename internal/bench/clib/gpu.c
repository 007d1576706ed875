/*
 * Measures what a checkpoint of GPU memory costs a C program, beside what the
 * device does by itself in the same run:
 *
 *     make lib && cc -O2 -Ilib internal/bench/clib/gpu.c build/lib/libcairn.a -lpthread -ldl -o gpubench
 *     ./gpubench DIR GIB ROUNDS         # with CAIRN_HELPER; DIR in memory, so that no disk is measured
 */
#include "internal.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void *lib, *stream;

#define CU(name, ...) \
	do { \
		int (*f)() = (int (*)())dlsym(lib, #name); \
		int code = f ? f(__VA_ARGS__) : -1; \
		if (code) \
			exit((fprintf(stderr, "%s returned %d\n", #name, code), 1)); \
	} while (0)

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *x, int n)
{
	qsort(x, (size_t)n, sizeof *x, ascending);
	return x[n / 2];
}

static void ok(cairn_run *run, int rc)
{
	if (rc < 0)
		exit((fprintf(stderr, "%d: %s\n", rc, cairn_error(run)), 1));
}

int main(int argc, char **argv)
{
	if (argc < 4)
		return 2;
	double gib = atof(argv[2]), copy, pinned, began, pause[99], drain[99], durable[99];
	int rounds = atoi(argv[3]), n = rounds > 99 ? 99 : rounds;
	size_t bytes = (size_t)(gib * (1 << 30)), block = 32 << 10, chunk = bytes < (1u << 30) ? bytes : 1u << 30;
	uint64_t a, b;
	void *ctx, *host;
	cairn_run *run;
	cairn_options o = CAIRN_OPTIONS;
	if (!(lib = dlopen("libcuda.so.1", RTLD_NOW)))
		return fprintf(stderr, "%s\n", dlerror()), 77;
	CU(cuInit, 0u);
	CU(cuDevicePrimaryCtxRetain, &ctx, 0);
	CU(cuCtxSetCurrent, ctx);
	CU(cuStreamCreate, &stream, 1u);
	CU(cuMemAlloc_v2, &a, bytes);
	CU(cuMemAlloc_v2, &b, bytes);
	CU(cuMemHostAlloc, &host, chunk, 0u);
	for (int i = 0; i < n; i++) {
		CU(cuMemsetD32Async, a, (unsigned)i, bytes / 4, stream);
		CU(cuStreamSynchronize, stream);
		began = now();
		CU(cuMemcpyDtoDAsync_v2, b, a, bytes, stream);
		CU(cuStreamSynchronize, stream);
		pause[i] = now() - began;
		began = now();
		CU(cuMemcpyDtoHAsync_v2, host, a, chunk, stream);
		CU(cuStreamSynchronize, stream);
		drain[i] = now() - began;
	}
	copy = median(pause, n);
	pinned = (double)chunk / median(drain, n);
	CU(cuMemFree_v2, b);
	printf("%g GiB: copy on the device %.2f ms, copy to pinned memory %.1f GB/s\n", gib, 1e3 * copy, 1e-9 * pinned);

	o.every_points = 1u << 30;
	o.max_bases = 64;
	run = NULL;
	ok(run, cairn_open(&run, argv[1], &o));
	ok(run, cairn_protect(run, "a", (void *)(uintptr_t)a, CAIRN_BYTES, 1, &bytes));
	ok(run, cairn_restore(run));
	for (int part = 0; part < 2; part++) {
		for (int i = 0; i < n; i++) {
			if (part == 0)
				CU(cuMemsetD32Async, a, (unsigned)i + 100, bytes / 4, stream);
			for (size_t at = (size_t)i % 100 * block; part == 1 && at < bytes; at += 100 * block)
				CU(cuMemsetD32Async, a + at, (unsigned)i + 1000, block / 4, stream);
			CU(cuStreamSynchronize, stream);
			began = now();
			ok(run, cairn_save(run));
			CU(cuMemsetD32Async, a, (unsigned)i + (part ? 1000u : 100u), (size_t)1, stream);
			CU(cuStreamSynchronize, stream);
			pause[i] = now() - began;
			while (__atomic_load_n(&run->page->filling, __ATOMIC_ACQUIRE) == FILLING)
				usleep(50);
			drain[i] = now() - began;
			ok(run, cairn_wait(run));
			durable[i] = now() - began;
			if (i == 0 && part == 0)
				printf("  first: pause %.2f ms (%.2f x the copy), in host memory after %.0f ms, durable after %.0f ms\n", 1e3 * pause[0], pause[0] / copy, 1e3 * drain[0], 1e3 * durable[0]);
		}
		double p = median(pause + 1, n - 1), d = median(drain + 1, n - 1);
		printf("  %s changed: pause %.2f ms (%.2f x the copy), in host memory after %.1f ms (%.1f GB/s, %.2f x pinned), durable after %.0f ms\n",
			part ? "1 %" : "all", 1e3 * p, p / copy, 1e3 * d, 1e-9 * (double)bytes / (d - p), (double)bytes / (d - p) / pinned, 1e3 * median(durable + 1, n - 1));
	}
	ok(run, cairn_close(run));
	return 0;
}
