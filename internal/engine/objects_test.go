package engine

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

type chainNode struct {
	next *chainNode
	id   int64
	x, y float64
	name string
}

type chain struct {
	first *chainNode
	byID  map[int64]*chainNode
	some  []*chainNode
	any   []any
}

func newChain(n int) *chain {
	c := &chain{byID: make(map[int64]*chainNode)}
	for i := range n {
		c.first = &chainNode{c.first, int64(i), float64(i), 1, ""}
		if i%100 == 0 {
			c.first.name = fmt.Sprint("node ", i)
			c.byID[int64(i)] = c.first
			c.some = append(c.some, c.first)
			c.any = append(c.any, c.first, i, c.first.name)
		}
	}
	return c
}

// inMemory returns the nodes in the order of their addresses. Where Go puts
// nodes that are made one after the other depends on what was freed before, and
// on the processors that made them.
func (c *chain) inMemory() []*chainNode {
	var list []*chainNode
	for n := c.first; n != nil; n = n.next {
		list = append(list, n)
	}
	slices.SortFunc(list, func(a, b *chainNode) int {
		return cmp.Compare(uintptr(unsafe.Pointer(a)), uintptr(unsafe.Pointer(b)))
	})
	return list
}

// equal compares lists, and where they are referred to.
func (c *chain) equal(d *chain) error {
	n := 0
	twin := make(map[*chainNode]*chainNode)
	for a, b := c.first, d.first; a != nil || b != nil; a, b = a.next, b.next {
		if a == nil || b == nil || a.id != b.id || a.x != b.x || a.y != b.y || a.name != b.name {
			return fmt.Errorf("node %d differs", n)
		}
		twin[a] = b
		n++
	}
	if len(c.some) != len(d.some) || len(c.any) != len(d.any) || len(c.byID) != len(d.byID) {
		return fmt.Errorf("other lengths")
	}
	for i, a := range c.some {
		if twin[a] != d.some[i] || twin[c.any[3*i].(*chainNode)] != d.any[3*i].(*chainNode) || c.any[3*i+1] != d.any[3*i+1] {
			return fmt.Errorf("element %d refers to another node", i)
		}
	}
	for id, a := range c.byID {
		if twin[a] != d.byID[id] {
			return fmt.Errorf("key %d leads to another node", id)
		}
	}
	return nil
}

// TestObjects_KeepTheirPlaces changes little of a list, and looks how much is
// written, also after a restart.
func TestObjects_KeepTheirPlaces(t *testing.T) {
	const nodes = 100_000
	run := t.TempDir()
	var saved CheckpointInfo
	opts := func(o *Options) { o.OnSaved = func(s CheckpointInfo) { saved = s } }
	state := newChain(nodes)
	p := open(t, run, opts)
	Protect(p, "chain", state)
	restore(t, p, false)
	checkpoint(t, p)
	small := func(what string) {
		t.Helper()
		checkpoint(t, p)
		if share := float64(saved.WrittenBytes) / float64(saved.StateBytes); share > 0.05 {
			t.Errorf("%s: %.1f %% of the state is written", what, 100*share)
		}
	}
	small("nothing changed")
	for _, n := range state.inMemory()[nodes/2 : nodes/2+nodes/100] {
		n.x++
	}
	small("1 % changed")
	state.first = &chainNode{state.first, -1, 0, 0, ""}
	small("a node in front")
	for range 5 {
		state.first = &chainNode{state.first, -1, 0, 0, ""}
		state.first.next.next = state.first.next.next.next
		small("a node in front, another one gone")
	}
	closeRun(t, p)

	for range 2 {
		again := new(chain)
		p = open(t, run, opts)
		Protect(p, "chain", again)
		restore(t, p, true)
		if err := state.equal(again); err != nil {
			t.Fatal(err)
		}
		state = again
		state.first = &chainNode{state.first, -2, 0, 0, ""}
		small("a node in front after a restart")
		closeRun(t, p)
	}
}
