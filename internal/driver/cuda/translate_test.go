package cuda

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// TestTranslate compares CUDA code with the OpenCL code that it is made from.
func TestTranslate(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"kernel", "__kernel void f(__global float *x, int n) { x[n] = 0; }",
			"extern \"C\" __global__ void f_cl( float *x, int n) { x[n] = 0; }"},
		{"short names", "kernel void f(global const float *restrict x, constant float *c, private int n) {}",
			"extern \"C\" __global__ void f_cl( const float *__restrict__ x, const float *c,  int n) {}"},
		{"local parameter", "__kernel void f(__local float *restrict a,\n __global int *g, __local volatile int (*b)[4]) {\n}",
			"extern \"C\" __global__ void f_cl(unsigned int cairn_offset_a  ,\n  int *g, unsigned int cairn_offset_b  ) {" +
				" float * __restrict__ a = cairn::local_at{cairn_offset_a};" +
				" volatile int ( * b ) [ 4 ] = cairn::local_at{cairn_offset_b};\n}"},
		{"local variables", "__kernel void f() { __local float t[2*3]; __local int n; __local float *p = t; local float4 v[N]; }",
			"extern \"C\" __global__ void f_cl() { __shared__ float t[2*3]; __shared__ int n;  float *p = t; __shared__ float4 v[N]; }"},
		{"local in functions", "float sum(__local const float *p, int n) { return ((__local float *)p)[n]; }",
			"float sum( const float *p, int n) { return (( float *)p)[n]; }"},
		{"constant", "__constant float t[2] = {1, 2};\nfloat f(__constant float *p, __constant const int *q) { __constant int k = 3; return p[k]; }",
			"__constant__ float t[2] = {1, 2};\nfloat f(const float *p,  const int *q) { const int k = 3; return p[k]; }"},
		{"vectors", "float2 v = (float2)(a, f(b, c)); return(float4)(v, v); w = (float2)(1.0f) + (float)(a); g = (int)(a, b)",
			"float2 v =  float2(a, f(b, c)); return float4(v, v); w =  float2(1.0f) + (float)(a); g = (int)(a, b)"},
		{"not vectors", "f(x)(a, b); a[1](x)(1, 2); sizeof(x)(a, b)", "f(x)(a, b); a[1](x)(1, 2); sizeof(x)(a, b)"},
		{"components", "v.s0 = w.s3 + p->S1; s0 = 1.s0", "v.x = w.w + p->y; s0 = 1.s0"},
		{"own components", "struct s { float s0; }; v.s0 = 1;", "struct s { float s0; }; v.s0 = 1;"},
		{"words of C++", "int new = class.this; // new\n#define delete new", "int cl_new = cl_class.cl_this; // new\n#define cl_delete cl_new"},
		{"pragma", "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n#pragma unroll\nx", "\n#pragma unroll\nx"},
		{"comments and strings", "/* __kernel void f() */ \"__local\" // __global\n'\\''", "/* __kernel void f() */ \"__local\" // __global\n'\\''"},
		{"macros", "#define G __global\n#define V(a, b) \\\n  (float2)(a, b) // (float2)(a, b)\nx", "#define G \n#define V(a, b) \\\n   float2(a, b) // (float2)(a, b)\nx"},
		{"numbers", "x = 0x1e+1 + 1e+5f + 0x1p-3f + .5 + 3ul;", "x = 0x1e+1 + 1e+5f + 0x1p-3f + .5 + 3ul;"},
		{"attributes", "__kernel __attribute__((reqd_work_group_size(8, 4, 1))) void f() {}",
			"extern \"C\" __global__ __launch_bounds__(32)  void f_cl() {}"},
		{"attributes elsewhere", "__attribute__((vec_type_hint(float4), reqd_work_group_size(8, 4, 1))) __kernel void f() {}\n" +
			"__kernel void __attribute__((reqd_work_group_size(2, 2, 1))) g(int n) {}",
			" extern \"C\" __global__ __launch_bounds__(32) void f_cl() {}\nextern \"C\" __global__ __launch_bounds__(4) void  g_cl(int n) {}"},
		{"qualified vectors", "a = (const float2)(b, c); d = (quad const)(e, f);", "a =  float2(b, c); d =  quad(e, f);"},
		{"commas of macros", "#define BOTH 1.0f, 2.0f\n#define R2 float2\ntypedef const double4 quad; a = (float2)(BOTH) + (R2)(BOTH); b = (quad)(FOUR); c = (real)(x)",
			"#define BOTH 1.0f, 2.0f\n#define R2 float2\ntypedef const double4 quad; a =  float2(BOTH) +  R2(BOTH); b =  quad(FOUR); c = (real)(x)"},
		{"declaration", "__kernel void f(__local int *p);", "extern \"C\" __global__ void f_cl(unsigned int cairn_offset_p );"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := translateBody(c.in)
			if err != nil {
				t.Fatal(err)
			}
			one := func(s string) string { return regexp.MustCompile(" *([(),;]) *| +").ReplaceAllString(s, "$1 ") }
			if one(got) != one(c.want) {
				t.Errorf("%s\nbecame\n%s\nwant\n%s", c.in, got, c.want)
			}
		})
	}
}

// TestParameters checks the types and sizes of the parameters of kernels.
func TestParameters(t *testing.T) {
	_, kernels, err := translateBody(`
#define REAL double
#define BOTH float
#define BOTH double
typedef unsigned long word;
typedef word words;
typedef struct { int a, b; } pair;
__kernel void f(__global REAL *restrict x, __local uchar *l, char a, unsigned b, unsigned short c, const int d,
	REAL e, words w, float4 v, long2 v2, BOTH t, pair p, struct other o, size_t z, __constant float *k, long int li) {}
__kernel void nothing(void) {}
__kernel void groups() __attribute__((x)) {}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := "f(x: a buffer, l: local memory, a: a value of 1 bytes, b: a value of 4 bytes, c: a value of 2 bytes, " +
		"d: a value of 4 bytes, e: a value of 8 bytes, w: a value of 8 bytes, v: a value of 16 bytes, v2: a value of 16 bytes, " +
		"t: a value, p: a value, o: a value, z: a value of 8 bytes, k: a buffer, li: a value of 8 bytes)"
	if got := kernels["f"].String(); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	if got := kernels["nothing"].String(); got != "nothing()" {
		t.Error(got)
	}
}

// TestTranslate_Errors checks the line and the message of each error.
func TestTranslate_Errors(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"\n#include \"a.h\"\n", "kernel.cl(2): error: #include"},
		{"#define L __local\n", "kernel.cl(1): error: __local in a macro"},
		{"\n/* x", "kernel.cl(2): error: a comment"},
		{"\"x", "does not end"},
		{"x\x00", "a zero byte"},
		{"__kernel int f() {}", "must be void"},
		{"__kernel", "must be void"},
		{"__kernel void f(", "do not end"},
		{"__kernel void f(float *x) {}", "parameter x is a pointer"},
		{"__kernel void f(__local float x) {}", "must be a pointer"},
		{"__kernel void f(__global float *) {}", "needs a type and a name"},
		{"__kernel void f(int a) {}\n__kernel void f(long a) {}", "kernel.cl(2): error: kernel f is there twice"},
		{"__kernel __attribute__((reqd_work_group_size(N, 1, 1))) void f() {}", "three numbers"},
		{"__kernel void f(__global float *x) {\n float3 v; }", "kernel.cl(2): error: float3 is not possible"},
		{"#define V uint16\n", "kernel.cl(1): error: uint16 is not possible"},
		{"__kernel __attribute__(", "not complete"},
	} {
		_, _, err := translateBody(c.in)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.in, err, c.want)
		}
	}
}

// FuzzTranslate translates arbitrary text: lines keep their numbers, and there
// is no panic.
func FuzzTranslate(f *testing.F) {
	f.Add("__kernel void f(__local float *a, __global int *b, int n) { __local int x; (float2)(a, b); v.s0; }")
	f.Add("#define A(x) (float2)(x, 1) /* \n */ 5\n#pragma OPENCL x\n__constant float t[] = {1};")
	f.Add("__kernel __attribute__((reqd_work_group_size(1, 2, 3))) void f() {} typedef int t; struct { s0 }")
	f.Add("__attribute__((reqd_work_group_size(1,2,3))) kernel void __attribute__((x)) f(const float2 a) { (const float2)(a); }")
	f.Fuzz(func(t *testing.T, src string) {
		out, kernels, err := translateBody(src)
		if err != nil {
			return
		}
		if a, b := strings.Count(src, "\n"), strings.Count(out, "\n"); a != b {
			t.Fatalf("%d lines became %d:\n%s", a, b, out)
		}
		for name, e := range kernels {
			if name != e.name || fmt.Sprint(e) == "" {
				t.Fatalf("kernel %q is %v", name, e)
			}
		}
		toks, err := lex(src)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		for _, k := range toks {
			b.WriteString(k.text)
		}
		if b.String() != src {
			t.Fatal("the tokens are not the source")
		}
	})
}

// TestGroups_GridFits shows that the grid fits when the device chooses the size
// of groups.
func TestGroups_GridFits(t *testing.T) {
	d := &device{grid: [3]int{1<<31 - 1, 65535, 65535}, block: [3]int{1024, 1024, 64}}
	for _, global := range [][3]int{{1, 1, 1}, {1 << 40, 1, 1}, {1, 3e6, 1}, {500, 2e6, 1}, {1, 1, 1e6}, {100, 100, 1e6}, {7, 600000, 300000}} {
		grid, group, err := d.groups("test", &kernel{threads: 1024, entry: &entry{}}, global, [3]int{})
		if err != nil {
			if global != [3]int{1 << 40, 1, 1} || (1<<40)/256 < d.grid[0] {
				t.Errorf("%v: %v", global, err)
			}
			continue
		}
		for i := range 3 {
			if grid[i] > d.grid[i] || group[i] > d.block[i] || grid[i]*group[i] < global[i] || (grid[i]-1)*group[i] >= global[i] {
				t.Errorf("%v: %v groups of %v", global, grid, group)
			}
		}
		if group[0]*group[1]*group[2] > 1024 {
			t.Errorf("%v: groups of %v", global, group)
		}
	}
}
