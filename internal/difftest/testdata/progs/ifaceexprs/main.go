// Command ifaceexprs calls methods with loops through method expressions of
// interfaces and of type parameters. A resumed program needs their receivers
// to find the methods.
//
//difftest:daily
//difftest:killed 21
package main

import "fmt"

type num int

func (n num) sum(k int) (s int) {
	for i := range k { //difftest:loop
		s += i * int(n)
	}
	return s
}

type list []int

func (l *list) sum(k int) (s int) {
	for i := range k { //difftest:loop
		*l = append(*l, i)
		s += len(*l)
	}
	return s
}

type summer interface{ sum(int) int }

type box struct {
	name string
	summer
}

func total[T summer](x T, k int) int {
	f := T.sum
	return f(x, k) + f(x, k-1)
}

// value_at has a literal with variables, and a name that begins as the names of
// functions for method values once did.
func value_at(k int) int {
	last := 1
	f := func(n int) int {
		for i := range n { //difftest:loop
			last += i
		}
		return last
	}
	return f(k) + f(k-1)
}

// apply calls what it is given in a loop of its own.
func apply(f func(summer, int) int, list ...summer) (s int) {
	for _, x := range list {
		s = 3*s + f(x, 2)
	}
	return s
}

func main() {
	fmt.Println(apply(summer.sum, num(1), &list{4}, box{"f", num(2)}))
	f, g, h := summer.sum, box.sum, (*box).sum
	fmt.Println(f(num(3), 2), f(&list{}, 2))
	fmt.Println(g(box{"a", num(4)}, 2), h(&box{"b", &list{1}}, 2), g(box{"c", box{"d", num(5)}}, 2))
	fmt.Println(total(num(6), 2), total(&list{2}, 2), total(box{"e", num(7)}, 2), total(summer(num(8)), 2))
	fmt.Println(value_at(3))
}
