// Command selectcall has a call with a point inside in a communication of a
// select.
package main

import "fmt"

func f(n int) int {
	for i := range 3 { //difftest:loop
		for k := range 500 {
			n = (n*7 + k + i) % 13
		}
	}
	return n % 4
}

type sender struct {
	c chan int
	x int
	v any
}

// next changes all that stands before its call.
func (s *sender) next() int {
	s.x += f(s.x) + 1
	s.c = make(chan int, 1)
	s.v = [2]int{s.x, 7}
	return s.x
}

func show(list ...any) { fmt.Println(list...) }

func main() {
	c := make(chan int, 4)
	for i := range 5 {
		select {
		case c <- f(i):
			fmt.Println("sent", i, f(i+1))
		default:
			fmt.Println("full", <-c)
		}
	}
	s := &sender{c: make(chan int, 1), x: 5, v: [2]int{1, 2}}
	was := s.c
	var never chan int
	select {
	case s.c <- s.x:
		sent := -1
		if len(was) > 0 {
			sent = <-was
		}
		fmt.Println("sent", sent, s.x)
	case never <- s.next():
		fmt.Println("never")
	}
	show(s.v.([2]int), s.next(), s.v.([2]int))
	list := append([]any{s.v.(any)}, s.next(), s.v.([2]int)[0])
	show(list...)
}
