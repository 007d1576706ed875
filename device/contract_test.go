package device

import (
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// builds is a device that records what it compiles.
type builds struct {
	driver.Device
	list *[]driver.Source
}

func (b builds) Build(s driver.Source) (driver.Program, error) {
	*b.list = append(*b.list, s)
	return b.Device.Build(s)
}

// TestKernel_ContractMayFuse shows that the compiler may fuse operations of a
// kernel after Contract, also when the kernel was restored.
func TestKernel_ContractMayFuse(t *testing.T) {
	var list []driver.Source
	d, err := newDevice(builds{host.New(host.Options{Index: 90, Discrete: true}), &list})
	must(t, err)
	start(t, d)
	nothing := func(*Work) {}
	for _, k := range []*Kernel{NewKernel("", "a", nothing), NewKernel("", "a", nothing).Contract()} {
		must(t, d.Launch(k, Size{1}))
	}
	must(t, d.Finish())
	if len(list) != 2 || list[0].Contract || !list[1].Contract {
		t.Errorf("compiled: %+v", list)
	}
	// After a restart a kernel is compiled in the same way.
	for _, k := range []*Kernel{NewKernel("f", "a", nil), NewKernel("f", "a", nil).Contract()} {
		to, err := (&handles{Kernel: k}).reload(t, d)
		must(t, err)
		if to.Kernel.contract != k.contract {
			t.Errorf("restored, Contract is %v", to.Kernel.contract)
		}
	}
}

// TestKernel_ContractPerKernel shows that the same source is compiled twice if
// one kernel may fuse and another may not.
func TestKernel_ContractPerKernel(t *testing.T) {
	devs, err := Open("opencl")
	if err != nil {
		t.Skip(err)
	}
	source := `
__kernel void f(__global float *x, float a, float b) { x[0] = a * b + x[0]; }`
	a, b := float32(1+1.0/8192), float32(1-1.0/8192) // a·b = 1 − 2⁻²⁶, which rounds to 1
	run := func(k *Kernel) float32 {
		x := New[float32](1)
		must(t, x.Update(func(v []float32) { v[0] = -1 }))
		must(t, devs[0].Launch(k, Size{1}, InOut(x), a, b))
		v, err := x.Read()
		must(t, err)
		return v[0]
	}
	plain, fused := NewKernel(source, "f", nil), NewKernel(source, "f", nil).Contract()
	first, second, again := run(plain), run(fused), run(plain)
	if first != 0 || again != 0 {
		t.Errorf("without Contract: %v, %v", first, again)
	}
	if second != 0 && second != -1.0/(1<<26) {
		t.Errorf("with Contract: %v", second)
	}
	t.Logf("with Contract: %v", second)
}
