package scc

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestComponents checks components and their order: callees come first.
func TestComponents(t *testing.T) {
	for _, c := range []struct {
		name  string
		roots []int
		edges map[int][]int
		want  string
	}{
		{"nothing", nil, nil, "[]"},
		{"callees first", []int{1}, map[int][]int{1: {2, 3}, 2: {4}}, "[[4] [2] [3] [1]]"},
		{"a loop of one", []int{1}, map[int][]int{1: {1}}, "[[1]]"},
		{"two loops", []int{1}, map[int][]int{1: {2}, 2: {3}, 3: {2, 4}, 4: {5}, 5: {4}}, "[[4 5] [2 3] [1]]"},
		{"loops that share a node", []int{1}, map[int][]int{1: {2, 3}, 2: {1}, 3: {1}}, "[[1 2 3]]"},
		{"roots", []int{1, 2, 3}, map[int][]int{2: {1}}, "[[1] [2] [3]]"},
		{"unreached", []int{2}, map[int][]int{1: {2}}, "[[2]]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Components(c.roots, func(n int) []int { return c.edges[n] })
			if fmt.Sprint(got) != c.want {
				t.Errorf("%v, want %s", got, c.want)
			}
		})
	}
}

// TestComponents_Deep shows that a long chain needs no deep stack, nor time in
// proportion to the square of its length.
func TestComponents_Deep(t *testing.T) {
	const n = 1 << 17
	got := Components([]int{0}, func(i int) []int { return []int{min(i+1, n)} })
	if len(got) != n+1 || got[0][0] != n || got[n][0] != 0 {
		t.Errorf("%d components", len(got))
	}
}

// TestComponents_Random compares with the definition: two nodes share a
// component if each reaches the other.
func TestComponents_Random(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		n := 1 + r.IntN(9)
		edges := make([][]int, n)
		reach := make([][]bool, n)
		for i := range edges {
			reach[i] = make([]bool, n)
			reach[i][i] = true
		}
		for range r.IntN(2 * n) {
			a, b := r.IntN(n), r.IntN(n)
			edges[a] = append(edges[a], b)
			reach[a][b] = true
		}
		for k := range n {
			for i := range n {
				for j := range n {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		roots := make([]int, n)
		for i := range roots {
			roots[i] = i
		}
		group := slices.Repeat([]int{-1}, n)
		for g, c := range Components(roots, func(i int) []int { return edges[i] }) {
			for _, i := range c {
				group[i] = g
			}
		}
		for i := range n {
			for j := range n {
				if together := reach[i][j] && reach[j][i]; group[i] < 0 || together != (group[i] == group[j]) || reach[i][j] && group[i] < group[j] {
					t.Fatalf("seed %d: %v: groups %v", seed, edges, group)
				}
			}
		}
	}
}
