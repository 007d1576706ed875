package mpi_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cairnrun/cairn/mpi"
)

var (
	errDied  = errors.New("this rank dies")
	errWrong = errors.New("a rank did not get the error it should")
)

// TestLost_NobodyWaitsForever shows that no rank waits forever when another
// rank dies, whatever it waits for.
func TestLost_NobodyWaitsForever(t *testing.T) {
	long := make([]float64, 200000)
	for what, wait := range map[string]func(c *mpi.Comm) error{
		"recv from it": func(c *mpi.Comm) error { _, err := mpi.Recv(c, long, 1, 0); return err },
		"recv from another": func(c *mpi.Comm) error {
			_, err := mpi.Recv(c, make([]int, 1), (c.Rank()+2)%4, 0)
			return err
		},
		"recv from any": func(c *mpi.Comm) error { _, err := mpi.Recv(c, make([]int, 1), mpi.AnySource, mpi.AnyTag); return err },
		"recv from oneself": func(c *mpi.Comm) error {
			_, err := mpi.Recv(c, make([]int, 1), c.Rank(), 0)
			return err
		},
		"long send": func(c *mpi.Comm) error { return mpi.Send(c, long, 1, 0) },
		"short sends": func(c *mpi.Comm) error {
			for range 1 << 20 {
				if err := mpi.Send(c, long[:10], 1, 0); err != nil {
					return err
				}
			}
			return errors.New("a million messages were sent to it")
		},
		"probe": func(c *mpi.Comm) error { _, err := c.Probe(1, 0); return err },
		"iprobe": func(c *mpi.Comm) error {
			for {
				if ok, _, err := c.Iprobe(1, 0); ok || err != nil {
					return err
				}
			}
		},
		"wait any": func(c *mpi.Comm) error {
			_, _, err := mpi.WaitAny(mpi.Irecv(c, make([]int, 1), 2, 1), mpi.Irecv(c, make([]int, 1), 1, 1))
			return err
		},
		"wait all": func(c *mpi.Comm) error {
			return mpi.WaitAll(mpi.Irecv(c, make([]int, 1), 2, 1), mpi.Irecv(c, make([]int, 1), 1, 1))
		},
		"test": func(c *mpi.Comm) error {
			r := mpi.Irecv(c, make([]int, 1), 1, 1)
			for {
				if ok, _, err := r.Test(); ok {
					return err
				}
			}
		},
		"barrier":        (*mpi.Comm).Barrier,
		"long bcast":     func(c *mpi.Comm) error { return mpi.Bcast(c, slices.Clone(long), 1) },
		"long allreduce": func(c *mpi.Comm) error { return mpi.Allreduce(c, long, make([]float64, len(long)), mpi.Sum) },
		"split":          func(c *mpi.Comm) error { _, err := c.Split(0, 0); return err },
	} {
		for _, w := range worlds {
			t.Run(w.name+"/"+what, func(t *testing.T) {
				err := w.run(4, func(c *mpi.Comm) error {
					// All ranks have begun.
					if err := c.Barrier(); err != nil && c.Rank() == 1 {
						return err
					}
					if c.Rank() == 1 {
						return errDied
					}
					err := wait(c)
					if !errors.Is(err, mpi.ErrLost) {
						return fmt.Errorf("%w: %v", errWrong, err)
					}
					return err // and so this rank dies, too
				})
				if errors.Is(err, errWrong) || !errors.Is(err, errDied) {
					t.Error(err)
				}
			})
		}
	}
}

// TestLost_RankEnded shows that a rank which has ended its run is not awaited
// either, and that its earlier messages are received.
func TestLost_RankEnded(t *testing.T) {
	for _, w := range worlds {
		t.Run(w.name, func(t *testing.T) {
			err := w.run(3, func(c *mpi.Comm) error {
				if c.Rank() == 1 {
					return mpi.Send(c, []int{7}, 0, 0)
				}
				if c.Rank() == 2 {
					return mpi.Send(c, make([]int, 50000), 0, 1)
				}
				if _, err := mpi.Recv(c, []int{0}, 1, 5); !errors.Is(err, mpi.ErrEnded) {
					return fmt.Errorf("%w: receive of what never comes: %v", errWrong, err)
				}
				got := []int{0}
				if _, err := mpi.Recv(c, got, 1, 0); err != nil || got[0] != 7 {
					return fmt.Errorf("receive of what was sent before: %v, %v", got, err)
				}
				if _, err := mpi.Recv(c, make([]int, 50000), 2, 1); err != nil {
					return err
				}
				if _, err := mpi.Recv(c, got, mpi.AnySource, 5); !errors.Is(err, mpi.ErrEnded) {
					return fmt.Errorf("%w: receive from any: %v", errWrong, err)
				}
				if _, err := c.Probe(2, 5); !errors.Is(err, mpi.ErrEnded) {
					return fmt.Errorf("%w: probe: %v", errWrong, err)
				}
				if err := c.Barrier(); !errors.Is(err, mpi.ErrEnded) {
					return fmt.Errorf("%w: barrier: %v", errWrong, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestWaitAny_Lost calls WaitAny with a nil request first, and a rank dies.
func TestWaitAny_Lost(t *testing.T) {
	err := mpi.Local(2, func(c *mpi.Comm) error {
		if c.Rank() == 1 {
			time.Sleep(200 * time.Millisecond)
			return errors.New("dies")
		}
		_, _, err := mpi.WaitAny(nil, mpi.Irecv(c, make([]int, 1), 1, 0))
		if !errors.Is(err, mpi.ErrLost) {
			t.Errorf("%v", err)
		}
		return nil
	})
	t.Log(err)
}
