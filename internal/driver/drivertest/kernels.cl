// The kernels of the suite. kernels.go has the same in Go.

__kernel void add(__global int *x, int n, int k) {
	int i = get_global_id(0);
	if (i < n) x[i] += k;
}

__kernel void affine(__global const int *x, __global int *y, int n, int a, int b) {
	int i = get_global_id(0);
	if (i < n) y[i] = a * x[i] + b;
}

// Slow enough that what comes next finds it running.
__kernel void spin(__global const uint *x, __global uint *y, int n, int rounds) {
	int i = get_global_id(0);
	if (i >= n) return;
	uint v = x[i];
	for (int r = 0; r < rounds; r++) v = v * 1664525u + 1013904223u;
	y[i] = v;
}

__kernel void where3(__global int *out, int nx, int ny, int nz) {
	int x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
	if (x >= nx || y >= ny || z >= nz) return;
	out[(z * ny + y) * nx + x] += x + 1000 * y + 1000000 * z;
}

// Sizes must be multiples of the group.
__kernel void groups(__global int *out) {
	size_t x = get_global_id(0), y = get_global_id(1), z = get_global_id(2);
	size_t at = (z * get_global_size(1) + y) * get_global_size(0) + x;
	__global int *o = out + at * 12;
	// One by one: a dimension that varies may become a table of jumps.
	o[0] = (int)get_group_id(0);
	o[1] = (int)get_group_id(1);
	o[2] = (int)get_group_id(2);
	o[3] = (int)get_local_id(0);
	o[4] = (int)get_local_id(1);
	o[5] = (int)get_local_id(2);
	o[6] = (int)get_local_size(0);
	o[7] = (int)get_local_size(1);
	o[8] = (int)get_local_size(2);
	o[9] = (int)get_num_groups(0);
	o[10] = (int)get_num_groups(1);
	o[11] = (int)get_num_groups(2);
}

// Sums of groups of 64, in a fixed order.
__kernel void reduce(__global const float *x, __global float *sums, __local float *part, int n) {
	int i = get_global_id(0), l = get_local_id(0);
	part[l] = i < n ? x[i] : 0.0f;
	barrier(CLK_LOCAL_MEM_FENCE);
	for (int s = get_local_size(0) / 2; s > 0; s /= 2) {
		if (l < s) part[l] += part[l + s];
		barrier(CLK_LOCAL_MEM_FENCE);
	}
	if (l == 0) sums[get_group_id(0)] = part[0];
}

// Two kinds of local memory, from arguments of different sizes and in the kernel.
__kernel void turn(__global int *x, __local uchar *a, __local long *b) {
	__local int c[32];
	int l = get_local_id(0), n = get_local_size(0), base = get_group_id(0) * n;
	a[l] = (uchar)x[base + l];
	b[l] = x[base + l] * 3L;
	c[l] = x[base + l];
	barrier(CLK_LOCAL_MEM_FENCE);
	x[base + l] = (int)a[n - 1 - l] + (int)b[n - 1 - l] + c[(l + 1) % n];
}

__kernel void scalars(__global long *out, __global float *f, char c, uchar uc, short s, ushort us,
                      int i, uint u, long l, ulong ul, float x) {
	if (get_global_id(0) != 0) return;
	out[0] = c;
	out[1] = uc;
	out[2] = s;
	out[3] = us;
	out[4] = i;
	out[5] = u;
	out[6] = l;
	out[7] = (long)ul;
	f[0] = x;
}

__kernel void atomics(__global const uint *x, __global int *out, int n) {
	__local int seen;
	if (get_local_id(0) == 0) seen = 0;
	barrier(CLK_LOCAL_MEM_FENCE);
	int i = get_global_id(0);
	if (i < n) {
		int v = (int)x[i];
		atomic_add(&out[0], v);
		atomic_inc(&out[1]);
		atomic_min(&out[2], v);
		atomic_max(&out[3], v);
		atomic_or(&out[4], v);
		atomic_xor(&out[5], v);
		int old, was = out[6];
		do {
			old = was;
			was = atomic_cmpxchg(&out[6], old, old + v * 3);
		} while (was != old);
		atomic_sub(&out[7], v);
		atomic_inc(&seen);
	}
	barrier(CLK_LOCAL_MEM_FENCE);
	if (get_local_id(0) == 0) atomic_add(&out[8], seen);
}

__kernel void int64s(__global const ulong *x, __global const ulong *y, __global ulong *out, int n) {
	int i = get_global_id(0);
	if (i >= n) return;
	ulong a = x[i], b = y[i];
	__global ulong *o = out + (long)i * 8;
	o[0] = a + b;
	o[1] = a * b;
	o[2] = mul_hi(a, b);
	o[3] = (ulong)mul_hi((long)a, (long)b);
	o[4] = b == 0 ? 0 : a / b;
	o[5] = (a << (b & 63)) ^ (a >> 17);
	o[6] = (ulong)((long)a >> 7);
	o[7] = ((ulong)mul_hi((uint)a, (uint)b) << 32) | (ulong)((uint)a * (uint)b);
}

__kernel void vectors(__global const float2 *a, __global const float2 *b, __global float2 *product,
                      __global const float4 *p, __global float4 *q, __global uint4 *u, float s, int n) {
	int i = get_global_id(0);
	if (i >= n) return;
	float2 x = a[i], y = b[i];
	product[i] = (float2)(x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x);
	float4 v = p[i];
	v = v * s + (float4)(1.0f, 2.0f, 3.0f, 4.0f);
	v.w = v.x;
	q[i] = v - q[i];
	uint4 k = u[i];
	k += (uint4)(1u, 2u, 3u, 4u);
	u[i] = (uint4)(k.w, k.z, k.y, k.x);
}

// Multiplication and addition, fused only where it says so; division; root.
__kernel void exact(__global const float *a, __global const float *b, __global const float *c, __global float *out, int n) {
	int i = get_global_id(0);
	if (i >= n) return;
	out[5 * i] = a[i] * b[i] + c[i];
	float t = a[i] * b[i];
	out[5 * i + 1] = t - c[i];
	out[5 * i + 2] = fma(a[i], b[i], c[i]);
	out[5 * i + 3] = a[i] / b[i];
	out[5 * i + 4] = sqrt(fabs(a[i]));
}

// The low bits of an address.
__kernel void low(__global const uchar *x, __global uint *out) {
	out[0] = (uint)((size_t)x & 127);
}
