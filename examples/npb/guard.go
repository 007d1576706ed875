package main

import (
	"context"
	"fmt"

	"github.com/cairnrun/cairn"
)

// guard is what a kernel needs to save and restore its state. All ranks make
// the same calls.
type guard interface {
	// restore is called once, before the main loop, with the variables that
	// the loop carries. It restores them if there is a checkpoint.
	restore(state ...variable) (resumed bool, err error)
	// point is called at the top of every iteration, and may save them.
	point() error
}

// variable is a variable of the main loop and its name.
type variable struct {
	name    string
	v       any // a pointer to it
	protect func(*cairn.Run) error
}

func named[T any](name string, v *T) variable {
	return variable{name, v, func(p *cairn.Run) error { return cairn.Protect(p, name, v) }}
}

// running is the guard of a real run.
type running struct {
	ctx  context.Context
	run  *cairn.Run
	what string // kernel and class, which must be the same at every start
}

func (g *running) restore(state ...variable) (bool, error) {
	what := g.what
	for _, s := range append(state, named("benchmark", &what)) {
		if err := s.protect(g.run); err != nil {
			return false, err
		}
	}
	resumed, err := g.run.Restore(g.ctx)
	if err == nil && what != g.what {
		err = fmt.Errorf("the checkpoints are of benchmark %s and this is %s: give those flags again, or another -dir", what, g.what)
	}
	return resumed, err
}

func (g *running) point() error { return g.run.Point(g.ctx) }
