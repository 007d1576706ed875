package resume

import (
	"fmt"
	"reflect"
	"slices"
)

// A function with a comment //cairn:rebuild makes values that cannot be saved:
// it assigns them to package variables. These are not saved. After a restart,
// the function runs again, before the program continues, if one of its
// variables had a value at the checkpoint.

// rebuilder is such a function.
type rebuilder struct {
	name, at string
	make     func() error
	vars     []any // pointers to package variables
}

var rebuilders []rebuilder

// Rebuild registers a function that makes package variables again after a
// restart. at is where it is declared.
func Rebuild(name, at string, make func() error, vars ...any) {
	rebuilders = append(rebuilders, rebuilder{name, at, make, vars})
}

// inUse reports whether one of the variables has a value.
func (r *rebuilder) inUse() bool {
	return slices.ContainsFunc(r.vars, func(v any) bool { return !reflect.ValueOf(v).Elem().IsZero() })
}

// noteRebuilders notes for a checkpoint which functions have to run again.
func noteRebuilders() {
	saved.Rebuild = saved.Rebuild[:0]
	for i := range rebuilders {
		if rebuilders[i].inUse() {
			saved.Rebuild = append(saved.Rebuild, rebuilders[i].name)
		}
	}
}

// rebuild runs the functions again, in the order in which they are registered.
// Each runs on a goroutine of its own, because the main one is about to enter
// the functions of its frames.
func rebuild() error {
	for i := range rebuilders {
		r := &rebuilders[i]
		if !slices.Contains(saved.Rebuild, r.name) {
			continue
		}
		result := make(chan error)
		go func() {
			defer func() {
				if p := recover(); p != nil {
					result <- fmt.Errorf("panic: %v", p)
				}
			}()
			result <- r.make()
		}()
		if err := <-result; err != nil {
			return fmt.Errorf("%s: %s, which makes values again after a restart, has failed: %w", r.at, r.name, err)
		}
	}
	return nil
}
