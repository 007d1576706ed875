package graph

import (
	"errors"
	"fmt"
	"reflect"
	"unsafe"
)

// Coder is passed to the function that saves and restores a value whose type
// describes its own state; see Describe.
type Coder struct {
	restoring bool
	owner     any
	early     bool // see Copies.Add
	recs      []record
	err       error
}

// record is an entry in the stand-in of a value that describes its own state.
type record struct {
	Name  string
	Value any // a *F
}

// described is a group of types that describe their own state.
type described struct {
	by    reflect.Type // an interface that pointers to these types implement
	state func(v any, c *Coder) error
}

var (
	describedTypes []described
	memories       []func(v any) (addr unsafe.Pointer, n int64, ok bool)
)

// Describe lets types describe their own state. I is an interface with one
// method, which may be unexported; state calls it. If a pointer to a type
// implements I, state saves the values of that type, by calls of Field, and
// restores them. A type that only embeds such a type does not count. Call
// Describe from an init function.
//
// Package cairn describes the programs' types that have a CairnState method in
// this way; packages mpi and device describe their own types.
func Describe[I any](state func(v I, c *Coder) error) {
	describedTypes = append(describedTypes, described{reflect.TypeFor[I](), func(v any, c *Coder) error { return state(v.(I), c) }})
}

// DescribeMemory does for MemoryOf what Describe does for the state.
func DescribeMemory[I any](memory func(v I) (addr unsafe.Pointer, n int64)) {
	memories = append(memories, func(v any) (unsafe.Pointer, int64, bool) {
		h, ok := v.(I)
		if !ok {
			return nil, 0, false
		}
		addr, n := memory(h)
		return addr, n, true
	})
}

// MemoryOf returns the address range of the mem.Remote that v is a handle of.
// It returns nil if v is none.
func MemoryOf(v any) (addr unsafe.Pointer, n int64) {
	for _, f := range memories {
		if addr, n, ok := f(v); ok {
			return addr, n
		}
	}
	return nil, 0
}

// stater is implemented by types of Cairn's internal packages that describe
// their own state.
type stater interface{ CairnState(*Coder) error }

func init() { Describe(stater.CairnState) }

// Restoring reports whether Field sets variables rather than reads them.
func (c *Coder) Restoring() bool { return c.restoring }

// Run returns Env.Run. Types that are handles of something in the run reach it
// through this method.
func (c *Coder) Run() any {
	if c.early && c.err == nil {
		c.err = errors.New("it belongs to the communication of the ranks, which Commit saves: do not add the variable, Commit copies it")
	}
	return c.owner
}

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

// run saves or restores the value at v, whose type is p's.
func (c *Coder) run(p *plan, v unsafe.Pointer) error {
	err := p.state(reflect.NewAt(p.t, v).Interface(), c)
	if c.err != nil {
		err = c.err
	}
	return err
}
