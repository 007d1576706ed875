package device

import (
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/cairnrun/cairn/internal/driver"
)

// Kernel is a function that devices run.
type Kernel struct {
	source, name string
	host         func(*Work)

	self weak.Pointer[Kernel] // devices know it by
	mu   sync.Mutex           // held while it is compiled
}

// NewKernel makes a kernel of the function name in an OpenCL C source, and of
// a Go function that does the same on the host (see Work). The source is
// compiled once for each device that it is launched on. Either may be missing:
// the kernel then runs only where the other one does.
func NewKernel(source, name string, host func(*Work)) *Kernel {
	k := &Kernel{source: source, name: name, host: host}
	k.self = weak.Make(k)
	return k
}

// String is the kernel's name.
func (k *Kernel) String() string { return k.name }

// known returns the kernel if it was compiled for d.
func (k *Kernel) known(d *Device) driver.Kernel {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kernels[k.self]
}

// on returns the kernel for a device.
func (k *Kernel) on(d *Device) (driver.Kernel, error) {
	if b := k.known(d); b != nil {
		return b, nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if b := k.known(d); b != nil {
		return b, nil
	}
	p, err := d.program(k)
	if err != nil {
		return nil, err
	}
	b, err := p.Kernel(k.name)
	if err != nil {
		d.lose(err)
		return nil, fmt.Errorf("kernel %s: %w", k.name, err)
	}
	d.mu.Lock()
	d.kernels[k.self] = b
	d.mu.Unlock()
	// Neither keeps the other alive.
	runtime.AddCleanup(k, forget, compiled{weak.Make(d), k.self})
	return b, nil
}

// compiled is a kernel on a device.
type compiled struct {
	d weak.Pointer[Device]
	k weak.Pointer[Kernel]
}

// forget is called when the kernel is gone.
func forget(c compiled) {
	if d := c.d.Value(); d != nil {
		d.mu.Lock()
		delete(d.kernels, c.k)
		d.mu.Unlock()
	}
}

// program returns the compiled source of a kernel.
func (d *Device) program(k *Kernel) (driver.Program, error) {
	src := driver.Source{OpenCL: k.source}
	if d.info.Backend == "host" {
		if k.host == nil {
			return nil, fmt.Errorf("kernel %s has no Go function, which %v needs: give NewKernel one, or launch it on another device", k.name, d)
		}
		src.Go = map[string]func(*Work){k.name: k.host}
	} else if k.source == "" {
		return nil, fmt.Errorf("kernel %s has no OpenCL C source, which %v needs: give NewKernel one, or launch it on a host device", k.name, d)
	}
	cached := src.Go == nil
	if cached {
		d.mu.Lock()
		p := d.programs[k.source]
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
	if first := d.programs[k.source]; first != nil {
		go p.Close() // somebody else was quicker
		return first, nil
	}
	d.programs[k.source] = p
	return p, nil
}
