package control

import (
	"strings"
	"time"
)

// Told is an error that the supervisor was told of, who tells the user.
type Told struct{ Err error }

func (t Told) Error() string { return t.Err.Error() }
func (t Told) Unwrap() error { return t.Err }

// Troubles keeps what the user was told of sets that were not saved. The same
// trouble is told once, and again after a while.
type Troubles struct {
	sets int    // that were not saved, since one was
	last uint64 // of these
	told map[string]time.Time
}

// toldAgain is that while.
const toldAgain = 10 * time.Minute

// Add takes in why a set was not saved; each of its ranks may say so. It
// returns for how many sets in a row that is so now, and whether to tell it.
// Troubles that differ in nothing but numbers, as of sets and ranks in the names of
// files, are the same.
func (t *Troubles) Add(set uint64, why string, now time.Time) (sets int, tell bool) {
	if t.sets == 0 || set != t.last {
		t.sets++
		t.last = set
	}
	why = strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, why)
	if at, ok := t.told[why]; ok && now.Sub(at) < toldAgain {
		return t.sets, false
	}
	if t.told == nil {
		t.told = make(map[string]time.Time)
	}
	t.told[why] = now
	return t.sets, true
}

// Over takes in that a set was saved. It returns how many were not, before.
func (t *Troubles) Over() (sets int) {
	sets, t.sets = t.sets, 0
	clear(t.told)
	return sets
}
