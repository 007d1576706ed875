/*
 * The kernel with which gpu.c finds out which blocks of a variable have changed.
 * digest.h holds it as the text that the driver compiles:
 *
 *     nvcc -ptx -arch=compute_75 -o digest.ptx digest.cu && ./digest.sh digest.ptx > digest.h
 *
 * A block has 32 KiB, 2048 words of 16 bytes. Its digest is two sums of products,
 * sum (a + k) * (b + l) modulo 2^128 over the halves a and b of all words, with
 * keys k and l for each word (the universal hash NH of UMAC, twice, by Toeplitz'
 * construction). Two different blocks have the same digest with a probability of
 * about 2^-128.
 */
#define WORDS 2048
#define THREADS 256
typedef unsigned long long u64;

static __device__ u64 key(u64 i)
{
	u64 z = (i + 1) * 0x9e3779b97f4a7c15ull;
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static __device__ void add(u64 *sum, u64 lo, u64 hi)
{
	sum[0] += lo;
	sum[1] += hi + (sum[0] < lo);
}

/* digests gets four numbers per block; list gets the blocks that differ from what was there, count their number. */
extern "C" __global__ void __launch_bounds__(THREADS) cairn_digest(const ulonglong2 *data, u64 words, u64 *digests, unsigned *list, unsigned *count, unsigned blocks)
{
	__shared__ u64 keys[2 * WORDS + 2], sums[4 * THREADS / 32];
	unsigned t = threadIdx.x;
	for (unsigned i = t; i < 2 * WORDS + 2; i += THREADS)
		keys[i] = key(i);
	__syncthreads();
	for (unsigned b = blockIdx.x; b < blocks; b += gridDim.x) {
		const ulonglong2 *p = data + (u64)b * WORDS;
		u64 left = words - (u64)b * WORDS, sum[4] = {0, 0, 0, 0};
#pragma unroll
		for (unsigned j = 0; j < WORDS / THREADS; j++) {
			unsigned i = j * THREADS + t;
			if (i < left) {
				ulonglong2 v = __ldcs(p + i);
				u64 x = v.x + keys[2 * i], y = v.y + keys[2 * i + 1];
				add(sum, x * y, __umul64hi(x, y));
				x = v.x + keys[2 * i + 2], y = v.y + keys[2 * i + 3];
				add(sum + 2, x * y, __umul64hi(x, y));
			}
		}
		for (int d = 16; d > 0; d /= 2)
			for (int k = 0; k < 4; k += 2) {
				u64 lo = __shfl_down_sync(~0u, sum[k], d), hi = __shfl_down_sync(~0u, sum[k + 1], d);
				add(sum + k, lo, hi);
			}
		if (t % 32 == 0)
			for (int k = 0; k < 4; k++)
				sums[t / 32 * 4 + k] = sum[k];
		__syncthreads();
		if (t == 0) {
			u64 *old = digests + (u64)b * 4;
			bool same = true;
			for (unsigned w = 1; w < THREADS / 32; w++)
				for (int k = 0; k < 4; k += 2)
					add(sum + k, sums[w * 4 + k], sums[w * 4 + k + 1]);
			for (int k = 0; k < 4; k++) {
				same = same && old[k] == sum[k];
				old[k] = sum[k];
			}
			if (!same)
				list[atomicAdd(count, 1u)] = b;
		}
		__syncthreads();
	}
}
