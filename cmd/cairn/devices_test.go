package main

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/device"
	"github.com/cairnrun/cairn/internal/driver"
	"github.com/cairnrun/cairn/internal/driver/host"
)

// odd is a device some of whose launches do something wrong.
type odd struct {
	driver.Device
	launch func(k driver.Kernel) bool // false: the launch is omitted
}

func (d odd) NewQueue() (driver.Queue, error) {
	q, err := d.Device.NewQueue()
	return oddQueue{q, d}, err
}

type oddQueue struct {
	driver.Queue
	d odd
}

func (q oddQueue) Launch(k driver.Kernel, global, local [3]int, args []driver.Arg) error {
	if !q.d.launch(k) {
		return nil
	}
	return q.Queue.Launch(k, global, local, args)
}

// TestTryDevice tries a device that works, one that computes wrong results, one
// with wrong digests, and one that hangs.
func TestTryDevice(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	for _, c := range []struct {
		name, want string
		launch     func(k driver.Kernel) bool
	}{
		{"good", "", func(driver.Kernel) bool { return true }},
		{"wrong", "computes wrong results", func(k driver.Kernel) bool { return k.Name() != "cairn_try" }},
		{"wrong digests", "the digest of bytes", func(k driver.Kernel) bool { return k.Name() != "digest" }},
		{"hangs", "hangs", func(driver.Kernel) bool { <-stop; return false }},
	} {
		d, err := driver.Expose[*device.Device](odd{host.New(host.Options{Discrete: true}), c.launch})
		if err != nil {
			t.Fatal(err)
		}
		limit := time.Minute
		if c.name == "hangs" {
			limit = 20 * time.Millisecond
		}
		_, _, err = tryInTime(d, limit)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
