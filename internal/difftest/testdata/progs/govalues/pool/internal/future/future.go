// Package future has values that come later. Only package pool may import it.
package future

type Value[V any] struct {
	done chan struct{}
	v    V
}

// New returns a value, and the function that sets it.
func New[V any]() (*Value[V], func(V)) {
	f := &Value[V]{done: make(chan struct{})}
	return f, func(v V) {
		f.v = v
		close(f.done)
	}
}

func (f *Value[V]) Wait() V {
	<-f.done
	return f.v
}
