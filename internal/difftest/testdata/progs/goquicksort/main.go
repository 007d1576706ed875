// Command goquicksort starts goroutines recursively, which wait for each other.
package main

import (
	"fmt"
	"sync"
)

func sort(a []int, depth int) {
	if len(a) < 2 {
		return
	}
	p, k := a[0], 0
	for i := 1; i < len(a); i++ { //difftest:loop
		if a[i] < p {
			k++
			a[i], a[k] = a[k], a[i]
		}
	}
	a[0], a[k] = a[k], a[0]
	if depth == 0 {
		sort(a[:k], 0)
		sort(a[k+1:], 0)
		return
	}
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		sort(a[:k], depth-1)
	}()
	sort(a[k+1:], depth-1)
	wg.Wait()
}

type node struct{ left, right *node }

func tree(depth int) *node {
	if depth == 0 {
		return nil
	}
	return &node{tree(depth - 1), tree(depth - 1)}
}

func (n *node) count(out chan<- int) {
	if n == nil {
		out <- 0
		return
	}
	c := make(chan int)
	go n.left.count(c)
	go n.right.count(c)
	out <- 1 + <-c + <-c
}

func main() {
	a := make([]int, 60)
	x := uint32(1)
	for i := range a {
		x = x*1664525 + 1013904223
		a[i] = int(x >> 20)
	}
	sort(a, 3)
	fmt.Println(a)
	for d := range 4 { //difftest:loop
		c := make(chan int, 1)
		tree(d).count(c)
		fmt.Println(d, <-c)
	}
}
