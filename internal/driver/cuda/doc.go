// Package cuda is the backend of internal/driver for NVIDIA GPUs. It opens the
// driver, libcuda, when Open is called, and the compiler, libnvrtc, when the
// first kernel is built: a program needs neither to be built, and says what is
// missing if it runs without. NVRTC comes with the CUDA toolkit (version 11.2
// or later); it is looked for where the system's loader looks, in CUDA_HOME,
// under /usr/local/cuda, and in the Python packages that PyTorch brings.
//
// Devices use the primary context, the one that programs and libraries written
// with the CUDA runtime use: memory of theirs can be given to At.
//
// # Kernels
//
// Kernels are written in OpenCL C. This package translates a subset of it, word
// by word, into CUDA C++, and lines keep their numbers in the compiler's
// messages:
//
//	kernels          __kernel void f(…), reqd_work_group_size; other functions,
//	                 inline and static
//	address spaces   __global, __constant, __local, __private, with and without
//	                 __; __local variables in kernels, __local pointers as
//	                 parameters; __constant variables outside of functions and
//	                 in them
//	positions        get_global_id, get_local_id, get_group_id, get_global_size,
//	                 get_local_size, get_num_groups, get_work_dim,
//	                 get_global_offset
//	waiting          barrier, mem_fence, read_mem_fence, write_mem_fence,
//	                 CLK_LOCAL_MEM_FENCE, CLK_GLOBAL_MEM_FENCE
//	scalars          char, uchar, short, ushort, int, uint, long and ulong (64
//	                 bits), float, double, size_t, ptrdiff_t, structs, typedef
//	vectors          int, uint, long, ulong, float and double with 2 and 4
//	                 elements: (float2)(a, b), (float4)(v2, v2), (float4)(x);
//	                 one component, .x .y .z .w or .s0 … .s3; + - * / % & | ^
//	                 and their assignments, between vectors and with scalars;
//	                 dot; vload2, vload4, vstore2, vstore4
//	float, double    sqrt cbrt rsqrt fabs exp exp2 exp10 expm1 log log2 log10
//	                 log1p pow powr pown sin cos tan asin acos atan atan2 sinh
//	                 cosh tanh asinh acosh atanh sinpi cospi sincos erf erfc
//	                 tgamma lgamma floor ceil trunc round rint fmin fmax fdim
//	                 fmod remainder copysign hypot ldexp nextafter fma mad mix
//	                 step sign isnan isinf isfinite signbit
//	float only       native_ and half_ of sin cos tan exp exp2 exp10 log log2
//	                 log10 sqrt rsqrt recip divide powr
//	integers         abs abs_diff mul24 mad24 mul_hi mad_hi rotate popcount clz
//	                 bitselect
//	all numbers      min max clamp select; convert_T and as_T for all scalars
//	                 and vectors above; convert_int and convert_long with _rte
//	                 and _rtz
//	atomics          atomic_ add sub inc dec min max and or xor xchg cmpxchg for
//	                 int and uint, in global and local memory; atom_ the same,
//	                 also for long and ulong; atomic_xchg for float
//	constants        M_PI and so on, INFINITY, NAN, FLT_MAX, INT_MAX and the
//	                 like
//	preprocessor     all but #include; #pragma OPENCL is left out
//
// What is behind it is a C++ compiler, which is stricter than one for C: void *
// needs a cast, lists in braces must not narrow values, there are no compound
// literals, and functions are declared before use. Words of C++ may be names.
// Not possible are vectors of 3, 8 and 16, several components at once (.xy,
// .lo), comparisons of vectors, images, half, pipes, kernels that call kernels,
// and the words __local, __constant and __kernel inside a macro. A kernel may
// not be defined twice with different parameters, not even under #if. Shifts by
// as many bits as the value has, or more, have no defined result here, where
// OpenCL C takes the amount modulo that; and the comma of a vector must stand
// in its own parentheses, not in those of a macro as in (float2)PAIR(a, b).
//
// Multiplications and additions are not fused unless Source.Contract says so,
// and division and square root are rounded correctly, as on other backends.
// Sizes that are no multiple of the group are rounded up: kernels compare
// their position with the real size, and get_global_size tells the rounded one.
//
// # Memory
//
// A buffer that is freed while commands use it goes when they are done. Some
// freed memory stays at hand for the next Alloc of the same size; FreeMemory
// counts it as free, and an Alloc that finds no room gives it back first.
package cuda
