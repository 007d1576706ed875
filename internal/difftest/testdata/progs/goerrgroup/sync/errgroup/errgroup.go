// Package errgroup has what the program uses of golang.org/x/sync/errgroup.
package errgroup

import (
	"context"
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

// WithContext returns a group, and a context that its first error cancels.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

func (g *Group) done() {
	if g.sem != nil {
		<-g.sem
	}
	g.wg.Done()
}

// Wait waits for all tasks, and returns the first error.
func (g *Group) Wait() error {
	g.wg.Wait()
	if g.cancel != nil {
		g.cancel(g.err)
	}
	return g.err
}

// SetLimit sets how many tasks run at a time.
func (g *Group) SetLimit(n int) { g.sem = make(chan struct{}, n) }

// Go starts a task.
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
