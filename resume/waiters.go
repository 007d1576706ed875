package resume

import (
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/graph"
)

// Waiters are goroutines that wait for signals. While such a goroutine waits,
// its state is that of its start. So it does not prevent a checkpoint, and a
// restart starts it again.

// savedWaiter is a waiter in a checkpoint.
type savedWaiter struct {
	F    func()
	Line int // of the statement that waits
}

type waiter struct{ savedWaiter }

var waiters struct {
	sync.Mutex
	all    map[string]*waiter // by the number of the goroutine
	rested []savedWaiter      // those that were where they wait, when that was last looked at
}

// Go stands for a go statement. The goroutine waits for signals, at a line.
//
//go:noinline
func Go(line int, f func()) {
	switch {
	case run == nil || f == nil:
		go f()
		return
	case !begun.Load():
		startEarly("", nil, func() { Go(line, f) })
		return
	}
	w := &waiter{savedWaiter{f, line}}
	go w.run()
}

func (w *waiter) run() {
	id := goroutineID()
	waiters.Lock()
	if waiters.all == nil {
		waiters.all = make(map[string]*waiter)
	}
	waiters.all[id] = w
	waiters.Unlock()
	defer func() {
		waiters.Lock()
		delete(waiters.all, id)
		waiters.Unlock()
	}()
	w.F()
}

// goroutineID returns the number of this goroutine, as in stack traces.
func goroutineID() string {
	buf := make([]byte, 64)
	text := strings.TrimPrefix(string(buf[:runtime.Stack(buf, false)]), "goroutine ")
	id, _, _ := strings.Cut(text, " ")
	return id
}

// waiterCreator is the creator of waiters.
var waiterCreator = ownPackage + "Go"

// isWaiting reports whether a waiter waits at its line now. calls are the
// functions on its stack, places their positions.
func isWaiting(id, state string, calls, places []string) bool {
	state, _, _ = strings.Cut(strings.Trim(state, "[]:"), ",")
	if state != "chan receive" && state != "select" {
		return false
	}
	for len(calls) > 0 && strings.HasPrefix(calls[0], "runtime.") {
		calls, places = calls[1:], places[min(1, len(places)):]
	}
	if len(calls) != 2 || len(places) < 1 {
		return false
	}
	waiters.Lock()
	defer waiters.Unlock()
	w := waiters.all[id]
	if w == nil || !strings.HasSuffix(places[0], ":"+strconv.Itoa(w.Line)) {
		return false
	}
	waiters.rested = append(waiters.rested, w.savedWaiter)
	return true
}

// clearWaiting forgets which waiters wait.
func clearWaiting() {
	waiters.Lock()
	defer waiters.Unlock()
	waiters.rested = nil
}

// saveWaiters saves the waiters, when it is known that no other goroutine is
// running. They keep waiting: see pauseEvents.
func saveWaiters() {
	waiters.Lock()
	defer waiters.Unlock()
	saved.Waiters, waiters.rested = waiters.rested, nil
	graph.NoteWaiters(len(saved.Waiters) > 0)
}

// startWaiters starts the waiters of the restored checkpoint.
func startWaiters() {
	for _, w := range restoredWaiters {
		Go(w.Line, w.F)
	}
	restoredWaiters = nil
}

// restoredWaiters are the waiters of the restored checkpoint.
var restoredWaiters []savedWaiter
