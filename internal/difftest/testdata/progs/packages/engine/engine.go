// Package engine has the main loop.
package engine

import (
	"fmt"

	"progs/packages/internal/stats"
)

// Observer is called after each step, and says whether to continue.
type Observer interface {
	Observe(step, value int) bool
}

// Engine is a machine.
type Engine struct {
	cells []int
	step  int
	obs   Observer
}

// New returns an engine of n cells.
func New(n int, obs Observer) *Engine { return &Engine{cells: make([]int, n), obs: obs} }

// Run makes n steps.
func (e *Engine) Run(n int) bool {
	defer stats.Add("runs", 1)
	for range n { //difftest:loop
		e.step++
		for k := range 1000 * len(e.cells) {
			i := k % len(e.cells)
			e.cells[i] = (e.cells[i]*5 + k + e.step) % 2039
		}
		total := stats.Sum(e.cells)
		if !e.obs.Observe(e.step, total) {
			return false
		}
	}
	return true
}

func (e *Engine) String() string { return fmt.Sprint("engine at ", e.step, e.cells) }
