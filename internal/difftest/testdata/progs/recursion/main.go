// Command recursion covers points inside a recursive function: many frames of
// one function, with slices shared between them.
package main

import "fmt"

type puzzle struct {
	weights []int
	best    int
	choice  []bool
	visited int
}

func (p *puzzle) search(i, room, value int, chosen []bool) int {
	p.visited++
	if i == len(p.weights) {
		if value > p.best {
			p.best = value
			copy(p.choice, chosen)
			fmt.Println("better", value, room)
		}
		return 1
	}
	leaves := 0
	for take := 0; take < 2; take++ { //difftest:loop
		left, gain := room, value
		for k := range 300 {
			gain = (gain + k) ^ k
			gain = value
		}
		chosen[i] = take == 1
		if chosen[i] {
			left -= p.weights[i]
			gain += p.weights[i]*3%7 + 1
		}
		if left >= 0 {
			leaves += p.search(i+1, left, gain, chosen)
		}
	}
	chosen[i] = false
	return leaves
}

func main() {
	p := &puzzle{weights: []int{4, 2, 6, 3, 5}, choice: make([]bool, 5)}
	leaves := p.search(0, 10, 0, make([]bool, 5))
	fmt.Println(leaves, p.best, p.choice, p.visited)
}
