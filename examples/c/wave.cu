/*
 * A wave on a square plate, on a GPU, or on the processor without one.
 *
 *     nvcc --fmad=false wave.cu $(pkg-config --cflags --libs cairn) -o wave
 *     cc -x c -O2 -ffp-contract=off wave.cu $(pkg-config --cflags --libs cairn) -o wave   # no GPU
 *     ./wave 2000 1000              # kill it, start it again: it resumes
 *     cairn run ./wave 2000 1000    # … by itself
 *
 * Both programs compute the same bits, and each resumes what the other has saved.
 */
#include <cairn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __CUDACC__
#include <cuda_runtime.h>
#define CHECK(call) \
	do { \
		cudaError_t e = (call); \
		if (e != cudaSuccess) \
			exit((fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(e)), 1)); \
	} while (0)

/* cells computes a step: next holds the step before u, and then the one after it. */
static __global__ void cells(const double *u, double *next, int n)
{
	int i = blockIdx.y * blockDim.y + threadIdx.y, k = blockIdx.x * blockDim.x + threadIdx.x;
	if (i > 0 && i < n - 1 && k > 0 && k < n - 1) {
		double around = u[(i - 1) * n + k] + u[(i + 1) * n + k] + u[i * n + k - 1] + u[i * n + k + 1];
		next[i * n + k] = 2 * u[i * n + k] - next[i * n + k] + 0.25 * (around - 4 * u[i * n + k]);
	}
}

static void advance(const double *u, double *next, int n)
{
	static cudaStream_t stream;
	if (!stream)
		CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
	cells<<<dim3((n + 31) / 32, (n + 7) / 8), dim3(32, 8), 0, stream>>>(u, next, n);
	CHECK(cudaGetLastError());
}

static double *array(size_t bytes)
{
	double *p;
	CHECK(cudaMalloc((void **)&p, bytes));
	CHECK(cudaMemset(p, 0, bytes));
	return p;
}

static void put(double *to, const double *from, size_t bytes) { CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice)); }
static void get(double *to, const double *from, size_t bytes)
{
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
#else
static void advance(const double *u, double *next, int n)
{
	for (int i = 1; i < n - 1; i++)
		for (int k = 1; k < n - 1; k++) {
			double around = u[(i - 1) * n + k] + u[(i + 1) * n + k] + u[i * n + k - 1] + u[i * n + k + 1];
			next[i * n + k] = 2 * u[i * n + k] - next[i * n + k] + 0.25 * (around - 4 * u[i * n + k]);
		}
}

static double *array(size_t bytes) { return (double *)calloc(1, bytes); }
static void put(double *to, const double *from, size_t bytes) { memcpy(to, from, bytes); }
static void get(double *to, const double *from, size_t bytes) { memcpy(to, from, bytes); }
#endif

int main(int argc, char **argv)
{
	int steps = argc > 1 ? atoi(argv[1]) : 1000, n = argc > 2 ? atoi(argv[2]) : 500, step = 0, rc = CAIRN_OK;
	size_t dims[2] = {(size_t)n, (size_t)n}, bytes = dims[0] * dims[1] * sizeof(double);
	double *u[2] = {array(bytes), array(bytes)}, *host = (double *)calloc(1, bytes), sum = 0;
	cairn_run *run;
	cairn_options options = CAIRN_OPTIONS;

	host[(n / 3) * n + n / 4] = 1; /* a drop */
	put(u[0], host, bytes);
	put(u[1], host, bytes);
	options.every_points = argc > 3 ? (uint64_t)atol(argv[3]) : 0;
	if (cairn_open(&run, argc > 4 ? argv[4] : "wave.ckpt", &options) < 0 ||
	    cairn_protect(run, "step", &step, CAIRN_INT, 0, NULL) < 0 ||
	    cairn_protect(run, "even", u[0], CAIRN_DOUBLE, 2, dims) < 0 ||
	    cairn_protect(run, "odd", u[1], CAIRN_DOUBLE, 2, dims) < 0 ||
	    (rc = cairn_restore(run)) < 0)
		return fprintf(stderr, "%s\n", cairn_error(run)), 1;
	fprintf(stderr, "%s at step %d\n", rc == CAIRN_RESTORED ? "resumed" : "started", step);

	for (; step < steps; step++) {
		rc = cairn_point(run); /* saves when a checkpoint is due; waits for the GPU then */
		if (rc == CAIRN_STOPPED)
			return cairn_close(run) < 0;
		if (rc < 0)
			fprintf(stderr, "%s\n", cairn_error(run));
		advance(u[step % 2], u[1 - step % 2], n);
	}
	get(host, u[steps % 2], bytes);
	for (int i = 0; i < n * n; i++)
		sum += host[i] * host[i] * (i % 7 + 1);
	printf("wave %.17g\n", sum);
	if ((rc = cairn_finish(run, 0)) < 0)
		fprintf(stderr, "%s\n", cairn_error(run));
	return cairn_close(run) < 0 || rc < 0;
}
