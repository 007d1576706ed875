package hdf5

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"unicode/utf8"
)

type attribute struct {
	name string
	typ  Type
	dims []uint64 // nil: scalar
	data []byte
}

func newAttribute(name string, value any) (attribute, error) {
	a := attribute{name: name}
	if name == "" || strings.IndexByte(name, 0) >= 0 || !utf8.ValidString(name) {
		return a, errors.New("name is not UTF-8 without NUL")
	}
	v := reflect.ValueOf(value)
	var items []reflect.Value
	switch v.Kind() {
	case reflect.Invalid:
		return a, fmt.Errorf("%w: a value of type %T", ErrUnsupported, value)
	case reflect.Slice:
		a.dims = []uint64{uint64(v.Len())}
		for i := range v.Len() {
			items = append(items, v.Index(i))
		}
		v = reflect.Zero(v.Type().Elem())
	default:
		items = []reflect.Value{v}
	}
	switch k := v.Kind(); k {
	case reflect.String:
		a.typ = Type{Class: String, Size: 1}
		for _, s := range items {
			a.typ.Size = max(a.typ.Size, s.Len())
			if strings.HasSuffix(s.String(), "\x00") {
				return a, errors.New("a string that ends in NUL")
			}
		}
	case reflect.Bool:
		a.typ = Type{Class: Bool, Size: 1}
	case reflect.Float32, reflect.Float64:
		a.typ = Type{Class: Float, Size: int(v.Type().Size())}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		a.typ = Type{Class: Int, Size: int(v.Type().Size())}
		if k == reflect.Int {
			a.typ.Size = 8
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		a.typ = Type{Class: Uint, Size: int(v.Type().Size())}
		if k == reflect.Uint {
			a.typ.Size = 8
		}
	default:
		return a, fmt.Errorf("%w: a value of type %T", ErrUnsupported, value)
	}
	if len(items) > maxMessage/a.typ.Size { // the emitter checks the exact size later
		return a, tooLarge(uint64(len(items)) * uint64(a.typ.Size))
	}
	for _, v := range items {
		switch a.typ.Class {
		case String:
			a.data = append(a.data, v.String()...)
			a.data = append(a.data, make([]byte, a.typ.Size-v.Len())...)
		case Bool:
			b := byte(0)
			if v.Bool() {
				b = 1
			}
			a.data = append(a.data, b)
		case Int:
			a.data = appendUint(a.data, uint64(v.Int()), a.typ.Size)
		case Uint:
			a.data = appendUint(a.data, v.Uint(), a.typ.Size)
		case Float:
			if a.typ.Size == 4 {
				a.data = le.AppendUint32(a.data, math.Float32bits(float32(v.Float())))
			} else {
				a.data = le.AppendUint64(a.data, math.Float64bits(v.Float()))
			}
		}
	}
	if n := len(a.message()); n > maxMessage {
		return a, tooLarge(uint64(n))
	}
	return a, nil
}

func tooLarge(n uint64) error {
	return fmt.Errorf("%w: %d bytes, an attribute or a type has at most 64 KiB", ErrUnsupported, n)
}

// message encodes the attribute message.
func (a *attribute) message() []byte {
	typ, space := appendType(nil, a.typ), appendSpace(nil, a.dims)
	b := []byte{3, 0}
	b = le.AppendUint16(b, uint16(len(a.name)+1))
	b = le.AppendUint16(b, uint16(len(typ)))
	b = le.AppendUint16(b, uint16(len(space)))
	b = append(b, 1) // UTF-8
	b = append(append(b, a.name...), 0)
	b = append(b, typ...)
	b = append(b, space...)
	return append(b, a.data...)
}

// appendSpace appends a dataspace message. nil dims stands for a scalar.
func appendSpace(b []byte, dims []uint64) []byte {
	kind := byte(1)
	if len(dims) == 0 {
		kind = 0
	}
	b = append(b, 2, byte(len(dims)), 0, kind)
	for _, d := range dims {
		b = le.AppendUint64(b, d)
	}
	return b
}
