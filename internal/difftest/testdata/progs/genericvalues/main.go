// Command genericvalues has method values in its state that generic functions
// of another package have made.
package main

import (
	"fmt"

	"progs/genericvalues/fut"
)

func main() {
	f, resolve, count, last, run := fut.New(0)
	g, resolveText, _, lastText, runText := fut.New("first")
	p := new(fut.Pair[int])
	bound := fut.Bound(fut.Resolver[int](p))
	add := fut.Expression[string]()
	for i := range 5 { //difftest:loop
		sum := 0
		for k := range 5000 {
			sum = (sum*3 + k + i) % 8009
		}
		resolve(sum)
		bound(sum)
		add(g, fmt.Sprint(sum))
		resolveText(fmt.Sprint(i))
		v, n := last()
		w, m := lastText("a", fmt.Sprint(count()))
		fmt.Println(i, sum, v, n, w, m, *p)
	}
	fmt.Println(run(4, 3), runText(3, "x"))
	fmt.Println(f.Values, g.Values, *p)
}
