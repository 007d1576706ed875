// Package dep has types that it does not export.
package dep

type state struct {
	N    int
	list []*item
}

type item struct{ weight float64 }

type mode int

const (
	Slow mode = iota
	Fast
)

// New returns a state.
func New(n int) *state { return &state{N: n} }

func (s *state) Add(w float64) *item {
	i := &item{w}
	s.list = append(s.list, i)
	return i
}

func (s *state) Sum() (sum float64) {
	for _, i := range s.list {
		sum += i.weight
	}
	return sum
}

func (i *item) Grow(f float64) { i.weight *= f }

// Of returns a value, not a pointer.
func Of(n int) state { return state{N: n} }

// All gives the items one by one.
func (s *state) All() func(func(int, *item) bool) {
	return func(yield func(int, *item) bool) {
		for i, x := range s.list {
			if !yield(i, x) {
				return
			}
		}
	}
}
