// Command cyclic covers a cyclic graph of structs, maps and slices that point
// at each other, with identity tested after points.
package main

import "fmt"

type city struct {
	name  string
	roads map[*city]int
	near  []*city
	self  *city
	heat  float64
}

func main() {
	names := []string{"a", "b", "c", "d", "e"}
	cities := map[string]*city{}
	for _, n := range names {
		c := &city{name: n, roads: map[*city]int{}}
		c.self = c
		cities[n] = c
	}
	for i, n := range names {
		a, b := cities[n], cities[names[(i*2+1)%5]]
		a.roads[b], b.roads[a] = i+1, i+1
		a.near, b.near = append(a.near, b), append(b.near, a)
	}
	cities["a"].heat = 100
	here := cities["a"]
	visits := map[*city]int{}
	for step := range 9 { //difftest:loop
		for range 50 {
			for _, n := range names {
				c := cities[n]
				for _, o := range c.near {
					flow := (c.heat - o.heat) / float64(10*c.roads[o])
					c.heat -= flow
					o.heat += flow
				}
			}
			here.self.heat *= 1.001
		}
		visits[here]++
		here = here.near[step%len(here.near)]
		fmt.Printf("%d %s %.9f %v\n", step, here.name, here.heat, here == cities[here.name] && here.self == here)
	}
	for _, n := range names {
		fmt.Print(n, visits[cities[n]], " ")
	}
	fmt.Println()
}
