// Command unwindsearch covers functions that search by calling themselves in a
// loop that does next to nothing else: they test whether a checkpoint is due
// when they begin the loop. Some of these loops have no iteration, a label, or
// a variable that is also used outside.
package main

import "fmt"

type board struct {
	n                  int
	cols, diags, antis []bool
	count              int
}

func (b *board) place(row int) {
	if row == b.n {
		b.count++
		return
	}
	for c := 0; c < b.n; c++ { //difftest:loop
		if b.cols[c] || b.diags[row+c] || b.antis[row-c+b.n] {
			continue
		}
		b.cols[c], b.diags[row+c], b.antis[row-c+b.n] = true, true, true
		b.place(row + 1)
		b.cols[c], b.diags[row+c], b.antis[row-c+b.n] = false, false, false
	}
}

// subset begins its loop where its caller was, and may have no iteration.
func subset(w []int, c, left, used int) (best int) {
	best = used
outer:
	for c := c; c < len(w); c++ { //difftest:loop
		x := w[c]
		switch {
		case x > left:
			continue outer
		case x == 0:
			break outer
		}
		if got := subset(w, c+1, left-x, used+x); got > best {
			best = got
		}
	}
	return best*2 - best
}

// fill colours a graph, and returns from within the loop.
func fill(graph [][]bool, colours []int, v, k int) bool {
	if v == len(graph) {
		return true
	}
	ok := [8]bool{}
	for c := 1; c <= k; c++ { //difftest:loop
		if ok[c%8] || bad(graph, colours, v, c, 0) {
			continue
		}
		colours[v] = c
		if fill(graph, colours, v+1, k) {
			return true
		}
		colours[v] = 0
	}
	return false
}

func bad(graph [][]bool, colours []int, v, c, u int) bool {
	return u < len(graph) && (graph[v][u] && colours[u] == c || bad(graph, colours, v, c, u+1))
}

func main() {
	for n := range 6 { //difftest:loop
		b := &board{n: n, cols: make([]bool, n), diags: make([]bool, 2*n), antis: make([]bool, 2*n+1)}
		b.place(0)
		fmt.Println(n, b.count)
	}
	fmt.Println(subset([]int{7, 5, 4, 3, 9, 0, 1}, 0, 13, 0), subset(nil, 0, 5, 2))
	var place func(list []int, at int) int
	total := 0
	place = func(list []int, at int) int {
		sum := at
		for i := at; i < len(list); i++ { //difftest:loop
			if list[i] < 0 {
				total++
				continue
			}
			sum += place(list, i+1) * list[i]
		}
		return sum % 1009
	}
	fmt.Println(place([]int{3, -1, 4, 1, -5, 9}, 0), total)
	graph := make([][]bool, 5)
	for i := range graph {
		graph[i] = make([]bool, 5)
		for j := range graph[i] {
			graph[i][j] = (i+j)%3 == 1
		}
	}
	colours := make([]int, 5)
	fmt.Println(fill(graph, colours, 0, 2), fill(graph, colours, 0, 3), colours)
}
