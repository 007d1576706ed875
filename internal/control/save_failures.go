package control

import (
	"strings"
	"time"
)

// Reported is an error that the supervisor was told of, who tells the user.
type Reported struct{ Err error }

func (t Reported) Error() string { return t.Err.Error() }
func (t Reported) Unwrap() error { return t.Err }

// SaveFailures keeps what the user was told of sets that were not saved. The same
// trouble is told once, and again after a while.
type SaveFailures struct {
	count    int    // that were not saved, since one was
	last     uint64 // of these
	reported map[string]time.Time
}

// reportAgain is that while.
const reportAgain = 10 * time.Minute

// Add takes in why a set was not saved; each of its ranks may say so. It
// returns for how many sets in a row that is so now, and whether to tell it.
// SaveFailures that differ in nothing but numbers, as of sets and ranks in the names of
// files, are the same.
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

// Over takes in that a set was saved. It returns how many were not, before.
func (t *SaveFailures) Over() (count int) {
	count, t.count = t.count, 0
	clear(t.reported)
	return count
}
