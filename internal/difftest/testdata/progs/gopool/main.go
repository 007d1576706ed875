// Command gopool has workers that get jobs and send results by channels, with
// points in the workers' own loops.
package main

//difftest:daily

import (
	"fmt"
	"sync"
)

type job struct{ n, steps int }

type result struct {
	n   int
	sum uint64
}

func work(j job) (sum uint64) {
	x := uint64(j.n)
	for range j.steps { //difftest:loop
		x = x*6364136223846793005 + 1442695040888963407
		sum += x >> 40
	}
	return sum
}

func worker(jobs <-chan job, results chan<- result, wg *sync.WaitGroup) {
	defer wg.Done()
	for j := range jobs { //difftest:loop
		results <- result{j.n, work(j)}
	}
}

func main() {
	jobs, results := make(chan job), make(chan result, 2)
	var wg sync.WaitGroup
	for range 3 {
		wg.Add(1)
		go worker(jobs, results, &wg)
	}
	go func() {
		for i := range 12 {
			jobs <- job{i, 5 + i%3}
		}
		close(jobs)
	}()
	go func() {
		wg.Wait()
		close(results)
	}()
	all := make([]uint64, 12)
	for r := range results {
		all[r.n] = r.sum
	}
	for i, s := range all {
		fmt.Println(i, s)
	}
}
