package control

import (
	"strings"
	"time"
)

// Reported is an error that the supervisor knows and shows to the user.
type Reported struct{ Err error }

func (r Reported) Error() string { return r.Err.Error() }
func (r Reported) Unwrap() error { return r.Err }

// SaveFailures decides which failures to save checkpoints the user has to see:
// the same failure is reported once, and again after reportAgain.
type SaveFailures struct {
	count    int    // checkpoints that were not saved, since one was
	last     uint64 // the last of them
	reported map[string]time.Time
}

const reportAgain = 10 * time.Minute

// Add notes why a checkpoint was not saved; each rank may say so. It returns
// how many checkpoints in a row were not saved, and whether to report this
// failure. Failures that differ only in numbers, such as checkpoints and ranks
// in file names, are the same.
func (t *SaveFailures) Add(index uint64, why string, now time.Time) (count int, report bool) {
	if t.count == 0 || index != t.last {
		t.count++
		t.last = index
	}
	why = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, why)
	if at, ok := t.reported[why]; ok && now.Sub(at) < reportAgain {
		return t.count, false
	}
	if t.reported == nil {
		t.reported = make(map[string]time.Time)
	}
	t.reported[why] = now
	return t.count, true
}

// Over notes that a checkpoint was saved. It returns how many before it were
// not.
func (t *SaveFailures) Over() (count int) {
	count, t.count = t.count, 0
	clear(t.reported)
	return count
}
