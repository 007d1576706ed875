package mpi

import (
	"errors"
	"testing"
	"time"
)

// TestWaitAnyLost: WaitAny with a nil request first, when a rank is lost.
func TestWaitAnyLost(t *testing.T) {
	err := Local(2, func(c *Comm) error {
		if c.Rank() == 1 {
			time.Sleep(200 * time.Millisecond)
			return errors.New("dies")
		}
		_, _, err := WaitAny(nil, Irecv(c, make([]int, 1), 1, 0))
		if !errors.Is(err, ErrLost) {
			t.Errorf("%v", err)
		}
		return nil
	})
	t.Log(err)
}
