// Command goerrgroup starts tasks in a group with a limit. One task fails, and
// the group's context ends the others that have not begun.
package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

var errTask = errors.New("task 7 fails")

func square(n int) int {
	sum := 0
	for range n { //difftest:loop
		for range n {
			sum++
		}
	}
	return sum
}

func main() {
	g := new(errgroup.Group)
	g.SetLimit(3)
	squares := make([]int, 10)
	for i := range squares {
		g.Go(func() error {
			squares[i] = square(i)
			return nil
		})
	}
	fmt.Println(g.Wait(), squares)

	g, ctx := errgroup.WithContext(context.Background())
	for i := range 4 {
		g.Go(func() error {
			if square(i) == 9 {
				return errTask
			}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}
	err := g.Wait()
	fmt.Println(err, errors.Is(err, errTask), ctx.Err(), context.Cause(ctx) == err)
}
