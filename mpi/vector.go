package mpi

import (
	"reflect"

	"github.com/cairnrun/cairn/internal/p2p"
)

// vector is an argument of a collective: a slice, or an array on devices.
type vector[T any] struct {
	s []T
	m *p2p.Memory // nil: a slice
}

func of[T any](s []T) vector[T] { return vector[T]{s: s} }

// ofArray returns the vector of an array, which may be nil.
func ofArray[T any](a Array[T]) (v vector[T], err error) {
	if x := reflect.ValueOf(a); !x.IsValid() || x.Kind() == reflect.Pointer && x.IsNil() {
		return v, nil
	}
	v.m, err = memoryOf(a)
	return v, err
}

// ofArrays is ofArray for two arrays.
func ofArrays[T any](a, b Array[T]) (v, w vector[T], err error) {
	if v, err = ofArray(a); err == nil {
		w, err = ofArray(b)
	}
	return v, w, err
}

// len returns the number of elements.
func (v vector[T]) len() int {
	if v.m == nil {
		return len(v.s)
	}
	return v.m.Len() / sizeOf[T](1)
}

// part returns elements from…to.
func (v vector[T]) part(from, to int) vector[T] {
	if v.m == nil {
		return vector[T]{s: v.s[from:to:to]}
	}
	return vector[T]{m: v.m.Slice(sizeOf[T](from), sizeOf[T](to))}
}

// slice returns the elements, in new memory if v is an array.
func (v vector[T]) slice() ([]T, error) {
	if v.m == nil {
		return v.s, nil
	}
	s := make([]T, v.len())
	b, err := view(s)
	if err == nil {
		err = v.m.Read(b)
	}
	return s, err
}

// set copies elements to v, as many as both have.
func (v vector[T]) set(from vector[T]) error {
	n := min(v.len(), from.len())
	if v.m == nil && from.m == nil {
		copy(v.s, from.s)
		return nil
	}
	if n == 0 {
		return nil
	}
	s, err := from.part(0, n).slice()
	if err != nil {
		return err
	}
	if v.m == nil {
		copy(v.s, s)
		return nil
	}
	b, err := view(s)
	if err != nil {
		return err
	}
	return v.part(0, n).m.Write(b)
}

// overlaps reports whether two vectors may share memory.
func (v vector[T]) overlaps(w vector[T]) bool {
	if v.m != nil && w.m != nil {
		return v.m.Overlaps(w.m.Parts)
	}
	return v.m == nil && w.m == nil && overlap(v.s, w.s)
}

// send, receive and shift are messages of vectors.

func (k collective) isend(m *p2p.Memory, dest int) *Request {
	q := &Request{comm: k.c, send: true, peer: dest, tag: int(k.kind)}
	q.r = k.c.in().Engine().IsendMemory(k.c.in().Context(), k.c.in().Peer(dest), int32(k.kind), m)
	return q
}

func (k collective) irecv(m *p2p.Memory, source int) *Request {
	q := &Request{comm: k.c, peer: source, tag: int(k.kind)}
	q.settleArray(m)
	q.r = k.c.in().Engine().IrecvMemory(k.c.in().Context(), k.c.in().Peer(source), int32(k.kind), m)
	return q
}

func startVector[T any](k collective, v vector[T], dest int) *Request {
	if v.m != nil && v.len() > 0 {
		return k.isend(v.m, dest)
	}
	return Isend(k.c, v.s, dest, int(k.kind))
}

func awaitVector[T any](k collective, v vector[T], source int) *Request {
	if v.m != nil && v.len() > 0 {
		return k.irecv(v.m, source)
	}
	return Irecv(k.c, v.s, source, int(k.kind))
}
