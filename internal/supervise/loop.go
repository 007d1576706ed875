//go:build linux

package supervise

import (
	"time"

	"github.com/cairnrun/cairn/internal/control"
)

// noteLoop records how far the rank's program is in its loop, and estimates
// when the loop ends: as if each iteration took as long as those since the
// first report of this process. So what an earlier process computed does not
// count.
func (r *rank) noteLoop(l *control.Loop, now time.Time) {
	old := r.Loop
	switch {
	case l == nil:
		r.Loop, r.Ends = nil, time.Time{}
	case old == nil || l.Where != old.Where || l.Total != old.Total || l.Done < old.Done:
		r.Loop, r.Ends = l, time.Time{}
		if !r.freshAt.IsZero() && l.Done > 0 { // its first loop, from its beginning
			r.Ends = endOf(l, 0, r.freshAt, now)
		}
		r.freshAt = time.Time{}
		r.loopFrom, r.loopAt = l.Done, now
	case l.Done > old.Done:
		r.Loop, r.Ends = l, endOf(l, r.loopFrom, r.loopAt, now)
	}
}

// endOf estimates when a loop ends. from is how many iterations it had made at
// the time at. The result is zero if that is too far away.
func endOf(l *control.Loop, from int64, at, now time.Time) time.Time {
	each := float64(now.Sub(at)) / float64(l.Done-from)
	left := each * float64(l.Total-l.Done)
	if left >= float64(100*365*24*time.Hour) {
		return time.Time{}
	}
	return now.Add(time.Duration(left))
}

// forgetLoop forgets how far the loop is: the process has returned to a
// checkpoint, and computes again.
func (r *rank) forgetLoop() {
	r.Loop, r.Ends, r.freshAt = nil, time.Time{}, time.Time{}
}
