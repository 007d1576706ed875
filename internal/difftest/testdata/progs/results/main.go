// Command results covers named results, naked returns, multiple results passed
// on to another call, and calls nested in expressions, around points.
package main

import "fmt"

func divmod(a, b int) (q, r int) {
	for a >= b {
		a -= b
		q++
	}
	r = a
	return
}

func stir(seed int) (x int, label string) {
	x = seed
	for i := range 3 { //difftest:loop
		for k := range 2000 {
			x = (x*7 + k + i) % 4093
		}
		if x%11 == 5 {
			label += "!"
			return
		}
		label += fmt.Sprint(i)
		fmt.Println("stir", seed, i, x)
	}
	x++
	return x, label + "."
}

func join(x int, s string) string { return fmt.Sprint(s, "/", x) }
func add(a, b int) int            { return a*10 + b }
func first(x int, _ string) int   { return x }

func main() {
	a := []int{1, 2, 3, 4}
	s := join(stir(5))
	n := add(first(stir(6)), first(stir(7))) - first(stir(8))*len(s)
	a[first(stir(9))%4], a[1] = first(stir(10)), n
	q, r := divmod(first(stir(11))+20, 6)
	m := map[int]string{first(stir(12)): join(stir(r))}
	m[q] = s
	fmt.Println(s, n, a, q, r, len(m), m[q])
}
