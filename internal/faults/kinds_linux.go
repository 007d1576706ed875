package main

import (
	"strings"
)

// kind is a kind of fault.
type kind struct {
	name   string
	weight int // relative frequency of its cases
	run    func(t *faultCase) error
	long   bool // it needs much time or preparation, and is not part of the daily tests
}

// simulated reports whether no real processes are disturbed.
func (k *kind) simulated() bool { return strings.HasPrefix(k.name, "sim-") }

// kinds lists all kinds. A change of this table changes the meaning of a case's
// number.
var kinds []*kind

func init() {
	kinds = []*kind{
		{"kill", 12, killStorm, false},
		{"kill-alone", 5, killAlone, false},
		{"freeze", 4, freezeStorm, false},
		{"ranks-shm", 4, ranksOver("shm"), false},
		{"ranks-tcp", 4, ranksOver("tcp"), false},
		{"ranks-mpi", 1, ranksOver("mpi"), true},
		{"device", 1, onDevice, true},
		{"step", 16, stepFault, false},
		{"stop", 4, stopUnderFire, false},
		{"migrate", 3, migrateUnderFire, true},
		{"partition", 2, partition, true},
		{"clock", 2, clockJumps, true},
		{"damage", 12, damageFile, false},
		{"move", 4, moveDir, false},
		{"full-disk", 5, fullDisk, false},
		{"io-error", 3, ioError, false},
		{"power", 6, powerCut, false},
		{"sim-power", 60, simCrash, false},
		{"sim-fail", 45, simFail, false},
		{"sim-damage", 45, simDamage, false},
	}
	for _, k := range kinds {
		total += k.weight
	}
}

// total is the sum of all weights.
var total int

// kindOf returns the kind of a case. It uses another random stream than the
// case. If it used the first number of the case's stream, the first choice of
// all cases of one kind would be the same.
func kindOf(seed uint64, n int) *kind {
	at := dice(^seed, n).IntN(total)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	panic("weights")
}
