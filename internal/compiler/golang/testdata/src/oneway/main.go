// Messages are sent in the loop, and received behind it. In the other one it
// cannot be seen to whom they go.
package main

import (
	"context"
	"os"
	"strconv"

	"github.com/cairnrun/cairn"
	"github.com/cairnrun/cairn/mpi"
)

func main() {
	run, err := cairn.Open(context.Background(), cairn.Options{})
	if err != nil {
		os.Exit(1)
	}
	c := run.World()
	buf := make([]float64, 10)
	//cairn:point
	for i := range 100 { // unsafe
		if c.Rank() == 0 {
			mpi.Send(c, buf, 1, i) // because
		}
	}
	for i := range 100 {
		if c.Rank() == 1 {
			mpi.Recv(c, buf, 0, i)
		}
	}
	peer, _ := strconv.Atoi(os.Args[1])
	//cairn:point
	for i := range 100 { // unknown
		if c.Rank() == 0 {
			mpi.Send(c, buf, peer, i) // because
		}
		if c.Rank() == peer {
			mpi.Recv(c, buf, 0, i)
		}
	}
}
