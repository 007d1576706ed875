package resume

import (
	"fmt"
	"maps"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/graph"
)

// blocked is what has prevented a checkpoint.
var blocked struct {
	alive int       // number of goroutines when one of the program was found
	until time.Time // no search for goroutines before this, unless there are fewer
	since time.Time
	tell  time.Time // when the next message may come
	pause time.Duration
}

// warnAfter is the time between the first failure to take a checkpoint and the
// message about it.
const warnAfter = 10 * time.Second

// canSave reports whether a checkpoint can be taken at a point. why says why it
// cannot, if that is known. canSave is called often while a checkpoint is due,
// so it must be fast.
func canSave(why string, patience time.Duration) bool {
	if why == "" {
		now, n := time.Now(), runtime.NumGoroutine()
		if patience < testGrace && n >= blocked.alive && now.Before(blocked.until) {
			return false
		}
		if why = liveGoroutine(n, patience); why != "" {
			blocked.alive, blocked.until = n, now.Add(20*time.Since(now))
		}
	}
	if why == "" {
		why = unrestorable()
	}
	if why == "" {
		blocked.since, blocked.until = time.Time{}, time.Time{}
		if run != nil {
			run.NoteBlocked("")
		}
		return true
	}
	noteBlocked(why, false)
	return false
}

// noteBlocked tells the user why no checkpoint can be taken: at once if lasting
// is set, otherwise when it has lasted for warnAfter.
func noteBlocked(why string, lasting bool) {
	now := time.Now()
	if run != nil {
		run.NoteBlocked(why)
	}
	switch {
	case blocked.since.IsZero() && lasting:
		blocked.since, blocked.pause = now, warnAfter
		blocked.tell = now.Add(blocked.pause)
		warn("no checkpoint could be taken: %s", why)
	case blocked.since.IsZero():
		blocked.since, blocked.pause = now, warnAfter
		blocked.tell = now.Add(blocked.pause)
	case now.After(blocked.tell):
		blocked.pause *= 4
		blocked.tell = now.Add(blocked.pause)
		warn("no checkpoint could be taken for %v: %s", now.Sub(blocked.since).Round(time.Second), why)
	}
}

// stackMismatch returns how the calls on the stack differ from those that the
// frames describe; "": they do not. The frames describe main, and one resumable
// function for each depth up to d. If functions are about to unwind, there are
// more calls below these: fast paths, and functions that another function's
// fast path calls and that call their own.
func stackMismatch(d int) string {
	var space [96]uintptr
	pcs := space[:]
	n := runtime.Callers(2, pcs)
	for n == len(pcs) {
		pcs = make([]uintptr, 4*n)
		n = runtime.Callers(2, pcs)
	}
	key := stackKey{depth: d, calls: n}
	small := n <= len(key.pcs)
	if small {
		copy(key.pcs[:], pcs[:n])
		if known := goodStacks.Load(); known != nil && (*known)[key] {
			return ""
		}
	}
	why := mismatch(pcs[:n], d)
	if why == "" && small {
		noteGoodStack(key)
	}
	return why
}

// stackKey is all that mismatch depends on.
type stackKey struct {
	depth, calls int
	pcs          [32]uintptr
}

// goodStacks are stacks without a mismatch: thousands of goroutines often have
// the same. A map that was stored is not changed any more.
var goodStacks atomic.Pointer[map[stackKey]bool]

func noteGoodStack(key stackKey) {
	const most = 256
	old := goodStacks.Load()
	stacks := map[stackKey]bool{key: true}
	if old != nil {
		if len(*old) == most {
			return
		}
		maps.Copy(stacks, *old)
	}
	goodStacks.CompareAndSwap(old, &stacks) // if another goroutine was first, the next one tries again
}

// mismatch is stackMismatch for a stack.
func mismatch(pcs []uintptr, d int) string {
	frames := runtime.CallersFrames(pcs)
	var calls []string
	var within funcKind // the kind of the function that was called
	between := false    // the last of calls has called its own fast path
	for more := len(pcs) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if several && f.Function == routineMain { // as runtime.main
			if len(calls) == d+1 {
				return ""
			}
			break
		}
		if strings.HasPrefix(f.Function, ownPackage) {
			calls = calls[:0] // these are Cairn's own calls
			within, between = original, false
			continue
		}
		p := kindOf(f.Function)
		switch {
		case p == forwarder:
			continue
		case p == fastPart && between:
			calls = calls[:len(calls)-1]
		case p == original && f.Function == "runtime.main" && len(calls) == d+1:
			return ""
		case p == original && f.Function == "runtime.main":
			more = false
		case p == original:
			calls = append(calls, graph.SourceName(f.Function))
		}
		within, between = p, p == original && within == fastPart
	}
	if len(calls) > 6 {
		calls = append(calls[:6], "…")
	}
	return "the point is reached through functions that cannot be resumed: " + strings.Join(calls, " ← ")
}

// funcKind says what the compiler has made of a function.
type funcKind int

const (
	original  funcKind = iota
	framePart          // saves its frame, or resumes from it
	fastPart           // unwinds when a checkpoint is due
	forwarder          // stands for a method value or a literal, and only calls the method or function
)

func kindOf(name string) funcKind {
	name = strings.ReplaceAll(name, "[...]", "")
	name = name[strings.LastIndexByte(name, '/')+1:]
	_, name, _ = strings.Cut(name, ".")
	if i := strings.Index(name, ".cairn_fast_"); i >= 0 { // a method
		name = name[i+1:]
	}
	if maker, ok := strings.CutSuffix(name, ".func1"); ok && (strings.HasPrefix(maker, "cairn_forward_") || strings.HasPrefix(maker, "cairn_make_0value_") || strings.HasPrefix(maker, "Cairn_make_0value_")) {
		return forwarder
	}
	if strings.ContainsAny(name, ".-") { // a function literal in it, or a loop body
		return original
	}
	for _, p := range []string{"cairn_point_", "cairn_resume_"} {
		if strings.HasPrefix(name, p) {
			return framePart
		}
	}
	for _, p := range []string{"cairn_fast_", "cairn_continue_", "cairn_rest_"} {
		if strings.HasPrefix(name, p) {
			return fastPart
		}
	}
	return original
}

// grace is how long a goroutine that is not blocked may take to end: one that
// has announced its end may still run. Tests that name a point wait longer.
const (
	grace     = time.Millisecond
	testGrace = time.Second
)

// liveGoroutine returns which goroutine of the program is running besides the
// main one, and where it was started; "": none. Goroutines of Cairn and of the
// Go runtime do not count. n is the number of all.
func liveGoroutine(n int, patience time.Duration) string {
	clearWaiting()
	if onlyHarmless() {
		return ""
	}
	buf := make([]byte, max(16<<10, tracesSize.Load()))
	for until := time.Now().Add(patience); n > 1; n = runtime.NumGoroutine() {
		k := runtime.Stack(buf, true)
		if k == len(buf) {
			buf = make([]byte, 4*len(buf))
			continue
		}
		tracesSize.Store(int64(k + k/8))
		clearWaiting()
		g := programGoroutine(string(buf[:k]))
		if g == nil {
			break
		}
		// A goroutine at its very end (or beginning) that sync.WaitGroup.Go has
		// started needs only a processor to end. It is often Cairn's own.
		if g.first == "" && !g.blocked && time.Now().Before(until.Add(testGrace)) {
			time.Sleep(50 * time.Microsecond)
			continue
		}
		if g.blocked || time.Now().After(until) {
			return g.text()
		}
		time.Sleep(50 * time.Microsecond)
	}
	return ""
}

// onlyHarmless reports whether those who have started the other goroutines are
// enough to know that none prevents a checkpoint. If it returns false, stack
// traces say more.
func onlyHarmless() bool {
	names := creators()
	for name := range names {
		if name != routineCreator && (!ownGoroutine(name) || strings.HasPrefix(name, "runtime.") || name == waiterCreator || name == initCreator) {
			return false
		}
	}
	return names != nil
}

// goroutine is what a stack trace says about a goroutine.
type goroutine struct {
	blocked bool
	creator string // the function with the go statement
	at      string // the place of that statement
	parent  string
	first   string // its outermost function; "" if all are of package sync
	foreign bool   // it runs a function that is neither Cairn's nor the Go runtime's
	waits   bool   // Go has started it, and it does not wait for a signal now

	state         string
	calls, places []string // functions of the program on its stack, and all positions
}

// text says for the user that the goroutine is running.
func (g *goroutine) text() string {
	creator := g.creator
	if creator == initCreator {
		creator = "init"
	}
	return fmt.Sprintf("a goroutine is running that %s has started at %s", creator, g.at)
}

// unknownCreator is the creator of a goroutine whose stack trace names none.
const unknownCreator = "an unknown function"

// programGoroutine finds the first goroutine of the program, besides those that
// can be saved, in the stack traces of all goroutines. The first trace is the
// caller's.
func programGoroutine(text string) *goroutine {
	known, ids := parseTraces(text)
	for _, id := range ids {
		g := known[id]
		g.waits = g.creator == waiterCreator && !isWaiting(id, g.state, g.calls, g.places)
		if !g.harmless(known) {
			return g
		}
	}
	return nil
}

// NumGoroutine stands for runtime.NumGoroutine. It does not count Cairn's own
// goroutines.
func NumGoroutine() int {
	if run == nil {
		return runtime.NumGoroutine()
	}
	buf := make([]byte, 64<<10)
	k := runtime.Stack(buf, true)
	for k == len(buf) {
		buf = make([]byte, 4*k)
		k = runtime.Stack(buf, true)
	}
	known, _ := parseTraces(string(buf[:k]))
	n := 1 // the caller
	for _, g := range known {
		if g.creator == waiterCreator || g.creator == routineCreator || g.creator == backgroundCreator || !g.harmless(known) {
			n++
		}
	}
	return n
}

// parseTraces returns what stack traces say about the goroutines but the first,
// by their numbers, and these numbers in order.
func parseTraces(text string) (known map[string]*goroutine, ids []string) {
	all := strings.Split(text, "\n\n")
	known = make(map[string]*goroutine)
	for _, s := range all[1:] {
		head, stack, _ := strings.Cut(strings.TrimSpace(s), "\n")
		id, state, _ := strings.Cut(strings.TrimPrefix(head, "goroutine "), " ")
		g := &goroutine{creator: unknownCreator, at: "?"}
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
			case !strings.HasPrefix(line, "sync."): // package sync starts goroutines for others
				calls = append(calls, line)
				g.first = line
				g.foreign = g.foreign || !ownGoroutine(line)
			}
		}
		if at, ok := startedByInit.Load(id); ok {
			g.at = at.(string)
		}
		g.state, g.calls, g.places = state, calls, places
		known[id] = g
		ids = append(ids, id)
	}
	return known, ids
}

// harmless reports whether a goroutine does not prevent a checkpoint: it is
// Cairn's or the Go runtime's, or it is saved.
func (g *goroutine) harmless(known map[string]*goroutine) bool {
	switch g.creator {
	case waiterCreator:
		return !g.waits
	case routineCreator: // it has arrived at the cut
		return true
	}
	for range 100 { // from child to parent
		if g == nil || g.creator == waiterCreator || g.creator == routineCreator || g.creator == initCreator || g.creator == "time.goFunc" { // these call the program's functions
			return false
		}
		// The goroutine of the Go runtime that runs cleanups has no
		// creator. Cairn has cleanups for arrays that are not used any
		// more; the program may have others.
		if g.creator == unknownCreator && g.first != "" && !g.foreign {
			return true
		}
		if ownGoroutine(g.creator) || strings.HasPrefix(g.creator, "sync.") && ownGoroutine(g.first) {
			return true
		}
		g = known[g.parent]
	}
	return false
}

// ownModule is the prefix of the paths of Cairn's packages.
var ownModule = strings.TrimSuffix(ownPackage, "/resume.")

// ownGoroutine reports whether the goroutines that a function starts are not
// the program's.
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
