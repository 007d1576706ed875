// Command pipeline covers a channel pipeline and a worker pool that live for
// one step each.
package main

import (
	"fmt"
	"sync"
)

func source(n, k int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for i := range n {
			out <- i * k
		}
	}()
	return out
}

func stage(in <-chan int, f func(int) int) <-chan int {
	out := make(chan int, 3)
	go func() {
		defer close(out)
		for v := range in {
			out <- f(v)
		}
	}()
	return out
}

func pool(workers int, jobs []int, f func(int) int) []int {
	type result struct{ i, v int }
	todo, done := make(chan int), make(chan result)
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := range todo {
				done <- result{i, f(jobs[i])}
			}
		}()
	}
	go func() {
		for i := range jobs {
			todo <- i
		}
		close(todo)
		wg.Wait()
		close(done)
	}()
	out := make([]int, len(jobs))
	for r := range done {
		out[r.i] = r.v
	}
	return out
}

func main() {
	jobs := []int{1, 2, 3, 4, 5}
	offset := 0
	for step := range 6 { //difftest:loop
		base := offset
		for v := range stage(stage(source(40, step), func(x int) int { return x + base }), func(x int) int { return x % 17 }) {
			offset += v
		}
		jobs = pool(3, jobs, func(x int) int { return (x*x + offset) % 1001 })
		fmt.Println(step, offset, jobs)
	}
}
