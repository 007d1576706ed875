package events

import (
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// Totals are the sums over the events of a run.
type Totals struct {
	Checkpoints int   // committed, as far as ranks reported that
	Written     int64 // bytes of these
	Unsaved     int   // checkpoints that could not be saved
	Failures    int
	Starts      int
	Lost        time.Duration // computing time that was repeated
	Moves       int           // that succeeded
	First, Last time.Time     // of the first event, and of the last one
}

// Add counts an event.
func (t *Totals) Add(e *Event) {
	if t.First.IsZero() {
		t.First = e.Time
	}
	t.Last = e.Time
	t.Lost += time.Duration(e.LostNS)
	switch e.Kind {
	case Start:
		t.Starts++
	case Failure:
		t.Failures++
	case Unsaved:
		t.Unsaved++
	case Checkpoint:
		if c := e.Checkpoint; c != nil {
			t.Checkpoints++
			t.Written += c.Written
		}
	case Move:
		if e.Move != nil && e.Move.State == control.Moved && len(e.Move.Ranks) > 0 {
			t.Moves++
		}
	}
}
