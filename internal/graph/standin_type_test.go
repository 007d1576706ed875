package graph

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"
)

func TestTypes_AreSavedByName(t *testing.T) {
	type key struct {
		t reflect.Type
		n int
	}
	type state struct {
		names map[reflect.Type]string
		keys  map[key]*int
		list  []reflect.Type
		boxed any
		none  reflect.Type
		keyed map[any]reflect.Type
	}
	n := 7
	a := reflect.TypeFor[*state]()
	v := &state{
		names: map[reflect.Type]string{a: "state", reflect.TypeFor[error](): "error", reflect.TypeFor[map[string][]time.Time](): "map"},
		keys:  map[key]*int{{a, 1}: &n, {reflect.TypeFor[int](), 1}: &n},
		list:  []reflect.Type{a, nil, a, reflect.TypeFor[fmt.Stringer](), reflect.TypeFor[struct{ x, Y int }](), reflect.TypeFor[func(int) error]()},
		boxed: a.Elem(),
		keyed: map[any]reflect.Type{a: a.Elem(), 3: a},
	}
	w := *roundTrip(t, &v, nil)
	if !reflect.DeepEqual(v, w) {
		t.Errorf("got %+v, want %+v", w, v)
	}
	if w.names[a] != "state" || w.keys[key{a, 1}] != w.keys[key{reflect.TypeFor[int](), 1}] || w.keyed[a] != a.Elem() {
		t.Errorf("the restored maps do not find their types: %+v", w)
	}
}

// TestTypes_MadeAtRunTime shows that types which the program has made at run
// time cannot be saved.
func TestTypes_MadeAtRunTime(t *testing.T) {
	v := []reflect.Type{reflect.StructOf([]reflect.StructField{{Name: "OnlyHere", Type: reflect.TypeFor[int]()}})}
	_, err := Collect([]Root{{"v", &v}}, nil)
	want(t, err, `v[0].(*reflect.rtype) (*reflect.rtype) cannot be saved: no type struct { OnlyHere int } in the program; register it with cairn.Register`)
}

// TestTypes_UnknownAfterRestart shows that a type which the program lacks after
// a restart is named.
func TestTypes_UnknownAfterRestart(t *testing.T) {
	v := []reflect.Type{reflect.TypeOf(localA())}
	f := save(t, []Root{{"v", &v}}, &Env{Types: []reflect.Type{reflect.TypeOf(localA())}})
	var w []reflect.Type
	err := f.load([]Root{{"v", &w}}, nil)
	var m *MismatchError
	if !errors.As(err, &m) {
		t.Fatalf("got %v", err)
	}
}
