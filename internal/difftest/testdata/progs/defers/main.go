// Command defers covers deferred calls that are pending at a point: simple
// ones, with arguments, closures over locals, in conditionals, and one that
// changes a named result.
package main

import "fmt"

type resource struct {
	name string
	uses int
}

func (r *resource) close(why string) { fmt.Println("close", r.name, r.uses, why) }

func process(r *resource, n int) (sum int, err error) {
	defer fmt.Println("processed", r.name, n) // arguments are taken now
	defer r.close("done")
	defer func() {
		if sum > 2000 {
			err = fmt.Errorf("%s: %d is too much", r.name, sum)
		}
	}()
	if n%2 == 0 {
		extra := n * 100
		defer func(base int) { sum += base + extra }(n)
	}
	for i := 0; i < 3; i++ { //difftest:loop
		r.uses++
		for k := range 3000 {
			sum = (sum + k*n + i) % 1999
		}
		fmt.Println("work", r.name, i, sum)
		n++
	}
	return sum, nil
}

func main() {
	defer fmt.Println("main is over")
	pool := []*resource{{name: "a"}, {name: "b"}, {name: "c"}}
	for i, r := range pool {
		sum, err := process(r, i+4)
		fmt.Println(sum, err)
	}
}
