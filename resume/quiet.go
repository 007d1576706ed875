package resume

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// held is what has kept the program from being saved.
var held struct {
	alive int       // goroutines there were when another one of the program was found
	until time.Time // it is not looked for again before, unless there are fewer
	since time.Time
	tell  time.Time // when the user is told
	pause time.Duration
}

// firstTold is how long the user is not told that no set can be taken.
const firstTold = 10 * time.Second

// clearWay reports whether a set can be taken at a point of this depth. It is
// looked at again and again while one is due, so it must not take long.
func clearWay(d int, patience time.Duration) bool {
	why := crooked(d)
	if why == "" {
		now, n := time.Now(), runtime.NumGoroutine()
		if patience < testPatience && n >= held.alive && now.Before(held.until) {
			return false
		}
		if why = alive(n, patience); why != "" {
			held.alive, held.until = n, now.Add(20*time.Since(now))
		}
	}
	if why == "" {
		why = unsettled()
	}
	if why == "" {
		held.since, held.until = time.Time{}, time.Time{}
		return true
	}
	now := time.Now()
	switch {
	case held.since.IsZero():
		held.since, held.pause = now, firstTold
		held.tell = now.Add(held.pause)
	case now.After(held.tell):
		held.pause *= 4
		held.tell = now.Add(held.pause)
		say("for %v no checkpoint could be taken that is due: %s", now.Sub(held.since).Round(time.Second), why)
	}
	return false
}

// crooked says how the calls on the stack differ from those that the frames
// tell of: main, and one spine function for each depth up to d; and then, if it is
// asked before functions are left, parts of such, and what calls its own part and
// is called by another's. "": they don't.
func crooked(d int) string {
	pcs := make([]uintptr, 2*d+64)
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 4*n)
		n = runtime.Callers(2, pcs)
	}
	frames := runtime.CallersFrames(pcs[:n])
	var calls []string
	var within part  // of the function inside
	between := false // the last of calls has called its own part
	for more := n > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if strings.HasPrefix(f.Function, ownPackage) {
			calls = calls[:0] // what it has called is Cairn's
			within, between = whole, false
			continue
		}
		p := partOf(f.Function)
		switch {
		case p == fastPart && between:
			calls = calls[:len(calls)-1]
		case p == whole && f.Function == "runtime.main" && len(calls) == d+1:
			return ""
		case p == whole && f.Function == "runtime.main":
			more = false
		case p == whole:
			calls = append(calls, f.Function)
		}
		within, between = p, p == whole && within == fastPart
	}
	if len(calls) > 6 {
		calls = append(calls[:6], "…")
	}
	return "the point is reached by way of functions that can't be resumed: " + strings.Join(calls, " ← ")
}

// part says what part of a function another one is, that the compiler has made of
// it.
type part int

const (
	whole     part = iota
	otherPart      // what saves its frame, or goes on from it
	fastPart       // what is left when a set is due
)

func partOf(name string) part {
	name = strings.ReplaceAll(name, "[...]", "")
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, name, _ = strings.Cut(name, ".")
	if i := strings.Index(name, ".cairn_fast_"); i >= 0 { // a method
		name = name[i+1:]
	}
	if strings.ContainsAny(name, ".-") { // a literal in it, or the body of a loop
		return whole
	}
	for _, p := range []string{"cairn_point_", "cairn_resume_"} {
		if strings.HasPrefix(name, p) {
			return otherPart
		}
	}
	for _, p := range []string{"cairn_fast_", "cairn_continue_", "cairn_rest_"} {
		if strings.HasPrefix(name, p) {
			return fastPart
		}
	}
	return whole
}

// patience is how long a goroutine that is not blocked is given to end: one
// that has said that it is done may not be gone yet. Tests that name a point
// wait longer.
const (
	patience     = time.Millisecond
	testPatience = time.Second
)

// alive says which goroutine of the program lives besides the main one, and
// where it was started; "" if none does. Those of Cairn and of the Go runtime
// don't matter. n is the number of all.
func alive(n int, patience time.Duration) string {
	buf := make([]byte, 16<<10)
	unrested()
	for until := time.Now().Add(patience); n > 1; n = runtime.NumGoroutine() {
		k := runtime.Stack(buf, true)
		if k == len(buf) {
			buf = make([]byte, 4*len(buf))
			continue
		}
		unrested()
		g := stranger(string(buf[:k]))
		if g == nil {
			break
		}
		// One that sync.WaitGroup.Go has started, and that is at its very end (or
		// beginning), needs only a processor to be gone: it is Cairn's own often enough.
		if g.first == "" && !g.blocked && time.Now().Before(until.Add(testPatience)) {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		if g.blocked || time.Now().After(until) {
			return fmt.Sprintf("the goroutine lives that %s has started at %s", g.creator, g.at)
		}
		time.Sleep(50 * time.Microsecond)
	}
	return ""
}

// goroutine is what its stack says about a goroutine.
type goroutine struct {
	blocked bool
	creator string // the function with the go statement
	at      string // … and where it is
	parent  string
	first   string // its outermost function, "" if there are only those of package sync
	foreign bool   // a function on its stack is neither Cairn's nor the Go runtime's
	waits   bool   // … was started by Go, and is not where it waits
}

// nobody is the creator of a goroutine of which none is told.
const nobody = "somebody"

// stranger finds the first goroutine in the text of all stacks, the caller's
// first, that is the program's.
func stranger(text string) *goroutine {
	all := strings.Split(text, "\n\n")
	known := make(map[string]*goroutine)
	var ids []string
	for _, s := range all[1:] {
		head, stack, _ := strings.Cut(strings.TrimSpace(s), "\n")
		id, state, _ := strings.Cut(strings.TrimPrefix(head, "goroutine "), " ")
		g := &goroutine{creator: nobody, at: "?"}
		var calls, places []string
		g.blocked = !strings.Contains(state, "[running") && !strings.Contains(state, "[runnable") && !strings.Contains(state, "[sleep")
		for line := range strings.SplitSeq(stack, "\n") {
			by, created := strings.CutPrefix(line, "created by ")
			switch {
			case created:
				g.creator, g.parent, _ = strings.Cut(by, " in goroutine ")
			case strings.HasPrefix(line, "\t"):
				g.at, _, _ = strings.Cut(strings.TrimSpace(line), " +0x")
				places = append(places, g.at)
			case !strings.HasPrefix(line, "sync."): // which starts those of others
				calls = append(calls, line)
				g.first = line
				g.foreign = g.foreign || !ownGoroutine(line)
			}
		}
		g.waits = g.creator == waitStart && !resting(id, state, calls, places)
		known[id] = g
		ids = append(ids, id)
	}
	ours := func(g *goroutine) bool {
		if g.creator == waitStart {
			return !g.waits
		}
		for range 100 { // from child to parent
			if g == nil || g.creator == waitStart || g.creator == "time.goFunc" { // those call the program's functions
				return false
			}
			// The runtime's goroutine that runs cleanups has no creator. Cairn has
			// some for arrays that nobody refers to; the program may have others.
			if g.creator == nobody && g.first != "" && !g.foreign {
				return true
			}
			if ownGoroutine(g.creator) || strings.HasPrefix(g.creator, "sync.") && ownGoroutine(g.first) {
				return true
			}
			g = known[g.parent]
		}
		return false
	}
	for _, id := range ids {
		if g := known[id]; !ours(g) {
			return g
		}
	}
	return nil
}

// ownModule is what the paths of Cairn's packages begin with.
var ownModule = strings.TrimSuffix(ownPackage, "/resume.")

// ownGoroutine reports whether a function starts goroutines that are not the
// program's.
func ownGoroutine(creator string) bool {
	for _, p := range []string{"runtime.", "runtime/", "os/signal.", "internal/"} {
		if strings.HasPrefix(creator, p) {
			return true
		}
	}
	rest, ok := strings.CutPrefix(creator, ownModule)
	if !ok {
		return false
	}
	for _, p := range []string{".", "/ckpt.", "/store.", "/coord.", "/device", "/hdf5.", "/mpi.", "/transport", "/internal/", "/resume."} {
		if strings.HasPrefix(rest, p) {
			return true
		}
	}
	return false
}
