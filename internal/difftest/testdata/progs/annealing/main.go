// Command annealing covers simulated annealing of a tour: random numbers, a
// temperature, the best tour so far, and functions as parameters.
package main

import (
	"fmt"
	"math"
	"math/rand"
)

type tour []int

func anneal(cities []complex128, rng *rand.Rand, cool func(float64) float64, report func(int, float64, float64)) (best tour, length float64) {
	dist := func(a, b int) float64 {
		d := cities[a] - cities[b]
		return math.Hypot(real(d), imag(d))
	}
	cur := tour(rng.Perm(len(cities)))
	size := func(t tour) (s float64) {
		for i := range t {
			s += dist(t[i], t[(i+1)%len(t)])
		}
		return s
	}
	now := size(cur)
	best, length = append(tour{}, cur...), now
	round := 0
	for temp := 10.0; temp > 0.5; temp = cool(temp) { //difftest:loop
		for range 300 {
			i, j := rng.Intn(len(cur)), rng.Intn(len(cur))
			cur[i], cur[j] = cur[j], cur[i]
			if s := size(cur); s < now || rng.Float64() < math.Exp((now-s)/temp) {
				now = s
			} else {
				cur[i], cur[j] = cur[j], cur[i]
			}
			if now < length {
				length = now
				copy(best, cur)
			}
		}
		report(round, temp, length)
		round++
	}
	return best, length
}

func main() {
	rng := rand.New(rand.NewSource(3))
	cities := make([]complex128, 12)
	for i := range cities {
		cities[i] = complex(rng.Float64()*10, rng.Float64()*10)
	}
	lines := 0
	best, length := anneal(cities, rng, func(t float64) float64 { return t * 0.75 }, func(r int, t, l float64) {
		lines++
		fmt.Printf("%d %.6f %.9f\n", r, t, l)
	})
	fmt.Printf("%v %.9f %d\n", best, length, lines)
}
