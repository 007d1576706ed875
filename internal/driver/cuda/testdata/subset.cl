// Everything that the table in the package comment names, at least once.
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
#define SQUARE(x) ((x) * (x))
#define PAIR(a, b) (float2)(a, b)
#define REAL double
#define GLOBAL __global

typedef struct {
	int new; /* a word of C++ */
	float2 at;
	double weight;
} particle;

typedef float4 quad;

__constant float table[4] = {1.0f, 2.5f, -3.0f, 0.125f};
constant int primes[] = {2, 3, 5, 7, 11};

static float pick(__constant float *t, int i) { return t[i]; }
static int norm(__local const int *p, int n) {
	int sum = 0;
	for (int i = 0; i < n; i++) sum += p[i] * p[i];
	return sum;
}
inline ulong mix64(ulong x) { x ^= x >> 33; return x * 0xff51afd7ed558ccdUL; }
void swap(__private int *a, __private int *b) { int t = *a; *a = *b; *b = t; }

kernel void floats(global float *restrict out, float x, float y) {
	if (get_global_id(0) != 0) return;
	int n = 0;
	out[n++] = sqrt(x); out[n++] = fabs(-x); out[n++] = floor(x); out[n++] = ceil(x); out[n++] = trunc(-x);
	out[n++] = round(x); out[n++] = rint(x); out[n++] = fmin(x, y); out[n++] = fmax(x, y); out[n++] = min(x, y);
	out[n++] = max(x, y); out[n++] = clamp(x, 0.0f, 1.0f); out[n++] = fma(x, y, 1.0f); out[n++] = mad(x, y, 1.0f);
	out[n++] = copysign(x, -1.0f); out[n++] = fmod(x, y); out[n++] = select(x, y, 1); out[n++] = sign(-x);
	out[n++] = step(1.0f, x); out[n++] = ldexp(x, 3); out[n++] = as_float(0x40490fdbu); out[n++] = convert_float(7);
	out[n++] = pick(table, 2) + primes[4]; out[n++] = SQUARE(x); out[n++] = PAIR(x, y).y; out[n++] = fdim(x, y);
	out[n++] = isnan(NAN) + 2 * isinf(INFINITY) + 4 * isfinite(x) + 8 * signbit(-x);
	out[n++] = native_recip(4.0f) + half_divide(1.0f, 2.0f) + native_divide(1.0f, 8.0f); out[n++] = mix(1.0f, 3.0f, 0.5f);
	out[n++] = M_PI_F;
}

kernel void close(global double *out, double x, double y) {
	if (get_global_id(0) != 0) return;
	int n = 0;
	double c;
	out[n++] = exp(x); out[n++] = exp2(x); out[n++] = exp10(x); out[n++] = expm1(x); out[n++] = log(x); out[n++] = log2(x);
	out[n++] = log10(x); out[n++] = log1p(x); out[n++] = sin(x); out[n++] = cos(x); out[n++] = tan(x); out[n++] = asin(x / 4);
	out[n++] = acos(x / 4); out[n++] = atan(x); out[n++] = sinh(x); out[n++] = cosh(x); out[n++] = tanh(x); out[n++] = asinh(x);
	out[n++] = acosh(x); out[n++] = atanh(x / 4); out[n++] = cbrt(x); out[n++] = 1 / rsqrt(x); out[n++] = pow(x, y);
	out[n++] = powr(x, y); out[n++] = pown(x, 3); out[n++] = atan2(x, y); out[n++] = hypot(x, y); out[n++] = erf(x);
	out[n++] = erfc(x); out[n++] = tgamma(x); out[n++] = lgamma(x); out[n++] = remainder(x, y); out[n++] = sinpi(x / 4);
	out[n++] = cospi(x / 4); out[n++] = sincos(x, &c) + c; out[n++] = nextafter(x, y); out[n++] = M_PI;
	float f = (float)x;
	out[n++] = native_exp(f) + native_log(f) + native_sin(f) + native_cos(f) + native_sqrt(f) + native_powr(f, 2.0f) + native_exp2(f);
	out[n++] = half_exp(f) + half_log(f) + half_sin(f) + half_cos(f) + half_sqrt(f) + half_powr(f, 2.0f) + half_rsqrt(f);
	out[n++] = exp(f) + log(f) + sin(f) + cos(f) + pow(f, 2.0f) + hypot(f, 2.0f) + tanh(f) + erf(f);
}

kernel void integers(global long *out, int a, uint b, long c, ulong d) {
	if (get_global_id(0) != 0) return;
	int n = 0, p = 1, q = 2;
	swap(&p, &q);
	out[n++] = abs(a); out[n++] = abs(c); out[n++] = abs_diff(a, 100); out[n++] = min(a, 3); out[n++] = max(b, 7u);
	out[n++] = clamp(c, -5L, 5L); out[n++] = mul24(a, 3); out[n++] = mad24(a, 3, 1); out[n++] = mul_hi(a, 1 << 30);
	out[n++] = mul_hi(b, b); out[n++] = mul_hi(c, c); out[n++] = (long)mul_hi(d, d); out[n++] = rotate(b, 8u);
	out[n++] = rotate(a, 40); out[n++] = (long)rotate(d, 60UL); out[n++] = popcount(b); out[n++] = popcount(d); out[n++] = clz(b);
	out[n++] = clz(c); out[n++] = as_int(1.0f); out[n++] = as_uint(-1); out[n++] = as_long(1.0); out[n++] = (long)as_ulong(-2.0);
	out[n++] = convert_int(3.9f); out[n++] = convert_uchar(300); out[n++] = convert_long_rte(2.5); out[n++] = convert_int_rtz(-2.5f);
	out[n++] = select(1, 2, 0); out[n++] = bitselect(12, 10, 6); out[n++] = (long)mix64(d); out[n++] = p * 10 + q;
	out[n++] = sizeof(long) + 10 * sizeof(ulong) + 100 * sizeof(particle) + 10000 * sizeof(float4) + 1000000 * sizeof(double4);
	out[n++] = INT_MAX; out[n++] = mad_hi(b, b, 5u); out[n++] = (int)(p, q);
}

kernel void vectors(global float *out, global const float *in, float4 v, double2 s) {
	if (get_global_id(0) != 0) return;
	int n = 0;
	float2 a = (float2)(1.0f, 2.0f), b = PAIR(3, 4);
	quad c = (quad)(a, b);
	float4 e = (float4)(0.5f);
	c += v; c *= 2.0f; c = 1.0f + c - e; c -= e; c /= 2; e = -e;
	out[n++] = c.x; out[n++] = c.s1; out[n++] = c.z; out[n++] = c.s3; out[n++] = e.w;
	float2 l = vload2(1, in);
	float4 m = vload4(0, in);
	out[n++] = l.x; out[n++] = m.w; out[n++] = dot(a, b); out[n++] = (float)s.y;
	vstore2(a * b, 5, out); vstore4(m, 3, out);
	int2 i = convert_int2(a) + (int2)(7, 8) % 4;
	uint4 u = as_uint4(m);
	double4 d = (double4)(1.0, 2.0, 3.0, 4.0) * 0.5;
	long2 k = (long2)(5L, 6L) & 6L;
	out[16] = i.x; out[17] = i.y; out[18] = as_float(u.z); out[19] = (float)(d.w + k.y);
	global float4 *p = (global float4 *)(out + 20);
	*p = (float4)(i.x, a, 9);
}

kernel void shared(global int *x, local int *part, global particle *ps, local double2 *wide) {
	local int total;
	__local int *mine = part + get_local_id(0);
	int g = get_global_id(0);
	if (get_local_id(0) == 0) total = 0;
	*mine = x[g];
	wide[get_local_id(0)] = (double2)(x[g], -x[g]);
	barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
	atomic_add(&total, norm(mine, 1));
	mem_fence(CLK_LOCAL_MEM_FENCE);
	barrier(CLK_LOCAL_MEM_FENCE);
	int other = (get_local_id(0) + 1) % get_local_size(0);
	GLOBAL particle *p = &ps[g];
	p->new = total;
	p->at.x = part[other];
	p->at.s1 = wide[other].y;
	p->weight = (double)(get_global_size(0) * 100 + get_num_groups(0) * 10 + get_work_dim() + get_global_offset(0));
}

kernel void atomics(global int *i, global uint *u, global long *l, volatile global ulong *ul) {
	int g = get_global_id(0);
	atomic_add(&i[0], g); atomic_sub(&i[1], g); atomic_inc(&i[2]); atomic_dec(&i[3]); atomic_min(&i[4], -g); atomic_max(&i[5], g);
	atomic_and(&i[6], ~g); atomic_or(&i[7], g); atomic_xor(&i[8], g); atomic_xchg(&i[9], 5); atomic_cmpxchg(&i[10], 0, 9);
	atomic_add(&u[0], (uint)g); atomic_sub(&u[1], 1u); atomic_min(&u[2], (uint)g); atomic_max(&u[3], 0x80000000u + g);
	atom_add(&l[0], (long)g << 33); atom_min(&l[1], -(long)g << 33); atom_max(&ul[0], (ulong)g << 40); atom_inc(&ul[1]);
	atom_cmpxchg(&ul[2], 0UL, 3UL);
}

kernel __attribute__((reqd_work_group_size(4, 2, 1))) void fixed(global int *x) {
	x[get_global_id(1) * get_global_size(0) + get_global_id(0)] = get_local_size(0) * 10 + get_local_size(1);
}
