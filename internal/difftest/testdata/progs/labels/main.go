// Command labels covers labelled break and continue out of nested loops, a
// labelled switch inside a loop, and goto.
package main

import "fmt"

func classify(n int) string {
	tries := 0
again:
	tries++
	if n > 100 {
		n -= 37
		goto again
	}
	if n%2 == 0 {
		goto even
	}
	return fmt.Sprint("odd after ", tries)
even:
	return fmt.Sprint("even after ", tries)
}

func main() {
	seen := 0
outer:
	for round := 0; ; round++ { //difftest:loop
		fmt.Println("round", round, classify(round*61), seen)
	inner:
		for i := 0; i < 200; i++ {
			for j := 0; j < 20; j++ {
				seen++
				if j == i%13+3 {
					continue inner
				}
				if i*j > 900+round {
					continue outer
				}
				if seen > 9000 {
					break outer
				}
			}
		sw:
			switch {
			case i%5 == 0:
				if round%2 == 0 {
					break sw
				}
				seen += 2
			case i%7 == 0:
				break inner
			}
		}
		if round == 11 {
			break
		}
	}
	fmt.Println("seen", seen)
}
