// Package scc finds strongly connected components: in a call graph, the
// functions that call each other.
package scc

import "slices"

// Components returns the strongly connected components of the graph that the
// roots reach (Tarjan's algorithm). A component comes after those that it leads
// to; within one, nodes have the order in which a depth-first search finds
// them. next returns the successors of a node and is called once for each.
// Components does not recurse: graphs may be deep.
func Components[N comparable](roots []N, next func(N) []N) (all [][]N) {
	type state struct {
		num, low int
		done     bool // its component is complete
	}
	type visit struct {
		node N
		left []N // successors that were not followed yet
	}
	states := make(map[N]*state)
	var stack []N    // nodes that are not done
	var open []visit // the path from the root
	enter := func(n N) {
		states[n] = &state{num: len(states), low: len(states)}
		stack = append(stack, n)
		open = append(open, visit{n, next(n)})
	}
	for _, root := range roots {
		if states[root] == nil {
			enter(root)
		}
		for len(open) > 0 {
			v := &open[len(open)-1]
			s := states[v.node]
			if len(v.left) > 0 {
				to := v.left[0]
				v.left = v.left[1:]
				if t := states[to]; t == nil {
					enter(to)
				} else if !t.done {
					s.low = min(s.low, t.num)
				}
				continue
			}
			if s.low == s.num {
				i := len(stack) - 1
				for ; stack[i] != v.node; i-- {
					states[stack[i]].done = true
				}
				s.done = true
				all = append(all, slices.Clone(stack[i:]))
				stack = stack[:i]
			}
			open = open[:len(open)-1]
			if len(open) > 0 {
				caller := states[open[len(open)-1].node]
				caller.low = min(caller.low, s.low)
			}
		}
	}
	return all
}
