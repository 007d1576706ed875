// Bfs searches a graph from many of its nodes.
package main

import (
	"flag"
	"fmt"
)

type graph struct{ edges [][]int32 }

func newGraph(n, degree int) *graph {
	g := &graph{edges: make([][]int32, n)}
	x := uint64(88172645463325252)
	for i := range g.edges {
		for range degree {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			g.edges[i] = append(g.edges[i], int32(x%uint64(n)))
		}
	}
	return g
}

func (g *graph) search(from int32) (far, reached int) {
	dist := make([]int32, len(g.edges))
	for i := range dist {
		dist[i] = -1
	}
	dist[from] = 0
	queue := []int32{from}
	for len(queue) > 0 {
		v := queue[0]
		queue = queue[1:]
		reached++
		far = max(far, int(dist[v]))
		for _, w := range g.edges[v] {
			if dist[w] < 0 {
				dist[w] = dist[v] + 1
				queue = append(queue, w)
			}
		}
	}
	return far, reached
}

func main() {
	rounds := flag.Int("rounds", 30, "searches")
	flag.Parse()
	g := newGraph(100_000, 6)
	sum := 0
	for i := range *rounds {
		far, reached := g.search(int32(i))
		sum += far + reached
	}
	fmt.Println(sum)
}
