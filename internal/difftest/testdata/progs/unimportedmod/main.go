// Command unimportedmod keeps values whose types are of packages that only a
// dependency imports: one of its own module, and one of another module.
package main

import (
	"fmt"

	"example.org/store"
)

func each(n int, f func(int)) {
	for i := range n { //difftest:loop
		f(i)
	}
}

func main() {
	s := store.New()
	k, sum := s.Key(1), s.Digest() // a key.Key and a hash.Hash32
	for r := range 4 {             //difftest:loop
		kind := s.Kind(r) // a *kind.Kind
		each(3, func(i int) {
			for j := range 100 {
				k = k.Next(i*j + r)
				kind.Count(int(k.Low()))
			}
			fmt.Fprint(sum, k.Low(), kind.Total)
		})
		s.Put(k, kind.Total)
		fmt.Println(r, k.Low(), kind.Total, s.Len(), sum.Sum32())
	}
}
