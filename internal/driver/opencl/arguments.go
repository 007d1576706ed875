package opencl

import (
	"regexp"
	"strings"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
)

// parameter is what the compiler reports about an argument. Drivers need not
// report it.
type parameter struct {
	space uint64 // the address space, or 0 if unknown
	reads bool   // memory that the kernel does not write
}

// parameters queries what is known about the arguments of a kernel.
func (a *api) parameters(kernel uintptr) []parameter {
	list := make([]parameter, number(a.getKernelInfo, kernelArgs, kernel))
	for i := range list {
		arg := &list[i]
		arg.space = number(a.getKernelArgInfo, kernelArgAddress, kernel, uintptr(i))
		arg.reads = arg.space == spaceConstant || number(a.getKernelArgInfo, kernelArgQualifier, kernel, uintptr(i))&argConst != 0
	}
	return list
}

// names returns the kernels of a program that was built.
func (a *api) names(program uintptr) []string {
	return strings.Split(text(a.getProgramInfo, programKernels, program), ";")
}

// with calls do with the kernel of that name, if there is one.
func (a *api) with(program uintptr, name string, do func(kernel uintptr)) {
	zero := append([]byte(name), 0)
	var code int32
	h := dl.Call(a.createKernel, program, uintptr(unsafe.Pointer(&zero[0])), uintptr(unsafe.Pointer(&code)))
	if code == 0 {
		do(h)
		dl.Call(a.releaseKernel, h)
	}
}

// learn finds out about the arguments of a program's kernels when the compiler
// can report them only if every kernel has arguments. It compiles the same
// source again, with the kernels that have none turned into plain functions,
// and returns the result by kernel.
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

// plain turns a kernel of a source into an ordinary function.
func plain(source, name string) string {
	const between = `(?:\s+|__attribute__\s*\(\((?s:.*?)\)\)\s*)*`
	head := regexp.MustCompile(`\b(?:__)?kernel\b` + between + `\bvoid\b` + between + `\b` + regexp.QuoteMeta(name) + `\s*\(`)
	return head.ReplaceAllLiteralString(source, "void "+name+"(")
}
