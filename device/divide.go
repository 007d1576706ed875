package device

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"weak"
)

// After a restart on another number of devices, a program that Cairn's compiler
// found to be malleable divides its work anew: it repeats the statements that
// follow from the number of devices. It does so twice, first with the devices
// that it had. All arrays must then have views of the same parts as with the
// new devices; else the old division is made again, and kept. Arrays that are
// made meanwhile have no values that count: to read them before they are
// written is an error, for which the program is restarted with the old number.

// divisionStage is how far a program has come with the division of its work.
type divisionStage int32

const (
	divided      divisionStage = iota // nothing is to be done
	divisionDue                       // a restart has found another number of devices
	dividingOld                       // the program makes the division that it had
	dividingNew                       // … that for the devices that there are
	dividingBack                      // … the old one again, because the new one is not like it
)

// division is the division of a program's work after a restart.
var division struct {
	stage atomic.Int32
	keep  bool // the program keeps its number of devices

	sync.Mutex
	views       map[*memory]rangeSet // made since the stage began
	old         map[*memory]rangeSet
	made        map[*memory]bool // memories that were made since the division began
	known       int              // machine.seen and machine.substitutes of the old devices
	substitutes map[int]*Device
	unwritten   []weak.Pointer[memory]
	anew        bool        // the work was divided anew
	begin       func()      // called before that
	failed      func(error) // called if that was wrong; does not return
	leftOut     func(error) // called if the program reads what a checkpoint left out; does not return
}

// errUnwritten says that bytes have no value that counts.
var errUnwritten = errors.New("nothing was written there since the program was restarted")

// CairnDivides reports whether the program has to divide its work among the
// devices that Devices returns. The code that Cairn's compiler adds to
// malleable programs calls it until it returns false.
func CairnDivides() bool {
	return divisionStage(division.stage.Load()) != divided && divides()
}

func divides() bool {
	division.Lock()
	defer division.Unlock()
	set := func(s divisionStage) bool {
		division.stage.Store(int32(s))
		division.old, division.views = division.views, make(map[*memory]rangeSet)
		if s == divided {
			division.old, division.views, division.made, division.substitutes = nil, nil, nil, nil
		}
		return s != divided
	}
	switch divisionStage(division.stage.Load()) {
	case divisionDue:
		division.anew = true
		if division.begin != nil {
			division.begin()
		}
		division.made = make(map[*memory]bool)
		return set(dividingOld)
	case dividingOld:
		machine.Lock()
		division.known, division.substitutes = machine.seen, machine.substitutes
		machine.seen, machine.substitutes = 0, nil
		machine.Unlock()
		return set(dividingNew)
	case dividingNew:
		if sameParts(division.old, division.views, division.made) {
			return set(divided)
		}
		machine.Lock()
		machine.seen, machine.substitutes = division.known, division.substitutes
		machine.Unlock()
		return set(dividingBack)
	}
	return set(divided)
}

// sameParts reports whether the views of two divisions cover the same parts of
// all memories but those that were made for them.
func sameParts(a, b map[*memory]rangeSet, made map[*memory]bool) bool {
	mine := func(m *memory, _ rangeSet) bool { return made[m] }
	maps.DeleteFunc(a, mine)
	maps.DeleteFunc(b, mine)
	return maps.EqualFunc(a, b, slices.Equal)
}

// dividesAnew decides whether a program that was saved with n devices divides
// its work anew. Only programs with code for that do so.
func dividesAnew(n int) {
	there, err := present()
	if err != nil || n == 0 || len(there) == n || division.keep || os.Getenv("CAIRN_KEEP_DEVICES") != "" {
		return
	}
	division.stage.Store(int32(divisionDue))
}

// CairnKeep makes the program keep its number of devices after a restart.
func (*deviceCount) CairnKeep() { division.keep = true }

// CairnDivision sets functions that are called before the work is divided anew,
// if that was wrong, and if the program reads what a checkpoint left out. The
// latter two do not return.
func (*deviceCount) CairnDivision(begin func(), failed, leftOut func(error)) {
	division.begin, division.failed, division.leftOut = begin, failed, leftOut
}

// noteView notes that the program made a view.
func noteView(m *memory, lo, hi int64) {
	if s := divisionStage(division.stage.Load()); s == divided || s == divisionDue {
		return
	}
	division.Lock()
	defer division.Unlock()
	division.views[m] = division.views[m].with(lo, hi)
}

// noteMade notes that the program made an array. While the work is divided
// anew, its zeros do not count.
func noteMade(m *memory) {
	if s := divisionStage(division.stage.Load()); s == divided || s == divisionDue {
		return
	}
	division.Lock()
	division.made[m] = true
	division.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unwrite(0, m.size)
}

// unwrite says that bytes lo…hi have no value that counts. The caller holds mu.
func (m *memory) unwrite(lo, hi int64) {
	i, j := m.cut(lo, hi)
	m.spans = slices.Replace(m.spans, i, j, span{lo: lo, hi: hi, zero: true, version: version.Add(1), gone: errUnwritten})
	division.Lock()
	defer division.Unlock()
	division.unwritten = append(division.unwritten, weak.Make(m))
}

// unwritten returns the parts of all arrays that have no value that counts, or
// whose values the checkpoint that is being taken leaves out.
func unwritten() (list []any) {
	division.Lock()
	all := slices.Clone(division.unwritten)
	division.Unlock()
	for _, m := range allLeftOut() {
		m.mu.Lock()
		h := m.handle.Value()
		var parts []Arg
		for _, x := range m.leftOut() {
			if h != nil {
				parts = append(parts, Arg{h: h, lo: x[0], hi: x[1]})
			}
		}
		m.mu.Unlock()
		for _, a := range parts {
			list = append(list, m.view(a))
		}
	}
	var kept []weak.Pointer[memory]
	for i, p := range all {
		m := p.Value()
		if m == nil || slices.Contains(all[:i], p) {
			continue
		}
		m.mu.Lock()
		h := m.handle.Value()
		var parts []Arg
		for _, s := range m.spans {
			if s.gone == errUnwritten && h != nil {
				parts = append(parts, Arg{h: h, lo: s.lo, hi: s.hi})
			}
		}
		m.mu.Unlock()
		if len(parts) == 0 {
			continue
		}
		kept = append(kept, p)
		for _, a := range parts {
			list = append(list, m.view(a))
		}
	}
	division.Lock()
	defer division.Unlock()
	division.unwritten = append(kept, division.unwritten[len(all):]...)
	return list
}

// restoreUnwritten is the counterpart of unwritten after a restart.
func restoreUnwritten(list []any) error {
	for _, x := range list {
		v, ok := x.(view)
		if !ok {
			return fmt.Errorf("a part of an array is a %T", x)
		}
		a := v.part()
		if a.h == nil {
			return errors.New("a part of an array has no memory")
		}
		a.h.m.mu.Lock()
		a.h.m.unwrite(a.lo, a.hi)
		a.h.m.mu.Unlock()
	}
	return nil
}

// rangeSet is some bytes: ranges in order that do not touch.
type rangeSet [][2]int64

// with returns r and bytes lo…hi.
func (r rangeSet) with(lo, hi int64) rangeSet {
	out := make(rangeSet, 0, len(r)+1)
	for _, x := range r {
		if x[1] < lo || x[0] > hi {
			out = append(out, x)
		} else {
			lo, hi = min(lo, x[0]), max(hi, x[1])
		}
	}
	out = append(out, [2]int64{lo, hi})
	slices.SortFunc(out, func(a, b [2]int64) int { return int(max(-1, min(1, a[0]-b[0]))) })
	return out
}
