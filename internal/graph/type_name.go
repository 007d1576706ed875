package graph

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// typeName returns the full name of a type: main.T, example.com/x/y.T,
// []*main.T…
func typeName(t reflect.Type) string {
	if t == nil {
		return "nil"
	}
	if n := t.Name(); n != "" {
		if t.PkgPath() == "" {
			return n
		}
		return t.PkgPath() + "." + n
	}
	switch t.Kind() {
	case reflect.Pointer:
		return "*" + typeName(t.Elem())
	case reflect.Slice:
		return "[]" + typeName(t.Elem())
	case reflect.Array:
		return "[" + strconv.Itoa(t.Len()) + "]" + typeName(t.Elem())
	case reflect.Map:
		return "map[" + typeName(t.Key()) + "]" + typeName(t.Elem())
	case reflect.Chan:
		e := typeName(t.Elem())
		if t.Elem().Kind() == reflect.Chan {
			e = "(" + e + ")"
		}
		return t.ChanDir().String() + " " + e
	case reflect.Struct:
		var b strings.Builder
		b.WriteString("struct {")
		for i := range t.NumField() {
			f := t.Field(i)
			if i > 0 {
				b.WriteByte(';')
			}
			b.WriteByte(' ')
			if f.PkgPath != "" && f.Name != "_" {
				b.WriteString(f.PkgPath + ".")
			}
			if f.Anonymous {
				b.WriteByte('@')
			}
			b.WriteString(f.Name + " " + typeName(f.Type))
			if f.Tag != "" {
				b.WriteString(" " + strconv.Quote(string(f.Tag)))
			}
		}
		b.WriteString(" }")
		return b.String()
	case reflect.Interface:
		if t.NumMethod() == 0 {
			return "interface {}"
		}
		var b strings.Builder
		b.WriteString("interface {")
		for i := range t.NumMethod() {
			m := t.Method(i)
			b.WriteString(" " + m.Name + typeName(m.Type)[len("func"):] + ";")
		}
		return b.String() + " }"
	case reflect.Func:
		var b strings.Builder
		b.WriteString("func(")
		for i := range t.NumIn() {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(typeName(t.In(i)))
		}
		if t.IsVariadic() {
			b.WriteString("...")
		}
		b.WriteString(")")
		for i := range t.NumOut() {
			b.WriteString([]string{" (", ", "}[min(i, 1)] + typeName(t.Out(i)))
		}
		if t.NumOut() > 0 {
			b.WriteString(")")
		}
		return b.String()
	}
	return t.String()
}

var basicTypes = func() map[string]reflect.Type {
	m := map[string]reflect.Type{"interface {}": reflect.TypeFor[any](), "error": reflect.TypeFor[error]()}
	for _, v := range []any{false, 0, int8(0), int16(0), int32(0), int64(0), uint(0), uint8(0), uint16(0), uint32(0), uint64(0),
		uintptr(0), float32(0), 0.0, complex64(0), complex128(0), ""} {
		m[reflect.TypeOf(v).Name()] = reflect.TypeOf(v)
	}
	return m
}()

// resolver turns names into types.
type resolver struct {
	registered map[string][]reflect.Type
	static     map[string][]reflect.Type
	checked    map[reflect.Type]error
}

// newResolver returns a resolver for the registered types, the types that the
// roots' types lead to, and those of the binary, in this order of preference.
func newResolver(roots []*plan, registered []reflect.Type) *resolver {
	r := &resolver{make(map[string][]reflect.Type), make(map[string][]reflect.Type), make(map[reflect.Type]error)}
	add := func(m map[string][]reflect.Type, t reflect.Type) {
		n := typeName(t)
		if slices.Contains(m[n], t) {
			return
		}
		m[n] = append(m[n], t)
	}
	for _, t := range registered {
		add(r.registered, t)
		if t.Kind() == reflect.Pointer {
			add(r.registered, t.Elem())
		}
	}
	for _, p := range roots {
		for _, q := range p.closure() {
			add(r.static, q.t)
		}
	}
	return r
}

// check makes sure that t is found by its name.
func (r *resolver) check(t reflect.Type) error {
	err, ok := r.checked[t]
	if !ok {
		name := typeName(t)
		var u reflect.Type
		if u, err = r.resolve(name); err == nil && u != t {
			err = fmt.Errorf("two types are called %s (declared inside functions); register one with cairn.Register", name)
		}
		r.checked[t] = err
	}
	return err
}

// Bounds of what resolve examines and creates.
const (
	maxName     = 1 << 16
	maxTypeSize = 1 << (16 + 3*wordSize) // 1 TiB, or 256 MiB where addresses are short
)

func (r *resolver) resolve(name string) (reflect.Type, error) {
	if len(name) > maxName {
		return nil, fmt.Errorf("%w: a type name of %d bytes", ErrInvalid, len(name))
	}
	return r.parse(name, 0)
}

func (r *resolver) parse(name string, depth int) (reflect.Type, error) {
	if depth > 100 {
		return nil, fmt.Errorf("%w: a type name that is nested too deeply", ErrInvalid)
	}
	for _, m := range []map[string][]reflect.Type{r.registered, r.static} {
		if ts := m[name]; len(ts) > 0 {
			return one(name, ts)
		}
	}
	if t := basicTypes[name]; t != nil {
		return t, nil
	}
	switch {
	case strings.HasPrefix(name, "*"):
		t, err := r.parse(name[1:], depth+1)
		if err != nil {
			return nil, err
		}
		return reflect.PointerTo(t), nil
	case strings.HasPrefix(name, "[]"):
		t, err := r.parse(name[2:], depth+1)
		if err != nil {
			return nil, err
		}
		return reflect.SliceOf(t), nil
	case strings.HasPrefix(name, "["):
		num, rest, ok := strings.Cut(name[1:], "]")
		n, err := strconv.ParseUint(num, 10, 40)
		if !ok || err != nil {
			return nil, fmt.Errorf("%w: the type name %.100q", ErrInvalid, name)
		}
		t, err := r.parse(rest, depth+1)
		if err != nil {
			return nil, err
		}
		if n > maxTypeSize/max(1, uint64(t.Size())) {
			return nil, fmt.Errorf("%w: the type %.100q is too large", ErrInvalid, name)
		}
		return reflect.ArrayOf(int(n), t), nil
	case strings.HasPrefix(name, "map["):
		key, val, ok := cutKey(name[len("map["):])
		if !ok {
			return nil, fmt.Errorf("%w: the type name %.100q", ErrInvalid, name)
		}
		k, err := r.parse(key, depth+1)
		if err != nil {
			return nil, err
		}
		v, err := r.parse(val, depth+1)
		if err != nil {
			return nil, err
		}
		if !k.Comparable() {
			return nil, fmt.Errorf("%w: the type name %.100q", ErrInvalid, name)
		}
		return reflect.MapOf(k, v), nil
	}
	ts := binaryTypes(name)
	if len(ts) == 0 {
		return nil, fmt.Errorf("no type %.200s in the program; register it with cairn.Register", name)
	}
	return one(name, ts)
}

func one(name string, ts []reflect.Type) (reflect.Type, error) {
	if len(ts) > 1 {
		return nil, fmt.Errorf("two types are called %s (declared inside functions); register one with cairn.Register", name)
	}
	return ts[0], nil
}

// cutKey cuts K]V at the bracket that ends K.
func cutKey(s string) (key, val string, ok bool) {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '[', '{', '(':
			depth++
		case '}', ')':
			depth--
		case ']':
			if depth--; depth < 0 {
				return s[:i], s[i+1:], true
			}
		}
	}
	return "", "", false
}
