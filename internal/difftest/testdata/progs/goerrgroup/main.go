// Command goerrgroup starts tasks in a group with a limit. One task fails, and
// the group's context ends the others that have not begun.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Group is a group of tasks.
type Group struct {
	cancel func(error)
	wg     sync.WaitGroup
	sem    chan struct{}
	once   sync.Once
	err    error
}

func withContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

func (g *Group) done() {
	if g.sem != nil {
		<-g.sem
	}
	g.wg.Done()
}

func (g *Group) Wait() error {
	g.wg.Wait()
	if g.cancel != nil {
		g.cancel(g.err)
	}
	return g.err
}

func (g *Group) Go(f func() error) {
	if g.sem != nil {
		g.sem <- struct{}{}
	}
	g.wg.Add(1)
	go func() {
		defer g.done()
		if err := f(); err != nil {
			g.once.Do(func() {
				g.err = err
				if g.cancel != nil {
					g.cancel(g.err)
				}
			})
		}
	}()
}

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
	g := &Group{sem: make(chan struct{}, 3)}
	squares := make([]int, 10)
	for i := range squares {
		g.Go(func() error {
			squares[i] = square(i)
			return nil
		})
	}
	fmt.Println(g.Wait(), squares)

	g, ctx := withContext(context.Background())
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
