package resume

import (
	"testing"
	"time"
)

// newCuts returns the state of a program with one goroutine.
func newCuts() *cutState {
	c := new(cutState)
	c.complete.L, c.released.L = &c.Mutex, &c.Mutex
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

// TestCuts_GivenUp shows that points that are counted do not request a cut again
// at once, if one was given up.
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
