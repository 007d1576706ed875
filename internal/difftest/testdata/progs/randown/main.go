// Command randown covers math/rand with a source of its own, shared by two
// users, a Zipf generator, and Shuffle, kept across points.
package main

import (
	"fmt"
	"math/rand"
)

type walker struct {
	rng  *rand.Rand
	x, y int
}

func (w *walker) walk(n int) {
	for range n {
		switch w.rng.Intn(4) {
		case 0:
			w.x++
		case 1:
			w.x--
		case 2:
			w.y++
		default:
			w.y--
		}
	}
}

func main() {
	rng := rand.New(rand.NewSource(42))
	a, b := &walker{rng: rng}, &walker{rng: rand.New(rand.NewSource(7))}
	zipf := rand.NewZipf(rng, 1.3, 2, 1000)
	deck := []string{"ace", "king", "queen", "jack"}
	for i := range 8 { //difftest:loop
		a.walk(1000)
		b.walk(rng.Intn(500))
		rng.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		fmt.Println(i, a.x, a.y, b.x, b.y, zipf.Uint64(), deck)
	}
	fmt.Println(rng.Perm(5), b.rng.Float64() < 1)
}
