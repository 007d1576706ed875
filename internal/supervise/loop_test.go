//go:build linux

package supervise

import (
	"testing"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// loopReport is a report of a rank some seconds after the beginning of a test.
type loopReport struct {
	at   int
	loop *control.Loop
	ends int // seconds; 0: not known
}

// checkReports gives reports to a rank.
func checkReports(t *testing.T, r *rank, list []loopReport) {
	t.Helper()
	for _, c := range list {
		r.noteLoop(c.loop, testTime(c.at))
		want := time.Time{}
		if c.ends > 0 {
			want = testTime(c.ends)
		}
		if (r.Loop == nil) != (c.loop == nil) || !r.Ends.Equal(want) {
			t.Errorf("after %d s: %+v ends at %v, want %v", c.at, r.Loop, r.Ends, want)
		}
	}
}

func testTime(seconds int) time.Time {
	return time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC).Add(time.Duration(seconds) * time.Second)
}

func of100(done int64) *control.Loop {
	return &control.Loop{Where: "main.go:3", Done: done, Total: 100}
}

// TestNoteLoop checks when a loop is expected to end.
func TestNoteLoop(t *testing.T) {
	checkReports(t, new(rank), []loopReport{
		{0, nil, 0},
		{10, of100(20), 0},
		{15, of100(20), 0},
		{20, of100(30), 90},  // 1 s each
		{25, of100(30), 90},  // nothing new
		{50, of100(40), 170}, // 2 s each
		{60, of100(35), 0},   // back to a checkpoint
		{70, of100(45), 125},
		{80, &control.Loop{Where: "main.go:9", Done: 1, Total: 2}, 0}, // another loop
		{90, nil, 0},
	})
}

// TestNoteLoop_Fresh estimates the end of the first loop at its first report,
// if the program was not restored.
func TestNoteLoop_Fresh(t *testing.T) {
	checkReports(t, &rank{freshAt: testTime(0)}, []loopReport{
		{10, of100(10), 100},
		{30, of100(30), 100}, // 1 s each, after the first report
		{40, nil, 0},
		{50, &control.Loop{Where: "main.go:9", Done: 1, Total: 2}, 0}, // it has not run since the program began
	})
}

// TestNoteLoop_Restarted fails after 60 of 100 iterations that take 1 s each,
// and repeats 20 of them after a restart of the process, or in the same
// process. The estimate must not be wrong by the time that was lost.
func TestNoteLoop_Restarted(t *testing.T) {
	before := &rank{freshAt: testTime(0)}
	checkReports(t, before, []loopReport{{40, of100(40), 100}, {60, of100(60), 100}})
	checkReports(t, new(rank), []loopReport{ // the next attempt, which took 5 s to begin
		{70, of100(40), 0},
		{90, of100(60), 130},
		{100, of100(70), 130},
	})
	before.forgetLoop()
	checkReports(t, before, []loopReport{{90, of100(65), 0}, {95, of100(70), 125}})
}
