package mpilib

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// process returns a driver with the given knowledge of its world, without MPI.
func process(world byte, rank int, library uint64, port string, members ...identity) *Driver {
	d := &Driver{address: address{who: identify(rank, [16]byte{world}), library: library, port: port}}
	if members == nil {
		members = []identity{d.address.who}
	}
	d.moveTo(members)
	return d
}

func (d *Driver) moveTo(members []identity) {
	d.members, d.size, d.rankOf = members, len(members), make(map[identity]int)
	for i, who := range members {
		d.rankOf[who] = i
	}
}

// TestGathering moves ranks at random. Some of the new processes cannot join,
// or have another library, and sometimes no process joins although some could.
// From the addresses alone, all ranks must always reach the same decision, and
// each process that joins is connected to by all that are in the world by then.
func TestGathering(t *testing.T) {
	const n = 5
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		at := make([]*Driver, n)
		var world []identity
		for r := range n {
			world = append(world, identify(r, [16]byte{255}))
		}
		for r := range n {
			at[r] = process(255, r, 7, "", world...)
		}
		for round := range 12 {
			fresh := rng.Perm(n)[:1+rng.IntN(n)]
			for _, r := range fresh {
				switch rng.IntN(6) {
				case 0:
					at[r] = nil // it has no address
				case 1:
					at[r] = process(byte(round+1), r, 8, "other")
				default:
					at[r] = process(byte(round+1), r, 7, fmt.Sprint("port", round, r))
				}
			}
			addresses := make([][]byte, n)
			for r, d := range at {
				if d != nil {
					addresses[r] = d.Address()
				}
			}
			part := make(map[identity]*gathering)
			who := make(map[identity]*Driver)
			for _, d := range at {
				if d == nil {
					continue
				}
				who[d.address.who] = d
				mine := d.Joins(addresses, fresh)
				if g, again := d.gathering(addresses, fresh); mine != again {
					t.Fatal("Joins and gathering differ")
				} else if mine {
					part[d.address.who] = &g
				}
			}
			if len(part) == 0 {
				continue
			}
			// The ranks inside agree, and are those that stay.
			var inside []identity
			for id, g := range part {
				if g.inside {
					inside = append(inside, id)
				}
			}
			if len(inside) == 0 {
				t.Fatalf("seed %d, round %d: nobody is inside", seed, round)
			}
			members := part[inside[0]].stay
			order := part[inside[0]].order
			for id, g := range part {
				if !slices.Equal(g.order, order) || g.inside && !slices.Equal(g.stay, members) || g.inside != slices.Contains(members, id) {
					t.Fatalf("seed %d, round %d: processes do not agree", seed, round)
				}
			}
			if len(inside) != len(members) {
				t.Fatalf("seed %d, round %d: %d of %d take part", seed, round, len(inside), len(members))
			}
			members = slices.Clone(members)
			for _, c := range order {
				if slices.Contains(members, c.who) {
					continue
				}
				if g := part[c.who]; g == nil || c.port == "" {
					t.Fatalf("seed %d, round %d: somebody is to be taken in who does not know of it", seed, round)
				}
				members = append(members, c.who)
			}
			if len(members) != len(part) {
				t.Fatalf("seed %d, round %d: %d have joined, %d wait", seed, round, len(members), len(part))
			}
			if rng.IntN(4) == 0 {
				continue // it did not have to join
			}
			for id := range maps.Keys(part) {
				who[id].moveTo(members)
			}
			for _, d := range who {
				for r, o := range at {
					if o != nil && d.Reaches(addresses[r]) != o.Reaches(d.Address()) {
						t.Fatalf("seed %d, round %d: one reaches the other, but not the other way around", seed, round)
					}
				}
			}
		}
	}
}

// TestDecode_OldVersion shows that an address of the first version is
// understood.
func TestDecode_OldVersion(t *testing.T) {
	d := process(3, 2, 7, "")
	old := append([]byte("cnMp\x01"), d.address.who[:]...)
	if !d.Reaches(old) || d.Reaches(old[:len(old)-1]) || d.Reaches(append(old, 0)) {
		t.Error("an address of version 1")
	}
}
