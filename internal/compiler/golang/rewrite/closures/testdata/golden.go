package golden

import "fmt"

type grid struct{ rows [][]float64 }

func (g *grid) norm(scale float64) float64 { return scale * float64(len(g.rows)) }

// run keeps its closures.
func run(n int, rows [][]float64) []func(int) int {
	var hooks []func(int) int
	for i := range 3 {
		// counts
		hooks = append(hooks, func(x int) int {
			n++ // shared by all
			return n + i*x
		})
	}
	hooks = append(hooks, func(x int) int { return x * x })
	g := &grid{rows}
	norm := g.norm
	hooks = append(hooks, func(x int) int {
		later := func() { rows[0][0] += norm(float64(x)) }
		later()
		return int(rows[0][0])
	})
	return hooks
}

func first[T any](xs []T) func() (T, error) {
	return func() (x T, err error) {
		if len(xs) == 0 {
			return x, fmt.Errorf("none")
		}
		x, xs = xs[0], xs[1:]
		return
	}
}

var _, _ = first([]int{1}), first([]grid{})
