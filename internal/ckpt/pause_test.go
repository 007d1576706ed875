package ckpt

import (
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/ckpt/ckpttest"
	"github.com/cairnrun/cairn/internal/mem"
)

// TestPause computes the pause of a save from the times at which the host, the
// devices and the kernels before it were done.
func TestPause(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	a, b := mem.Device(new(ckpttest.Device)), mem.Device(new(ckpttest.Device))
	kernels := func(dev mem.Device, ms int) *earlierKernels {
		e := &earlierKernels{dev: dev, ended: make(chan struct{}), at: at(ms)}
		if ms >= 0 { // else they still run
			close(e.ended)
		}
		return e
	}
	for _, c := range []struct {
		what     string
		earlier  []*earlierKernels
		host     int
		returned int
		free     map[mem.Device]time.Time
		want     int
	}{
		{"no device", nil, 0, 7, nil, 7},
		{"the device copies after Save has returned", nil, 0, 1, map[mem.Device]time.Time{a: at(30)}, 30},
		{"the copy waits for kernels", []*earlierKernels{kernels(a, 100)}, 0, 1, map[mem.Device]time.Time{a: at(130)}, 30},
		{"Save waits for kernels", []*earlierKernels{kernels(a, 100)}, 0, 102, map[mem.Device]time.Time{a: {}}, 2},
		{"kernels end while the host copies", []*earlierKernels{kernels(a, 10)}, 40, 50, map[mem.Device]time.Time{a: at(20)}, 40},
		{"kernels of a device without a copy still run", []*earlierKernels{kernels(a, -1)}, 5, 6, nil, 5},
		{"… and end before Save returns", []*earlierKernels{kernels(a, 4)}, 0, 6, nil, 2},
		{"a host device", []*earlierKernels{kernels(nil, 90)}, 3, 95, nil, 5},
		{"the longer of two devices", []*earlierKernels{kernels(a, 100)}, 0, 1, map[mem.Device]time.Time{a: at(110), b: at(25)}, 25},
	} {
		p := &pause{earlier: c.earlier, host: time.Duration(c.host) * time.Millisecond, returned: at(c.returned)}
		if got, want := p.length(began, c.free), time.Duration(c.want)*time.Millisecond; got != want {
			t.Errorf("%s: the pause is %v, not %v", c.what, got, want)
		}
	}
}
