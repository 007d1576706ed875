// Command rangefunctree covers loops over methods and over functions that call
// themselves, by a value, by an interface and of generic types, with points in
// their bodies.
package main

import (
	"cmp"
	"fmt"
	"iter"
)

type tree[K cmp.Ordered, V any] struct {
	left, right *tree[K, V]
	key         K
	value       V
}

func (t *tree[K, V]) put(k K, v V) *tree[K, V] {
	if t == nil {
		return &tree[K, V]{key: k, value: v}
	}
	switch c := cmp.Compare(k, t.key); {
	case c < 0:
		t.left = t.left.put(k, v)
	case c > 0:
		t.right = t.right.put(k, v)
	default:
		t.value = v
	}
	return t
}

func (t *tree[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) { t.push(yield) }
}

func (t *tree[K, V]) push(yield func(K, V) bool) bool {
	return t == nil || t.left.push(yield) && yield(t.key, t.value) && t.right.push(yield)
}

type walker interface{ Walk(func(int) bool) }

type list struct {
	next *list
	n    int
}

func (l *list) Walk(yield func(int) bool) {
	for ; l != nil; l = l.next {
		if !yield(l.n) {
			return
		}
	}
}

type steps int

func (s steps) Walk(yield func(int) bool) {
	if s > 0 && yield(int(s)) {
		(s / 2).Walk(yield)
	}
}

func keys[K, V any](seq iter.Seq2[K, V]) iter.Seq[K] {
	return func(yield func(K) bool) {
		for k := range seq {
			if !yield(k) {
				return
			}
		}
	}
}

func limit[T any](n int, seq iter.Seq[T]) iter.Seq[T] {
	return func(yield func(T) bool) {
		if n <= 0 {
			return
		}
		left := n
		for v := range seq {
			if !yield(v) {
				return
			}
			if left--; left == 0 {
				return
			}
		}
	}
}

type visit struct {
	seen  []string
	total int
}

func (v *visit) work(n int) {
	for k := range 300 {
		v.total = (v.total*3 + n*k) % 10007
	}
}

func main() {
	var names *tree[string, int]
	for i, s := range []string{"m", "c", "x", "a", "d", "y", "n"} {
		names = names.put(s, i)
	}
	v := &visit{}
	for k, n := range names.all() { //difftest:loop
		v.work(n)
		v.seen = append(v.seen, k)
		fmt.Println(k, n, v.total)
		if k == "x" {
			break
		}
	}
	var floats *tree[float64, []int]
	for i := range 6 {
		floats = floats.put(float64(i*5%7)/2, []int{i})
	}
	for k := range limit(4, keys(floats.all())) { //difftest:loop
		v.work(int(k * 2))
		for m := range limit(2, keys(names.all())) { //difftest:loop
			v.work(len(m))
			fmt.Println(k, m, v.total)
		}
	}
	for _, w := range []walker{&list{&list{&list{nil, 3}, 2}, 1}, steps(12)} {
		for n := range w.Walk { //difftest:loop
			v.work(n)
			fmt.Printf("%T %d %d\n", w, n, v.total)
		}
	}
	l := &list{&list{nil, 8}, 9}
	for n := range l.Walk { //difftest:loop
		v.work(n)
		l.n++
		fmt.Println(n, v.total, l.n)
	}
	fmt.Println(v.seen, v.total)
}
