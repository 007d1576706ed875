// Package fut makes method values in generic functions that another package
// instantiates.
package fut

import "sync"

type base struct{ calls int }

func (b *base) count() int { b.calls++; return b.calls }

type Future[V any] struct {
	base
	mu     sync.Mutex
	Values []V
}

func (f *Future[V]) resolve(v V) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Values = append(f.Values, v)
}

// last has a copy as its receiver, which is that of the time at which the value
// was made.
func (p Pair[V]) last(more ...V) (V, int) {
	if len(more) > 0 {
		return more[len(more)-1], len(more)
	}
	return p.B, p.A
}

type Pair[V any] struct {
	A int
	B V
}

type Resolver[V any] interface{ Resolve(v V) }

func (p *Pair[V]) Resolve(v V) { p.A, p.B = p.A+1, v }

// run leads to a point.
func (f *Future[V]) run(n int, v V) int {
	sum := 0
	for i := range n { //difftest:loop
		for k := range 3000 {
			sum = (sum*5 + k ^ i) % 10007
		}
		f.resolve(v)
	}
	return sum
}

// New returns values of methods of all kinds.
func New[V any](first V) (f *Future[V], resolve func(V), count func() int, last func(...V) (V, int), run func(int, V) int) {
	f = new(Future[V])
	p := Pair[V]{7, first}
	last = p.last
	p.A = 100
	return f, f.resolve, f.count, last, f.run
}

// Bound returns the value of an interface's method.
func Bound[V any](r Resolver[V]) func(V) { return r.Resolve }

// Expression returns the value of a method expression.
func Expression[V any]() func(*Future[V], V) { return (*Future[V]).resolve }
