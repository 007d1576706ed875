// Command closurepoint covers points inside closures: a local one called
// directly, one given to a function of the program, and a recursive one.
package main

import "fmt"

func each(n int, f func(int) int) (sum int) {
	for i := range n {
		sum = sum*3 + f(i)
	}
	return sum
}

func main() {
	hits := 0
	spin := func(n int) int {
		x := n
		for i := range 3 { //difftest:loop
			for k := range 1500 {
				x = (x*9 + k + i) % 7001
			}
			hits++
			fmt.Println("spin", n, i, x, hits)
		}
		return x
	}
	a := spin(1)
	b := each(2, func(i int) int { return spin(i+10) + a })
	var down func(int) int
	down = func(n int) int {
		if n == 0 {
			return hits
		}
		s := spin(n*100) % 10
		return down(n-1)*2 + s
	}
	fmt.Println(a, b, down(2), hits)
	func() {
		for i := range 3 { //difftest:loop
			defer func() { hits += i; fmt.Println("deferred", i, hits) }()
			a += spin(i)
		}
	}()
	fmt.Println(a, hits)
}
