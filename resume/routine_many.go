//go:build cairn_goroutines

package resume

import (
	"sync"
	"sync/atomic"
)

// several says that more goroutines than the main one may be saved.
const several = true

// Start stands for a go statement, at a place of the source. The goroutine can
// be saved at its points and in its waits. A program that starts goroutines
// does not compile without the build tag: its checkpoints would lack them.
func Start(at string, f func()) { startRoutine(at, f, false) }

// StartWhole is Start for a function without points and waits. It can be saved
// before it has begun, and when it has ended.
func StartWhole(at string, f func()) { startRoutine(at, f, true) }

func startRoutine(at string, f func(), whole bool) {
	switch {
	case run == nil || f == nil:
		go f()
	case !begun.Load():
		startEarly(at, f, func() { startRoutine(at, f, whole) })
	default:
		g := &routine{savedGoroutine: savedGoroutine{At: at, F: f, Whole: whole}, wake: make(chan struct{}, 1)}
		cuts.add(g)
		g.launch()
	}
}

// unwindingNow is how many goroutines unwind, resumingNow how many resume from
// their frames, or more.
var unwindingNow, resumingNow int32

func beginMain() {
	tryPlainWaits()
	mainRoutine.wake = make(chan struct{}, 1)
	blocksOf.add(currentG(), &mainRoutine)
	cuts.add(&mainRoutine)
}

// current returns the control block of this goroutine, or nil. It is mostly in
// the first slot that find would look at.
func current() *routine {
	g := currentG()
	if p := blocksOf.slots.Load(); p != nil {
		if s := &(*p)[firstSlot(g, len(*p))]; s.g.Load() == g {
			return s.r.Load()
		}
	}
	return blocksOf.find(g)
}

// own is current for functions that only goroutines with a control block call.
func own() *routine { return current() }

// nothingCalled reports that no resumable function is about to be called. It
// may report false nevertheless.
func nothingCalled() bool { return run == nil }

// setUnwinding begins or ends the unwinding of functions.
func (g *routine) setUnwinding(on bool) {
	switch is := get(&g.state) == unwinding; {
	case on && !is:
		set(&g.state, unwinding)
		atomic.AddInt32(&unwindingNow, 1)
	case !on && is:
		atomic.AddInt32(&unwindingNow, -1)
		set(&g.state, 0)
	}
}

// Unwinding reports whether the function that was called unwinds: then its
// caller does, too. A plain read suffices: this goroutine itself has written
// the variable.
func Unwinding() bool {
	if raceDetector {
		return atomic.LoadInt32(&unwindingNow) != 0 && unwindingHere()
	}
	return unwindingNow != 0 && unwindingHere()
}

//go:noinline
func unwindingHere() bool {
	g := current()
	return g != nil && get(&g.state) == unwinding
}

// mayUnwind reports whether a goroutine unwinds.
func mayUnwind() bool { return atomic.LoadInt32(&unwindingNow) != 0 }

// resumingHere reports whether this goroutine resumes from its frames.
func resumingHere() bool { return atomic.LoadInt32(&resumingNow) != 0 && stillResuming() }

//go:noinline
func stillResuming() bool { return get(&own().state) == resuming }

// setResuming begins or ends the return of functions to where they were saved.
func (g *routine) setResuming(on bool) {
	switch is := get(&g.state) == resuming; {
	case on && !is:
		set(&g.state, resuming)
		atomic.AddInt32(&resumingNow, 1)
	case !on && is:
		atomic.AddInt32(&resumingNow, -1)
		set(&g.state, 0)
	case !on:
		set(&g.state, 0)
	}
}

// blocksOf finds the control blocks of goroutines.
var blocksOf routineTable

// routineTable is a hash table. A goroutine that looks for its own entry needs
// no lock: only itself adds and removes it, and each table that it may see has
// it.
type routineTable struct {
	mu    sync.Mutex
	used  int // slots that are or were in use
	slots atomic.Pointer[[]routineSlot]
}

type routineSlot struct {
	g atomic.Uintptr // 0: never used; removedSlot
	r atomic.Pointer[routine]
}

const removedSlot = 1

func firstSlot(g uintptr, n int) int { return int(uint64(g)*0x9e3779b97f4a7c15>>40) & (n - 1) }

func (t *routineTable) find(g uintptr) *routine {
	p := t.slots.Load()
	if p == nil {
		return nil
	}
	slots := *p
	for i := firstSlot(g, len(slots)); ; i = (i + 1) & (len(slots) - 1) {
		switch slots[i].g.Load() {
		case g:
			return slots[i].r.Load()
		case 0:
			return nil
		}
	}
}

func (t *routineTable) add(g uintptr, r *routine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.slots.Load(); p == nil || 2*(t.used+1) > len(*p) {
		t.grow()
	}
	t.used += putSlot(*t.slots.Load(), g, r)
}

// putSlot adds an entry. It returns how many slots were not used before.
func putSlot(slots []routineSlot, g uintptr, r *routine) int {
	for i := firstSlot(g, len(slots)); ; i = (i + 1) & (len(slots) - 1) {
		switch was := slots[i].g.Load(); was {
		case 0, removedSlot:
			slots[i].r.Store(r)
			slots[i].g.Store(g)
			return 1 - int(was)
		}
	}
}

// grow makes a table with only the slots that are in use.
func (t *routineTable) grow() {
	live := 0
	var old []routineSlot
	if p := t.slots.Load(); p != nil {
		old = *p
	}
	for i := range old {
		if old[i].g.Load() > removedSlot {
			live++
		}
	}
	n := 64
	for n < 4*(live+1) {
		n *= 2
	}
	slots := make([]routineSlot, n)
	t.used = 0
	for i := range old {
		if g := old[i].g.Load(); g > removedSlot {
			t.used += putSlot(slots, g, old[i].r.Load())
		}
	}
	t.slots.Store(&slots)
}

func (t *routineTable) remove(g uintptr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slots := *t.slots.Load()
	for i := firstSlot(g, len(slots)); slots[i].g.Load() != 0; i = (i + 1) & (len(slots) - 1) {
		if slots[i].g.Load() == g {
			slots[i].g.Store(removedSlot)
			slots[i].r.Store(nil)
			return
		}
	}
}

// register makes this goroutine find its control block, until unregister.
func (g *routine) register()   { blocksOf.add(currentG(), g) }
func (g *routine) unregister() { blocksOf.remove(currentG()) }
