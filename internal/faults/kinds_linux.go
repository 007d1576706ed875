package main

import (
	"strings"
)

// kind is a kind of fault.
type kind struct {
	name   string
	weight int // how many cases of a hundred or so
	run    func(t *trial) error
}

// simulated says that no real processes are disturbed.
func (k *kind) simulated() bool { return strings.HasPrefix(k.name, "sim-") }

// kinds are all kinds. A change of this table changes what a case's number
// means.
var kinds []*kind

func init() {
	kinds = []*kind{
		{"kill", 12, killStorm},
		{"kill-alone", 5, killAlone},
		{"freeze", 4, freezeStorm},
		{"ranks-shm", 4, ranksOver("shm")},
		{"ranks-tcp", 4, ranksOver("tcp")},
		{"ranks-mpi", 1, ranksOver("mpi")},
		{"device", 1, onDevice},
		{"step", 16, stepFault},
		{"stop", 4, stopUnderFire},
		{"migrate", 3, migrateUnderFire},
		{"partition", 2, partition},
		{"damage", 12, damageFile},
		{"move", 4, moveDir},
		{"full-disk", 5, fullDisk},
		{"io-error", 3, ioError},
		{"power", 6, powerCut},
		{"sim-power", 60, simCrash},
		{"sim-fail", 45, simFail},
		{"sim-damage", 45, simDamage},
	}
	for _, k := range kinds {
		total += k.weight
	}
}

// total is the sum of all weights.
var total int

// kindOf says which kind a case is of.
func kindOf(seed uint64, n int) *kind {
	at := dice(seed, n).IntN(total)
	for _, k := range kinds {
		if at -= k.weight; at < 0 {
			return k
		}
	}
	panic("weights")
}
