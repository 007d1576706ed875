//go:build linux

package supervise

import (
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// TestNoteLoop checks when a loop is expected to end.
func TestNoteLoop(t *testing.T) {
	start := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	var r rank
	for _, c := range []struct {
		at   int // seconds
		loop *control.Loop
		ends int // seconds; 0: not known
	}{
		{0, nil, 0},
		{10, &control.Loop{Where: "main.go:3", Done: 20, Total: 100}, 0},
		{15, &control.Loop{Where: "main.go:3", Done: 20, Total: 100}, 0},
		{20, &control.Loop{Where: "main.go:3", Done: 30, Total: 100}, 90},  // 1 s each
		{25, &control.Loop{Where: "main.go:3", Done: 30, Total: 100}, 90},  // nothing new
		{50, &control.Loop{Where: "main.go:3", Done: 40, Total: 100}, 170}, // 2 s each
		{60, &control.Loop{Where: "main.go:3", Done: 35, Total: 100}, 0},   // back to a checkpoint
		{70, &control.Loop{Where: "main.go:3", Done: 45, Total: 100}, 125},
		{80, &control.Loop{Where: "main.go:9", Done: 1, Total: 2}, 0}, // another loop
		{90, nil, 0},
	} {
		now := start.Add(time.Duration(c.at) * time.Second)
		r.noteLoop(c.loop, now)
		want := time.Time{}
		if c.ends > 0 {
			want = start.Add(time.Duration(c.ends) * time.Second)
		}
		if (r.Loop == nil) != (c.loop == nil) || !r.Ends.Equal(want) {
			t.Errorf("after %d s: %+v ends at %v, want %v", c.at, r.Loop, r.Ends, want)
		}
	}
}
