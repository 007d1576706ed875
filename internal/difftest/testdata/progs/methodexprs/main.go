// Command methodexprs calls methods with loops through method expressions that
// are values. Their receivers are reached through pointers and embedded fields,
// which a resumed program cannot follow from a zero receiver.
package main

import (
	"fmt"
	"slices"
)

type inner struct{ n int }

func (i inner) sum(k int) (s int) {
	for j := range k { //difftest:loop
		s += j * i.n
	}
	return s
}

func (i *inner) add(k int) (s int) {
	for j := range k { //difftest:loop
		s += j * i.n
		i.n = (i.n*7 + j) % 13
	}
	return s
}

func (i inner) note(to *[]int) {
	for j := range i.n { //difftest:loop
		*to = append(*to, j*i.n)
	}
}

func (i inner) compare(j inner) int {
	a, b := 0, 0
	for k := range 3 {
		a += i.n * k
		b += j.n * k
	}
	return a - b
}

type outer struct{ *inner }

type deep struct {
	pad int
	*outer
}

type flat struct {
	pad int
	inner
}

type summer interface{ sum(int) int }

type box struct{ summer }

type stack[T any] struct{ list []T }

func (s stack[T]) count(k int) (n int) {
	for i := range k { //difftest:loop
		n += i * len(s.list)
	}
	return n
}

func counts[T any](s *stack[T], k int) int {
	f := (*stack[T]).count
	return f(s, k) + (*stack[T]).count(s, k+1)
}

func apply[T any](x T, f func(T, int) int) int { return f(x, 4) + f(x, 3) }

func main() {
	a, b, c := (*outer).sum, outer.add, deep.add
	fmt.Println(a(&outer{&inner{3}}, 5), b(outer{&inner{3}}, 5), c(deep{1, &outer{&inner{4}}}, 5))
	d, e, f := (*deep).sum, (*inner).sum, (*flat).add
	fmt.Println(d(&deep{1, &outer{&inner{4}}}, 5), e(&inner{6}, 5), f(&flat{1, inner{7}}, 5))
	var noted []int
	g := (*flat).note
	g(&flat{2, inner{5}}, &noted)
	(*deep).note(&deep{3, &outer{&inner{4}}}, &noted)
	fmt.Println(noted)
	h, i := summer.sum, box.sum
	fmt.Println(h(inner{7}, 5), h(&outer{&inner{8}}, 5), i(box{deep{2, &outer{&inner{9}}}}, 4))
	fmt.Println(counts(&stack[string]{[]string{"a", "b"}}, 6), counts(&stack[int]{[]int{1}}, 4))
	fmt.Println(apply(&outer{&inner{2}}, (*outer).sum), apply(&flat{1, inner{3}}, (*flat).add), apply(&stack[int]{[]int{1, 2}}, (*stack[int]).count))
	table := map[string]func(*flat, int) int{"sum": (*flat).sum, "add": (*flat).add}
	for _, name := range []string{"add", "sum", "add"} {
		fmt.Println(name, table[name](&flat{4, inner{5}}, 6))
	}
	list := []*inner{{5}, {2}, {9}, {1}}
	slices.SortFunc(list, func(x, y *inner) int { return (*inner).compare(x, *y) })
	for _, x := range list {
		fmt.Print(x.n, " ")
	}
	fmt.Println()
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		var none *outer
		a(none, 3)
	}()
	func() {
		defer func() { fmt.Println("recovered:", recover()) }()
		d(&deep{}, 3)
	}()
	done := make(chan int)
	go func() { done <- d(&deep{1, &outer{&inner{5}}}, 7) }()
	fmt.Println(<-done)
}
