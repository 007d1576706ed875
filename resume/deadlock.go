package resume

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/cairnrun/cairn/internal/control"
	"github.com/cairnrun/cairn/internal/graph"
)

// Deadlocks. The Go runtime ends a program if all its goroutines are blocked
// for ever. In a program with a run, Cairn's own goroutines never are. So Cairn
// looks for deadlocks itself, while the process uses no processor time. In a
// deadlock, no goroutine of the program can run, and neither a timer, nor a
// signal, nor anything outside the process can wake one. If Cairn does not know
// what a goroutine waits for, there is no deadlock.

const (
	deadlockLook  = time.Second // time between two looks
	deadlockPause = 10 * time.Second
	deadlockLooks = 3 // how many in a row must find the same
)

// statusDeadlock is the status of a program that the Go runtime ends.
const statusDeadlock = 2

// watchDeadlock ends the program if it is blocked for ever.
func watchDeadlock() {
	found, before := 0, ""
	used, ended := processTime(), cuts.number()
	look := make(chan struct{})
	alarm := control.NewAlarm(func() { look <- struct{}{} })
	for pause := deadlockLook; ; {
		alarm.Set(pause)
		<-look
		now, cut := processTime(), cuts.number()
		idle := pause / 10
		if cut != ended { // checkpoints use processor time, too
			idle = pause / 2
		}
		busy := now-used >= idle
		used = now
		if busy {
			found, pause, ended = 0, deadlockLook, cut
			cuts.hold(false)
			continue
		}
		begun := time.Now()
		list := deadlocked()
		text := strings.Join(list, "\n")
		if found++; list == nil || text != before {
			found = 1
		}
		if before = text; list != nil && found >= deadlockLooks {
			mu.Lock()
			over := closed
			mu.Unlock()
			if over {
				return
			}
			reportDeadlock(list)
		}
		cuts.hold(list != nil) // a cut would disturb the next look, and a checkpoint of a deadlock would look like progress
		pause = deadlockLook
		if list == nil && cut == ended { // it waits for something outside, perhaps for long
			pause = deadlockPause
		}
		ended = cuts.number()
		pause = max(pause, 100*time.Since(begun))
	}
}

// reportDeadlock ends the program as the Go runtime does.
func reportDeadlock(list []string) {
	const most = 50
	more := ""
	if n := len(list) - most; n > 0 {
		list, more = list[:most], fmt.Sprintf("  and %d more\n", n)
	}
	fmt.Fprintf(os.Stderr, "fatal error: all goroutines are asleep - deadlock!\n  %s\n%s", strings.Join(list, "\n  "), more)
	finish(false, 0)
	exit(statusDeadlock)
}

// deadlocked returns what each goroutine of the program waits for, if all are
// blocked for ever. Otherwise it returns nil.
func deadlocked() (list []string) {
	if cuts.wanted.Load() || contextsMayEnd() || timersRun() || signalsWanted() {
		return nil
	}
	text := stackTraces()
	known, _ := parseTraces(text)
	routines := cuts.byAddress()
	for _, t := range traces(text)[1:] {
		g := known[t.id]
		if g == nil || t.state == "running" || t.state == "runnable" {
			return nil
		}
		switch g.creator {
		case routineCreator, backgroundCreator, waiterCreator:
		default:
			if g.harmless(known) || strings.HasPrefix(g.creator, "context.") {
				continue
			}
		}
		r := routines[t.routine]
		if t.isMain {
			r = &mainRoutine
		}
		if !blockedForEver(t, r) {
			return nil
		}
		who := "a goroutine that is started at " + g.at
		if r != nil {
			who = r.name()
		}
		s := who + " waits for " + waitsFor(t.state, t.inner)
		if t.at != "" {
			s += " at " + t.at
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		return []string{"there are no goroutines"}
	}
	slices.Sort(list[min(1, len(list)):]) // the main one is the first
	return list
}

// blockedForEver reports whether only another goroutine of the program can wake
// this one.
func blockedForEver(t trace, g *routine) bool {
	switch t.state {
	case "chan receive (nil chan)", "chan send (nil chan)", "select (no cases)", "chan send", "semacquire",
		"sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock", "sync.WaitGroup.Wait", "sync.Cond.Wait":
		return true
	case "chan receive", "select":
	default:
		return false
	}
	if t.state == "select" && g != nil && g.inBareSelect() {
		for i := range get(&g.cases) {
			if graph.MayBeTimer(getPointer(&g.receives[i])) {
				return false
			}
		}
		return true
	}
	if t.state == "chan receive" && g != nil && g.inBareReceive() {
		return !graph.MayBeTimer(getPointer(&g.channel))
	}
	rest, ok := strings.CutPrefix(t.inner, ownPackage)
	if !ok || g == nil { // the channel may be a timer's
		return false
	}
	switch name := rest[:strings.IndexAny(rest+"(", "[(")]; {
	case name == "awaitSend", name == "bareSend", name == "lockFor", strings.HasPrefix(rest, "wait.join("), strings.HasPrefix(rest, "wait.poll("), name == "ticketFor":
		return true
	case name == "awaitRecv", name == "bareRecv":
		return !graph.MayBeTimer(getPointer(&g.channel))
	case name == "recvUnsaved":
		return !graph.MayBeTimer(getPointer(&g.unsaved))
	case name == "awaitCases":
		f := (*selectFrame)(getPointer(&g.selects))
		return f != nil && !slices.ContainsFunc(f.Cases, func(c SelectCase) bool { return graph.MayBeTimer(c.receivesFrom()) })
	}
	return false
}

// byAddress returns the goroutines by the addresses of their control blocks.
func (c *cutState) byAddress() map[string]*routine {
	c.Lock()
	defer c.Unlock()
	list := make(map[string]*routine)
	for g := range c.all {
		list[fmt.Sprintf("%p", g)] = g
	}
	return list
}

// lastDeadline is the last deadline of a context, in nanoseconds since 1970.
var lastDeadline atomic.Int64

// noteDeadline notes the deadline of a context.
func noteDeadline(t time.Time) {
	n := t.UnixNano()
	if t.Year() > 2200 { // UnixNano has no number for it
		n = 1<<63 - 1
	}
	for {
		old := lastDeadline.Load()
		if n <= old || lastDeadline.CompareAndSwap(old, n) {
			return
		}
	}
}

// contextsMayEnd reports whether a context may end because of its deadline.
func contextsMayEnd() bool { return time.Now().UnixNano() < lastDeadline.Load() }

// timersRun reports whether a timer will call a function.
func timersRun() bool {
	timers.Lock()
	defer timers.Unlock()
	for w := range timers.all {
		if t := w.Value(); t != nil {
			if _, runs := graph.TimerRemaining(t); runs {
				return true
			}
		}
	}
	return false
}

// signalsWanted reports whether a signal may wake a goroutine.
func signalsWanted() bool {
	signals.Lock()
	defer signals.Unlock()
	return signals.wanted() != mask{}
}
