// Command types declares types in functions.
package main

import "fmt"

type taken int

func spine(x any) { fmt.Printf("%T %v\n", x, x) }

func one() {
	const n = 3
	type grid [n + 1]int
	type (
		cell struct {
			g    grid
			next *cell
		}
		taken string
		names = map[string]cell
	)
	spine(grid{1})
	spine(cell{g: grid{2}})
	spine(taken("t"))
	m := names{"a": {}}
	f := func(c cell) int { return len(c.g) + len(m) }
	spine(f(cell{}))
}

func two() {
	type cell float64
	spine(cell(1.5))
	func() {
		type inner struct{ taken }
		type deep struct{ c cell }
		spine(inner{4})
		spine(deep{2})
	}()
	cells := []cell{1}
	{
		type fmt string
		spine(fmt("f"))
	}
	for range cells {
		type pos struct{ x, y int }
		spine(pos{1, 2})
	}
}

func generic[T comparable, U ~int | ~string](t T, _ U) {
	type held struct{ t T }
	type bare int
	spine(held{t})
	spine(bare(1))
}

type list[K comparable, V any] struct{}

func (l *list[K, V]) pairs(k K, v V, n int) {
	type pair struct {
		k    K
		v    V
		next *pair
	}
	type pairs map[K][]pair
	p := pair{k: k, v: v}
	spine(pairs{k: {p}})
	func() { spine([]any{p, pair{next: &p}.next == &p}) }()
	{
		K := n
		type odd struct{ v V }
		spine(odd{v})
		spine(K)
	}
}

func shadow(point int) {
	type local struct{ point int }
	if point > 0 {
		type point int
		spine(point(3))
	}
	spine(local{point})
}

func main() {
	one()
	two()
	generic("s", 1)
	generic(taken(1), "s")
	(&list[string, int]{}).pairs("k", 3, 2)
	shadow(1)
}
