package opencl

import (
	"regexp"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
)

// parameter is what the compiler says of an argument; drivers need not know.
type parameter struct {
	space uint64 // one of the address spaces, or 0
	reads bool   // memory that the kernel does not write
}

// parameters asks what is known of the arguments of a kernel.
func (a *api) parameters(kernel uintptr) []parameter {
	list := make([]parameter, number(a.getKernelInfo, kernelArgs, kernel))
	for i := range list {
		arg := &list[i]
		arg.space = number(a.getKernelArgInfo, kernelArgAddress, kernel, uintptr(i))
		arg.reads = arg.space == spaceConstant || number(a.getKernelArgInfo, kernelArgQualifier, kernel, uintptr(i))&argConst != 0
	}
	return list
}

// names are the kernels of a program that was built.
func (a *api) names(program uintptr) []string {
	return strings.Split(text(a.getProgramInfo, programKernels, program), ";")
}

// with calls do with a kernel of a program, unless there is none of that name.
func (a *api) with(program uintptr, name string, do func(kernel uintptr)) {
	zero := append([]byte(name), 0)
	var code int32
	h := dl.Call(a.createKernel, program, uintptr(unsafe.Pointer(&zero[0])), uintptr(unsafe.Pointer(&code)))
	if code == 0 {
		do(h)
		dl.Call(a.releaseKernel, h)
	}
}

// learn finds out what the arguments of a program's kernels are if the compiler
// can tell only where every kernel has some: it asks about the same source with
// the others made plain functions. It returns what it finds, by kernel.
func (d *device) learn(op string, program uintptr, source, options string) map[string][]parameter {
	var some []string
	for _, name := range d.a.names(program) {
		d.a.with(program, name, func(kernel uintptr) {
			if number(d.a.getKernelInfo, kernelArgs, kernel) > 0 {
				some = append(some, name)
			} else {
				source = plain(source, name)
			}
		})
	}
	if len(some) == 0 {
		return nil
	}
	h, err := d.program(op, source)
	if err != nil {
		return nil
	}
	defer dl.Call(d.a.releaseProgram, h)
	if d.compile(op, h, options) != nil {
		return nil
	}
	known := make(map[string][]parameter)
	for _, name := range some {
		d.a.with(h, name, func(kernel uintptr) { known[name] = d.a.parameters(kernel) })
	}
	return known
}

// plain makes a kernel of a source a function that is none.
func plain(source, name string) string {
	const between = `(?:\s+|__attribute__\s*\(\((?s:.*?)\)\)\s*)*`
	head := regexp.MustCompile(`\b(?:__)?kernel\b` + between + `\bvoid\b` + between + `\b` + regexp.QuoteMeta(name) + `\s*\(`)
	return head.ReplaceAllLiteralString(source, "void "+name+"(")
}
