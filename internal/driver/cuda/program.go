package cuda

import (
	"encoding/binary"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cairnrun/cairn/internal/dl"
	"github.com/cairnrun/cairn/internal/driver"
)

type program struct {
	d      *device
	module uintptr
	text   *translation
	closed atomic.Bool

	mu      sync.Mutex
	kernels map[string]*kernel // all kernels that were requested
}

type kernel struct {
	p       *program
	name    string
	fn      uintptr
	entry   *entry
	sizes   []int // sizes of the parameters; 0: unknown
	threads int   // maximum size of a group
	static  int   // bytes of local memory that it declares

	mu      sync.Mutex
	dynamic int // bytes of local memory that were reserved
}

// freeLocal is the local memory that a kernel may use without reserving more.
const freeLocal = 48 << 10

// Build translates the source and compiles it for this device. If NVRTC does
// not know the device yet, the driver completes the compilation.
func (d *device) Build(src driver.Source) (driver.Program, error) {
	const op = "Build"
	if src.OpenCL == "" {
		return nil, d.broken(op, "there is no OpenCL C source", "")
	}
	if err := d.usable(op); err != nil {
		return nil, err
	}
	text, err := translate(src.OpenCL)
	if err != nil {
		return nil, d.broken(op, "the source is outside of what runs on CUDA (see package internal/driver/cuda)", err.Error())
	}
	image, err := d.compiled(op, text.code, src.Contract)
	if err != nil {
		return nil, err
	}
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.leave()
	var module uintptr
	log := make([]byte, 1<<14)
	options := [2]int32{jitErrorLog, jitErrorLogSize}
	// Addresses are passed as numbers, so log must not move.
	var pin runtime.Pinner
	pin.Pin(&log[0])
	defer pin.Unpin()
	values := [2]uintptr{uintptr(unsafe.Pointer(&log[0])), uintptr(len(log))}
	code := int32(dl.Call(d.cu.ModuleLoadDataEx, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&image[0])),
		uintptr(len(options)), uintptr(unsafe.Pointer(&options)), uintptr(unsafe.Pointer(&values))))
	if code != success {
		err := d.fail(op, "cuModuleLoadDataEx", code).(*driver.Error)
		if err.Kind == nil {
			err.Kind = driver.ErrBuild
		}
		err.Log = zeroEnd(log)
		return nil, err
	}
	d.mu.Lock()
	d.mods[module] = true
	d.mu.Unlock()
	return &program{d: d, module: module, text: text}, nil
}

func (d *device) broken(op, text, log string) error {
	return &driver.Error{Device: d.info.ID, Op: op, Text: text, Log: log, Kind: driver.ErrBuild}
}

func zeroEnd(p []byte) string {
	s, _, _ := strings.Cut(string(p), "\x00")
	return s
}

// compiled returns what the driver can load: machine code or PTX.
func (d *device) compiled(op, code string, contract bool) ([]byte, error) {
	d.compile.Lock()
	defer d.compile.Unlock()
	if d.rtc == nil {
		rtc, err := loadNVRTC(d.compilers())
		if err != nil {
			return nil, d.broken(op, "there is no compiler: install NVRTC (libnvrtc, a part of the CUDA toolkit): "+err.Error(), "")
		}
		d.rtc = rtc
	}
	rtc := d.rtc
	arch, err := d.target()
	if err != nil {
		return nil, err
	}
	failed := func(call string, r int32, log string) error {
		e := d.broken(op, cString(dl.Call(rtc.GetErrorString, uintptr(r))), log).(*driver.Error)
		e.Call, e.Code = call, int(r)
		return e
	}
	var prog uintptr
	source, name := cBytes(code), cBytes(sourceName)
	if r := int32(dl.Call(rtc.CreateProgram, uintptr(unsafe.Pointer(&prog)), uintptr(unsafe.Pointer(&source[0])),
		uintptr(unsafe.Pointer(&name[0])), 0, 0, 0)); r != success {
		return nil, failed("nvrtcCreateProgram", r, "")
	}
	defer dl.Call(rtc.DestroyProgram, uintptr(unsafe.Pointer(&prog)))
	var options []unsafe.Pointer
	for _, o := range []string{
		"--std=c++17", "--device-as-default-execution-space", "--gpu-architecture=" + arch,
		fmt.Sprintf("--fmad=%v", contract), "--prec-div=true", "--prec-sqrt=true", "--ftz=false",
	} {
		options = append(options, unsafe.Pointer(&cBytes(o)[0]))
	}
	r := int32(dl.Call(rtc.CompileProgram, prog, uintptr(len(options)), uintptr(unsafe.Pointer(&options[0]))))
	if r != success {
		var n uintptr
		dl.Call(rtc.GetProgramLogSize, prog, uintptr(unsafe.Pointer(&n)))
		log := make([]byte, n+1)
		dl.Call(rtc.GetProgramLog, prog, uintptr(unsafe.Pointer(&log[0])))
		return nil, failed("nvrtcCompileProgram", r, zeroEnd(log))
	}
	size, get, what := rtc.GetCUBINSize, rtc.GetCUBIN, "nvrtcGetCUBIN"
	if strings.HasPrefix(arch, "compute") {
		size, get, what = rtc.GetPTXSize, rtc.GetPTX, "nvrtcGetPTX"
	}
	var n uintptr
	if r := int32(dl.Call(size, prog, uintptr(unsafe.Pointer(&n)))); r != success || n == 0 {
		return nil, failed(what+"Size", r, "")
	}
	image := make([]byte, n+1)
	if r := int32(dl.Call(get, prog, uintptr(unsafe.Pointer(&image[0])))); r != success {
		return nil, failed(what, r, "")
	}
	return image, nil
}

// target returns NVRTC's name for this device, or for the newest older one that
// NVRTC knows.
func (d *device) target() (string, error) {
	const op = "Build"
	var n int32
	dl.Call(d.rtc.GetNumSupportedArchs, uintptr(unsafe.Pointer(&n)))
	known := make([]int32, max(n, 1))
	dl.Call(d.rtc.GetSupportedArchs, uintptr(unsafe.Pointer(&known[0])))
	mine := d.major*10 + d.minor
	best := int32(0)
	for _, k := range known {
		if k == mine {
			return fmt.Sprintf("sm_%d", mine), nil
		}
		if k < mine {
			best = max(best, k)
		}
	}
	if best == 0 {
		var major, minor int32
		dl.Call(d.rtc.Version, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
		return "", d.broken(op, fmt.Sprintf("%s (NVRTC %d.%d) no longer compiles for compute capability %d.%d; install an older one",
			d.rtc.lib, major, minor, d.major, d.minor), "")
	}
	return fmt.Sprintf("compute_%d", best), nil
}

// Kernel returns the same kernel for the same name, because the reserved local
// memory is a property of the function.
func (p *program) Kernel(name string) (driver.Kernel, error) {
	op := fmt.Sprintf("looking for kernel %q", name)
	d := p.d
	e := p.text.kernels[name]
	if e == nil {
		return nil, d.wrong(op, "the source has no such kernel; it has %s",
			strings.Join(slices.Sorted(maps.Keys(p.text.kernels)), ", "))
	}
	if err := d.enter(op); err != nil {
		return nil, err
	}
	defer d.leave()
	if p.closed.Load() {
		return nil, d.wrong(op, "the program was closed")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.kernels[name]; k != nil {
		return k, nil
	}
	k := &kernel{p: p, name: name, entry: e}
	symbol := cBytes(name + entrySuffix)
	if code := int32(dl.Call(d.cu.ModuleGetFunction, uintptr(unsafe.Pointer(&k.fn)), p.module, uintptr(unsafe.Pointer(&symbol[0])))); code != success {
		err := d.fail(op, "cuModuleGetFunction", code).(*driver.Error)
		if code == errNotFound {
			err.Text += "; perhaps the preprocessor left it out"
		}
		return nil, err
	}
	var threads, static int32
	if code := int32(dl.Call(d.cu.FuncGetAttribute, uintptr(unsafe.Pointer(&threads)), funcMaxThreads, k.fn)); code != success {
		return nil, d.fail(op, "cuFuncGetAttribute", code)
	}
	if code := int32(dl.Call(d.cu.FuncGetAttribute, uintptr(unsafe.Pointer(&static)), funcSharedBytes, k.fn)); code != success {
		return nil, d.fail(op, "cuFuncGetAttribute", code)
	}
	k.threads, k.static = int(threads), int(static)
	for i, p := range e.params {
		size := p.size
		if d.cu.FuncGetParamInfo != 0 {
			var off, n uintptr
			if dl.Call(d.cu.FuncGetParamInfo, k.fn, uintptr(i), uintptr(unsafe.Pointer(&off)), uintptr(unsafe.Pointer(&n))) == success {
				size = int(n)
			}
		}
		k.sizes = append(k.sizes, size)
	}
	if p.kernels == nil {
		p.kernels = make(map[string]*kernel)
	}
	p.kernels[name] = k
	return k, nil
}

// Close waits for the queues, because kernels of the program may be running.
func (p *program) Close() error {
	const op = "closing a program"
	d := p.d
	if p.closed.Swap(true) || d.closed.Load() || d.lost.Load() != nil {
		return nil
	}
	if err := d.enter(op); err != nil {
		return err
	}
	defer d.leave()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.mods[p.module] {
		return nil
	}
	for _, q := range d.queues {
		if err := q.wait(op); err != nil {
			return err
		}
	}
	delete(d.mods, p.module)
	if code := int32(dl.Call(d.cu.ModuleUnload, p.module)); code != success {
		return d.fail(op, "cuModuleUnload", code)
	}
	return nil
}

func (k *kernel) Name() string { return k.name }

// groups chooses the size of groups, if none is given, and computes how many
// there are.
func (d *device) groups(op string, k *kernel, global, local [3]int) (grid, group [3]int, err error) {
	dims := 1
	for i, g := range global {
		if g < 1 {
			return grid, group, d.wrong(op, "%d work items in dimension %d", g, i)
		}
		if g > 1 {
			dims = i + 1
		}
	}
	if local[0] == 0 {
		if local = k.entry.group; local[0] == 0 {
			local = [3][3]int{{256, 1, 1}, {16, 16, 1}, {8, 8, 4}}[dims-1]
			for i := range local {
				local[i] = min(local[i], global[i])
			}
			for local[0]*local[1]*local[2] > k.threads && local[0] > 1 {
				local[0] = (local[0] + 1) / 2
			}
			// The grid is limited in dimensions 1 and 2.
			for i := 1; i < 3; i++ {
				for (global[i]-1)/local[i] >= d.grid[i] && local[0] > 1 && 2*local[i] <= d.block[i] {
					local[0], local[i] = (local[0]+1)/2, 2*local[i]
				}
				for (global[i]-1)/local[i] >= d.grid[i] && 2*local[0]*local[1]*local[2] <= k.threads && 2*local[i] <= d.block[i] {
					local[i] *= 2
				}
			}
		}
	} else if want := k.entry.group; want[0] != 0 && want != local {
		return grid, group, d.wrong(op, "groups of %v; the kernel says that it needs %v", local, want)
	}
	threads := 1
	for i, l := range local {
		if l < 1 || l > d.block[i] {
			return grid, group, d.wrong(op, "groups of %d in dimension %d; 1 to %d are possible", l, i, d.block[i])
		}
		threads *= l
		grid[i] = (global[i]-1)/l + 1
		if grid[i] > d.grid[i] {
			return grid, group, d.wrong(op, "%d groups in dimension %d; %d is the most: use larger groups, or make it dimension 0", grid[i], i, d.grid[i])
		}
	}
	if threads > k.threads {
		return grid, group, d.wrong(op, "groups of %d work items; %d is the most for this kernel", threads, k.threads)
	}
	return grid, local, nil
}

func (q *queue) Launch(kern driver.Kernel, global, local [3]int, args []driver.Arg) error {
	k, ok := kern.(*kernel)
	d := q.d
	switch {
	case !ok || k == nil:
		return d.wrong("Launch", "the kernel (%T) is not one of a CUDA device", kern)
	case k.p.d != d:
		return d.wrong("Launch", "kernel %q was built for device %s", k.name, k.p.d.info.ID)
	case k.p.closed.Load():
		if err := d.usable("Launch of " + k.name); err != nil {
			return err
		}
		return d.wrong("Launch of "+k.name, "its program was closed")
	}
	op := "Launch of " + k.name
	grid, group, err := d.groups(op, k, global, local)
	if err != nil {
		return err
	}
	values, dynamic, used, err := d.arguments(op, k, args)
	defer d.unuse(used...)
	if err != nil {
		return err
	}
	if err := q.enter(op); err != nil {
		return err
	}
	defer d.leave()
	if err := k.reserve(op, dynamic); err != nil {
		return err
	}
	var first unsafe.Pointer
	if len(values) > 0 {
		first = unsafe.Pointer(&values[0])
	}
	code := int32(dl.Call(d.cu.LaunchKern, k.fn, uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]),
		uintptr(group[0]), uintptr(group[1]), uintptr(group[2]), uintptr(dynamic), q.stream, uintptr(first), 0))
	runtime.KeepAlive(values)
	if code != success {
		return d.fail(op, "cuLaunchKernel", code)
	}
	return nil
}

// arguments checks the arguments, copies them, and returns their addresses for
// cuLaunchKernel. The caller ends the use of the buffers, also after an error.
func (d *device) arguments(op string, k *kernel, args []driver.Arg) (values []unsafe.Pointer, dynamic int, used []*buffer, err error) {
	params := k.entry.params
	if len(args) != len(params) {
		return nil, 0, used, d.wrong(op, "%d arguments, but the kernel has %d parameters: %s", len(args), len(params), k.entry)
	}
	values = make([]unsafe.Pointer, len(args))
	words := make([]uint64, len(args)) // pointers and offsets
	for i, a := range args {
		p := params[i]
		wrong := func(format string, v ...any) error {
			return d.wrong(op, "argument %d (%s) %s", i, p.name, fmt.Sprintf(format, v...))
		}
		switch {
		case a.Buffer != nil && a.Value != nil:
			return nil, 0, used, wrong("is a buffer and a value")
		case p.kind == paramGlobal && a.Buffer != nil:
			b, addr, err := d.use(op, a.Buffer, a.Off, a.Len)
			if err != nil {
				return nil, 0, used, err
			}
			used = append(used, b)
			words[i] = uint64(addr)
			values[i] = unsafe.Pointer(&words[i])
		case p.kind == paramLocal && a.Local > 0 && a.Buffer == nil && a.Value == nil:
			if a.Local > d.info.LocalMemory {
				return nil, 0, used, wrong("asks for %d bytes of local memory; there are %d", a.Local, d.info.LocalMemory)
			}
			binary.NativeEndian.PutUint32(unsafe.Slice((*byte)(unsafe.Pointer(&words[i])), 4), uint32(dynamic))
			values[i] = unsafe.Pointer(&words[i])
			dynamic += (a.Local + 31) &^ 31 // so that every type is aligned
		case p.kind == paramValue && a.Value != nil && a.Buffer == nil:
			if size := k.sizes[i]; size != 0 && len(a.Value) != size {
				return nil, 0, used, wrong("is a value of %d bytes; the kernel takes %d", len(a.Value), size)
			} else if size == 0 {
				// The driver reads as many bytes as the type has, at most 4096.
				p := make([]byte, max(len(a.Value), 4096))
				copy(p, a.Value)
				a.Value = p
			}
			values[i] = unsafe.Pointer(unsafe.SliceData(a.Value))
		default:
			got := "nothing"
			switch {
			case a.Buffer != nil:
				got = "a buffer"
			case a.Value != nil:
				got = "a value"
			case a.Local != 0:
				got = "local memory"
			}
			return nil, 0, used, wrong("is %s; the kernel takes %s", got, p.kind)
		}
	}
	if k.static+dynamic > d.info.LocalMemory {
		return nil, 0, used, d.wrong(op, "%d bytes of local memory; there are %d", k.static+dynamic, d.info.LocalMemory)
	}
	return values, dynamic, used, nil
}

// reserve sets the kernel's limit of local memory if it needs more than the
// default.
func (k *kernel) reserve(op string, dynamic int) error {
	if k.static+dynamic <= freeLocal {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if dynamic <= k.dynamic {
		return nil
	}
	if code := int32(dl.Call(k.p.d.cu.FuncSetAttribute, k.fn, funcMaxDynamic, uintptr(dynamic))); code != success {
		return k.p.d.fail(op, "cuFuncSetAttribute", code)
	}
	k.dynamic = dynamic
	return nil
}
