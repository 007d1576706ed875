package graph

import (
	"reflect"
	"testing"
)

// TestPlan_ManyFields collects and restores a struct of 65536 fields.
func TestPlan_ManyFields(t *testing.T) {
	const depth = 15
	typ := reflect.TypeFor[struct {
		P *int
		N int
	}]()
	for range depth {
		typ = reflect.StructOf([]reflect.StructField{{Name: "A", Type: typ}, {Name: "B", Type: typ}})
	}
	last := func(v reflect.Value) reflect.Value {
		for range depth {
			v = v.FieldByName("B")
		}
		return v
	}
	v := reflect.New(typ)
	x := 5
	last(v.Elem()).Field(0).Set(reflect.ValueOf(&x))
	last(v.Elem()).Field(1).SetInt(6)
	f := save(t, []Root{{"v", v.Interface()}}, nil)
	w := reflect.New(typ)
	if err := f.load([]Root{{"v", w.Interface()}}, nil); err != nil {
		t.Fatal(err)
	}
	leaf := last(w.Elem())
	if leaf.Field(0).IsNil() || leaf.Field(0).Elem().Int() != 5 || leaf.Field(1).Int() != 6 {
		t.Errorf("the last field was restored as %v", leaf)
	}
}
