//go:build linux

package supervise

import (
	"strings"
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/supervise/rundir"
)

// TestNoPoint_ReportedOnce shows that the user is told once about a rank that
// reaches no point, before its first point and after others.
func TestNoPoint_ReportedOnce(t *testing.T) {
	start := time.Now()
	for _, v := range []struct {
		name  string
		said  []uint64 // points passed, reported every half minute
		after int      // index of the report that leads to a text; 0: none
		text  string
		// paused is the number of the report of a pause.
		paused int
	}{
		{"steady", []uint64{1, 2, 3, 4, 5, 6}, 0, "", 0},
		{"never", []uint64{0, 0, 0, 0}, 3, "nothing is saved yet", 0},
		{"later", []uint64{1, 2, 2, 2, 2, 2}, 4, "this work is lost", 0},
		{"slow", []uint64{1, 1, 2, 2, 3, 3}, 0, "", 0},
		{"paused", []uint64{1, 1, 1, 1}, 0, "", 3},
		{"after a pause", []uint64{1, 1, 1, 1, 1}, 4, "this work is lost", 2},
	} {
		t.Run(v.name, func(t *testing.T) {
			r := &rank{pointAt: start}
			r.State = rundir.Running
			for i, points := range v.said {
				text := r.noPoint(&control.Progress{Points: points, Paused: v.paused == i+1}, start.Add(time.Duration(i)*quietFor/2))
				r.Points = points
				if want := i+1 == v.after; want != (text != "") || want && !strings.Contains(text, v.text) {
					t.Errorf("told %d: %q", i+1, text)
				}
			}
		})
	}
}
