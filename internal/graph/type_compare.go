package graph

import (
	"fmt"
)

// compare compares a saved description with a type of the program. It returns
// nil, a *MismatchError that names the first difference in a variable called
// name, or an error that wraps ErrInvalid.
func compare(name, saved string, p *plan) error {
	p.finish()
	if saved == p.text {
		return nil
	}
	a, err := parseDesc(saved)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	b, err := parseDesc(p.text)
	if err != nil {
		return fmt.Errorf("%s: the type is too complex", name)
	}
	c := comparer{a: a, b: b, seen: make(map[[2]int]bool), budget: 1 << 20}
	m, here := c.types(a.root, b.root, name, 0)
	if here {
		m = c.differ(a.root, b.root, name)
	}
	if c.budget < 0 {
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, errDesc)
	}
	if m == nil {
		// The structures are equal, but the definitions are in an order that
		// describe does not produce.
		return fmt.Errorf("%w: %s: %w", ErrInvalid, name, errDesc)
	}
	m.Name = name
	return m
}

type comparer struct {
	a, b   *descText
	seen   map[[2]int]bool
	budget int
}

func (c *comparer) differ(x, y *desc, path string) *MismatchError {
	return &MismatchError{Path: path, Detail: fmt.Sprintf("the checkpoint has %s, the program %s", c.a.text(x, 0), c.b.text(y, 0))}
}

// types compares two types. If the difference is best described by the two
// types themselves, it returns here = true and the caller makes the error.
func (c *comparer) types(x, y *desc, path string, depth int) (m *MismatchError, here bool) {
	if c.budget--; c.budget < 0 || depth > 2000 {
		c.budget = -1
		return nil, false
	}
	if x.kind != y.kind || x.word != y.word {
		return nil, true
	}
	switch x.kind {
	case "*":
		return c.types(x.elem, y.elem, path, depth+1)
	case "[":
		if x.n != y.n {
			return nil, true
		}
		return c.types(x.elem, y.elem, path+"[]", depth+1)
	case "[]":
		return c.types(x.elem, y.elem, path+"[]", depth+1)
	case "map":
		if x.elem.kind != y.elem.kind || len(x.elem.fields) != len(y.elem.fields) {
			return nil, true
		}
		for i := range x.elem.fields {
			if x.elem.names[i] != y.elem.names[i] {
				return nil, true
			}
			if m, here := c.types(x.elem.fields[i], y.elem.fields[i], path+"[]", depth+1); m != nil || here {
				return m, here
			}
		}
		return nil, false
	case "@":
		if x.n >= len(c.a.defs) || y.n >= len(c.b.defs) {
			c.budget = -1
			return nil, false
		}
		if c.a.name[x.n] != c.b.name[y.n] {
			return nil, true
		}
		if k := [2]int{x.n, y.n}; !c.seen[k] {
			c.seen[k] = true
			x, y := c.a.defs[x.n], c.b.defs[y.n]
			m, here := c.types(x, y, path, depth+1)
			if here {
				// The names are equal: show what they stand for.
				m = c.differ(x, y, path)
			}
			return m, false
		}
		return nil, false
	case "{":
		return c.structs(x, y, path, depth), false
	}
	return nil, false
}

func (c *comparer) structs(x, y *desc, path string, depth int) *MismatchError {
	find := func(d *desc, name string) int {
		for i, n := range d.names {
			if n == name {
				return i
			}
		}
		return -1
	}
	if len(x.names) > 1000 || len(y.names) > 1000 {
		if len(x.names) != len(y.names) {
			return c.differ(x, y, path)
		}
	} else {
		for i, n := range x.names {
			if find(y, n) < 0 {
				return &MismatchError{Path: path + "." + n, Detail: fmt.Sprintf("the checkpoint has %s, the program has no such field", c.a.text(x.fields[i], 0))}
			}
		}
		for i, n := range y.names {
			if find(x, n) < 0 {
				return &MismatchError{Path: path + "." + n, Detail: fmt.Sprintf("the checkpoint has no such field, the program %s", c.b.text(y.fields[i], 0))}
			}
		}
	}
	if len(x.names) != len(y.names) {
		return c.differ(x, y, path)
	}
	for i, n := range x.names {
		if y.names[i] != n {
			return &MismatchError{Path: path + "." + n, Detail: "the fields are in another order"}
		}
		at := path + "." + n
		m, here := c.types(x.fields[i], y.fields[i], at, depth+1)
		if here {
			return c.differ(x.fields[i], y.fields[i], at)
		}
		if m != nil || c.budget < 0 {
			return m
		}
	}
	return nil
}
