// Command types declares types in functions.
package main

import "fmt"

type taken int

func reach(x any) { fmt.Printf("%T %v\n", x, x) }

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
	reach(grid{1})
	reach(cell{g: grid{2}})
	reach(taken("t"))
	m := names{"a": {}}
	f := func(c cell) int { return len(c.g) + len(m) }
	reach(f(cell{}))
}

func two() {
	type cell float64
	reach(cell(1.5))
	func() {
		type inner struct{ taken }
		type deep struct{ c cell }
		reach(inner{4})
		reach(deep{2})
	}()
	cells := []cell{1}
	{
		type fmt string
		reach(fmt("f"))
	}
	for range cells {
		type pos struct{ x, y int }
		reach(pos{1, 2})
	}
}

func generic[T comparable, U ~int | ~string](t T, _ U) {
	type held struct{ t T }
	type bare int
	reach(held{t})
	reach(bare(1))
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
	reach(pairs{k: {p}})
	func() { reach([]any{p, pair{next: &p}.next == &p}) }()
	{
		K := n
		type odd struct{ v V }
		reach(odd{v})
		reach(K)
	}
}

func shadow(point int) {
	type local struct{ point int }
	if point > 0 {
		type point int
		reach(point(3))
	}
	reach(local{point})
}

func main() {
	one()
	two()
	generic("s", 1)
	generic(taken(1), "s")
	(&list[string, int]{}).pairs("k", 3, 2)
	shadow(1)
}
