// Command gotoback covers loops made of goto, jumps out of loops and over calls,
// with points on the way.
package main

import (
	"errors"
	"fmt"
)

func work(seed int) (h uint32) {
	h = 2166136261
	for k := range 2000 {
		h = h*16777619 ^ uint32(k+seed)
	}
	return h
}

func step(n int) (h uint32) {
	for i := range n { //difftest:loop
		h ^= work(i)
		fmt.Println("step", i, h)
	}
	return h
}

func retries(n int) (err error) {
	tries := 0
	var fs []func() int
retry:
	tries++
	x := tries
	fs = append(fs, func() int { x++; return x })
	if n < 0 {
		err = errors.New("negative")
		goto out
	}
	for i := 0; i < n; i++ { //difftest:loop
		if work(i)%uint32(n+1) == 0 && tries < 3 {
			fmt.Println("again", i, tries)
			goto retry
		}
		if i == 4 {
			goto out
		}
		fmt.Println("turn", i)
	}
	if n == 3 {
		goto out
	}
	fmt.Println(step(2) + step(1))
out:
	for _, f := range fs {
		fmt.Println(f(), f())
	}
	fmt.Println("out", tries)
	return err
}

// enters jumps into a loop made of goto.
func enters(n int) (sum int) {
	tries := 0
	if n%2 == 0 {
		goto again
	}
	sum = 100
again:
	tries++
	for i := range n { //difftest:loop
		sum += int(work(i) % 7)
	}
	if tries < 3 {
		fmt.Println("enters", n, tries, sum)
		goto again
	}
	return sum
}

func main() {
	fmt.Println(enters(2), enters(3))
	for n := -1; n < 7; n++ {
		fmt.Println(n, retries(n))
	}
}
