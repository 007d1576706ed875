package cuda

import (
	"testing"

	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/drivertest"
)

// gpu opens the first GPU, or skips.
func gpu(t testing.TB) driver.Device {
	t.Helper()
	devs, err := Open()
	if len(devs) == 0 {
		t.Skipf("no NVIDIA GPU: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return devs[0]
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDriver_GPU runs the tests of all drivers on a GPU.
func TestDriver_GPU(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) driver.Device { return gpu(t) })
}

// TestOpen_NoDriver shows that without a driver there is no device, and an
// error says why.
func TestOpen_NoDriver(t *testing.T) {
	devs, err := open([]string{"libno-such-driver.so"}, nvrtcNames)
	if len(devs) != 0 || err == nil {
		t.Fatalf("%d devices, %v", len(devs), err)
	}
	t.Log(err)
}
