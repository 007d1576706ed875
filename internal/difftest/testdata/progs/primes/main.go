// Command primes covers a segmented sieve with one segment per iteration,
// arrays reused between iterations, and twins across segments.
package main

import "fmt"

const size = 4096

func main() {
	base := []int{}
	for n := 2; n*n <= size*10; n++ {
		prime := true
		for _, p := range base {
			if n%p == 0 {
				prime = false
				break
			}
		}
		if prime {
			base = append(base, n)
		}
	}
	var sieve [size]bool
	count, twins, last := 0, 0, 0
	for low := 0; low < 10*size; low += size { //difftest:loop
		clear(sieve[:])
		for _, p := range base {
			for m := max(p*p, (low+p-1)/p*p); m < low+size; m += p {
				sieve[m-low] = true
			}
		}
		for i, composite := range sieve {
			if n := low + i; !composite && n > 1 {
				if n-last == 2 {
					twins++
				}
				last = n
				count++
			}
		}
		fmt.Println(low, count, twins, last)
	}
}
