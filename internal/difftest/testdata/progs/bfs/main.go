// Command bfs covers breadth-first search over a larger graph: a queue that is
// sliced and appended to, maps of slices, and a condition on both.
package main

import "fmt"

type graph struct {
	edges map[int][]int
	names []string
}

func build(n int) *graph {
	g := &graph{edges: map[int][]int{}}
	for i := range n {
		for _, j := range []int{i*2 + 1, i*3 + 2, (i * 7) % n} {
			if j < n && j != i {
				g.edges[i] = append(g.edges[i], j)
			}
		}
		g.names = append(g.names, fmt.Sprint("v", i))
	}
	return g
}

func main() {
	g := build(3000)
	dist := map[int]int{0: 0}
	frontier := []int{0}
	levels := 0
	for len(frontier) > 0 { //difftest:loop
		var next []int
		sum := 0
		for _, v := range frontier {
			for _, w := range g.edges[v] {
				if _, seen := dist[w]; !seen {
					dist[w] = dist[v] + 1
					next = append(next, w)
				}
				sum = (sum*31 + w) % 1000003
			}
		}
		fmt.Println(levels, len(frontier), len(next), sum, g.names[frontier[len(frontier)/2]])
		frontier = next
		levels++
	}
	fmt.Println(levels, len(dist), dist[2999])
}
