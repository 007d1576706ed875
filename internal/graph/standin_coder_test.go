package graph

import (
	"reflect"
	"sync"
	"testing"
)

// codecMap is a map with a codec. An interface holds it as a single word.
type codecMap map[string]int

func (m *codecMap) CairnState(c *Coder) error {
	n := map[string]int(*m)
	Field(c, "m", &n)
	*m = n
	return nil
}

// codecPointer is a struct of one pointer, with a codec. An interface holds it
// as a single word, too.
type codecPointer struct{ p *int }

func (m *codecPointer) CairnState(c *Coder) error {
	v := 0
	if m.p != nil {
		v = *m.p
	}
	Field(c, "v", &v)
	m.p = &v
	return nil
}

// codecKey is a comparable value with a codec.
type codecKey struct{ n int }

func (k *codecKey) CairnState(c *Coder) error {
	Field(c, "n", &k.n)
	return nil
}

// codecLoop refers to itself, directly and through a map whose keys have
// codecs.
type codecLoop struct {
	m    map[any]*codecLoop
	me   *codecLoop
	name string
}

func (l *codecLoop) CairnState(c *Coder) error {
	Field(c, "m", &l.m)
	Field(c, "me", &l.me)
	Field(c, "name", &l.name)
	return nil
}

// TestCodec_InInterfaces restores values with a codec that an interface holds
// as a pointer.
func TestCodec_InInterfaces(t *testing.T) {
	x := 7
	v := []any{codecMap{"a": 1}, codecPointer{&x}, struct{ q codecPointer }{codecPointer{&x}}}
	w := *roundTrip(t, &v, nil)
	if m := w[0].(codecMap); len(m) != 1 || m["a"] != 1 {
		t.Errorf("a map was restored as %v", m)
	}
	if p := w[1].(codecPointer); p.p == nil || *p.p != 7 {
		t.Errorf("a struct of one pointer was restored as %v", p)
	}
	if s := w[2].(struct{ q codecPointer }); s.q.p == nil || *s.q.p != 7 {
		t.Errorf("a struct that holds it was restored as %v", s)
	}
	m := map[any]any{1: codecMap{"a": 1}}
	if got := (*roundTrip(t, &m, nil))[1].(codecMap); len(got) != 1 || got["a"] != 1 {
		t.Errorf("a map in a map was restored as %v", got)
	}
}

// TestCodec_MapKeys restores maps whose keys have codecs. Entries can be added
// only after the codecs of their keys have run.
func TestCodec_MapKeys(t *testing.T) {
	keys := map[codecKey]int{{1}: 1, {2}: 2}
	if got := *roundTrip(t, &keys, nil); !reflect.DeepEqual(got, keys) {
		t.Errorf("restored %v, want %v", got, keys)
	}
	boxed := map[any]int{codecKey{1}: 1, [1]codecKey{{2}}: 2}
	if got := *roundTrip(t, &boxed, nil); !reflect.DeepEqual(got, boxed) {
		t.Errorf("restored %v, want %v", got, boxed)
	}
	loop := &codecLoop{name: "loop"}
	loop.me = loop
	loop.m = map[any]*codecLoop{codecKey{4}: loop}
	if got := *roundTrip(t, &loop, nil); got.me != got || len(got.m) != 1 || got.m[codecKey{4}] != got || got.name != "loop" {
		t.Errorf("restored %+v", got)
	}
	var sm sync.Map
	sm.Store(codecKey{1}, codecKey{2})
	if got, ok := roundTrip(t, &sm, nil).Load(codecKey{1}); !ok || got != (codecKey{2}) {
		t.Errorf("a sync.Map holds %v", got)
	}
}
