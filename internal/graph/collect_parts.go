package graph

import (
	"slices"

	"github.com/cairnrun/cairn/internal/mem"
)

// parts holds values with CairnState that packages keep for a program.
var parts []any

// Part makes v, a pointer to a value with CairnState, part of the state of a
// program that is saved as a whole. A restart restores a new value; its
// CairnState method must pass the state on to the package. Call Part from an
// init function.
func Part(v any) { parts = append(parts, v) }

// Parts returns the values that Part has registered.
func Parts() []any { return parts }

// SavesWholeProgram reports whether the program is saved as a whole.
func SavesWholeProgram() bool { return wholeProgram }

// Has reports whether the checkpoint has a field of that name for the value.
func (c *Coder) Has(name string) bool {
	return slices.ContainsFunc(c.recs, func(r record) bool { return r.Name == name })
}

// scan finds all regions of the state.
func (c *Collector) scan(roots []Root, env *Env) error {
	var all []mem.HostVisible
	if wholeProgram {
		all = mem.AllHostVisible()
		hide(all)
	}
	c.shown = len(all) > 0
	c.trace = false
	for again := true; again; {
		err := c.reach(roots, env)
		if err == nil {
			err = c.sweep()
		}
		if err == nil && c.copies != nil {
			err = c.copies.claimed.check(c)
		}
		if err != nil && c.needsTrace { // collect once more, to find the path for the error
			c.trace = true
			continue
		}
		if err != nil {
			return err
		}
		again = c.show(all)
		all = nil // collect again at most once
	}
	return nil
}

// hide revokes what show has told the arrays.
func hide(all []mem.HostVisible) {
	for _, r := range all {
		r.Show(false)
	}
}

// show tells each array on a device whether the state refers to its host copy,
// by a slice that the program was given. Such arrays keep that connection when
// the state is collected again. show reports whether there are any.
func (c *Collector) show(all []mem.HostVisible) bool {
	any := false
	for _, r := range all {
		p, n := r.HostCopy()
		if p == nil {
			continue
		}
		lo, hi := uintptr(p), uintptr(p)+uintptr(n)
		if slices.ContainsFunc(c.items.S, func(it item) bool { return !it.alone() && it.addr < hi && lo < c.end(it) }) {
			r.Show(true)
			any = true
		}
	}
	return any
}
