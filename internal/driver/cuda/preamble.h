// What OpenCL C has and CUDA C++ lacks. Names of CUDA are called as ::name.
#define CLK_LOCAL_MEM_FENCE 1
#define CLK_GLOBAL_MEM_FENCE 2
#define __OPENCL_VERSION__ 120
#define __OPENCL_C_VERSION__ 120
#define CL_VERSION_1_0 100
#define CL_VERSION_1_1 110
#define CL_VERSION_1_2 120
#define cl_khr_fp64 1
#define cl_khr_int64_base_atomics 1
#define cl_khr_int64_extended_atomics 1
#define __ENDIAN_LITTLE__ 1
#undef INFINITY
#undef NAN
#undef HUGE_VALF
#undef HUGE_VAL
#undef MAXFLOAT
#define INFINITY (cairn::bits<float>(0x7f800000u))
#define NAN (cairn::bits<float>(0x7fc00000u))
#define HUGE_VALF INFINITY
#define HUGE_VAL ((double)INFINITY)
#undef CHAR_BIT
#undef CHAR_MAX
#undef CHAR_MIN
#undef SCHAR_MAX
#undef SCHAR_MIN
#undef UCHAR_MAX
#undef SHRT_MAX
#undef SHRT_MIN
#undef USHRT_MAX
#undef INT_MAX
#undef INT_MIN
#undef UINT_MAX
#undef LONG_MAX
#undef LONG_MIN
#undef ULONG_MAX
#define CHAR_BIT 8
#define CHAR_MAX 127
#define CHAR_MIN (-128)
#define SCHAR_MAX 127
#define SCHAR_MIN (-128)
#define UCHAR_MAX 255
#define SHRT_MAX 32767
#define SHRT_MIN (-32768)
#define USHRT_MAX 65535
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 0xffffffffu
#define LONG_MAX 0x7fffffffffffffffL
#define LONG_MIN (-0x7fffffffffffffffL - 1L)
#define ULONG_MAX 0xffffffffffffffffUL
#undef FLT_MAX
#undef FLT_MIN
#undef FLT_EPSILON
#undef FLT_DIG
#undef FLT_MANT_DIG
#undef DBL_MAX
#undef DBL_MIN
#undef DBL_EPSILON
#undef DBL_DIG
#undef DBL_MANT_DIG
#define FLT_MAX 0x1.fffffep127f
#define FLT_MIN 0x1.0p-126f
#define FLT_EPSILON 0x1.0p-23f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define MAXFLOAT FLT_MAX
#define DBL_MAX 0x1.fffffffffffffp1023
#define DBL_MIN 0x1.0p-1022
#define DBL_EPSILON 0x1.0p-52
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#undef M_PI
#undef M_PI_2
#undef M_PI_4
#undef M_1_PI
#undef M_2_PI
#undef M_E
#undef M_LN2
#undef M_LN10
#undef M_LOG2E
#undef M_LOG10E
#undef M_SQRT2
#undef M_SQRT1_2
#define M_PI 3.141592653589793116
#define M_PI_2 1.570796326794896558
#define M_PI_4 0.785398163397448279
#define M_1_PI 0.318309886183790691
#define M_2_PI 0.636619772367581382
#define M_E 2.718281828459045091
#define M_LN2 0.693147180559945286
#define M_LN10 2.302585092994045901
#define M_LOG2E 1.442695040888963387
#define M_LOG10E 0.434294481903251817
#define M_SQRT2 1.414213562373095145
#define M_SQRT1_2 0.707106781186547573
#define M_PI_F 3.14159274101257f
#define M_PI_2_F 1.57079637050629f
#define M_PI_4_F 0.78539818525314f
#define M_E_F 2.71828174591064f
#define M_LN2_F 0.69314718246460f
#define M_SQRT2_F 1.41421353816986f
#define M_SQRT1_2_F 0.70710676908493f
#define M_1_PI_F 0.31830987334251f

namespace cairn {

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef decltype(sizeof(0)) size_t;
typedef long ptrdiff_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;

#define CAIRN_F __device__ static __forceinline__

template <class D, class S> CAIRN_F D bits(S s) {
	static_assert(sizeof(D) == sizeof(S), "as_T needs types of the same size");
	union { S from; D to; } u;
	u.from = s;
	return u.to;
}

// A parameter in local memory comes as an offset. It is a multiple of 32, and
// the mask tells the compiler so: it can then load several elements at once.
CAIRN_F unsigned char *local_memory() {
	extern __shared__ __align__(32) unsigned char cairn_local_memory[];
	return cairn_local_memory;
}
struct local_at {
	unsigned int offset;
	template <class T> __device__ __forceinline__ operator T *() const { return (T *)(local_memory() + (offset & ~31u)); }
};

// Where a work item is.
CAIRN_F uint get_work_dim() { return gridDim.z * blockDim.z > 1 ? 3 : gridDim.y * blockDim.y > 1 ? 2 : 1; }
CAIRN_F size_t get_local_id(uint d) { return d == 0 ? threadIdx.x : d == 1 ? threadIdx.y : d == 2 ? threadIdx.z : 0; }
CAIRN_F size_t get_group_id(uint d) { return d == 0 ? blockIdx.x : d == 1 ? blockIdx.y : d == 2 ? blockIdx.z : 0; }
CAIRN_F size_t get_local_size(uint d) { return d == 0 ? blockDim.x : d == 1 ? blockDim.y : d == 2 ? blockDim.z : 1; }
CAIRN_F size_t get_num_groups(uint d) { return d == 0 ? gridDim.x : d == 1 ? gridDim.y : d == 2 ? gridDim.z : 1; }
CAIRN_F size_t get_global_size(uint d) { return get_num_groups(d) * get_local_size(d); }
CAIRN_F size_t get_global_id(uint d) { return get_group_id(d) * get_local_size(d) + get_local_id(d); }
CAIRN_F size_t get_global_offset(uint) { return 0; }

typedef uint cl_mem_fence_flags;
CAIRN_F void barrier(cl_mem_fence_flags) { ::__syncthreads(); }
CAIRN_F void mem_fence(cl_mem_fence_flags f) {
	if (f & CLK_GLOBAL_MEM_FENCE) ::__threadfence();
	else ::__threadfence_block();
}
CAIRN_F void read_mem_fence(cl_mem_fence_flags f) { mem_fence(f); }
CAIRN_F void write_mem_fence(cl_mem_fence_flags f) { mem_fence(f); }

// Mathematics, for float and double.
#define CAIRN_M1(name, f, d) \
	CAIRN_F float name(float x) { return ::f(x); } \
	CAIRN_F double name(double x) { return ::d(x); }
#define CAIRN_M2(name, f, d) \
	CAIRN_F float name(float x, float y) { return ::f(x, y); } \
	CAIRN_F double name(double x, double y) { return ::d(x, y); }
CAIRN_M1(sqrt, sqrtf, sqrt)
CAIRN_M1(cbrt, cbrtf, cbrt)
CAIRN_M1(rsqrt, rsqrtf, rsqrt)
CAIRN_M1(fabs, fabsf, fabs)
CAIRN_M1(exp, expf, exp)
CAIRN_M1(exp2, exp2f, exp2)
CAIRN_M1(exp10, exp10f, exp10)
CAIRN_M1(expm1, expm1f, expm1)
CAIRN_M1(log, logf, log)
CAIRN_M1(log2, log2f, log2)
CAIRN_M1(log10, log10f, log10)
CAIRN_M1(log1p, log1pf, log1p)
CAIRN_M1(sin, sinf, sin)
CAIRN_M1(cos, cosf, cos)
CAIRN_M1(tan, tanf, tan)
CAIRN_M1(asin, asinf, asin)
CAIRN_M1(acos, acosf, acos)
CAIRN_M1(atan, atanf, atan)
CAIRN_M1(sinh, sinhf, sinh)
CAIRN_M1(cosh, coshf, cosh)
CAIRN_M1(tanh, tanhf, tanh)
CAIRN_M1(asinh, asinhf, asinh)
CAIRN_M1(acosh, acoshf, acosh)
CAIRN_M1(atanh, atanhf, atanh)
CAIRN_M1(sinpi, sinpif, sinpi)
CAIRN_M1(cospi, cospif, cospi)
CAIRN_M1(erf, erff, erf)
CAIRN_M1(erfc, erfcf, erfc)
CAIRN_M1(tgamma, tgammaf, tgamma)
CAIRN_M1(lgamma, lgammaf, lgamma)
CAIRN_M1(floor, floorf, floor)
CAIRN_M1(ceil, ceilf, ceil)
CAIRN_M1(trunc, truncf, trunc)
CAIRN_M1(round, roundf, round)
CAIRN_M1(rint, rintf, rint)
CAIRN_M2(pow, powf, pow)
CAIRN_M2(powr, powf, pow)
CAIRN_M2(atan2, atan2f, atan2)
CAIRN_M2(fmod, fmodf, fmod)
CAIRN_M2(remainder, remainderf, remainder)
CAIRN_M2(fmin, fminf, fmin)
CAIRN_M2(fmax, fmaxf, fmax)
CAIRN_M2(fdim, fdimf, fdim)
CAIRN_M2(copysign, copysignf, copysign)
CAIRN_M2(hypot, hypotf, hypot)
CAIRN_M2(nextafter, nextafterf, nextafter)
CAIRN_F float pown(float x, int n) { return ::powf(x, (float)n); }
CAIRN_F double pown(double x, int n) { return ::pow(x, (double)n); }
CAIRN_F float ldexp(float x, int n) { return ::ldexpf(x, n); }
CAIRN_F double ldexp(double x, int n) { return ::ldexp(x, n); }
CAIRN_F float fma(float x, float y, float z) { return ::fmaf(x, y, z); }
CAIRN_F double fma(double x, double y, double z) { return ::fma(x, y, z); }
CAIRN_F float mad(float x, float y, float z) { return x * y + z; }
CAIRN_F double mad(double x, double y, double z) { return x * y + z; }
CAIRN_F float mix(float x, float y, float a) { return x + (y - x) * a; }
CAIRN_F double mix(double x, double y, double a) { return x + (y - x) * a; }
CAIRN_F float step(float e, float x) { return x < e ? 0.0f : 1.0f; }
CAIRN_F double step(double e, double x) { return x < e ? 0.0 : 1.0; }
CAIRN_F float sincos(float x, float *c) { *c = ::cosf(x); return ::sinf(x); }
CAIRN_F double sincos(double x, double *c) { *c = ::cos(x); return ::sin(x); }
CAIRN_F int isnan(float x) { return x != x; }
CAIRN_F int isnan(double x) { return x != x; }
CAIRN_F int isinf(float x) { return ::fabsf(x) == INFINITY; }
CAIRN_F int isinf(double x) { return ::fabs(x) == HUGE_VAL; }
CAIRN_F int isfinite(float x) { return ::fabsf(x) < INFINITY; }
CAIRN_F int isfinite(double x) { return ::fabs(x) < HUGE_VAL; }
CAIRN_F int signbit(float x) { return bits<int>(x) < 0; }
CAIRN_F int signbit(double x) { return bits<long>(x) < 0; }
CAIRN_F float sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x == 0 ? x : 0.0f; }
CAIRN_F double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : x == 0 ? x : 0.0; }

#define CAIRN_NATIVE(name, f) CAIRN_F float native_##name(float x) { return ::f(x); }
CAIRN_NATIVE(sin, __sinf)
CAIRN_NATIVE(cos, __cosf)
CAIRN_NATIVE(tan, __tanf)
CAIRN_NATIVE(exp, __expf)
CAIRN_NATIVE(exp10, __exp10f)
CAIRN_NATIVE(log, __logf)
CAIRN_NATIVE(log2, __log2f)
CAIRN_NATIVE(log10, __log10f)
CAIRN_NATIVE(exp2, exp2f)
CAIRN_NATIVE(sqrt, sqrtf)
CAIRN_NATIVE(rsqrt, rsqrtf)
CAIRN_F float native_recip(float x) { return 1.0f / x; }
CAIRN_F float native_divide(float x, float y) { return x / y; }
CAIRN_F float native_powr(float x, float y) { return ::__powf(x, y); }
#define CAIRN_HALF(name, f) CAIRN_F float half_##name(float x) { return ::f(x); }
CAIRN_HALF(sin, sinf)
CAIRN_HALF(cos, cosf)
CAIRN_HALF(tan, tanf)
CAIRN_HALF(exp, expf)
CAIRN_HALF(exp2, exp2f)
CAIRN_HALF(exp10, exp10f)
CAIRN_HALF(log, logf)
CAIRN_HALF(log2, log2f)
CAIRN_HALF(log10, log10f)
CAIRN_HALF(sqrt, sqrtf)
CAIRN_HALF(rsqrt, rsqrtf)
CAIRN_F float half_recip(float x) { return 1.0f / x; }
CAIRN_F float half_divide(float x, float y) { return x / y; }
CAIRN_F float half_powr(float x, float y) { return ::powf(x, y); }

// For all numbers.
template <class T> CAIRN_F T min(T x, T y) { return y < x ? y : x; }
template <class T> CAIRN_F T max(T x, T y) { return x < y ? y : x; }
template <class T> CAIRN_F T clamp(T x, T lo, T hi) { return min(max(x, lo), hi); }

// Integers.
CAIRN_F uchar abs(char x) { return x < 0 ? -(uint)x : (uint)x; }
CAIRN_F uchar abs(signed char x) { return x < 0 ? -(uint)x : (uint)x; }
CAIRN_F ushort abs(short x) { return x < 0 ? -(uint)x : (uint)x; }
CAIRN_F uint abs(int x) { return x < 0 ? -(uint)x : (uint)x; }
CAIRN_F ulong abs(long x) { return x < 0 ? -(ulong)x : (ulong)x; }
CAIRN_F uchar abs(uchar x) { return x; }
CAIRN_F ushort abs(ushort x) { return x; }
CAIRN_F uint abs(uint x) { return x; }
CAIRN_F ulong abs(ulong x) { return x; }
CAIRN_F uint abs_diff(int x, int y) { return x < y ? (uint)y - (uint)x : (uint)x - (uint)y; }
CAIRN_F uint abs_diff(uint x, uint y) { return x < y ? y - x : x - y; }
CAIRN_F ulong abs_diff(long x, long y) { return x < y ? (ulong)y - (ulong)x : (ulong)x - (ulong)y; }
CAIRN_F ulong abs_diff(ulong x, ulong y) { return x < y ? y - x : x - y; }
CAIRN_F int mul24(int x, int y) { return x * y; }
CAIRN_F uint mul24(uint x, uint y) { return x * y; }
CAIRN_F int mad24(int x, int y, int z) { return x * y + z; }
CAIRN_F uint mad24(uint x, uint y, uint z) { return x * y + z; }
CAIRN_F int mul_hi(int x, int y) { return ::__mulhi(x, y); }
CAIRN_F uint mul_hi(uint x, uint y) { return ::__umulhi(x, y); }
CAIRN_F long mul_hi(long x, long y) { return ::__mul64hi(x, y); }
CAIRN_F ulong mul_hi(ulong x, ulong y) { return ::__umul64hi(x, y); }
CAIRN_F int mad_hi(int x, int y, int z) { return mul_hi(x, y) + z; }
CAIRN_F uint mad_hi(uint x, uint y, uint z) { return mul_hi(x, y) + z; }
CAIRN_F long mad_hi(long x, long y, long z) { return mul_hi(x, y) + z; }
CAIRN_F ulong mad_hi(ulong x, ulong y, ulong z) { return mul_hi(x, y) + z; }
CAIRN_F uint rotate(uint x, uint n) { return x << (n & 31) | x >> (-n & 31); }
CAIRN_F int rotate(int x, int n) { return (int)rotate((uint)x, (uint)n); }
CAIRN_F ulong rotate(ulong x, ulong n) { return x << (n & 63) | x >> (-n & 63); }
CAIRN_F long rotate(long x, long n) { return (long)rotate((ulong)x, (ulong)n); }
CAIRN_F int popcount(int x) { return ::__popc((uint)x); }
CAIRN_F uint popcount(uint x) { return ::__popc(x); }
CAIRN_F long popcount(long x) { return ::__popcll((ulong)x); }
CAIRN_F ulong popcount(ulong x) { return ::__popcll(x); }
CAIRN_F int clz(int x) { return ::__clz(x); }
CAIRN_F uint clz(uint x) { return ::__clz((int)x); }
CAIRN_F long clz(long x) { return ::__clzll(x); }
CAIRN_F ulong clz(ulong x) { return ::__clzll((long)x); }
template <class T, class C> CAIRN_F T select(T a, T b, C c) { return c ? b : a; }
template <class T> CAIRN_F T bitselect(T a, T b, T c) { return a ^ (c & (b ^ a)); }

// Vectors of two and four.
template <class T> struct alignas(2 * sizeof(T)) vec2 {
	T x, y;
	vec2() = default;
	__device__ __forceinline__ vec2(T s) : x(s), y(s) {}
	__device__ __forceinline__ vec2(T a, T b) : x(a), y(b) {}
};
template <class T> struct alignas(4 * sizeof(T)) vec4 {
	T x, y, z, w;
	vec4() = default;
	__device__ __forceinline__ vec4(T s) : x(s), y(s), z(s), w(s) {}
	__device__ __forceinline__ vec4(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
	__device__ __forceinline__ vec4(vec2<T> a, vec2<T> b) : x(a.x), y(a.y), z(b.x), w(b.y) {}
	__device__ __forceinline__ vec4(vec2<T> a, T c, T d) : x(a.x), y(a.y), z(c), w(d) {}
	__device__ __forceinline__ vec4(T a, T b, vec2<T> c) : x(a), y(b), z(c.x), w(c.y) {}
	__device__ __forceinline__ vec4(T a, vec2<T> b, T d) : x(a), y(b.x), z(b.y), w(d) {}
};
// The type of T where it is not for finding out T.
template <class T> struct same { typedef T type; };
#define CAIRN_V(op) \
	template <class T> CAIRN_F vec2<T> operator op(vec2<T> a, vec2<T> b) { return vec2<T>(a.x op b.x, a.y op b.y); } \
	template <class T> CAIRN_F vec2<T> operator op(vec2<T> a, typename same<T>::type b) { return vec2<T>(a.x op b, a.y op b); } \
	template <class T> CAIRN_F vec2<T> operator op(typename same<T>::type a, vec2<T> b) { return vec2<T>(a op b.x, a op b.y); } \
	template <class T> CAIRN_F vec2<T> &operator op##=(vec2<T> &a, vec2<T> b) { return a = a op b; } \
	template <class T> CAIRN_F vec2<T> &operator op##=(vec2<T> &a, typename same<T>::type b) { return a = a op b; } \
	template <class T> CAIRN_F vec4<T> operator op(vec4<T> a, vec4<T> b) { return vec4<T>(a.x op b.x, a.y op b.y, a.z op b.z, a.w op b.w); } \
	template <class T> CAIRN_F vec4<T> operator op(vec4<T> a, typename same<T>::type b) { return vec4<T>(a.x op b, a.y op b, a.z op b, a.w op b); } \
	template <class T> CAIRN_F vec4<T> operator op(typename same<T>::type a, vec4<T> b) { return vec4<T>(a op b.x, a op b.y, a op b.z, a op b.w); } \
	template <class T> CAIRN_F vec4<T> &operator op##=(vec4<T> &a, vec4<T> b) { return a = a op b; } \
	template <class T> CAIRN_F vec4<T> &operator op##=(vec4<T> &a, typename same<T>::type b) { return a = a op b; }
CAIRN_V(+)
CAIRN_V(-)
CAIRN_V(*)
CAIRN_V(/)
CAIRN_V(%)
CAIRN_V(&)
CAIRN_V(|)
CAIRN_V(^)
template <class T> CAIRN_F vec2<T> operator-(vec2<T> a) { return vec2<T>(-a.x, -a.y); }
template <class T> CAIRN_F vec4<T> operator-(vec4<T> a) { return vec4<T>(-a.x, -a.y, -a.z, -a.w); }
template <class T> CAIRN_F T dot(vec2<T> a, vec2<T> b) { return a.x * b.x + a.y * b.y; }
template <class T> CAIRN_F T dot(vec4<T> a, vec4<T> b) { return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w; }
typedef vec2<int> int2;
typedef vec4<int> int4;
typedef vec2<uint> uint2;
typedef vec4<uint> uint4;
typedef vec2<long> long2;
typedef vec4<long> long4;
typedef vec2<ulong> ulong2;
typedef vec4<ulong> ulong4;
typedef vec2<float> float2;
typedef vec4<float> float4;
typedef vec2<double> double2;
typedef vec4<double> double4;
template <class T> CAIRN_F vec2<T> vload2(size_t i, const T *p) { return vec2<T>(p[2 * i], p[2 * i + 1]); }
template <class T> CAIRN_F vec4<T> vload4(size_t i, const T *p) { return vec4<T>(p[4 * i], p[4 * i + 1], p[4 * i + 2], p[4 * i + 3]); }
template <class T> CAIRN_F void vstore2(vec2<T> v, size_t i, T *p) { p[2 * i] = v.x; p[2 * i + 1] = v.y; }
template <class T> CAIRN_F void vstore4(vec4<T> v, size_t i, T *p) { p[4 * i] = v.x; p[4 * i + 1] = v.y; p[4 * i + 2] = v.z; p[4 * i + 3] = v.w; }

// Conversions.
#define CAIRN_C(T) \
	template <class S> CAIRN_F T as_##T(S s) { return bits<T>(s); } \
	template <class S> CAIRN_F T convert_##T(S s) { return (T)s; }
CAIRN_C(char)
CAIRN_C(uchar)
CAIRN_C(short)
CAIRN_C(ushort)
CAIRN_C(int)
CAIRN_C(uint)
CAIRN_C(long)
CAIRN_C(ulong)
CAIRN_C(float)
CAIRN_C(double)
#define CAIRN_C24(T) \
	template <class S> CAIRN_F T##2 as_##T##2(S s) { return bits<T##2>(s); } \
	template <class S> CAIRN_F T##4 as_##T##4(S s) { return bits<T##4>(s); } \
	template <class S> CAIRN_F T##2 convert_##T##2(vec2<S> s) { return T##2((T)s.x, (T)s.y); } \
	template <class S> CAIRN_F T##4 convert_##T##4(vec4<S> s) { return T##4((T)s.x, (T)s.y, (T)s.z, (T)s.w); }
CAIRN_C24(int)
CAIRN_C24(uint)
CAIRN_C24(long)
CAIRN_C24(ulong)
CAIRN_C24(float)
CAIRN_C24(double)
CAIRN_F int convert_int_rte(float x) { return (int)::rintf(x); }
CAIRN_F int convert_int_rte(double x) { return (int)::rint(x); }
CAIRN_F int convert_int_rtz(float x) { return (int)x; }
CAIRN_F int convert_int_rtz(double x) { return (int)x; }
CAIRN_F long convert_long_rte(float x) { return (long)::rintf(x); }
CAIRN_F long convert_long_rte(double x) { return (long)::rint(x); }
CAIRN_F long convert_long_rtz(float x) { return (long)x; }
CAIRN_F long convert_long_rtz(double x) { return (long)x; }

// Atomics. P is what CUDA calls the type.
#define CAIRN_A(pre, T, P) \
	CAIRN_F T pre##_add(volatile T *p, T v) { return (T)::atomicAdd((P *)p, (P)v); } \
	CAIRN_F T pre##_sub(volatile T *p, T v) { return (T)::atomicAdd((P *)p, (P)0 - (P)v); } \
	CAIRN_F T pre##_inc(volatile T *p) { return (T)::atomicAdd((P *)p, (P)1); } \
	CAIRN_F T pre##_dec(volatile T *p) { return (T)::atomicAdd((P *)p, (P)0 - (P)1); } \
	CAIRN_F T pre##_xchg(volatile T *p, T v) { return (T)::atomicExch((P *)p, (P)v); } \
	CAIRN_F T pre##_cmpxchg(volatile T *p, T cmp, T v) { return (T)::atomicCAS((P *)p, (P)cmp, (P)v); } \
	CAIRN_F T pre##_and(volatile T *p, T v) { return (T)::atomicAnd((P *)p, (P)v); } \
	CAIRN_F T pre##_or(volatile T *p, T v) { return (T)::atomicOr((P *)p, (P)v); } \
	CAIRN_F T pre##_xor(volatile T *p, T v) { return (T)::atomicXor((P *)p, (P)v); }
#define CAIRN_A_ORDER(pre, T, P) \
	CAIRN_F T pre##_min(volatile T *p, T v) { return (T)::atomicMin((P *)p, (P)v); } \
	CAIRN_F T pre##_max(volatile T *p, T v) { return (T)::atomicMax((P *)p, (P)v); }
CAIRN_A(atomic, int, unsigned int)
CAIRN_A(atomic, uint, unsigned int)
CAIRN_A_ORDER(atomic, int, int)
CAIRN_A_ORDER(atomic, uint, unsigned int)
CAIRN_A(atom, int, unsigned int)
CAIRN_A(atom, uint, unsigned int)
CAIRN_A_ORDER(atom, int, int)
CAIRN_A_ORDER(atom, uint, unsigned int)
CAIRN_A(atom, long, unsigned long long)
CAIRN_A(atom, ulong, unsigned long long)
CAIRN_A_ORDER(atom, long, long long)
CAIRN_A_ORDER(atom, ulong, unsigned long long)
CAIRN_F float atomic_xchg(volatile float *p, float v) { return ::atomicExch((float *)p, v); }

} // namespace cairn
