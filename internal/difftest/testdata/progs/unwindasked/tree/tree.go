// Package tree has functions with points that call each other, and those of the
// package that uses it.
package tree

// Tree is a node of a search tree.
type Tree struct {
	Left, Right *Tree
	Key         int
}

// Add returns the tree with a key.
func (t *Tree) Add(key int) *Tree {
	if t == nil {
		return &Tree{Key: key}
	}
	for side, p := range []**Tree{&t.Left, &t.Right} { //difftest:loop
		if (side == 0) == (key < t.Key) {
			*p = (*p).Add(key)
		}
	}
	return t
}

// Visitor looks at the nodes.
type Visitor interface {
	Visit(t *Tree, depth int) bool
	Failed(t *Tree) error
}

// Walk visits the nodes in order.
func (t *Tree) Walk(v Visitor, depth int) int {
	if t == nil || !v.Visit(t, depth) {
		return 0
	}
	n := 1
	for _, c := range []*Tree{t.Left, t.Right} { //difftest:loop
		n += c.Walk(v, depth+1)
	}
	return n
}

// Check fails at some node.
func (t *Tree) Check(v Visitor) error {
	for _, c := range []*Tree{t.Right, t.Left} { //difftest:loop
		if c == nil {
			return v.Failed(t)
		}
		if err := c.Check(v); err != nil && c.Key > 9 {
			return err
		}
	}
	return nil
}

// Sum folds by a function.
func (t *Tree) Sum(f func(a, b int) int) int {
	if t == nil {
		return 0
	}
	s := t.Key
	for _, c := range []*Tree{t.Left, t.Right} { //difftest:loop
		s = f(s, c.Sum(f))
	}
	return s
}

// Fold is Sum by another name.
func Fold(t *Tree, f func(a, b int) int) int { return t.Sum(f) }
