package device

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/driver/host"
)

// TestThrottle shows that a program runs ahead of a slow device by at most a
// few batches.
func TestThrottle(t *testing.T) {
	d, err := newDevice(host.New(host.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var done atomic.Int64
	slow := NewKernel("", "slow", func(*Work) {
		time.Sleep(500 * time.Microsecond) // simulates the time that a kernel takes
		done.Add(1)
	})
	a := New[uint32](16)
	const launches = 400
	most := int64(0)
	for i := range int64(launches) {
		if err := d.Launch(slow, Size{1}, InOut(a)); err != nil {
			t.Fatal(err)
		}
		most = max(most, i+1-done.Load())
	}
	if err := d.Finish(); err != nil {
		t.Fatal(err)
	}
	if done.Load() != launches || most > 4*firstBatch {
		t.Errorf("%d of %d kernels ran; the program was up to %d ahead", done.Load(), launches, most)
	}
}
