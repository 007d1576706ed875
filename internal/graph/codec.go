package graph

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Coder is passed to the CairnState method of a type that describes its own
// state. One method serves both directions:
//
//	func (m *Model) CairnState(c *cairn.Coder) error {
//		cairn.Field(c, "weights", &m.weights)
//		if c.Restoring() {
//			m.cache = newCache(m.weights)
//		}
//		return nil
//	}
type Coder struct {
	restoring bool
	owner     any
	recs      []record
	err       error
}

// record is an entry in the stand-in of a value with CairnState.
type record struct {
	Name  string
	Value any // a *F
}

type stater interface{ CairnState(*Coder) error }

// Restoring reports whether Field sets variables rather than reads them.
func (c *Coder) Restoring() bool { return c.restoring }

// Run returns Env.Run. Types that are handles of something in the run reach it
// through this method.
func (c *Coder) Run() any { return c.owner }

// Err returns the first error of a Field call. It is returned from Collect or
// Finish in any case.
func (c *Coder) Err() error { return c.err }

// Field saves *v under name, which is unique in the value, or restores it.
// What *v refers to keeps its identity, the variable v itself does not.
func Field[T any](c *Coder, name string, v *T) {
	if c.err != nil {
		return
	}
	for _, r := range c.recs {
		if r.Name != name {
			continue
		}
		if !c.restoring {
			c.err = fmt.Errorf("field %q is given twice", name)
		} else if p, ok := r.Value.(*T); ok && p != nil {
			*v = *p
		} else {
			c.err = fmt.Errorf("field %q: the checkpoint has %s, the program %s", name, elemName(r.Value), typeName(reflect.TypeFor[T]()))
		}
		return
	}
	if c.restoring {
		c.err = fmt.Errorf("field %q is missing in the checkpoint", name)
		return
	}
	p := new(T)
	*p = *v
	c.recs = append(c.recs, record{name, p})
}

func elemName(v any) string {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer {
		return "nothing"
	}
	return typeName(t.Elem())
}

// run calls the CairnState of the value at v, whose type is p's.
func (c *Coder) run(p *plan, v unsafe.Pointer) error {
	err := reflect.NewAt(p.t, v).Interface().(stater).CairnState(c)
	if c.err != nil {
		err = c.err
	}
	return err
}
