//go:build linux && (amd64 || arm64) && !static

package opencl

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/cairnrun/cairn/device/driver"
	"github.com/cairnrun/cairn/internal/dl"
)

// A compiler whose assembler refuses what is known of arguments is asked again
// without it; one that finds fault with the source is not.
func TestBuildWithoutArguments(t *testing.T) {
	b := newBench(t, false)
	a := b.ints(1)
	real, asked, refused := b.d.a.buildProgram, 0, int32(codeBuild)
	b.d.a.buildProgram = purego.NewCallback(func(program, n, devices, options, notify, data uintptr) uintptr {
		asked++
		code := dl.Call(real, program, n, devices, options, notify, data)
		if strings.Contains(cString(options), "arg-info") {
			code = uintptr(refused)
		}
		return code
	})
	defer func() { b.d.a.buildProgram = real }()

	const source = "__kernel void twice(__global int *a) { a[get_global_id(0)] *= 2; }\n"
	p := must(b.d.Build(driver.Source{OpenCL: "#warning ptxas fatal\n" + source}))(t)
	k := must(p.Kernel("twice"))(t)
	check(t, b.q.Launch(k, [3]int{1, 1, 1}, [3]int{}, []driver.Arg{whole(a)}))
	if v := read[int32](b, a); v[0] != 2 || asked != 2 {
		t.Error(v, asked)
	}
	check(t, p.Close())
	asked = 0
	if _, err := b.d.Build(driver.Source{OpenCL: source}); err == nil || asked != 1 {
		t.Error(err, asked)
	}
}

func cString(p uintptr) string {
	var s []byte
	for at := *(*unsafe.Pointer)(unsafe.Pointer(&p)); *(*byte)(at) != 0; at = unsafe.Add(at, 1) {
		s = append(s, *(*byte)(at))
	}
	return string(s)
}
