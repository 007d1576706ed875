// Command iterpoint covers an outer loop whose body ranges over a function
// from inside which a function with a loop is called.
package main

import "fmt"

func grid(n int) func(func(int, int) bool) {
	return func(yield func(int, int) bool) {
		for i := range n {
			for j := range n {
				if !yield(i, j) {
					return
				}
			}
		}
	}
}

func smooth(cells []float64, passes int) float64 {
	for range passes {
		for i := 1; i < len(cells)-1; i++ {
			cells[i] = (cells[i-1] + cells[i] + cells[i+1]) / 3
		}
	}
	return cells[len(cells)/2]
}

func main() {
	cells := make([]float64, 40)
	for i := range cells {
		cells[i] = float64(i * i % 17)
	}
	last := 0.0
	for step := 1; step <= 6; step++ { //difftest:loop
		for i, j := range grid(4) {
			if i == j {
				continue
			}
			last += smooth(cells, i+j) * float64(step)
			if last > 1e4 {
				break
			}
		}
		cells[step] += 5
		fmt.Printf("%d %.12f\n", step, last)
	}
	fmt.Printf("%.9f\n", cells[20])
}
