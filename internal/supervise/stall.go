//go:build linux

package supervise

import (
	"fmt"
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// stallLooks is how often watchStall checks within Options.Stall.
const stallLooks = 10

// watchStall fails the attempt when no rank makes progress.
func (s *Supervisor) watchStall(a *attempt) {
	w := stallWatch{seen: a.moved}
	every := s.o.Stall/stallLooks + time.Millisecond
	var t *time.Timer
	t = s.after(every, func() {
		if w.look(s, a) {
			s.fail(0, &failure{why: fmt.Sprintf("no rank reached a point or passed a message for %s", control.TimeText(s.o.Stall)), status: 1})
			return
		}
		a.timers[t] = true
		t.Reset(every)
	})
}

// stallWatch counts checks, so that time in which this process was stopped does
// not count.
type stallWatch struct {
	seen  time.Time // of the newest progress
	looks int       // since then
}

// look checks once, and reports whether the attempt makes no progress.
func (w *stallWatch) look(s *Supervisor, a *attempt) bool {
	if w.looks++; !a.moved.Equal(w.seen) || s.move != nil && !s.move.paused.IsZero() {
		w.seen, w.looks = a.moved, 0 // paused ranks make no progress
	}
	if w.looks < stallLooks {
		return false
	}
	w.looks = 0 // nothing is known about a program that reports nothing
	return a.greeted() && !s.stopping && a.alive > 0
}
