// Command rangemap covers range over a map whose order does not matter for
// the output, with entries deleted and changed on the way.
package main

import (
	"fmt"
	"slices"
)

type account struct {
	owner   string
	history []int
}

func digest(a *account, salt int) int {
	h := salt
	for range 2000 {
		for _, v := range a.history {
			h = (h*17 + v) % 65521
		}
	}
	return h
}

// last deletes the entries that were not visited yet.
func last(n int) (visited, sum int) {
	m := map[int]int{}
	for i := range n {
		m[i] = 100
	}
	for k, v := range m { //difftest:loop
		visited++
		sum += v
		for other := range m {
			if other != k {
				delete(m, other)
			}
		}
	}
	return visited, sum
}

func main() {
	fmt.Println(last(1))
	fmt.Println(last(9))
	bank := map[string]*account{}
	for i, name := range []string{"ada", "bob", "cyd", "dan", "eve", "fay", "gus"} {
		bank[name] = &account{owner: name, history: []int{i, i * i}}
	}
	results := map[string]int{}
	visited := 0
	for name, a := range bank { //difftest:loop
		visited++
		a.history = append(a.history, len(name))
		results[name] = digest(a, 7)
		if name == "eve" {
			bank["eve"] = &account{owner: "eve", history: []int{1}}
			delete(results, "nobody")
		}
	}
	fmt.Println("visited", visited)
	names := make([]string, 0, len(results))
	for name := range results {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Println(name, results[name], bank[name].owner, len(bank[name].history))
	}
	for len(bank) > 3 {
		for name := range bank {
			if name > "c" {
				delete(bank, name)
			}
		}
	}
	clear(results)
	fmt.Println(len(bank), len(results))
}
