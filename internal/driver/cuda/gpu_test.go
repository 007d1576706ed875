package cuda

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver"
)

// TestIllegalAddress_DeviceLost runs a kernel that writes outside of any
// buffer. The device is lost, all calls fail at once, and Close returns. It
// runs in a process of its own, because nothing else in that process can use
// the GPU afterwards.
func TestIllegalAddress_DeviceLost(t *testing.T) {
	const name = "CAIRN_TEST_ILLEGAL_ADDRESS"
	if os.Getenv(name) == "" {
		must(t, gpu(t).Close())
		cmd := exec.Command(os.Args[0], "-test.run=^TestIllegalAddress_DeviceLost$", "-test.v", "-test.timeout=60s")
		cmd.Env = append(os.Environ(), name+"=1")
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil || !bytes.Contains(out, []byte("--- PASS: TestIllegalAddress_DeviceLost")) {
			t.Fatal(err)
		}
		return
	}
	d := gpu(t).(*device)
	p, err := d.Build(driver.Source{OpenCL: `__kernel void f(__global int *x) { x[get_global_id(0)] = 1; }`})
	must(t, err)
	k, err := p.Kernel("f")
	must(t, err)
	q, err := d.NewQueue()
	must(t, err)
	other, err := d.NewQueue()
	must(t, err)
	b, err := d.Alloc(4096)
	must(t, err)
	host := make([]byte, 1<<16)
	release, err := d.Pin(host)
	must(t, err)
	must(t, q.Launch(k, [3]int{256, 1, 1}, [3]int{}, []driver.Arg{{Buffer: d.At(64, 1024), Len: 1024}}))
	err = q.Finish()
	t.Log(err)
	if !errors.Is(err, driver.ErrLost) {
		t.Fatal("the device is not lost")
	}
	if err := other.CopyIn(b, 0, host[:100]); !errors.Is(err, driver.ErrLost) {
		t.Errorf("the other queue: %v", err)
	}
	if _, err := d.Alloc(100); !errors.Is(err, driver.ErrLost) {
		t.Errorf("Alloc: %v", err)
	} else {
		t.Log(err)
	}
	must(t, release())
	must(t, other.Close())
	must(t, p.Close())
	must(t, d.Close())
}

// TestAttributes_GPU queries memory of all kinds that this package can
// allocate.
func TestAttributes_GPU(t *testing.T) {
	d := gpu(t).(*device)
	defer d.Close()
	b, err := d.Alloc(4096)
	must(t, err)
	a, ok, err := d.Attributes(b.(*buffer).addr + 100)
	if err != nil || !ok || a.Device != d.ordinal || a.Host || a.Managed {
		t.Errorf("device memory: %+v, %v, %v", a, ok, err)
	}
}

// BenchmarkLaunch measures a launch without waiting.
func BenchmarkLaunch(b *testing.B) {
	d := gpu(b)
	defer d.Close()
	p, err := d.Build(driver.Source{OpenCL: `__kernel void f(__global int *x, int n) { if (get_global_id(0) < n) x[get_global_id(0)]++; }`})
	must(b, err)
	k, err := p.Kernel("f")
	must(b, err)
	q, err := d.NewQueue()
	must(b, err)
	x, err := d.Alloc(4096)
	must(b, err)
	args := []driver.Arg{{Buffer: x, Len: 4096}, val(int32(1024))}
	for b.Loop() {
		must(b, q.Launch(k, [3]int{1024, 1, 1}, [3]int{}, args))
	}
	must(b, q.Finish())
}

// BenchmarkFinish measures a launch and waiting for it.
func BenchmarkFinish(b *testing.B) {
	d := gpu(b)
	defer d.Close()
	q, err := d.NewQueue()
	must(b, err)
	x, err := d.Alloc(4096)
	must(b, err)
	for b.Loop() {
		must(b, q.Copy(x, 0, x, 2048, 2048))
		must(b, q.Finish())
	}
}

// BenchmarkCopyOut measures copies to pageable and to pinned memory.
func BenchmarkCopyOut(b *testing.B) {
	const n = 64 << 20
	for _, pinned := range []bool{false, true} {
		name := "pageable"
		if pinned {
			name = "pinned"
		}
		b.Run(name, func(b *testing.B) {
			d := gpu(b)
			defer d.Close()
			q, err := d.NewQueue()
			must(b, err)
			x, err := d.Alloc(n)
			must(b, err)
			host := make([]byte, n)
			if pinned {
				start := time.Now()
				release, err := d.Pin(host)
				must(b, err)
				b.ReportMetric(time.Since(start).Seconds()*1e3, "ms/pin")
				defer release()
			}
			b.SetBytes(n)
			for b.Loop() {
				must(b, q.CopyOut(host, x, 0))
				must(b, q.Finish())
			}
		})
	}
}
