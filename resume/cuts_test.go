package resume

import "testing"

// TestCuts_ProgramEnds shows that nothing waits for a checkpoint when the
// program ends, and that nobody is told that there was none.
func TestCuts_ProgramEnds(t *testing.T) {
	var c cutState
	c.complete.L, c.released.L = &c.Mutex, &c.Mutex
	c.add(&routine{wake: make(chan struct{}, 1)})
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
