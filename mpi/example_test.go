package mpi_test

import (
	"fmt"

	"github.com/cairnrun/cairn/mpi"
)

// A token goes once around a ring of ranks, and each adds its number.
func Example() {
	err := mpi.Local(4, func(c *mpi.Comm) error {
		right := (c.Rank() + 1) % c.Size()
		left := (c.Rank() + c.Size() - 1) % c.Size()
		token := []int{0}
		if c.Rank() == 0 {
			if err := mpi.Send(c, token, right, 0); err != nil {
				return err
			}
		}
		if _, err := mpi.Recv(c, token, left, 0); err != nil {
			return err
		}
		token[0] += c.Rank()
		if c.Rank() == 0 {
			fmt.Println("around the ring:", token[0])
			return nil
		}
		return mpi.Send(c, token, right, 0)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: around the ring: 6
}

// Ranks sum up what each of them has. All get the result, to the same bit.
func ExampleAllreduce() {
	err := mpi.Local(4, func(c *mpi.Comm) error {
		part := []float64{float64(c.Rank()), 0.5}
		total := make([]float64, len(part))
		if err := mpi.Allreduce(c, part, total, mpi.Sum); err != nil {
			return err
		}
		if c.Rank() == 3 {
			fmt.Println(total)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [6 2]
}

// A custom operation: which rank has the longest row, and how long it is.
func ExampleOp() {
	type row struct {
		rank   int32
		length int32
	}
	longest := func(inout, in []row) {
		for i := range in {
			if in[i].length > inout[i].length { // of equal ones, the lower rank's stays
				inout[i] = in[i]
			}
		}
	}
	err := mpi.Local(5, func(c *mpi.Comm) error {
		best := []row{{int32(c.Rank()), int32(c.Rank() * 7 % 5)}}
		if err := mpi.Reduce(c, best, best, longest, 0); err != nil {
			return err
		}
		if c.Rank() == 0 {
			fmt.Printf("rank %d has %d\n", best[0].rank, best[0].length)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: rank 2 has 4
}
