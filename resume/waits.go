package resume

import (
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/cairnrun/cairn/internal/graph"
)

// Goroutines that wait for signals. As long as one waits it is as it was when it
// was started, so it is started anew after a restart, and does not hinder a set.

// wait is such a goroutine.
type wait struct {
	F    func()
	Line int // where it waits
}

type waiter struct{ wait }

var waits struct {
	sync.Mutex
	all    map[string]*waiter // by goroutine
	rested []wait             // those that were where they wait, when that was last looked at
}

// Go stands for a go statement. What it starts waits for signals, at a line.
//
//go:noinline
func Go(line int, f func()) {
	if run == nil || f == nil || !begun { // init starts it again, with the channel of that start: then no set can be taken
		go f()
		return
	}
	w := &waiter{wait{f, line}}
	go w.run()
}

func (w *waiter) run() {
	id := goroutineID()
	waits.Lock()
	if waits.all == nil {
		waits.all = make(map[string]*waiter)
	}
	waits.all[id] = w
	waits.Unlock()
	defer func() {
		waits.Lock()
		delete(waits.all, id)
		waits.Unlock()
	}()
	w.F()
}

// goroutineID is the number of this goroutine, as in the text of its stack.
func goroutineID() string {
	buf := make([]byte, 64)
	text := strings.TrimPrefix(string(buf[:runtime.Stack(buf, false)]), "goroutine ")
	id, _, _ := strings.Cut(text, " ")
	return id
}

// waitStart is the creator of such a goroutine.
var waitStart = ownPackage + "Go"

// resting says whether such a goroutine is where it waits. Calls are the functions
// on its stack, places where they are.
func resting(id, state string, calls, places []string) bool {
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
	waits.Lock()
	defer waits.Unlock()
	w := waits.all[id]
	if w == nil || !strings.HasSuffix(places[0], ":"+strconv.Itoa(w.Line)) {
		return false
	}
	waits.rested = append(waits.rested, w.wait)
	return true
}

// unrested begins another look.
func unrested() {
	waits.Lock()
	defer waits.Unlock()
	waits.rested = nil
}

// noteWaits takes note of those that wait, when it was seen that no other goroutine
// lives. They go on waiting: see hold.
func noteWaits() {
	waits.Lock()
	defer waits.Unlock()
	saved.Waits, waits.rested = waits.rested, nil
	graph.Waited(len(saved.Waits) > 0)
}

// startWaits starts those of a set.
func startWaits() {
	for _, w := range again {
		Go(w.Line, w.F)
	}
	again = nil
}

// again are the goroutines of the set that was restored.
var again []wait
