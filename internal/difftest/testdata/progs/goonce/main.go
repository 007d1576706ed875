// Command goonce has goroutines that need the same tables, which the first of
// them computes under a sync.Once. Functions of a Once wait for each other, use
// another Once, and panic.
package main

//difftest:killed 20

import (
	"fmt"
	"sync"
)

type table struct {
	sync.Once
	rows []int
}

func (t *table) fill(n int, from <-chan int) {
	x := <-from
	for i := range n { //difftest:loop
		for k := range 200 {
			x = (x*7 + k + i) % 4001
		}
		t.rows = append(t.rows, x)
	}
}

type cache struct {
	small, large table
	seeds        chan int
	broken       sync.Once
	calls        int
}

func (c *cache) get() []int {
	c.large.Do(func() {
		c.small.Do(func() {
			c.calls++
			c.small.fill(6, c.seeds)
		})
		c.calls++
		c.large.fill(8, c.seeds)
		c.large.rows = append(c.large.rows, c.small.rows...)
	})
	return c.large.rows
}

func (c *cache) fail(id int) (text string) {
	defer func() {
		if v := recover(); v != nil {
			text = fmt.Sprint("panic: ", v)
		}
	}()
	c.broken.Do(func() {
		for range 3 { //difftest:loop
			c.calls++
		}
		panic("broken")
	})
	return ""
}

func main() {
	c := &cache{seeds: make(chan int)}
	sums := make([]int, 5)
	failed := make(chan string, len(sums))
	var wg sync.WaitGroup
	for id := range sums {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for _, v := range c.get() { //difftest:loop
				sums[id] += v * (id + 1)
			}
			if text := c.fail(id); text != "" {
				failed <- text
			}
		}()
	}
	for i := range 2 { //difftest:loop
		c.seeds <- i + 3
	}
	wg.Wait()
	close(failed)
	for text := range failed {
		fmt.Println(text)
	}
	fmt.Println(sums, c.calls)
}
