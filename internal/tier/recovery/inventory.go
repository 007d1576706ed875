// Package recovery decides which checkpoint a run resumes from, how every host
// gets the files of its ranks, and which losses of hosts a checkpoint survives.
// Its input is an Inventory: what is stored where. It does no I/O.
//
// A checkpoint has one part per rank. A part is a list of objects: the rank's
// file, the bases that it needs, and whatever else belongs to the rank. Objects
// never change. A store is a host's disk, or a place that all hosts reach. It
// has copies of objects, or shards: Data of the Data + Parity shards of an
// object are enough to make it.
//
//	          part of rank 0           part of rank 1
//	          file, base               file
//	host a    copy  copy               shard 1 of 2+1
//	host b    shard 1 of 2+1           copy
//	host c    shard 2, shard 2         shard 2
//	s3        copy  copy               copy
package recovery

import (
	"cmp"
	"maps"
	"slices"
)

// Checkpoint identifies a checkpoint: an index and the attempt that saved it.
type Checkpoint struct {
	Index   uint64
	Attempt string
}

// Object is a sequence of bytes that never changes.
type Object struct {
	Name string // identifies its content
	Size int64
}

// Part is what one rank needs to restore a checkpoint.
type Part struct {
	Checkpoint
	Rank    int
	Ranks   int   // of the run that saved it
	Time    int64 // when it was saved, in nanoseconds since 1970
	Objects []Object
	Absent  []string `json:",omitempty"` // files of the rank's program that no object has
}

// Shard is a piece of an object, one of Data + Parity.
type Shard struct {
	Object       string
	Number       int // from 0
	Data, Parity int
}

// Damage is an object, or a shard of it, that is stored but cannot be used.
type Damage struct {
	Object string
	Why    string
}

// Kind is the kind of a store.
type Kind int

// The kinds of stores.
const (
	OnHost Kind = iota
	Shared
	S3
)

// Store is a host's disk, or a place that all hosts reach, with what it has.
// Parts are those that it knows; their objects may be elsewhere.
type Store struct {
	Name    string
	Kind    Kind
	Domain  string // of a host: the hosts that it fails with; "": alone
	Parts   []Part
	Copies  []string // names of objects
	Shards  []Shard
	Damaged []Damage
}

// Span says which checkpoints of an attempt count: those with an index above
// Above, up to the Above of the next Span.
type Span struct {
	Attempt string
	Above   uint64
}

// Home says which hosts had, or were to have, the objects of a rank that an
// attempt saved.
type Home struct {
	Attempt string
	Rank    int
	Hosts   []string
}

// Inventory is what is stored where, and what is known about the run.
type Inventory struct {
	Stores []Store
	// Line says which attempts' checkpoints count, in ascending order. A
	// checkpoint of an attempt that was given up must not be restored: the
	// program's files have changed since. No Line means that nothing is known,
	// and all count.
	Line []Span
	// Committed is the newest checkpoint that all ranks are known to have
	// saved; 0: not known. A newer one that is incomplete was never complete.
	Committed uint64
	Homes     []Home
	// Titles are the words for objects in messages, such as "file" or
	// "journal". An object without a title is called by its name.
	Titles map[string]string
}

// counts reports whether Line has a checkpoint.
func (inv *Inventory) counts(c Checkpoint) bool {
	if len(inv.Line) == 0 {
		return true
	}
	attempt := ""
	for _, s := range inv.Line {
		if c.Index > s.Above {
			attempt = s.Attempt
		}
	}
	return attempt == c.Attempt
}

// Highest returns the highest index of any checkpoint, whether it counts or
// not. New checkpoints get higher ones.
func (inv *Inventory) Highest() uint64 {
	high := inv.Committed
	for i := range inv.Stores {
		for j := range inv.Stores[i].Parts {
			high = max(high, inv.Stores[i].Parts[j].Index)
		}
	}
	for _, s := range inv.Line {
		high = max(high, s.Above)
	}
	return high
}

// Checkpoints returns all checkpoints that count and of which a part is known,
// the newest first.
func (inv *Inventory) Checkpoints() []Checkpoint {
	times := make(map[Checkpoint]int64)
	for i := range inv.Stores {
		for j := range inv.Stores[i].Parts {
			if p := &inv.Stores[i].Parts[j]; inv.counts(p.Checkpoint) {
				times[p.Checkpoint] = max(times[p.Checkpoint], p.Time)
			}
		}
	}
	return slices.SortedFunc(maps.Keys(times), func(a, b Checkpoint) int {
		return -cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(times[a], times[b]), cmp.Compare(a.Attempt, b.Attempt))
	})
}

// index is an Inventory by names.
type index struct {
	inv    *Inventory
	stores map[string]int // of hosts: by name
	copies map[string][]int
	shards map[string][]storedShard
	parts  map[Checkpoint]map[int][]storedPart // by rank; each list of objects once
}

// storedPart is a part and the stores that know it.
type storedPart struct {
	Part
	stores []int
}

type storedShard struct {
	Shard
	store int
}

func (inv *Inventory) index() *index {
	x := &index{inv: inv, stores: map[string]int{}, copies: map[string][]int{}, shards: map[string][]storedShard{},
		parts: map[Checkpoint]map[int][]storedPart{}}
	for i := range inv.Stores {
		s := &inv.Stores[i]
		if s.Kind == OnHost {
			x.stores[s.Name] = i
		}
		for _, name := range s.Copies {
			if l := x.copies[name]; len(l) == 0 || l[len(l)-1] != i {
				x.copies[name] = append(l, i)
			}
		}
		for _, sh := range s.Shards {
			if sh.Data > 0 && sh.Number >= 0 && sh.Number < sh.Data+sh.Parity {
				x.shards[sh.Object] = append(x.shards[sh.Object], storedShard{sh, i})
			}
		}
		for _, p := range s.Parts {
			if x.parts[p.Checkpoint] == nil {
				x.parts[p.Checkpoint] = map[int][]storedPart{}
			}
			list := x.parts[p.Checkpoint][p.Rank]
			k := slices.IndexFunc(list, func(q storedPart) bool { return q.Ranks == p.Ranks && slices.Equal(q.Objects, p.Objects) })
			if k < 0 {
				k, list = len(list), append(list, storedPart{Part: p})
				x.parts[p.Checkpoint][p.Rank] = list
			}
			list[k].stores = append(list[k].stores, i)
		}
	}
	return x
}

// code is a Reed–Solomon code. Shards of different codes do not go together.
type code struct{ data, parity int }

// shardsOf returns the stores that have shards of an object, by code and
// number.
func (x *index) shardsOf(object string) map[code]map[int][]int {
	var out map[code]map[int][]int
	for _, s := range x.shards[object] {
		c := code{s.Data, s.Parity}
		if out == nil {
			out = map[code]map[int][]int{}
		}
		if out[c] == nil {
			out[c] = map[int][]int{}
		}
		if !slices.Contains(out[c][s.Number], s.store) {
			out[c][s.Number] = append(out[c][s.Number], s.store)
		}
	}
	return out
}
