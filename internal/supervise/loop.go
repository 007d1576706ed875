//go:build linux

package supervise

import (
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// noteLoop records how far the rank's program is in its loop, and estimates when
// the loop ends: as if each iteration took as long as those since the first
// report.
func (r *rank) noteLoop(l *control.Loop, now time.Time) {
	old := r.Loop
	switch {
	case l == nil:
		r.Loop, r.Ends = nil, time.Time{}
	case old == nil || l.Where != old.Where || l.Total != old.Total || l.Done < old.Done:
		r.Loop, r.Ends = l, time.Time{}
		r.loopFrom, r.loopAt = l.Done, now
	case l.Done > old.Done:
		each := float64(now.Sub(r.loopAt)) / float64(l.Done-r.loopFrom)
		r.Loop = l
		if left := each * float64(l.Total-l.Done); left < float64(100*365*24*time.Hour) {
			r.Ends = now.Add(time.Duration(left))
		} else {
			r.Ends = time.Time{}
		}
	}
}
