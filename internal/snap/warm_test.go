package snap

import (
	"testing"

	"github.com/cairnrun/cairn/internal/driver/host"
)

// TestWarm_CompilesNothingLater shows that nothing is compiled after Warm, and
// that Warm frees its memory.
func TestWarm_CompilesNothingLater(t *testing.T) {
	dev := host.New(host.Options{Discrete: true})
	q, err := dev.NewQueue()
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(dev, q)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := e.Warm(); err != nil {
			t.Fatal(err)
		}
		if e.digest == nil || len(e.idle) != 1 || len(e.broken) != 0 {
			t.Fatalf("compiled %v, %d idle, %d broken", e.digest != nil, len(e.idle), len(e.broken))
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
}
