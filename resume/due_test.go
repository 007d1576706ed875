package resume

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// TestDue_LoopWithoutWrites shows that a loop which writes nothing finds out
// that a checkpoint has come due: the compiler must not merge its test with the
// one before it.
func TestDue_LoopWithoutWrites(t *testing.T) {
	defer atomic.StoreUint32(&due, 0)
	for before := true; before; {
		atomic.StoreUint32(&due, 0)
		begins := make(chan struct{})
		go func() {
			<-begins
			runtime.Gosched()
			setDue()
		}()
		close(begins)
		var ended bool
		if _, before, ended = search(1); !ended {
			t.Fatal("the loop has not found out that a checkpoint is due")
		}
	}
}

// search computes until a checkpoint is due. before reports that it was when
// the loop began, ended that it was before the loop's end.
//
//go:noinline
func search(x uint64) (y uint64, before, ended bool) {
	if Due() {
		return x, true, true
	}
	for range 1 << 34 {
		if Due() {
			return x, false, true
		}
		x = x*6364136223846793005 + 1442695040888963407
	}
	return x, false, false
}

// TestCheckAgain shows when reports of progress stop all goroutines: every ten
// seconds, more often if no checkpoint could be taken, and never for more than
// a twentieth of the time.
func TestCheckAgain(t *testing.T) {
	const second = time.Second
	for _, c := range []struct {
		took, since   time.Duration
		blocked, want bool
	}{
		{0, second / 2, false, false},
		{0, second / 2, true, true},
		{0, 10 * second, false, true},
		{second, 10 * second, true, false},
		{second, 20 * second, true, true},
		{second, 20 * second, false, false},
		{second, 100 * second, false, true},
	} {
		if got := checkAgain(c.took, c.since, c.blocked); got != c.want {
			t.Errorf("a cut took %v, %v ago, blocked %v: got %v", c.took, c.since, c.blocked, got)
		}
	}
}
