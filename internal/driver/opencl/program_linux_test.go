//go:build linux && (amd64 || arm64) && !static

package opencl

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

// TestBuild_NoArguments has a compiler whose assembler refuses information
// about arguments if a kernel has none. The package compiles the other kernels
// alone to learn about them. It does not do so if the source itself is wrong.
func TestBuild_NoArguments(t *testing.T) {
	b := newBench(t, false)
	a := b.ints(1)
	const programSource = 0x1164
	real, asked, failed := b.d.a.buildProgram, 0, int32(codeBuild)
	b.d.a.buildProgram = purego.NewCallback(func(program, n, devices, options, notify, data uintptr) uintptr {
		asked++
		code := dl.Call(real, program, n, devices, options, notify, data)
		if strings.Contains(cString(options), "arg-info") && strings.Contains(text(b.d.a.getProgramInfo, programSource, program), "__kernel void none") {
			return uintptr(failed)
		}
		return code
	})
	defer func() { b.d.a.buildProgram = real }()

	const source = `
__kernel void none(void) {}
__kernel void twice(__global int *a, __global const int *b) { a[get_global_id(0)] *= 2; }
`
	p := must(b.d.Build(driver.Source{OpenCL: "#warning ptxas fatal" + source}))(t)
	k := must(p.Kernel("twice"))(t)
	if asked != 3 || len(p.(*program).known) != 1 {
		t.Error(asked, p.(*program).known)
	}
	want := []parameter{{spaceGlobal, false}, {spaceGlobal, true}}
	if got := k.(*kernel).args; !slices.Equal(got, want) {
		t.Error(got)
	}
	check(t, b.q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(a), whole(a)}))
	check(t, b.q.Launch(must(p.Kernel("none"))(t), [3]int{1, 1, 1}, [3]int{}, nil))
	if v := read[int32](b, a); v[0] != 2 {
		t.Error(v)
	}
	check(t, p.Close())

	// If a kernel cannot be found in the source, nothing is known, and it
	// works.
	asked = 0
	p = must(b.d.Build(driver.Source{OpenCL: "#warning ptxas fatal\n#define NAME none\n#define KIND __kernel\n" + strings.ReplaceAll(strings.ReplaceAll(source, "void none", "void NAME"), "__kernel", "KIND") + "// __kernel void none"}))(t)
	k = must(p.Kernel("twice"))(t)
	check(t, b.q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(a), whole(a)}))
	if v := read[int32](b, a); v[0] != 4 || asked != 3 || p.(*program).known != nil {
		t.Error(v, asked, p.(*program).known)
	}
	check(t, p.Close())

	// There is nothing to learn.
	asked = 0
	p = must(b.d.Build(driver.Source{OpenCL: "#warning ptxas fatal\n__kernel void none(void) {}"}))(t)
	check(t, b.q.Launch(must(p.Kernel("none"))(t), [3]int{1, 1, 1}, [3]int{}, nil))
	if asked != 2 {
		t.Error(asked)
	}
	// A different kind of error. PoCL caches messages by the preprocessed
	// source, so this source differs from those above.
	asked = 0
	const faulty = "__kernel void once(__global int *a) { a[0]++; } // __kernel void none"
	if _, err := b.d.Build(driver.Source{OpenCL: faulty}); !errors.Is(err, driver.ErrBuild) || asked != 1 {
		t.Error(err, asked)
	}
}

// TestPlain_KernelQualifiers checks how a kernel becomes a plain function.
func TestPlain_KernelQualifiers(t *testing.T) {
	for from, to := range map[string]string{
		"__kernel void none(void) {}": "void none(void) {}",
		"kernel\n void\tnone () {}":   "void none() {}",
		"__kernel __attribute__((reqd_work_group_size(3, 2, 1)))\nvoid none(void);":                    "void none(void);",
		"__kernel void __attribute__((vec_type_hint(int))) none(void) {} __kernel void nonesuch(void)": "void none(void) {} __kernel void nonesuch(void)",
		"__kernel void other(int a) { none(); }":                                                       "__kernel void other(int a) { none(); }",
		"my__kernel void none(void)":                                                                   "my__kernel void none(void)",
	} {
		if got := plain(from, "none"); got != to {
			t.Errorf("%q is %q", from, got)
		}
	}
}

func cString(p uintptr) string {
	var s []byte
	for at := *(*unsafe.Pointer)(unsafe.Pointer(&p)); *(*byte)(at) != 0; at = unsafe.Add(at, 1) {
		s = append(s, *(*byte)(at))
	}
	return string(s)
}
