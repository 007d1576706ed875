// CUDA's builtins for g++, and a machine that runs groups of work items one
// after the other, on the thread that calls launch.
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __global__
#define __device__
#define __constant__ static
#define __shared__ static thread_local
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(n)

namespace mock {
struct dim { unsigned int x, y, z; };
}
static thread_local mock::dim threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;

namespace mock {

struct machine {
	ucontext_t main;
	ucontext_t *items = nullptr;
	char *stacks = nullptr, *done = nullptr;
	int current = -1; // -1: not in groups
	void (*body)(void *) = nullptr;
	void *arg = nullptr;
};
static thread_local machine m;
static const size_t stack = 64 << 10;

static void item() {
	m.body(m.arg);
	m.done[m.current] = 1;
	swapcontext(&m.items[m.current], &m.main);
}

static void place(unsigned i) {
	threadIdx = {i % blockDim.x, i / blockDim.x % blockDim.y, i / blockDim.x / blockDim.y};
}

static void group(bool barriers) {
	unsigned n = blockDim.x * blockDim.y * blockDim.z;
	if (!barriers) {
		for (unsigned i = 0; i < n; i++) {
			place(i);
			m.body(m.arg);
		}
		return;
	}
	if (!m.items) {
		m.items = (ucontext_t *)malloc(1024 * sizeof(ucontext_t));
		m.done = (char *)malloc(1024);
		m.stacks = (char *)malloc(1024 * stack);
	}
	memset(m.done, 0, n);
	for (unsigned i = 0; i < n; i++) {
		getcontext(&m.items[i]);
		m.items[i].uc_stack.ss_sp = &m.stacks[i * stack];
		m.items[i].uc_stack.ss_size = stack;
		m.items[i].uc_link = nullptr;
		makecontext(&m.items[i], item, 0);
	}
	for (bool more = true; more;) {
		more = false;
		for (unsigned i = 0; i < n; i++) {
			if (m.done[i]) continue;
			m.current = i;
			place(i);
			swapcontext(&m.main, &m.items[i]);
			more = more || !m.done[i];
		}
	}
	m.current = -1;
}

template <size_t... I> struct seq {};
template <size_t N, size_t... I> struct count : count<N - 1, N - 1, I...> {};
template <size_t... I> struct count<0, I...> { typedef seq<I...> type; };
template <class T> struct plain { typedef T type; };
template <class T> struct plain<const T> { typedef T type; };

template <class... A, size_t... I> void invoke(void (*f)(A...), void **p, seq<I...>) {
	f(*(typename plain<A>::type *)p[I]...);
}

struct call { void (*go)(void *, void **); void *f; void **params; };

struct kernel {
	const char *name;
	void *f;
	void (*go)(void *f, void **params);
	const size_t *sizes;
	size_t n;
	bool barriers;
};

template <class... A> kernel make(const char *name, void (*f)(A...), bool barriers) {
	static const size_t sizes[] = {sizeof(A)..., 0};
	return kernel{name, (void *)f,
		[](void *f, void **p) { invoke((void (*)(A...))f, p, typename count<sizeof...(A)>::type{}); },
		sizes, sizeof...(A), barriers};
}
} // namespace mock

static inline void __syncthreads() {
	if (mock::m.current < 0) abort();
	swapcontext(&mock::m.items[mock::m.current], &mock::m.main);
}
static inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
static inline void __threadfence_block() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

#define MOCK_ATOMIC(T) \
	static inline T atomicAdd(T *p, T v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); } \
	static inline T atomicExch(T *p, T v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); } \
	static inline T atomicAnd(T *p, T v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); } \
	static inline T atomicOr(T *p, T v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); } \
	static inline T atomicXor(T *p, T v) { return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST); } \
	static inline T atomicCAS(T *p, T c, T v) { \
		__atomic_compare_exchange_n(p, &c, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
		return c; \
	}
#define MOCK_ORDER(T) \
	static inline T atomicMin(T *p, T v) { \
		T o = *p; \
		while (v < o && !__atomic_compare_exchange_n(p, &o, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {} \
		return o; \
	} \
	static inline T atomicMax(T *p, T v) { \
		T o = *p; \
		while (v > o && !__atomic_compare_exchange_n(p, &o, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {} \
		return o; \
	}
MOCK_ATOMIC(unsigned int)
MOCK_ATOMIC(unsigned long long)
MOCK_ORDER(int)
MOCK_ORDER(unsigned int)
MOCK_ORDER(long long)
MOCK_ORDER(unsigned long long)
static inline float atomicExch(float *p, float v) { float o; __atomic_exchange(p, &v, &o, __ATOMIC_SEQ_CST); return o; }

static inline float rsqrtf(float x) { return 1 / sqrtf(x); }
static inline double rsqrt(double x) { return 1 / sqrt(x); }
static inline float sinpif(float x) { return sinf(x * (float)M_PI); }
static inline double sinpi(double x) { return sin(x * M_PI); }
static inline float cospif(float x) { return cosf(x * (float)M_PI); }
static inline double cospi(double x) { return cos(x * M_PI); }
static inline int __mulhi(int x, int y) { return (int)((long long)x * y >> 32); }
static inline unsigned int __umulhi(unsigned int x, unsigned int y) { return (unsigned int)((unsigned long long)x * y >> 32); }
static inline long long __mul64hi(long long x, long long y) { return (long long)((__int128)x * y >> 64); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
	return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(x); }
static inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(x); }
// The C library has these names for itself.
#define __sinf sinf
#define __cosf cosf
#define __tanf tanf
#define __expf expf
#define __exp10f exp10f
#define __logf logf
#define __log2f log2f
#define __log10f log10f
#define __powf powf
