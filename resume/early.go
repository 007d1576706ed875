package resume

import (
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Goroutines that init starts wait until main begins. They are then part of the
// state as others are. After a restart, those that init starts are forgotten,
// and those of the checkpoint continue. init itself may wait for one of them.
// So if it waits, they are released one after the other, the newest first: they
// begin before main, and cannot be saved.

// early are the goroutines that init has started and that have not begun.
var early struct {
	sync.Mutex
	list     []earlyStart
	released []string // where those were started that began before main
	watching bool
}

// earlyStart is a go statement of init.
type earlyStart struct {
	at    string
	f     func() // nil: it is not released
	start func() // as main's go statements
}

// startEarly starts a goroutine when main begins. f is its function if it can
// be released; init does not wait for a goroutine that waits for signals.
func startEarly(at string, f, start func()) {
	early.Lock()
	defer early.Unlock()
	early.list = append(early.list, earlyStart{at, f, start})
	if f != nil && !early.watching {
		early.watching = true
		go watchInit()
	}
}

// beginEarly starts the goroutines that wait for main, or forgets them if those
// of a checkpoint continue instead. That checkpoint must not have goroutines
// that init has released in this process.
func beginEarly(restored bool) {
	early.Lock()
	list := early.list
	early.list = nil
	early.Unlock()
	if restored {
		if !slices.Equal(saved.Released, early.released) {
			fatal("at this start, the goroutines of init that began before main, because init waited, are those of %q; in the run that was saved they are those of %q, so it cannot continue now: start the program again", early.released, saved.Released)
		}
		return
	}
	saved.Released = early.released
	for _, e := range list {
		e.start()
	}
}

// mainBegins says that goroutines can be saved from now on.
func mainBegins() {
	early.Lock()
	defer early.Unlock()
	begun.Store(true)
}

// patientInit is how long init may compute before its goroutines are released:
// it may look again and again whether one of them has done something.
const patientInit = 10 * time.Second

// watchInit releases goroutines when init has waited for a moment.
func watchInit() {
	waited := 0 // how often in a row init was found waiting
	begin, pause := time.Now(), time.Millisecond
	for more := true; more; {
		time.Sleep(pause)
		pause = min(2*pause, 20*time.Millisecond)
		if waited++; !initWaits() {
			waited = 0
		}
		if waited >= 2 || time.Since(begin) > patientInit {
			more = releaseNewest()
			waited, pause = 0, 10*time.Millisecond
		}
		more = more && !begun.Load()
	}
}

// releaseNewest releases a goroutine. It returns false if no more can be.
func releaseNewest() bool {
	early.Lock()
	defer early.Unlock()
	for i, e := range slices.Backward(early.list) {
		if e.f != nil && !begun.Load() {
			early.released = append(early.released, e.at)
			early.list = slices.Delete(early.list, i, i+1)
			startUnknown(e.at, e.f)
			return true
		}
	}
	early.watching = false
	return false
}

// initWaits reports whether goroutine 1, which runs init, waits for others.
func initWaits() bool {
	buf := make([]byte, 64<<10)
	text := "\n\n" + string(buf[:runtime.Stack(buf, true)])
	_, state, found := strings.Cut(text, "\n\ngoroutine 1 [")
	return found && slices.ContainsFunc([]string{"chan ", "select", "sync.", "semacquire", "sleep", "IO wait"}, func(s string) bool { return strings.HasPrefix(state, s) })
}
