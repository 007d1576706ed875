// Command gosends sends values to channels of other types, and starts goroutines
// by all kinds of calls.
package main

import (
	"fmt"
	"time"
)

type myErr struct{ n int }

func (e *myErr) Error() string { return fmt.Sprint("my ", e.n) }

type E chan error
type dur chan time.Duration
type pair[T any] struct {
	c chan T
}

func (p pair[T]) put(v T) { p.c <- v }
func gen[T any](c chan T, f func() T) {
	for i := 0; i < 3; i++ { //difftest:loop
		c <- f()
	}
	close(c)
}

func main() {
	a, e, f, s, d, g := make(chan any), make(E, 1), make(chan func(int) int), make(chan fmt.Stringer), make(dur), make(chan []int, 1)
	go func() {
		a <- 1
		a <- nil
		a <- "x"
		e <- &myErr{3}
		f <- func(i int) int { return i + 1 }
		s <- time.Second
		d <- 5
		select {
		case e <- &myErr{4}:
		case a <- struct{}{}:
		}
		d <- 6
		select {
		case a <- 7:
		}
		g <- nil
		g <- []int{1}
		close(a)
	}()
	for i := 0; i < 3; i++ { //difftest:loop
		fmt.Println(<-a)
	}
	fmt.Println(<-e, (<-f)(2), <-s, <-d)
	var x any
	select {
	case x = <-a:
	case x = <-e:
	}
	fmt.Println(x != nil, <-d)
	var ok bool
	if x, ok = <-a; ok {
		fmt.Println(x)
	}
	fmt.Println(<-g, len(<-g))
	c := make(chan string)
	go gen(c, func() string { return "s" })
	for v := range c {
		fmt.Print(v)
	}
	p := pair[int]{make(chan int)}
	go p.put(4)
	fmt.Println(<-p.c)
	var fn func(int, ...string)
	done := make(chan int)
	fn = func(n int, l ...string) { done <- n + len(l) }
	go fn(1, "a", "b")
	fmt.Println(<-done)
	go fn(2, []string{"z"}...)
	fmt.Println(<-done)
}
