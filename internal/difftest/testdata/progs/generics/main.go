// Command generics covers generic functions and types, constraints, methods of
// generic types, and points inside them with several instantiations.
package main

import (
	"cmp"
	"fmt"
)

type number interface{ ~int | ~int64 | ~float64 }

type celsius float64

type tree[K cmp.Ordered, V any] struct {
	root *node[K, V]
	size int
}

type node[K cmp.Ordered, V any] struct {
	key         K
	value       V
	left, right *node[K, V]
}

func (t *tree[K, V]) put(k K, v V) {
	at := &t.root
	for *at != nil {
		switch c := cmp.Compare(k, (*at).key); {
		case c < 0:
			at = &(*at).left
		case c > 0:
			at = &(*at).right
		default:
			(*at).value = v
			return
		}
	}
	*at = &node[K, V]{key: k, value: v}
	t.size++
}

func (t *tree[K, V]) each(f func(K, V)) { walk(t.root, f) }

func walk[K cmp.Ordered, V any](n *node[K, V], f func(K, V)) {
	if n != nil {
		walk(n.left, f)
		f(n.key, n.value)
		walk(n.right, f)
	}
}

func fold[T any, A number](list []T, start A, f func(A, T) A) A {
	for i, v := range list { //difftest:loop
		for range 1000 {
			start = f(start, v)
		}
		fmt.Println("fold", i, start)
	}
	return start
}

type pair[A, B any] struct {
	a A
	b B
}

func zip[A, B any](as []A, bs []B) (ps []pair[A, B]) {
	for i := range min(len(as), len(bs)) {
		ps = append(ps, pair[A, B]{as[i], bs[i]})
	}
	return ps
}

func main() {
	t := &tree[string, int]{}
	for i, w := range []string{"m", "c", "x", "a", "d", "m"} { //difftest:loop
		for range 500 {
			t.put(w, i)
		}
		fmt.Println("put", w, t.size)
	}
	n := fold([]int{1, 2, 3}, 0, func(a int, v int) int { return (a*3 + v) % 1013 })
	c := fold([]string{"ab", "c"}, celsius(1), func(a celsius, s string) celsius { return a/2 + celsius(len(s)) })
	t.each(func(k string, v int) { fmt.Print(k, "=", v, " ") })
	fmt.Println(n, c, zip([]int{1, 2}, []celsius{c, 3}))
}
