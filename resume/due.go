package resume

import (
	"sync/atomic"
	"time"
)

// onDue is called by the engine when a checkpoint is due.
func onDue() {
	setDue()
	if several && !countEach.Load() && begun.Load() && !severalRanks() {
		cuts.request()
	}
}

// checkEvery is the time between cuts if no checkpoint is due. They find out
// whether one could be taken, so that the user learns early if it cannot.
const checkEvery = 10 * time.Second

// onReport is called by the engine when the supervisor is to see progress. If
// no checkpoint is due, a goroutine that passes a point shows progress. A cut,
// which stops all of them, is needed only if none passes a point, because they
// wait. Cuts of many goroutines take long, so they become rarer then.
func onReport() {
	if !several || !begun.Load() || severalRanks() {
		onDue()
		return
	}
	took, since := cuts.last()
	if checkAgain(took, since, run.Blocked()) {
		onDue()
		return
	}
	setDue()
	time.Sleep(10 * time.Millisecond)
	if atomic.LoadUint32(&due) != 0 && since >= min(20*took, checkEvery) {
		onDue()
	}
}

// checkAgain reports whether a cut is to find out again whether a checkpoint
// could be taken. took is how long it takes, and since the time since the last
// one; blocked says that no checkpoint could be taken then.
func checkAgain(took, since time.Duration, blocked bool) bool {
	return since >= max(checkEvery, 100*took) || blocked && since >= 20*took
}

// last returns how long a cut may take, and the time since the begin of the
// last one.
func (c *cutState) last() (took, since time.Duration) {
	c.Lock()
	defer c.Unlock()
	if c.begun.IsZero() { // a program with few goroutines is checked when it begins
		c.begun = time.Now().Add(-checkEvery)
	}
	return max(c.took, lookEach*time.Duration(len(c.all))), time.Since(c.begun)
}
