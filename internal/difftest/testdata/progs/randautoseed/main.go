// Command randautoseed covers the global generator of math/rand where a go:debug
// line lets it begin with the seed 1.
//
//go:debug randautoseed=0
package main

import (
	"fmt"
	"math/rand"
)

func main() {
	rand.Seed(7) // does nothing
	sum := 0.0
	for i := range 6 { //difftest:loop
		for range 500 {
			sum += rand.Float64()
		}
		fmt.Println(i, sum, rand.Intn(100), rand.Perm(3))
	}
}
