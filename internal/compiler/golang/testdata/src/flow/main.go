package main

import (
	"sort"
	"sync"
)

func add[T int | float64](a, b T) T { return a + b }

func main() { // total s=17 a=13
	var wg sync.WaitGroup
	ch := make(chan int)
	for i := range 4 { // s=4 a=4
		wg.Add(1)
		go func() {
			defer wg.Done()
			ch <- i
		}()
	}
	total := 0
outer:
	for { // s=6 a=3
		select {
		case v := <-ch:
			total = add(total, v)
			if total > 5 {
				break outer
			}
		default:
			continue outer
		}
	}
	wg.Wait()
	list := []int{3, 1, total}
	sort.Slice(list, func(i, j int) bool { return list[i] < list[j] })
	func() {
		total++
	}()
	println(total)
}
