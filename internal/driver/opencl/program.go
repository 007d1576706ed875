package opencl

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

type program struct {
	d     *device
	known map[string][]parameter // parameters of kernels that cannot be queried directly

	mu      sync.Mutex
	h       uintptr // 0: closed
	kernels map[string]*kernel
}

func (d *device) Build(src driver.Source) (driver.Program, error) {
	const op = "Build"
	if err := d.open(op); err != nil {
		return nil, err
	}
	if src.OpenCL == "" {
		return nil, &driver.Error{Device: d.info.ID, Op: op, Kind: driver.ErrBuild, Text: "there is no OpenCL C in the source"}
	}
	if i := strings.IndexByte(src.OpenCL, 0); i >= 0 {
		return nil, &driver.Error{Device: d.info.ID, Op: op, Kind: driver.ErrBuild, Text: fmt.Sprintf("byte %d of the source is zero", i)}
	}
	prologue := d.prologue(src)
	h, refused := d.program(op, prologue+src.OpenCL)
	if refused != nil {
		return nil, refused
	}
	options := "-cl-std=CL1.2"
	if d.rounded {
		options += " -cl-fp32-correctly-rounded-divide-sqrt"
	}
	const telling = " -cl-kernel-arg-info"
	var known map[string][]parameter
	err := d.compile(op, h, options+telling)
	if err != nil && err.Kind == driver.ErrBuild && strings.Contains(err.Log, "ptxas") {
		// NVIDIA's compiler puts its knowledge of arguments into code that its
		// assembler refuses if a kernel has no arguments.
		if d.compile(op, h, options) == nil {
			err = nil
			known = d.learn(op, h, prologue+src.OpenCL, options+telling)
		}
	}
	if err != nil {
		err.Log = ownLines(err.Log, strings.Count(prologue, "\n"))
		dl.Call(d.a.releaseProgram, h)
		return nil, err
	}
	p := &program{d: d, h: h, known: known, kernels: make(map[string]*kernel)}
	if err := d.add(op, p); err != nil {
		return nil, err
	}
	return p, nil
}

// program creates a program from a source.
func (d *device) program(op, source string) (uintptr, error) {
	start, length := unsafe.Pointer(unsafe.StringData(source)), uintptr(len(source))
	var code int32
	h := dl.Call(d.a.createProgram, d.context, 1, uintptr(unsafe.Pointer(&start)), uintptr(unsafe.Pointer(&length)), uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		return 0, d.fail(op, "clCreateProgramWithSource", code, 0)
	}
	return h, nil
}

// compile builds a program. It may be called again after a failure.
func (d *device) compile(op string, h uintptr, options string) *driver.Error {
	zero := append([]byte(options), 0)
	code := int32(dl.Call(d.a.buildProgram, h, 1, uintptr(unsafe.Pointer(&d.id)), uintptr(unsafe.Pointer(&zero[0])), 0, 0))
	if code == 0 {
		return nil
	}
	err := d.fail(op+" for "+d.info.Name, "clBuildProgram", code, 0).(*driver.Error)
	err.Log = text(d.a.getBuildInfo, programLog, h, d.id)
	if code == codeBuild {
		err.Kind = driver.ErrBuild
	}
	return err
}

// prologue returns text that is put before the source. The compiler's messages
// still have the line numbers of the source.
func (d *device) prologue(src driver.Source) string {
	var b strings.Builder
	if d.fp64 {
		b.WriteString("#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n")
	}
	if !src.Contract {
		b.WriteString("#pragma OPENCL FP_CONTRACT OFF\n")
	}
	b.WriteString("#line 1\n")
	return b.String()
}

// unaware finds positions in messages of NVIDIA's compiler, which counts lines
// from the start of its input and ignores #line.
var unaware = regexp.MustCompile(`<kernel>:(\d+):`)

// ownLines converts such positions to lines of the source, which follows the
// lines of a prologue.
func ownLines(log string, prologue int) string {
	return unaware.ReplaceAllStringFunc(log, func(place string) string {
		line, err := strconv.Atoi(unaware.FindStringSubmatch(place)[1])
		if err != nil || line <= prologue {
			return place
		}
		return fmt.Sprintf("<kernel>:%d:", line-prologue)
	})
}

// Close releases the program and its kernels. Kernels that were launched run to
// their end.
func (p *program) Close() error {
	p.d.remove(p)
	p.drop()
	return nil
}

func (p *program) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.h == 0 {
		return
	}
	for _, k := range p.kernels {
		k.mu.Lock()
		dl.Call(p.d.a.releaseKernel, k.h)
		k.h = 0
		k.mu.Unlock()
	}
	dl.Call(p.d.a.releaseProgram, p.h)
	p.h, p.kernels = 0, nil
}

type kernel struct {
	d    *device
	name string
	op   string // for errors
	args []parameter

	maxGroup int    // maximum size of a group
	required [3]int // the only size of groups that it supports, or zeros
	local    int    // bytes of local memory, without its arguments

	mu  sync.Mutex // held from the first argument to the launch
	h   uintptr    // 0: closed
	mem uintptr    // value of an argument
}

func (k *kernel) Name() string { return k.name }

// Kernel returns the same kernel for the same name.
func (p *program) Kernel(name string) (driver.Kernel, error) {
	op := fmt.Sprintf("Kernel %q", name)
	if err := p.d.usable(op); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.h == 0 {
		return nil, p.d.wrong(op, "the program was closed")
	}
	if k := p.kernels[name]; k != nil {
		return k, nil
	}
	a := p.d.a
	zero := append([]byte(name), 0)
	var code int32
	h := dl.Call(a.createKernel, p.h, uintptr(unsafe.Pointer(&zero[0])), uintptr(unsafe.Pointer(&code)))
	if code != 0 {
		err := p.d.fail(op, "clCreateKernel", code, 0).(*driver.Error)
		if code == codeInvalidKernelName {
			names := a.names(p.h)
			sort.Strings(names)
			err.Text += "; the source has " + strings.Join(names, ", ")
		}
		return nil, err
	}
	k := &kernel{d: p.d, name: name, op: "Launch of " + name, h: h}
	k.args = a.parameters(h)
	if known := p.known[name]; len(known) == len(k.args) {
		k.args = known
	}
	k.maxGroup = int(number(a.getGroupInfo, kernelMaxGroup, h, p.d.id))
	k.local = int(number(a.getGroupInfo, kernelLocalMemory, h, p.d.id))
	if size, code := bytesOf(a.getGroupInfo, kernelRequired, h, p.d.id); code == 0 && len(size) == 24 {
		for i := range k.required {
			k.required[i] = int(binary.NativeEndian.Uint64(size[8*i:]))
		}
	}
	p.kernels[name] = k
	return k, nil
}
