// Command randseednop covers rand.Seed where it does nothing: in a module of Go
// 1.24 or later, without a setting that says otherwise.
package main

import (
	"fmt"
	"math/rand"
)

func main() {
	own := rand.New(rand.NewSource(2024))
	rand.Seed(2024)
	same := 0
	for i := range 6 { //difftest:loop
		for range 500 {
			if rand.Int63() == own.Int63() {
				same++
			}
		}
		rand.Seed(2024)
		fmt.Println(i, same, own.Intn(1000))
	}
}
