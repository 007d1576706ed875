package resume

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// newCuts returns the state of a program with one goroutine.
func newCuts() *cutState {
	c := new(cutState)
	c.complete.L = &c.Mutex
	c.add(&routine{wake: make(chan struct{}, 1)})
	return c
}

// TestCuts_ProgramEnds shows that nothing waits for a checkpoint when the
// program ends, and that nobody is told that there was none.
func TestCuts_ProgramEnds(t *testing.T) {
	c := newCuts()
	c.request()
	if !c.wanted.Load() {
		t.Fatal("no cut is wanted")
	}
	c.close()
	c.request()
	if c.wanted.Load() || c.ended != 1 {
		t.Errorf("wanted %v, %d cuts ended", c.wanted.Load(), c.ended)
	}
}

// TestCuts_GivenUp shows that points that are counted do not request a cut
// again at once, if one was given up.
func TestCuts_GivenUp(t *testing.T) {
	c := newCuts()
	defer countEach.Store(countEach.Swap(true))
	c.request()
	c.Lock()
	c.giveUp("", false, time.Hour)
	c.Unlock()
	if !c.tooEarly() {
		t.Error("the next point requests a cut")
	}
}

// TestCuts_OrderOfStart saves goroutines in the order in which they were
// started, so that the names of their variables stay the same.
func TestCuts_OrderOfStart(t *testing.T) {
	defer func(was []savedGoroutine) { saved.Goroutines = was }(saved.Goroutines)
	c := newCuts()
	want := []string{""} // the first one
	var second *routine
	for i := range 100 {
		g := &routine{savedGoroutine: savedGoroutine{At: strconv.Itoa(i)}}
		c.add(g)
		if i == 1 {
			second = g
		} else {
			want = append(want, g.At)
		}
	}
	c.remove(second)
	c.noteGoroutines()
	var got []string
	for _, g := range saved.Goroutines {
		got = append(got, g.At)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestTraces_Messages shows that a goroutine that exchanges messages is found
// at the program's own line, not in what Cairn or a library of it calls there.
func TestTraces_Messages(t *testing.T) {
	list := traces(`goroutine 7 [runnable]:
golang.org/x/sys/unix.Ppoll(0x1)
	/m/unix/zsyscall.go:138 +0x1
github.com/cairnrun/cairn/internal/p2p.(*Engine).until(0x1)
	/c/internal/p2p/wait.go:70 +0x1
github.com/cairnrun/cairn/mpi.Sendrecv[...](0x1)
	/c/mpi/send_receive.go:90 +0x1
main.exchange(0x1)
	/p/main.go:12 +0x1
` + routineMain + `(0x5)
	/c/resume/routine.go:1 +0x1

goroutine 8 [runnable]:
main.compute(0x1)
	/p/main.go:20 +0x1
` + routineMain + `(0x6)
	/c/resume/routine.go:1 +0x1
`)
	if len(list) != 2 || list[0].at != "/p/main.go:12" || !list[0].messages || list[1].at != "/p/main.go:20" || list[1].messages {
		t.Errorf("%+v", list)
	}
}
