// Command randv2 covers math/rand/v2: PCG and ChaCha8 sources kept in state.
package main

import (
	"fmt"
	"math/rand/v2"
)

func main() {
	pcg := rand.NewPCG(1, 2)
	r := rand.New(pcg)
	var seed [32]byte
	copy(seed[:], "a seed of thirty-two bytes, yes.")
	cha := rand.NewChaCha8(seed)
	c := rand.New(cha)
	mean, m2 := 0.0, 0.0
	n := 0.0
	for i := range 9 { //difftest:loop
		for range 1500 {
			x := r.NormFloat64() + c.ExpFloat64()
			n++
			d := x - mean
			mean += d / n
			m2 += d * (x - mean)
		}
		fmt.Printf("%d %.9f %.9f %d\n", i, mean, m2/n, cha.Uint64()%1000)
	}
	fmt.Println(pcg.Uint64(), r.IntN(1000), rand.N(1))
}
