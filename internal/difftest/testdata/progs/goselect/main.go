// Command goselect has goroutines that wait in select statements of all kinds
// when a checkpoint is taken: with channels that are nil, with several to send
// to, with the same channel twice, with more cases than most programs have, in
// functions that are generic, and with a timer among the channels.
package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

type large struct {
	n    int
	pad  [40]int
	self *large
}

// merge receives from two channels until both are closed.
func merge[T any](a, b <-chan T, out func(T)) {
	for a != nil || b != nil {
		select {
		case v, ok := <-a:
			if !ok {
				a = nil
				continue
			}
			out(v)
		case v, ok := <-b:
			if !ok {
				b = nil
				continue
			}
			out(v)
		}
	}
}

// spread sends each number to one of two channels.
func spread(n int, a, b chan<- int) {
	defer close(a)
	defer close(b)
	for i := range n {
		select {
		case a <- i:
		case b <- i:
		}
	}
}

// relay sends what it receives; both in one statement.
func relay(in <-chan *large, out chan<- *large, quit <-chan struct{}) (relayed int) {
	var next *large
	for {
		to, from := out, in
		if next == nil {
			to = nil
		} else {
			from = nil
		}
		select {
		case p := <-from:
			if p.self != p {
				panic("a pointer has changed")
			}
			next = p
		case to <- next:
			next = nil
			relayed++
		case <-quit:
			return relayed
		}
	}
}

// any of many channels
func many(c [10]chan int, sum *int) {
	for open := 10; open > 0; {
		i, v, ok := 0, 0, false
		select {
		case v, ok = <-c[0]:
		case v, ok = <-c[1]:
			i = 1
		case v, ok = <-c[2]:
			i = 2
		case v, ok = <-c[3]:
			i = 3
		case v, ok = <-c[4]:
			i = 4
		case v, ok = <-c[5]:
			i = 5
		case v, ok = <-c[6]:
			i = 6
		case v, ok = <-c[7]:
			i = 7
		case v, ok = <-c[8]:
			i = 8
		case v, ok = <-c[9]:
			i = 9
		}
		if !ok {
			c[i] = nil
			open--
			continue
		}
		*sum += v * (i + 1)
	}
}

// exchange gives one number and takes another, in either order, over the same
// channel as its partner.
func exchange(c chan int, mine int) (theirs int) {
	select {
	case c <- mine:
		return <-c
	case theirs = <-c:
		c <- mine
		return theirs
	}
}

var errClosed = errors.New("closed")

// closing has a select that panics because the channel is closed while it
// waits.
func closing(c chan int, never <-chan int) (err error) {
	defer func() {
		if recover() != nil {
			err = errClosed
		}
	}()
	select {
	case c <- 1:
	case <-never:
	}
	return nil
}

func step(i int) (total int) {
	var wg sync.WaitGroup
	a, b := make(chan int), make(chan int, 2)
	go spread(30, a, b)
	merge(a, b, func(v int) { total += v })

	in, out, quit := make(chan *large), make(chan *large), make(chan struct{})
	relayed := make(chan int, 1)
	go func() { relayed <- relay(in, out, quit) }()
	wg.Go(func() {
		for k := range 20 {
			p := &large{n: k}
			p.self = p
			in <- p
		}
	})
	for range 20 {
		total += (<-out).n
	}
	wg.Wait()
	close(quit)
	total += <-relayed

	var c [10]chan int
	for k := range c {
		c[k] = make(chan int, k%2)
		go func() {
			for v := range 5 {
				c[k] <- v
			}
			close(c[k])
		}()
	}
	many(c, &total)

	x := make(chan int)
	theirs := make(chan int, 1)
	go func() { theirs <- exchange(x, 100+i) }()
	total += 3*exchange(x, 200+i) + <-theirs

	y := make(chan int)
	failed := make(chan error, 1)
	go func() { failed <- closing(y, nil) }()
	select {
	case <-time.After(2 * time.Millisecond):
	case err := <-failed:
		fmt.Println("too early:", err)
	}
	close(y)
	if err := <-failed; err != nil {
		total++
	}
	return total
}

func main() {
	total := 0
	for i := range 6 { //difftest:loop
		total = (total*7 + step(i)) % 1000003
		fmt.Println(i, total)
	}
}
