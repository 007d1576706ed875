package device

import (
	"fmt"
	"maps"
	"runtime"
	"sync"
	"weak"

	"github.com/cairnrun/cairn/internal/driver"
)

// Kernel is a function that devices run.
type Kernel struct {
	source, name string
	host         func(*Work)
	contract     bool

	self weak.Pointer[Kernel] // the key in Device.kernels
	mu   sync.Mutex           // held while the kernel is compiled
}

// NewKernel returns a kernel: the function name in an OpenCL C source, and a Go
// function that does the same on the host (see Work). The source is compiled
// once for each device that runs it. CUDA devices accept a subset of OpenCL C.
//
// Either may be missing: source may be "", and host may be nil. Then the kernel
// runs only where the other one does.
func NewKernel(source, name string, host func(*Work)) *Kernel {
	k := &Kernel{source: source, name: name, host: host}
	k.self = weak.Make(k)
	return k
}

// Contract allows devices to fuse multiplications and additions in this kernel:
// a*b + c may be rounded once instead of twice, which is faster, and differs
// between devices. Without Contract a kernel gives the same bits on all devices
// if it only adds, multiplies, divides and takes roots; with it, a run that
// moves to another kind of device may end with other bits than one that does
// not. Contract has no effect on the Go function. Call it before the kernel is
// launched. It returns k.
func (k *Kernel) Contract() *Kernel {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.contract = true
	return k
}

// String returns the kernel's name.
func (k *Kernel) String() string { return k.name }

// known returns the compiled kernel for d, or nil if it was not compiled yet.
func (k *Kernel) known(d *Device, v variant) driver.Kernel {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kernels[kernelKey{k.self, v}]
}

// on returns the compiled kernel for d.
func (k *Kernel) on(d *Device, v variant) (driver.Kernel, error) {
	if b := k.known(d, v); b != nil {
		return b, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.known(d, v); b != nil {
		return b, nil
	}
	p, err := d.program(k, v.small)
	if err != nil {
		return nil, err
	}
	entry := k.name
	if v.entry != "" {
		entry = v.entry
	}
	b, err := p.Kernel(entry)
	if err != nil {
		d.lose(err)
		return nil, fmt.Errorf("kernel %s: %w", k.name, err)
	}
	d.mu.Lock()
	d.kernels[kernelKey{k.self, v}] = b
	d.mu.Unlock()
	// Neither the kernel nor the device keeps the other alive.
	runtime.AddCleanup(k, forget, compiled{weak.Make(d), k.self})
	return b, nil
}

// sourceKey identifies what is compiled.
type sourceKey struct {
	text     string
	contract bool
	small    bool
}

// kernelKey identifies a compiled function.
type kernelKey struct {
	k weak.Pointer[Kernel]
	variant
}

// compiled is a kernel on a device.
type compiled struct {
	d weak.Pointer[Device]
	k weak.Pointer[Kernel]
}

// forget is called when the kernel is unreachable.
func forget(c compiled) {
	if d := c.d.Value(); d != nil {
		d.mu.Lock()
		maps.DeleteFunc(d.kernels, func(key kernelKey, _ driver.Kernel) bool { return key.k == c.k })
		d.mu.Unlock()
	}
}

// program returns the compiled source of a kernel. small is that of a variant.
func (d *Device) program(k *Kernel, small bool) (driver.Program, error) {
	src := driver.Source{OpenCL: k.source, Contract: k.contract}
	key := sourceKey{k.source, k.contract, small}
	if d.info.Backend == "host" {
		if k.host == nil {
			return nil, fmt.Errorf("kernel %s has no Go function, which %v needs: give NewKernel one, or launch it on another device", k.name, d)
		}
		host := k.host // not k: the program must not keep the kernel alive
		src.Go = map[string]func(*driver.Work){k.name: func(w *driver.Work) { host((*Work)(w)) }}
	} else if t := k.translated(); t != nil {
		if t.Unchanged != nil {
			if err := t.Unchanged(); err != nil {
				return nil, fmt.Errorf("kernel %s: %w", k.name, err)
			}
		}
		src.OpenCL, key.text = t.Source, t.Source
		if small {
			src.OpenCL = "#define CAIRN_INDEX int\n" + t.Source
		}
	} else if k.source == "" {
		return nil, fmt.Errorf("kernel %s has no OpenCL C source, which %v needs: make it with KernelOf and run 'cairn kernels', or give NewKernel a source, or launch it on a host device", k.name, d)
	}
	cached := src.Go == nil
	if cached {
		d.mu.Lock()
		p := d.programs[key]
		d.mu.Unlock()
		if p != nil {
			return p, nil
		}
	}
	p, err := d.drv.Build(src)
	if err != nil {
		d.lose(err)
		return nil, fmt.Errorf("kernel %s: %w", k.name, err)
	}
	if !cached {
		return p, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if first := d.programs[key]; first != nil {
		go p.Close() // another goroutine was faster
		return first, nil
	}
	d.programs[key] = p
	return p, nil
}
