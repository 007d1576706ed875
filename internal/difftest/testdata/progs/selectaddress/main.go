// Command selectaddress takes the addresses of variables that a select declares.
package main

import "fmt"

type node struct {
	value int
	from  *int
	ok    *bool
}

func main() {
	c := make(chan int, 4)
	var all []*node
	for i := range 6 { //difftest:loop
		if i < 4 {
			c <- 10 * i
		} else if i == 4 {
			close(c)
		}
		select {
		case x, ok := <-c:
			p, q := &x, &ok
			for j := range 3 { //difftest:loop
				*p += i * j
			}
			x++
			all = append(all, &node{x, p, q})
		}
		select {
		case _, ok := <-c:
			q := &ok
			for range 2 { //difftest:loop
				*q = !*q
			}
			all = append(all, &node{ok: q})
		default:
		}
	}
	for _, n := range all {
		if n.from != nil {
			*n.from++
			fmt.Println(n.value, *n.from, *n.ok)
		} else {
			fmt.Println(*n.ok)
		}
	}
}
