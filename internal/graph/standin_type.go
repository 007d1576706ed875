package graph

import (
	"errors"
	"reflect"
	"sync"
	"unsafe"
)

// storedNames holds the names of saved types, so that each has one place in
// memory.
var storedNames sync.Map // reflect.Type → string

// storedName returns the name under which the type at t is saved.
func storedName(t unsafe.Pointer) string {
	r := typeAt(t)
	if name, ok := storedNames.Load(r); ok {
		return name.(string)
	}
	name, _ := storedNames.LoadOrStore(r, typeName(r))
	return name.(string)
}

// reflectType finds a stored type by its name.
func (d *decoder) reflectType(o *op, dst unsafe.Pointer, src []byte) error {
	name, err := d.text(o, src)
	if err != nil {
		return err
	}
	*(*unsafe.Pointer)(dst) = nil
	if name == "" {
		return nil
	}
	var t reflect.Type
	if t, err = d.names.resolve(name); err != nil {
		if !errors.Is(err, ErrInvalid) {
			err = &MismatchError{Name: name, Path: name, Detail: "a reflect.Type in the checkpoint: " + err.Error()}
		}
		return err
	}
	*(*unsafe.Pointer)(dst) = (*ifaceHeader)(unsafe.Pointer(&t)).data
	return nil
}
