// Command randglobal covers the global generator of math/rand, seeded, and a
// go:debug line that must stay.
//
//go:debug randseednop=0
package main

import (
	"fmt"
	"math/rand"
)

func main() {
	rand.Seed(2024)
	inside := 0
	for i := range 7 { //difftest:loop
		for range 2000 {
			x, y := rand.Float64(), rand.Float64()
			if x*x+y*y < 1 {
				inside++
			}
		}
		fmt.Println(i, inside, rand.Intn(100))
	}
	fmt.Println(inside)
}
