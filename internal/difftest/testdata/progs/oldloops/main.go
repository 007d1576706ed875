// Command oldloops covers a module of an older language version, in which a
// loop has one variable for all iterations.
package main

import "fmt"

func main() {
	var fs []func() int
	var ps []*int
	sum := 0
	for i := 0; i < 6; i++ { //difftest:loop
		for k := 0; k < 3000; k++ {
			sum = (sum*3 + k + i) % 4003
		}
		fs = append(fs, func() int { i := i * 10; return i + sum })
		if i%2 == 0 {
			fs = append(fs, func() int { return i })
		}
		ps = append(ps, &i)
		fmt.Println(i, sum, *ps[0], fs[len(fs)-1]())
	}
	for i, f := range fs { //difftest:loop
		sum += f() * i
		ps = append(ps, &i)
		fmt.Println(i, f(), sum)
	}
	fmt.Println(*ps[0], *ps[len(ps)-1], ps[0] == ps[1], ps[len(ps)-1] == ps[len(ps)-2])
	var at []*int
	for n := 0; n < 12; { //difftest:loop
		at = append(at, &n)
		for k := 0; k < 3000; k++ {
			sum = (sum*3 + k + n) % 4003
		}
		advance(&n)
		fmt.Println(n, *at[0])
	}
}

// advance changes a loop's variable.
func advance(n *int) { *n += 2 }
